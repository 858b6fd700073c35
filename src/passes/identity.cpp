// Nodes that give an operand back, bit for bit.
#include <cmath>
#include <numeric>

#include "base/result.h"
#include "ir/core_ops.h"
#include "ops/math.h"
#include "passes/parts.h"
#include "passes/pipeline.h"
#include "passes/uses.h"
#include "tensor/scalar.h"

namespace tessera::passes {
namespace {

using ir::ValueId;

// Indices of a gather that are looked through.
constexpr int64_t kMostRows = 4096;

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

// Parts of one base in even steps are one view of it; kNoValue where the concatenation is none.
ValueId joined_parts(ir::Rewrite& rewrite, ir::NodeId n) {
  ir::Graph& graph = rewrite.graph();
  const ir::TypeRef type = graph.type(graph.result(n, 0));
  const auto operands = graph.operands(n);
  if (!type->ranked || operands.size() < 2) return ir::kNoValue;
  const int64_t axis = ir::A(*graph.node(n).op, *graph.node(n).attrs).integer("axis");
  const size_t at = static_cast<size_t>(axis < 0 ? axis + type->rank() : axis);
  std::vector<Part> parts;
  for (ValueId v : operands) {
    parts.push_back(part_of(graph, rewrite.resolve(v)));
    if (parts.back().base != parts[0].base) return ir::kNoValue;
  }
  std::optional<ir::View> view = adjacent_parts(parts, at);
  if (!view) view = even_parts(parts, at);
  return view ? rewrite.builder().view(rewrite.builder().wrap(parts[0].base), std::move(*view)).id : ir::kNoValue;
}

// Rows that are gathered in even steps, each so often, are a view; kNoValue where they are not.
ValueId even_gather(ir::Rewrite& rewrite, ir::NodeId n) {
  ir::Graph& graph = rewrite.graph();
  ir::Builder& builder = rewrite.builder();
  const ValueId x = rewrite.resolve(graph.operands(n)[0]), index = rewrite.resolve(graph.operands(n)[1]);
  const Tensor* rows = builder.constant_of(builder.wrap(index));
  const ir::TypeRef type = graph.type(x);
  if (rows == nullptr || rows->rank() != 1 || rows->count() < 1 || rows->count() > kMostRows || !type->ranked ||
      type->rank() == 0)
    return ir::kNoValue;
  int64_t axis = ir::A(*graph.node(n).op, *graph.node(n).attrs).integer("axis");
  if (axis < 0) axis += type->rank();
  const Dim size = type->shape[static_cast<size_t>(axis)];
  if (!size.is_const()) return ir::kNoValue;
  const ir::View whole = ir::identity_view(type->shape);
  std::vector<Part> parts;
  for (int64_t i = 0; i < rows->count(); ++i) {
    int64_t row = static_cast<int64_t>(decode_int(rows->dtype(), rows->data(), i));
    if (row < 0) row += size.value();
    if (row < 0 || row >= size.value()) return ir::kNoValue;
    parts.push_back({x, whole});
    parts.back().view.axes[static_cast<size_t>(axis)].clear();
    parts.back().view.offsets[static_cast<size_t>(axis)] = row;
  }
  const std::optional<ir::View> view = even_parts(parts, static_cast<size_t>(axis));
  return view ? builder.view(builder.wrap(x), *view).id : ir::kNoValue;
}

// The view that the node could as well be, and the name of the rule.
Found as_view(ir::Rewrite& rewrite, ir::NodeId n, const Uses& uses, bool strict) {
  const ir::OpDef* op = rewrite.graph().node(n).op;
  if (op == &ops::concat_op) return {joined_parts(rewrite, n), "concat_of_parts"};
  if (op == &ops::gather_op) return {even_gather(rewrite, n), "gather_in_steps"};
  if (op != &ir::core::view) return {};
  const ValueId composed = compose_views(rewrite, n);
  if (composed != ir::kNoValue || strict) return {composed, "view_of_view"};
  return {transposed_product(rewrite, n, uses), "transposed_product"};
}

}  // namespace

Result<std::vector<ir::Edit>> remove_identities(ir::Graph& graph, const PassContext& context) {
  ir::Rewrite rewrite(graph, context.limit);
  const size_t count = graph.node_count();
  const Uses uses(graph);
  for (ir::NodeId n = 0; n < count && !rewrite.exhausted(); ++n) {
    if (graph.node(n).n_results != 1) continue;
    rewrite.builder().set_location(graph.node(n).location);
    const size_t guards = graph.guards.size();
    if (const Found view = as_view(rewrite, n, uses, context.options.strict); view.value != ir::kNoValue) {
      TESSERA_TRY(rewrite.builder().take_status());
      if (graph.guards.size() == guards) rewrite.replace(graph.result(n, 0), view.value, view.rule);
      graph.guards.resize(guards);
      continue;
    }
    TESSERA_TRY(rewrite.builder().take_status());
    graph.guards.resize(guards);
    if (graph.node(n).op == &ir::core::view) continue;
    const Found found = operand_given_back(rewrite, n);
    if (found.value != ir::kNoValue) rewrite.replace(graph.result(n, 0), found.value, found.rule);
  }
  if (rewrite.journal().empty()) return std::vector<ir::Edit>();
  TESSERA_TRY(rewrite.finish());
  return rewrite.journal();
}

}  // namespace tessera::passes
