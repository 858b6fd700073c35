#include "passes/tile_draft.h"

#include <bit>

#include "passes/constants.h"

namespace tessera::passes {

using ir::NodeId;
using ir::ValueId;

bool is_tile_op(const ir::Graph& graph, NodeId n) {
  const ir::Node& node = graph.node(n);
  if (node.n_results != 1 || node.n_operands == 0) return false;
  if (ops::tile_op(*node.op) >= 0 || node.op == &ops::hard_sigmoid_op) return true;
  if (node.op != &ops::pow_op) return false;
  const std::optional<double> exponent = literal_at(graph, graph.operands(n)[1]);
  return exponent == 2 || exponent == 0.5 || exponent == -0.5;
}

TileDraft::TileDraft(const ir::Graph& graph, ir::TypeRef type, std::vector<ValueId> parts)
    : graph_(graph), type_(type), parts_(parts.size()) {
  for (size_t i = 0; i < parts.size(); ++i) refs_.emplace(parts[i], Ref{false, static_cast<int64_t>(i)});
}

bool TileDraft::same_shape(const Shape& shape) const {
  if (shape.size() != type_->shape.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i)
    if (!graph_.dims().proves_eq(shape[i], type_->shape[i])) return false;
  return true;
}

bool TileDraft::takes(ValueId v) const {
  const ir::Type& type = *graph_.type(v);
  if (!type.is_tensor() || !type.ranked || type.dtype != type_->dtype || type.shape.size() > type_->shape.size())
    return false;
  const size_t lead = type_->shape.size() - type.shape.size();
  for (size_t i = 0; i < type.shape.size(); ++i)
    if (!type.shape[i].is(1) && !graph_.dims().proves_eq(type.shape[i], type_->shape[lead + i])) return false;
  return true;
}

int64_t TileDraft::input(ValueId v) {
  if (const auto known = refs_.find(v); known != refs_.end()) return known->second.step ? -1 : known->second.index;
  if (parts_ + operands_.size() >= static_cast<size_t>(ops::kMaxTileInputs)) return -1;
  const Ref ref{false, static_cast<int64_t>(parts_ + operands_.size())};
  operands_.push_back(v);
  refs_.emplace(v, ref);
  return ref.index;
}

TileDraft::Ref TileDraft::literal(double number) {
  Step step{ops::kTileLiteral, {}, std::bit_cast<uint32_t>(static_cast<float>(number))};
  steps_.push_back(step);
  return {true, static_cast<int64_t>(steps_.size()) - 1};
}

TileDraft::Ref TileDraft::add(const ir::OpDef& op, Ref a, std::optional<Ref> b) {
  steps_.push_back({ops::tile_op(op), {a, b}});
  return {true, static_cast<int64_t>(steps_.size()) - 1};
}

std::optional<TileDraft::Ref> TileDraft::operand(ValueId v) {
  if (const auto known = refs_.find(v); known != refs_.end()) return known->second;
  if (const auto number = literal_at(graph_, v); number && graph_.type(v)->dtype == type_->dtype)
    return literal(*number);
  if (!takes(v)) return std::nullopt;
  const int64_t index = input(v);
  return index < 0 ? std::nullopt : std::optional(Ref{false, index});
}

std::optional<TileDraft::Ref> TileDraft::compute(NodeId n) {
  const ir::Node& node = graph_.node(n);
  const auto given = graph_.operands(n);
  const std::optional<Ref> x = operand(given[0]);
  if (!x) return std::nullopt;
  if (node.op == &ops::pow_op) {
    const double exponent = *literal_at(graph_, given[1]);
    return exponent == 2 ? add(ops::mul_op, *x, *x) : add(exponent > 0 ? ops::sqrt_op : ops::rsqrt_op, *x);
  }
  if (node.op == &ops::hard_sigmoid_op) {
    const ir::A attrs(*node.op, *node.attrs);
    const Ref line = add(ops::add_op, add(ops::mul_op, *x, literal(attrs.real("alpha"))), literal(attrs.real("beta")));
    return add(ops::min_op, add(ops::max_op, line, literal(0)), literal(1));
  }
  if (given.size() == 1) return add(*node.op, *x);
  const std::optional<Ref> y = operand(given[1]);
  if (!y) return std::nullopt;
  return add(*node.op, *x, *y);
}

bool TileDraft::append(NodeId n) {
  if (!is_tile_op(graph_, n)) return false;
  const ValueId y = graph_.result(n, 0);
  const ir::Type& type = *graph_.type(y);
  if (!type.is_tensor() || !type.ranked || type.dtype != type_->dtype || !same_shape(type.shape)) return false;
  const size_t operands = operands_.size(), steps = steps_.size();
  const std::optional<Ref> ref = compute(n);
  if (!ref || steps_.size() > static_cast<size_t>(ops::kMaxTileSteps)) {
    for (size_t i = operands; i < operands_.size(); ++i) refs_.erase(operands_[i]);
    operands_.resize(operands);
    steps_.resize(steps);
    return false;
  }
  refs_.emplace(y, *ref);
  nodes_.push_back(n);
  return true;
}

int64_t TileDraft::number(Ref ref) const {
  return ref.step ? static_cast<int64_t>(parts_ + operands_.size()) + ref.index : ref.index;
}

int64_t TileDraft::number_of(ValueId v) const { return number(refs_.at(v)); }

std::vector<int64_t> TileDraft::program() const {
  std::vector<ops::TileStep> steps;
  for (const Step& step : steps_) {
    ops::TileStep made{step.op, {-1, -1, -1}};
    if (step.op == ops::kTileLiteral) made.args[0] = step.bits;
    for (int i = 0; i < 2; ++i)
      if (step.args[i]) made.args[i] = number(*step.args[i]);
    steps.push_back(made);
  }
  return ops::encode_tile(steps);
}

}  // namespace tessera::passes
