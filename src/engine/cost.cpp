#include "engine/cost.h"

#include <algorithm>
#include <unordered_set>

#include "ir/core_ops.h"
#include "ops/ops.h"

namespace tessera::engine {
namespace {

// Sizes as doubles: they only feed estimates, and cannot overflow.
class Measure {
 public:
  Measure(const ir::Graph& graph, const DimBindings& bindings) : graph_(graph), bindings_(bindings) {}

  bool known = true;

  double size(Dim dim) {
    if (dim.is_const()) return static_cast<double>(dim.value());
    const Result<int64_t> value = graph_.dims().evaluate(dim, bindings_);
    known &= value.has_value();
    return value ? static_cast<double>(*value) : 0;
  }
  double size(ir::ValueId id, int axis) {
    const Shape& shape = graph_.type(id)->shape;
    return size(shape[static_cast<size_t>(axis < 0 ? axis + static_cast<int>(shape.size()) : axis)]);
  }
  double count(ir::ValueId id) {
    const ir::TypeRef type = graph_.type(id);
    if (type->kind != ir::Kind::tensor && type->kind != ir::Kind::state) return 0;  // lists: only their tensors count
    known &= type->ranked;
    double count = 1;
    for (const Dim& dim : type->shape) count *= size(dim);
    return count;
  }
  double bytes(ir::ValueId id) {
    const DType dtype = graph_.type(id)->dtype;
    const BlockSize block = block_size(dtype);
    return is_block(dtype) ? count(id) / block.elements * block.bytes : count(id) * bits(dtype) / 8;
  }

 private:
  const ir::Graph& graph_;
  const DimBindings& bindings_;
};

double flops_of(const ir::Graph& graph, ir::NodeId id, Measure& measure) {
  const ir::OpDef* op = graph.node(id).op;
  const auto operands = graph.operands(id);
  const ir::ValueId result = graph.result(id, 0);
  if (op == &ops::dot_op || op == &ops::linear_op) return 2 * measure.count(result) * measure.size(operands[0], -1);
  if (op == &ops::fused_linear_op) return 2 * measure.count(operands[0]) * measure.size(operands[1], 0);
  // Each output takes all weights of its channel: w [M, J, *K].
  if (op == &ops::conv_op || op == &ops::fused_conv_op)
    return 2 * measure.count(result) * measure.count(operands[1]) / std::max(1.0, measure.size(operands[1], 0));
  // q [B, H, T, D] with k [B, G, S, D] and v [B, G, S, E]: scores, then their sums.
  if (op == &ops::attention_op) {
    const double rows = measure.count(operands[0]) / std::max(1.0, measure.size(operands[0], -1));
    return 2 * rows * measure.size(operands[1], -2) * (measure.size(operands[0], -1) + measure.size(operands[2], -1));
  }
  double most = 0;
  for (const ir::ValueId v : operands)
    if (v != ir::kNoValue && is_float(graph.type(v)->dtype)) most = std::max(most, measure.count(v));
  for (int i = 0; i < graph.node(id).n_results; ++i)
    if (const ir::ValueId v = graph.result(id, i); is_float(graph.type(v)->dtype))
      most = std::max(most, measure.count(v));
  return op == &ir::core::copy ? 0 : most;
}

void add_parameters(const ir::Graph& graph, std::unordered_set<const void*>& seen, int64_t& count) {
  for (ir::NodeId n = 0; n < graph.node_count(); ++n) {
    if (graph.node(n).op == &ir::core::constant) {
      const auto id = static_cast<uint32_t>(std::get<int64_t>(graph.node(n).attrs->values[0]));
      const Tensor& tensor = graph.context().constant(id);
      if (seen.insert(tensor.data()).second) count += tensor.count();
    }
    for (const ir::Graph& nested : graph.regions(n)) add_parameters(nested, seen, count);
  }
}

}  // namespace

std::optional<Cost> cost_of(const ir::Graph& graph, ir::NodeId node, const DimBindings& bindings) {
  const ir::OpDef* op = graph.node(node).op;
  Cost cost;
  if (op == &ir::core::constant || op == &ir::core::view || op == &ir::core::dims) return cost;
  Measure measure(graph, bindings);
  cost.flops = graph.regions(node).empty() ? flops_of(graph, node, measure) : 0;
  for (const ir::ValueId v : graph.operands(node))
    if (v != ir::kNoValue) cost.bytes += measure.bytes(v);
  for (int i = 0; i < graph.node(node).n_results; ++i) cost.bytes += measure.bytes(graph.result(node, i));
  if (!measure.known) return std::nullopt;
  for (const ir::Graph& nested : graph.regions(node)) {
    const std::optional<Cost> inner = cost_of(nested, bindings);
    if (!inner) return std::nullopt;
    cost.flops += inner->flops;
    cost.bytes += inner->bytes;
  }
  return cost;
}

std::optional<Cost> cost_of(const ir::Graph& graph, const DimBindings& bindings) {
  Cost total;
  for (ir::NodeId n = 0; n < graph.node_count(); ++n) {
    const std::optional<Cost> cost = cost_of(graph, n, bindings);
    if (!cost) return std::nullopt;
    total.flops += cost->flops;
    total.bytes += cost->bytes;
  }
  return total;
}

int64_t count_parameters(const ir::Graph& graph) {
  std::unordered_set<const void*> seen;
  int64_t count = 0;
  add_parameters(graph, seen, count);
  return count;
}

}  // namespace tessera::engine
