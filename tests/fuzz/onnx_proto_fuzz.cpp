// Parses bytes as an ONNX model and as each kind of test data, and turns every tensor in them into a Tensor.
#include <cstdlib>

#include "import/onnx/value_proto.h"
#include "tensor/scalar.h"

namespace tessera::onnx {
namespace {

// Reads the first and the last element, so that a tensor that promises more than it has is found.
void touch(const Result<Tensor>& tensor) {
  if (!tensor || tensor->count() == 0) return;
  if (tensor->dtype() == DType::string) {
    if (static_cast<int64_t>(tensor->strings().size()) != tensor->count()) std::abort();
    return;
  }
  volatile double first = decode(tensor->dtype(), tensor->data(), 0);
  volatile double last = decode(tensor->dtype(), tensor->data(), tensor->count() - 1);
  static_cast<void>(first);
  static_cast<void>(last);
}

void visit(const GraphProto& graph) {
  for (const TensorProto& t : graph.initializer) touch(to_tensor(t, {}));
  for (const SparseTensorProto& t : graph.sparse_initializer) touch(to_dense(t, {}));
  for (const NodeProto& node : graph.node) {
    for (const AttributeProto& a : node.attribute) {
      if (a.t() != nullptr) touch(to_tensor(*a.t(), {}));
      if (a.sparse_tensor() != nullptr) touch(to_dense(*a.sparse_tensor(), {}));
      if (a.g() != nullptr) visit(*a.g());
    }
  }
}

void fuzz(Bytes bytes) {
  if (auto model = parse_model(bytes)) visit(model->graph);
  for (ValueKind kind : {ValueKind::tensor, ValueKind::sequence, ValueKind::optional}) {
    auto value = parse_value(bytes, kind, DType::f32, {});
    if (!value) continue;
    // What was read must write, and read back as the same kind.
    const std::string again = serialize(*value, "x");
    if (!parse_value(std::as_bytes(std::span(again)), kind, DType::f32, {})) std::abort();
  }
}

}  // namespace
}  // namespace tessera::onnx

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::onnx::fuzz(std::as_bytes(std::span(data, size)));
  return 0;
}
