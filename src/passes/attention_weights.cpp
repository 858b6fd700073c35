#include "passes/attention_weights.h"

#include <set>

#include "ir/core_ops.h"
#include "ops/ops.h"
#include "passes/attention_scores.h"
#include "passes/band.h"

namespace tessera::passes {
namespace {

using ir::kNoNode;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

// Conditions on weights are small.
constexpr int kConditionDepth = 6;

// Whether the view's last axis is that of its base.
bool is_last_axis(const ir::View& view, const Shape& base) {
  if (view.axes.empty() || view.axes.back().size() != 1) return false;
  const ir::ViewAtom& digit = view.axes.back()[0];
  const int last = static_cast<int>(base.size()) - 1;
  return digit.axis == last && digit.stride.is(1) && digit.size == base.back() && view.offsets.back().is(0);
}

class WeightsReader {
 public:
  WeightsReader(const ir::Graph& graph, const Uses& uses) : graph_(graph), uses_(uses) {}

  std::optional<Weights> read(ValueId used) {
    used = uncast(graph_, used);
    ValueId v = used;
    const bool viewed = defined_by(graph_, v, ir::core::view) != nullptr;
    if (viewed) v = uncast(graph_, operand_of(graph_, v, 0));
    for (ValueId inner = selected(v); inner != kNoValue; inner = selected(v)) v = inner;
    const ir::Node* node = defined_by(graph_, v, ops::softmax_op);
    if (node == nullptr || !is_read_here_alone(v, used)) return std::nullopt;
    const auto axis = ir::A(*node->op, *node->attrs).integer("axis");
    if (axis != -1 && axis + 1 != static_cast<int64_t>(graph_.type(v)->shape.size())) return std::nullopt;
    if (viewed)
      if (const auto sunk = with_sink(v, used)) return sunk;
    const ValueId scores = scores_of(v, used);
    return scores == kNoValue ? std::nullopt : std::optional(Weights{scores, kNoValue});
  }

 private:
  // Behind a choice of 0 where the weight is not a number, as for a row of -inf (attention's rows that see no key are
  // 0), or of anything where it is infinite, which no weight is; kNoValue when that is not what stands there.
  ValueId selected(ValueId v) {
    if (defined_by(graph_, v, ops::select_op) == nullptr) return kNoValue;
    const ValueId condition = operand_of(graph_, v, 0);
    for (size_t i : {1, 2}) {
      const ValueId inside = operand_of(graph_, v, i);
      const auto other = number_of(graph_, operand_of(graph_, v, 3 - i));
      if (!other) continue;
      const bool otherwise = i == 2;  // the number stands where the condition holds
      if (!(*other == 0 && is_no_number(condition, inside, otherwise)) &&
          !(otherwise && is_infinite(condition, inside, kConditionDepth)))
        continue;
      read_.insert(graph_.value(v).def);
      gather(condition, inside, kConditionDepth);
      return uncast(graph_, inside);
    }
    return kNoValue;
  }

  // Whether the condition says that x is not a number, or, unless `wanted`, that it is one.
  bool is_no_number(ValueId condition, ValueId x, bool wanted) const {
    if (defined_by(graph_, condition, ops::logical_not_op) != nullptr)
      return is_no_number(operand_of(graph_, condition, 0), x, !wanted);
    if (defined_by(graph_, condition, ops::is_nan_op) != nullptr)
      return wanted && uncast(graph_, operand_of(graph_, condition, 0)) == uncast(graph_, x);
    return !wanted && defined_by(graph_, condition, ops::equal_op) != nullptr &&
           operand_of(graph_, condition, 0) == operand_of(graph_, condition, 1) &&
           uncast(graph_, operand_of(graph_, condition, 0)) == uncast(graph_, x);
  }

  // Whether the condition holds for infinite x alone.
  bool is_infinite(ValueId condition, ValueId x, int depth) const {
    if (depth == 0) return false;
    if (defined_by(graph_, condition, ops::logical_and_op) != nullptr)
      return is_infinite(operand_of(graph_, condition, 0), x, depth - 1) ||
             is_infinite(operand_of(graph_, condition, 1), x, depth - 1);
    return defined_by(graph_, condition, ops::is_inf_op) != nullptr &&
           uncast(graph_, operand_of(graph_, condition, 0)) == uncast(graph_, x);
  }

  // The nodes between x and what is computed from it.
  void gather(ValueId v, ValueId x, int depth) {
    const NodeId def = graph_.value(v).def;
    if (v == x || depth == 0 || def == kNoNode) return;
    read_.insert(def);
    for (ValueId operand : graph_.operands(def))
      if (operand != kNoValue) gather(operand, x, depth - 1);
  }

  // Everything that reads the softmax leads to `used`.
  bool is_read_here_alone(ValueId softmax, ValueId used) const {
    if (uses_.is_output(softmax)) return false;
    if (read_.empty()) return uses_.of(softmax).size() == 1;
    for (NodeId n : uses_.of(softmax))
      if (!read_.contains(n) && graph_.value(used).def != n) return false;
    return true;
  }

  // A softmax of flattened rows is one of rows.
  ValueId scores_of(ValueId softmax, ValueId used) const {
    const ValueId scores = operand_of(graph_, softmax, 0);
    const ir::Node* back = defined_by(graph_, used, ir::core::view);
    if (back == nullptr) return scores;
    const auto& view = std::get<ir::View>(back->attrs->values[0]);
    const Shape &rows = graph_.type(softmax)->shape, &shape = graph_.type(used)->shape;
    const bool reshaped = keeps_last_axis(view, rows);
    const bool same_rows = rows.size() >= 2 && shape.size() >= 2 && rows[rows.size() - 2] == shape[shape.size() - 2];
    const ir::Node* flat = defined_by(graph_, scores, ir::core::view);
    if (flat == nullptr || (reshaped && same_rows)) return reshaped ? scores : kNoValue;
    const ValueId base = operand_of(graph_, scores, 0);
    const auto whole = ir::compose(std::get<ir::View>(flat->attrs->values[0]), view);
    const bool apart = whole && keeps_last_axis(*whole, graph_.type(base)->shape) &&
                       is_last_axis(std::get<ir::View>(flat->attrs->values[0]), graph_.type(base)->shape);
    return apart ? base : reshaped ? scores : kNoValue;
  }

  // softmax([s, sink]) without its last column, or without its first for [sink, s].
  std::optional<Weights> with_sink(ValueId softmax, ValueId used) const {
    const ValueId all = unshifted(graph_, operand_of(graph_, softmax, 0));
    const ir::Node* joined = defined_by(graph_, all, ops::concat_op);
    if (joined == nullptr || joined->n_operands != 2) return std::nullopt;
    const Shape& shape = graph_.type(all)->shape;
    const auto rank = static_cast<int64_t>(shape.size());
    const auto axis = ir::A(*joined->op, *joined->attrs).integer("axis");
    if (axis != -1 && axis != rank - 1) return std::nullopt;
    const auto& view = std::get<ir::View>(defined_by(graph_, used, ir::core::view)->attrs->values[0]);
    for (size_t i : {0, 1}) {
      const ValueId scores = operand_of(graph_, all, i), sink = operand_of(graph_, all, 1 - i);
      const Dim keys = graph_.type(scores)->shape.back();
      if (!graph_.type(sink)->shape.back().is(1)) continue;
      const ir::View kept = ir::slice_view(shape, static_cast<int>(rank) - 1, static_cast<int64_t>(i), 1, keys);
      if (ir::normalised(kept) == view) return Weights{uncast(graph_, scores), sink};
    }
    return std::nullopt;
  }

  const ir::Graph& graph_;
  const Uses& uses_;
  std::set<NodeId> read_;
};

}  // namespace

std::optional<Weights> read_weights(const ir::Graph& graph, const Uses& uses, ValueId used) {
  return WeightsReader(graph, uses).read(used);
}

}  // namespace tessera::passes
