// Constant and Identity.
#include "import/onnx/importer.h"
#include "import/onnx/onnx_ops.h"

namespace tessera::onnx {

Status import_constant(NodeImport& n) {
  auto of = [&](DType dtype, const auto& values, Dims shape) -> Status {
    using T = typename std::decay_t<decltype(values)>::value_type;
    TESSERA_ASSIGN(Tensor tensor, Tensor::make(dtype, std::move(shape)));
    std::copy(values.begin(), values.end(), tensor.as<T>());
    n.out(n.b.constant(std::move(tensor)));
    return {};
  };
  if (const AttributeProto* a = n.attribute("value_int"); a && a->i())
    return of(DType::i64, std::vector<int64_t>{*a->i()}, {});
  if (const AttributeProto* a = n.attribute("value_float"); a && a->f())
    return of(DType::f32, std::vector<float>{*a->f()}, {});
  if (const AttributeProto* a = n.attribute("value_ints"); a && a->ints())
    return of(DType::i64, *a->ints(), {static_cast<int64_t>(a->ints()->size())});
  if (const AttributeProto* a = n.attribute("value_floats"); a && a->floats())
    return of(DType::f32, *a->floats(), {static_cast<int64_t>(a->floats()->size())});
  if (const AttributeProto* a = n.attribute("sparse_value"); a && a->sparse_tensor()) {
    TESSERA_ASSIGN(Tensor dense, to_dense(*a->sparse_tensor(), n.importer.source()));
    n.out(n.b.constant(std::move(dense)));
    return {};
  }
  if (n.has_attribute("value_string") || n.has_attribute("value_strings"))
    return n.fail(Code::unsupported_feature, "constants of strings are not supported");
  TESSERA_ASSIGN(Tensor tensor, n.tensor("value"));
  if (tensor.dtype() == DType::string)
    return n.fail(Code::unsupported_feature, "constants of strings are not supported");
  n.out(n.b.constant(std::move(tensor)));
  return {};
}

Status import_identity(NodeImport& n) {
  n.out(n.any(0));
  return {};
}

}  // namespace tessera::onnx
