// Loads a model, makes a session of it and runs it once, on zeros; sizes that the model leaves open are 1.
//
// usage: run_model MODEL.onnx
#include <cstdio>

#include "tessera/tessera.h"

namespace {

tessera::Status run(const char* path) {
  const auto model = tessera::Model::load(path);
  if (!model) return tl::unexpected(model.error());
  const auto session = tessera::Session::create(*model);
  if (!session) return tl::unexpected(session.error());

  std::vector<tessera::NamedValue> inputs;
  for (const tessera::ValueInfo& info : model->inputs()) {
    tessera::Dims shape = info.sizes;
    for (int64_t& size : shape) size = size < 0 ? 1 : size;
    auto tensor = tessera::Tensor::make(info.dtype, shape);
    if (!tensor) return tl::unexpected(tensor.error());
    inputs.push_back({info.name, std::move(*tensor)});
  }
  const auto outputs = session->run(inputs);
  if (!outputs) return tl::unexpected(outputs.error());

  for (const tessera::NamedValue& output : *outputs) {
    std::printf("%s [", output.name.c_str());
    if (const tessera::Tensor* tensor = output.value.tensor())
      for (const int64_t size : tensor->shape()) std::printf(" %lld", static_cast<long long>(size));
    std::printf(" ]\n");
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: run_model MODEL.onnx\n");
    return tessera::describe(tessera::Code::usage).exit_code;
  }
  const tessera::Status status = run(argv[1]);
  if (status) return 0;
  std::fprintf(stderr, "%s\n", status.error().to_string().c_str());
  return tessera::describe(status.error().code).exit_code;
}
