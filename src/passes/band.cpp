#include "passes/band.h"

#include <algorithm>

#include "ir/core_ops.h"
#include "ops/ops.h"
#include "tensor/scalar.h"

namespace tessera::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::ValueId;

// Formulas of masks are small; longer chains are something else.
constexpr int kAffineDepth = 24;
// Elements of constants that are looked through.
constexpr int64_t kMaxElements = int64_t{1} << 24;

std::optional<Affine> viewed(Affine base, const ir::View& view) {
  Affine result;
  result.constant = base.constant;
  for (size_t a = 0; a < base.factors.size(); ++a)
    if (base.factors[a] != 0) result.constant = result.constant + view.offsets[a] * base.factors[a];
  for (const auto& axis : view.axes) {
    result.factors.push_back(0);
    for (size_t i = 0; i < axis.size(); ++i) {
      if (axis[i].axis < 0 || base.factors[static_cast<size_t>(axis[i].axis)] == 0) continue;
      // A digit of several has another factor than its axis.
      if (!axis[i].stride.is_const() || (axis.size() > 1 && !axis[i].tied && !axis[0].tied)) return std::nullopt;
      result.factors.back() += base.factors[static_cast<size_t>(axis[i].axis)] * axis[i].stride.value();
    }
  }
  return result;
}

Affine sum(const Affine& a, const Affine& b, int64_t sign) {
  Affine result;
  result.constant = a.constant + b.constant * sign;
  const size_t rank = std::max(a.factors.size(), b.factors.size());
  result.factors.assign(rank, 0);
  for (size_t i = 0; i < a.factors.size(); ++i) result.factors[rank - a.factors.size() + i] += a.factors[i];
  for (size_t i = 0; i < b.factors.size(); ++i) result.factors[rank - b.factors.size() + i] += sign * b.factors[i];
  return result;
}

std::optional<Affine> affine_of(const Graph& graph, ValueId v, int depth) {
  const ir::TypeRef type = graph.type(v);
  if (depth == 0 || !type->is_tensor() || !type->ranked || !is_int(type->dtype)) return std::nullopt;
  const size_t rank = type->shape.size();
  if (auto known = graph.contents.find(v); known != graph.contents.end() && known->second.size() == 1)
    return Affine{std::vector<int64_t>(rank, 0), known->second[0]};
  const ir::NodeId def = graph.value(v).def;
  if (def == ir::kNoNode) return std::nullopt;
  const Node& node = graph.node(def);
  if (const std::optional<double> number = number_of(graph, v))
    return Affine{std::vector<int64_t>(rank, 0), static_cast<int64_t>(*number)};
  const auto operand = [&](size_t i) { return affine_of(graph, graph.operands(def)[i], depth - 1); };
  if (node.op == &ops::iota_op) {
    Affine result{std::vector<int64_t>(rank, 0), 0};
    int64_t axis = 0;
    for (size_t i = 0; i < node.attrs->values.size(); ++i)
      if (node.op->attrs[static_cast<int>(i)].name == "axis") axis = std::get<int64_t>(node.attrs->values[i]);
    if (axis < 0) axis += static_cast<int64_t>(rank);
    if (axis < 0 || axis >= static_cast<int64_t>(rank)) return std::nullopt;
    result.factors[static_cast<size_t>(axis)] = 1;
    return result;
  }
  if (node.op == &ops::cast_op || node.op == &ir::core::copy) return operand(0);
  if (node.op == &ir::core::view) {
    const auto base = operand(0);
    return base ? viewed(*base, std::get<ir::View>(node.attrs->values[0])) : std::nullopt;
  }
  if (node.op == &ops::add_op || node.op == &ops::sub_op) {
    const auto a = operand(0), b = operand(1);
    if (!a || !b) return std::nullopt;
    return sum(*a, *b, node.op == &ops::add_op ? 1 : -1);
  }
  if (node.op == &ops::mul_op)
    for (size_t i : {0, 1}) {
      const std::optional<double> times = number_of(graph, graph.operands(def)[i]);
      const auto a = operand(1 - i);
      if (!times || !a || *times != 1) continue;
      return sum(Affine{std::vector<int64_t>(rank, 0), 0}, *a, 1);
    }
  return std::nullopt;
}

Affine negated(const Affine& a) {  // sum < 0 is -sum - 1 >= 0
  Affine none{std::vector<int64_t>(a.factors.size(), 0), -1};
  return sum(none, a, -1);
}

// A constant of zeroes and ones that is one side of a diagonal of its last two axes.
std::optional<Affine> triangle(const Tensor& tensor) {
  const size_t rank = tensor.shape().size();
  if (rank < 2) return std::nullopt;
  const int64_t rows = tensor.shape()[rank - 2], columns = tensor.shape()[rank - 1];
  if (tensor.count() != rows * columns || rows < 2 || columns < 2) return std::nullopt;
  const auto set = [&](int64_t i, int64_t j) { return decode(tensor.dtype(), tensor.data(), i * columns + j); };
  for (const bool lower : {true, false}) {
    // The diagonal is where the first row changes; it stands in the corner when it does not.
    int64_t at = 0;
    while (at < columns && set(0, at) == (lower ? 1 : 0)) ++at;
    if (at == columns || (lower && at == 0)) continue;
    bool fits = true;
    for (int64_t i = 0; fits && i < rows; ++i)
      for (int64_t j = 0; fits && j < columns; ++j) fits = set(i, j) == ((lower ? j < at + i : j >= at + i) ? 1 : 0);
    if (!fits) continue;
    Affine result{std::vector<int64_t>(rank, 0), lower ? at - 1 : -at};
    result.factors[rank - 2] = lower ? 1 : -1;
    result.factors[rank - 1] = lower ? -1 : 1;
    return result;
  }
  return std::nullopt;
}

std::optional<Affine> half_plane_of(const Graph& graph, ValueId v, int depth) {
  if (depth == 0 || graph.value(v).def == ir::kNoNode) return std::nullopt;
  if (const Tensor* tensor = constant_of(graph, v)) return triangle(*tensor);
  const Node& node = graph.node(graph.value(v).def);
  const auto operands = graph.operands(graph.value(v).def);
  const auto plane = [&](size_t i) { return half_plane_of(graph, operands[i], depth - 1); };
  const auto number = [&](size_t i) { return number_of(graph, operands[i]); };
  if (node.op == &ops::less_op || node.op == &ops::less_equal_op) {
    const auto a = affine_of(graph, operands[0], depth - 1), b = affine_of(graph, operands[1], depth - 1);
    if (a && b) {
      Affine difference = sum(*b, *a, -1);
      if (node.op == &ops::less_op) difference.constant = difference.constant - 1;
      return difference;
    }
    // 0 < x and x < 1 where x is 0 or 1.
    if (node.op == &ops::less_op && number(0) == 0) return plane(1);
    if (node.op == &ops::less_op && number(1) == 1)
      if (const auto x = plane(0)) return negated(*x);
    return std::nullopt;
  }
  if (node.op == &ops::cast_op || node.op == &ir::core::copy) return plane(0);
  if (node.op == &ops::logical_not_op) {
    const auto x = plane(0);
    return x ? std::optional(negated(*x)) : std::nullopt;
  }
  if (node.op == &ops::equal_op)
    for (size_t i : {0, 1}) {
      if (number(i) == 1) return plane(1 - i);
      if (number(i) == 0)
        if (const auto x = plane(1 - i)) return negated(*x);
    }
  if (node.op == &ops::sub_op && number(0) == 1) {
    const auto x = plane(1);
    return x ? std::optional(negated(*x)) : std::nullopt;
  }
  if (node.op == &ir::core::view) {
    const auto x = plane(0);
    return x ? viewed(*x, std::get<ir::View>(node.attrs->values[0])) : std::nullopt;
  }
  if (node.op == &ops::select_op) {
    const auto a = number(1), b = number(2);
    const auto x = plane(0);
    if (!x || !a || !b) return std::nullopt;
    if (*a == 1 && *b == 0) return x;
    if (*a == 0 && *b == 1) return negated(*x);
  }
  return std::nullopt;
}

bool zero_or_one(const Graph& graph, ValueId v, int depth) {
  if (depth == 0) return false;
  if (graph.type(v)->dtype == DType::boolean) return true;
  const ir::NodeId def = graph.value(v).def;
  if (def == ir::kNoNode) return false;
  if (const Tensor* tensor = constant_of(graph, v)) {
    for (int64_t i = 0; i < tensor->count(); ++i)
      if (const double x = decode(tensor->dtype(), tensor->data(), i); x != 0 && x != 1) return false;
    return true;
  }
  const Node& node = graph.node(def);
  const auto operand = [&](size_t i) { return zero_or_one(graph, graph.operands(def)[i], depth - 1); };
  if (node.op == &ops::cast_op || node.op == &ir::core::copy || node.op == &ir::core::view) return operand(0);
  if (node.op == &ops::mul_op || node.op == &ops::min_op || node.op == &ops::max_op) return operand(0) && operand(1);
  if (node.op == &ops::select_op) return operand(1) && operand(2);
  return node.op == &ops::sub_op && number_of(graph, graph.operands(def)[0]) == 1 && operand(1);
}

}  // namespace

std::optional<Diagonals> diagonals(const Tensor& tensor, const std::function<bool(double)>& test) {
  const size_t rank = tensor.shape().size();
  if (rank < 2) return std::nullopt;
  const int64_t rows = tensor.shape()[rank - 2], columns = tensor.shape()[rank - 1];
  if (tensor.count() != rows * columns) return std::nullopt;
  int64_t high = -rows, low = columns, found = 0, in_rows = 0;
  for (int64_t i = 0; i < rows; ++i) {
    bool any = false;
    for (int64_t j = 0; j < columns; ++j) {
      if (!test(decode(tensor.dtype(), tensor.data(), i * columns + j))) continue;
      high = std::max(high, j - i);
      low = std::min(low, j - i);
      ++found;
      any = true;
    }
    in_rows += any;
  }
  if (found == 0) return std::nullopt;
  int64_t expected = 0;
  for (int64_t i = 0; i < rows; ++i)
    expected += std::max<int64_t>(0, std::min(columns - 1, i + high) - std::max<int64_t>(0, i + low) + 1);
  if (expected != found) return std::nullopt;
  Diagonals result{std::nullopt, std::nullopt, in_rows == rows};
  if (high < columns - 1) result.high = high;
  if (low > 1 - rows) result.low = low;
  return result;
}

const Tensor* constant_of(const Graph& graph, ValueId v) {
  const Node* node = defined_by(graph, v, ir::core::constant);
  if (node == nullptr) return nullptr;
  const Tensor& tensor = graph.context().constant(static_cast<uint32_t>(std::get<int64_t>(node->attrs->values[0])));
  return tensor.dtype() == DType::string || tensor.count() > kMaxElements ? nullptr : &tensor;
}

const Node* defined_by(const Graph& graph, ValueId v, const ir::OpDef& op) {
  const ir::NodeId def = graph.value(v).def;
  return def != ir::kNoNode && graph.node(def).op == &op ? &graph.node(def) : nullptr;
}

ValueId operand_of(const Graph& graph, ValueId v, size_t i) { return graph.operands(graph.value(v).def)[i]; }

ValueId uncast(const Graph& graph, ValueId v) {
  for (;;) {
    const bool copy = defined_by(graph, v, ir::core::copy) != nullptr;
    if (!copy && (defined_by(graph, v, ops::cast_op) == nullptr || !is_float(graph.type(v)->dtype) ||
                  !is_float(graph.type(operand_of(graph, v, 0))->dtype)))
      return v;
    v = operand_of(graph, v, 0);
  }
}

std::optional<double> number_of(const Graph& graph, ValueId v) {
  while (defined_by(graph, v, ir::core::view) != nullptr || defined_by(graph, v, ir::core::copy) != nullptr ||
         defined_by(graph, v, ops::cast_op) != nullptr)
    v = operand_of(graph, v, 0);
  const Tensor* tensor = constant_of(graph, v);
  if (tensor == nullptr || tensor->count() < 1) return std::nullopt;
  const double first = decode(tensor->dtype(), tensor->data(), 0);
  for (int64_t i = 1; i < tensor->count(); ++i)
    if (decode(tensor->dtype(), tensor->data(), i) != first) return std::nullopt;
  return first;
}

std::optional<Affine> affine(const Graph& graph, ValueId value) { return affine_of(graph, value, kAffineDepth); }
bool is_zero_or_one(const Graph& graph, ValueId value) { return zero_or_one(graph, value, kAffineDepth); }
std::optional<Affine> half_plane(const Graph& graph, ValueId value) {
  return half_plane_of(graph, value, kAffineDepth);
}

}  // namespace tessera::passes
