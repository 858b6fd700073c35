#include "passes/constants.h"

#include "ir/core_ops.h"
#include "ops/ops.h"
#include "tensor/scalar.h"

namespace tessera::passes {

const Tensor* constant_at(const ir::Graph& graph, ir::ValueId v) {
  if (v == ir::kNoValue || graph.value(v).def == ir::kNoNode) return nullptr;
  const ir::Node& node = graph.node(graph.value(v).def);
  if (node.op != &ir::core::constant) return nullptr;
  return &graph.context().constant(static_cast<uint32_t>(std::get<int64_t>(node.attrs->values[0])));
}

const Tensor* constant_behind(const ir::Graph& graph, ir::ValueId v) {
  while (graph.value(v).def != ir::kNoNode) {
    const ir::Node& node = graph.node(graph.value(v).def);
    if (node.op == &ir::core::constant) return constant_at(graph, v);
    if (node.op != &ir::core::view && node.op != &ir::core::copy && node.op != &ops::cast_op) return nullptr;
    v = graph.operands(graph.value(v).def)[0];
  }
  return nullptr;
}

std::optional<double> literal_at(const ir::Graph& graph, ir::ValueId v) {
  const Tensor* tensor = constant_at(graph, v);
  if (tensor == nullptr || tensor->count() != 1 || tensor->dtype() == DType::string) return std::nullopt;
  return decode(tensor->dtype(), tensor->data(), 0);
}

}  // namespace tessera::passes
