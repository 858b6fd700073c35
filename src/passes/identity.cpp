// Nodes that give an operand back, bit for bit.
#include <cmath>
#include <numeric>

#include "base/result.h"
#include "ir/core_ops.h"
#include "ops/math.h"
#include "passes/pipeline.h"
#include "passes/uses.h"
#include "tensor/scalar.h"

namespace tessera::passes {
namespace {

using ir::ValueId;

// The value of a constant of one element, as long as a double holds it.
std::optional<double> number(ir::Builder& builder, ValueId v) {
  const Tensor* tensor = builder.constant_of(builder.wrap(v));
  if (tensor == nullptr || tensor->count() != 1 || tensor->dtype() == DType::string) return std::nullopt;
  return decode(tensor->dtype(), tensor->data(), 0);
}

struct Found {
  ValueId value = ir::kNoValue;
  std::string_view rule;
};

Found operand_given_back(ir::Rewrite& rewrite, ir::NodeId n) {
  ir::Graph& graph = rewrite.graph();
  const ir::Node& node = graph.node(n);
  auto operand = [&](size_t i) { return rewrite.resolve(graph.operands(n)[i]); };
  auto defined_by = [&](ValueId v, const ir::OpDef& op) {
    return graph.value(v).def != ir::kNoNode && graph.node(graph.value(v).def).op == &op;
  };
  if (node.op == &ops::cast_op) return {operand(0), "cast_to_same"};
  if (node.op == &ir::core::copy) return {operand(0), "copy_of_same"};
  if (node.op == &ops::logical_not_op && defined_by(operand(0), ops::logical_not_op))
    return {rewrite.resolve(graph.operands(graph.value(operand(0)).def)[0]), "not_not"};
  if (node.op == &ops::neg_op && defined_by(operand(0), ops::neg_op))
    return {rewrite.resolve(graph.operands(graph.value(operand(0)).def)[0]), "neg_neg"};
  if (node.op == &ops::relu_op && defined_by(operand(0), ops::relu_op)) return {operand(0), "relu_of_relu"};
  if (node.n_operands != 2) return {};
  const std::optional<double> right = number(rewrite.builder(), operand(1));
  if (node.op == &ops::max_op && right && *right <= 0 && defined_by(operand(0), ops::relu_op))
    return {operand(0), "relu_of_relu"};
  const bool real = is_float(graph.type(graph.result(n, 0))->dtype);
  if (right == 1 && (node.op == &ops::mul_op || node.op == &ops::div_op)) return {operand(0), "times_one"};
  // -0 + 0 is 0: only adding -0 and taking 0 away keep the sign of a zero.
  if (right == 0 && node.op == &ops::add_op && (!real || std::signbit(*right))) return {operand(0), "plus_zero"};
  if (right == 0 && node.op == &ops::sub_op && (!real || !std::signbit(*right))) return {operand(0), "plus_zero"};
  const std::optional<double> left = number(rewrite.builder(), operand(0));
  if (left == 1 && node.op == &ops::mul_op) return {operand(1), "times_one"};
  if (left == 0 && node.op == &ops::add_op && (!real || std::signbit(*left))) return {operand(1), "plus_zero"};
  return {};
}

// (a b^T)^T is b a^T; kNoValue where that is not what stands there, or where a b^T is needed too.
ValueId transposed_product(ir::Rewrite& rewrite, ir::NodeId n, const Uses& uses) {
  ir::Graph& graph = rewrite.graph();
  const ValueId base = graph.operands(n)[0];
  const ir::NodeId def = graph.value(base).def;
  if (def == ir::kNoNode || graph.node(def).op != &ops::dot_op || uses.only_user(base) != n) return ir::kNoValue;
  std::vector<int> order(graph.type(base)->shape.size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  const ir::View turned = ir::transpose_view(graph.type(base)->shape, order);
  if (!(ir::normalised(std::get<ir::View>(graph.node(n).attrs->values[0])) == ir::normalised(turned)))
    return ir::kNoValue;
  const auto operands = graph.operands(def);
  ir::Builder& builder = rewrite.builder();
  return dot(builder.wrap(rewrite.resolve(operands[1])), builder.wrap(rewrite.resolve(operands[0]))).id;
}

// A view of a view as one view; kNoValue where they do not compose.
ValueId compose_views(ir::Rewrite& rewrite, ir::NodeId n) {
  ir::Graph& graph = rewrite.graph();
  const ValueId base = rewrite.resolve(graph.operands(n)[0]);
  const auto& view = std::get<ir::View>(graph.node(n).attrs->values[0]);
  if (view.is_identity(graph.type(base)->shape)) return base;
  const ir::NodeId def = graph.value(base).def;
  if (def == ir::kNoNode || graph.node(def).op != &ir::core::view) return ir::kNoValue;
  if (!ir::compose(std::get<ir::View>(graph.node(def).attrs->values[0]), view)) return ir::kNoValue;
  return rewrite.builder().view(rewrite.builder().wrap(base), view).id;
}

}  // namespace

Result<std::vector<ir::Edit>> remove_identities(ir::Graph& graph, const PassContext& context) {
  ir::Rewrite rewrite(graph, context.limit);
  const size_t count = graph.node_count();
  const Uses uses(graph);
  for (ir::NodeId n = 0; n < count && !rewrite.exhausted(); ++n) {
    if (graph.node(n).n_results != 1) continue;
    rewrite.builder().set_location(graph.node(n).location);
    if (graph.node(n).op == &ir::core::view) {
      const size_t guards = graph.guards.size();
      ValueId other = compose_views(rewrite, n);
      std::string_view rule = "view_of_view";
      if (other == ir::kNoValue && !context.options.strict) {
        other = transposed_product(rewrite, n, uses);
        rule = "transposed_product";
      }
      TESSERA_TRY(rewrite.builder().take_status());
      if (other != ir::kNoValue && graph.guards.size() == guards) rewrite.replace(graph.result(n, 0), other, rule);
      graph.guards.resize(guards);
      continue;
    }
    const Found found = operand_given_back(rewrite, n);
    if (found.value != ir::kNoValue) rewrite.replace(graph.result(n, 0), found.value, found.rule);
  }
  if (rewrite.journal().empty()) return std::vector<ir::Edit>();
  TESSERA_TRY(rewrite.finish());
  return rewrite.journal();
}

}  // namespace tessera::passes
