#include "reader.h"

#include <fstream>

#include "ctc.h"
#include "failure.h"

namespace ocr {

using tessera::Code;

tessera::Result<Reader> Reader::load(const std::string& model_path, const std::string& alphabet_path,
                                     const tessera::SessionOptions& options) {
  auto alphabet = read_alphabet(alphabet_path);
  if (!alphabet) return tl::unexpected(std::move(alphabet).error());
  auto model = tessera::Model::load(model_path);
  if (!model) return tl::unexpected(std::move(model).error());
  if (model->inputs().size() != 1 || model->outputs().size() != 1)
    return fail(Code::model_malformed, "a text recogniser has one input and one output, '{}' has {} and {}", model_path,
                model->inputs().size(), model->outputs().size());
  auto session = tessera::Session::create(*model, options);
  if (!session) return tl::unexpected(std::move(session).error());
  return Reader(std::move(*session), std::move(*alphabet));
}

tessera::Result<std::string> Reader::read(const Picture& picture) const {
  auto input = recogniser_input(picture);
  if (!input) return tl::unexpected(std::move(input).error());
  const std::vector<tessera::NamedValue> inputs = {{session_.model().inputs()[0].name, std::move(*input)}};
  auto outputs = session_.run(inputs);
  if (!outputs) return tl::unexpected(std::move(outputs).error());
  const tessera::Tensor* scores = outputs->front().value.tensor();
  if (!scores) return fail(Code::dtype_mismatch, "output '{}' is not a tensor", outputs->front().name);
  return decode_greedy(*scores, alphabet_);
}

tessera::Result<std::vector<Expected>> read_expected(const std::string& path) {
  std::ifstream file(path);
  if (!file) return fail(Code::file_not_found, "cannot open expected texts '{}'", path);
  std::vector<Expected> expected;
  for (std::string line; std::getline(file, line);) {
    const size_t tab = line.find('\t');
    if (tab == std::string::npos)
      return fail(Code::file_malformed, "line {} of '{}' has no tab", expected.size() + 1, path);
    expected.push_back({line.substr(0, tab), line.substr(tab + 1)});
  }
  return expected;
}

}  // namespace ocr
