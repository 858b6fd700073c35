// Uses the installed library: each thing that it takes from it must be exported.
#include <cstdio>

#include "tessera/tessera.h"

int main() {
  const tessera::Result<tessera::Tensor> tensor = tessera::Tensor::make(tessera::DType::f32, {2, 3});
  if (!tensor || tensor->count() != 6) return 1;
  const tessera::Result<tessera::Tensor> wrong = tessera::Tensor::make(tessera::DType::f32, {-1});
  if (wrong || wrong.error().code != tessera::Code::shape_invalid) return 1;
  const auto model = tessera::Model::load("absent.onnx");
  if (model || model.error().code != tessera::Code::file_not_found) return 1;
  std::printf("%s\n%s\n", tessera::version(), model.error().to_string().c_str());
  return 0;
}
