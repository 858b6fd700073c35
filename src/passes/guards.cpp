#include "passes/guards.h"

#include <cmath>

#include "ir/core_ops.h"
#include "ops/ops.h"
#include "passes/constants.h"
#include "tensor/scalar.h"

namespace tessera::passes {
namespace {

// Elements of masks that are looked through for infinities.
constexpr int64_t kMaxMaskElements = int64_t{1} << 24;

// No element is infinite, as far as the formula tells: softmax of a row of -inf is NaN, attention's is 0.
bool is_finite(const ir::Graph& graph, ir::ValueId v, int depth) {
  if (depth == 0 || graph.value(v).def == ir::kNoNode) return false;
  if (const Tensor* tensor = constant_behind(graph, v)) {
    if (!is_float(tensor->dtype())) return tensor->dtype() != DType::string && !is_block(tensor->dtype());
    if (tensor->count() > kMaxMaskElements) return false;
    for (int64_t i = 0; i < tensor->count(); ++i)
      if (!std::isfinite(decode(tensor->dtype(), tensor->data(), i))) return false;
    return true;
  }
  const ir::Node& node = graph.node(graph.value(v).def);
  const auto operands = graph.operands(graph.value(v).def);
  if (node.op == &ops::cast_op && !is_float(graph.type(operands[0])->dtype)) return true;
  const bool passes = node.op == &ops::add_op || node.op == &ops::sub_op || node.op == &ops::mul_op ||
                      node.op == &ops::neg_op || node.op == &ops::cast_op || node.op == &ir::core::view ||
                      node.op == &ir::core::copy || node.op == &ops::concat_op;
  if (!passes && node.op != &ops::select_op) return false;
  for (size_t i = node.op == &ops::select_op ? 1 : 0; i < operands.size(); ++i)
    if (!is_finite(graph, operands[i], depth - 1)) return false;
  return true;
}

// All axes have size 1, but for one counted from the end.
bool is_one_axis(const ir::Graph& graph, ir::ValueId v, size_t from_end) {
  const Shape& shape = graph.type(v)->shape;
  for (size_t i = 0; i < shape.size(); ++i)
    if (i + from_end != shape.size() && !shape[i].is(1)) return false;
  return shape.size() >= from_end;
}

}  // namespace

bool is_weight(const ir::Graph& graph, ir::ValueId v) { return constant_behind(graph, v) != nullptr; }

bool is_finite_mask(const ir::Graph& graph, ir::ValueId v) { return is_finite(graph, v, 32); }

bool is_row(const ir::Graph& graph, ir::ValueId v) { return graph.type(v)->shape.empty() || is_one_axis(graph, v, 1); }
bool is_channels_of_image(const ir::Graph& graph, ir::ValueId v) { return is_one_axis(graph, v, 3); }

std::span<const Guard> guards() {
  static constexpr Guard kGuards[] = {
      {"constant", is_weight, "it is no constant"},
      {"row", is_row, "it is no row: a residual or a gate, not a scale"},
      {"finite", is_finite_mask, "it may hide a whole row"},
  };
  return kGuards;
}

}  // namespace tessera::passes
