#include "passes/attention_scores.h"

#include <algorithm>
#include <cmath>

#include "ir/core_ops.h"
#include "ops/ops.h"
#include "tensor/scalar.h"

namespace tessera::passes {
namespace {

using ir::Graph;
using ir::NodeId;
using ir::ValueId;

constexpr int kDepth = 24;

// The number that a matrix has where the plane does not hold, when it is 0 where it does.
std::optional<double> other_side(const Affine& plane, const Tensor& matrix) {
  const size_t rank = matrix.shape().size(), n = plane.factors.size();
  if (rank < 2 || n < 2 || !plane.constant.is_const()) return std::nullopt;
  const int64_t rows = matrix.shape()[rank - 2], columns = matrix.shape()[rank - 1];
  if (matrix.count() != rows * columns) return std::nullopt;
  std::optional<double> fill;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const double x = decode(matrix.dtype(), matrix.data(), i * columns + j);
      const bool holds = plane.factors[n - 2] * i + plane.factors[n - 1] * j + plane.constant.value() >= 0;
      if (holds ? x != 0 : fill && *fill != x) return std::nullopt;
      if (!holds) fill = x;
    }
  return fill;
}

// Whether `v` is the largest of each of the rows, or of several of them.
bool is_row_maximum(const Graph& graph, ValueId v, ValueId rows) {
  v = uncast(graph, v);
  while (defined_by(graph, v, ir::core::view) != nullptr) v = uncast(graph, operand_of(graph, v, 0));
  const ir::Node* node = defined_by(graph, v, ops::reduce_max_op);
  if (node == nullptr || uncast(graph, operand_of(graph, v, 0)) != uncast(graph, rows)) return false;
  const auto rank = static_cast<int64_t>(graph.type(rows)->shape.size());
  const auto& axes = std::get<std::vector<int64_t>>(node->attrs->values[0]);
  return std::any_of(axes.begin(), axes.end(), [&](int64_t a) { return a == -1 || a == rank - 1; });
}

// Whether a view of [..., R, S] takes the rows apart, in any order, and leaves all else as it is.
bool takes_rows_apart(const ir::View& view, const Shape& base) {
  const size_t rank = view.axes.size(), batch = base.size() - 2;
  if (base.size() < 2 || rank <= base.size()) return false;
  for (Dim offset : view.offsets)
    if (!offset.is(0)) return false;
  Shape strides, sizes;
  for (size_t a = 0; a < rank; ++a) {
    if (view.axes[a].size() != 1) return false;
    const ir::ViewAtom& digit = view.axes[a][0];
    const bool row = a >= batch && a + 1 < rank;
    if (digit.axis != static_cast<int>(row ? batch : a < batch ? a : batch + 1)) return false;
    if (row) {
      strides.push_back(digit.stride);
      sizes.push_back(digit.size);
    } else if (!digit.stride.is(1) || !(digit.size == base[static_cast<size_t>(digit.axis)])) {
      return false;
    }
  }
  // Each digit's stride is the product of the sizes of those below it.
  Dim below = 1;
  for (size_t found = 0; found < strides.size(); ++found) {
    const auto next = std::find(strides.begin(), strides.end(), below);
    if (next == strides.end()) return false;
    below = below * sizes[static_cast<size_t>(next - strides.begin())];
  }
  return below == base[batch];
}

// Whether scores of this type are lost beside the number.
bool hides(double number, DType type) { return number <= (type == DType::f16 ? kHidesHalf : kHides); }

class ScoresReader {
 public:
  explicit ScoresReader(const Graph& graph) : graph_(graph) {}

  // Adds factor * v to the scores; false when it is no such formula.
  bool read(ValueId v, double factor, Scores& to, int depth = kDepth) {
    v = uncast(graph_, v);
    const NodeId def = graph_.value(v).def;
    if (depth == 0 || def == ir::kNoNode) return false;
    const ir::Node& node = graph_.node(def);
    const Shape& level = graph_.type(v)->shape;
    const auto operand = [&](size_t i) { return graph_.operands(def)[i]; };
    const auto number = [&](size_t i) { return number_of(graph_, operand(i)); };
    if (node.op == &ops::dot_op) {
      to.q = operand(0);
      to.k = operand(1);
      to.scale = factor;
      if (to.level.empty()) to.level = level;
      to.levels.push_back(level);
      return true;
    }
    if (node.op == &ir::core::view) return read_view(def, factor, to, depth);
    if (node.op == &ops::neg_op) return read(operand(0), -factor, to, depth - 1);
    if (node.op == &ops::select_op) {
      for (size_t i : {1, 2})
        if (const auto fill = number(3 - i); fill && holds_scores(operand(i), level.size(), depth - 1))
          return hide({operand(0), level}, i == 1, *fill * factor, to) && read(operand(i), factor, to, depth - 1);
      return false;
    }
    if (node.op == &ops::max_op) {
      // No score is as low: only masks are held up.
      for (size_t i : {0, 1})
        if (const auto least = number(1 - i); least && std::isfinite(*least) && hides(*least, graph_.type(v)->dtype)) {
          if (factor != 1 || to.floor || !to.masks.empty()) return false;
          to.floor = *least;
          return read(operand(i), factor, to, depth - 1);
        }
      return false;
    }
    if (node.op == &ops::div_op) {
      if (const auto by = number(1)) return *by != 0 && read(operand(0), factor / *by, to, depth - 1);
      return read_times(operand(0), {operand(1), level}, true, factor, to, depth);
    }
    if (node.op == &ops::mul_op) {
      for (size_t i : {0, 1}) {
        const auto times = number(i);
        if (!times) continue;
        const ValueId other = uncast(graph_, operand(1 - i));
        if (defined_by(graph_, other, ops::tanh_op) == nullptr) return read(other, factor * *times, to, depth - 1);
        Scores inner;
        if (to.softcap != 0 || !read(operand_of(graph_, other, 0), 1, inner, depth - 1) || inner.softcap != 0 ||
            !is_product(inner) || !inner.times.empty())
          return false;
        to.softcap = factor * *times;
        take(inner, inner.scale * to.softcap, to);
        return to.softcap > 0;
      }
      for (size_t i : {0, 1})
        if (holds_scores(operand(i), level.size(), depth - 1))
          return read_times(operand(i), {operand(1 - i), level}, false, factor, to, depth);
      return false;
    }
    if (node.op != &ops::add_op && node.op != &ops::sub_op) return false;
    const double second = node.op == &ops::sub_op ? -factor : factor;
    for (size_t i : {0, 1}) {
      if (!holds_scores(operand(i), level.size(), depth - 1)) continue;
      const double own = i == 0 ? factor : second, others = i == 0 ? second : factor;
      if (own == -others &&
          is_row_maximum(graph_, operand(1 - i), operand(i)))  // what a row is shifted by makes no difference
        return read(operand(i), own, to, depth - 1);
      if (const ValueId inside = switched(operand(i), operand(1 - i), level, others, to); inside != ir::kNoValue)
        return read(inside, own, to, depth - 1);
      to.masks.push_back({Mask::Kind::added, {operand(1 - i), level}, others});
      return read(operand(i), own, to, depth - 1);
    }
    return false;
  }

 private:
  bool read_view(NodeId def, double factor, Scores& to, int depth) {
    const ValueId base = graph_.operands(def)[0];
    const auto& view = std::get<ir::View>(graph_.node(def).attrs->values[0]);
    const Shape from = graph_.type(base)->shape, shape = view.shape();
    if (from.size() < 2 || shape.size() < 2) return false;
    const bool product = defined_by(graph_, uncast(graph_, base), ops::dot_op) != nullptr;
    if (product && to.level.empty() && !keeps_last_axis(view, from) && takes_rows_apart(view, from)) {
      to.levels.push_back(shape);
      to.level = shape;
      to.rows = view;
      return read(base, factor, to, depth - 1);
    }
    if (!keeps_last_axis(view, from)) return false;
    to.levels.push_back(shape);
    // The rows of a product that are told apart: R heads of a group, say.
    if (!(from[from.size() - 2] == shape[shape.size() - 2])) {
      if (!product || shape.size() <= from.size()) return false;
      for (size_t a = 0; a + 2 < from.size(); ++a)
        if (!(from[a] == shape[a])) return false;
      to.level = shape;
    }
    return read(base, factor, to, depth - 1);
  }

  // The product q k^T times a row or a column, which q or k takes.
  bool read_times(ValueId v, Met by, bool inverse, double factor, Scores& to, int depth) {
    const Shape& shape = graph_.type(by.value)->shape;
    if (shape.size() >= 2 && !shape[shape.size() - 2].is(1) && !shape.back().is(1)) return false;
    if (inverse && !shape.empty() && !shape.back().is(1)) return false;
    Scores inner;
    if (!read(v, factor, inner, depth - 1) || !is_product(inner) || inner.softcap != 0) return false;
    take(inner, inner.scale, to);
    to.times = std::move(inner.times);
    to.times.emplace_back(std::move(by), inverse);
    return true;
  }

  static bool is_product(const Scores& scores) { return scores.masks.empty() && !scores.floor; }
  static void take(const Scores& inner, double scale, Scores& to) {
    to.q = inner.q;
    to.k = inner.k;
    to.level = inner.level;
    to.rows = inner.rows;
    to.levels.insert(to.levels.end(), inner.levels.begin(), inner.levels.end());
    to.scale = scale;
  }

  // Whether a product of as many axes lies below.
  bool holds_scores(ValueId v, size_t rank, int depth) const {
    v = uncast(graph_, v);
    const NodeId def = graph_.value(v).def;
    if (depth <= 0 || def == ir::kNoNode) return false;
    const ir::Node& node = graph_.node(def);
    if (node.op == &ops::dot_op) return graph_.type(v)->shape.size() == rank;
    if (node.op == &ir::core::view) {
      const ValueId base = graph_.operands(def)[0];
      const Shape& from = graph_.type(base)->shape;
      return graph_.type(v)->shape.size() == rank && from.size() >= 2 &&
             (keeps_last_axis(std::get<ir::View>(node.attrs->values[0]), from) ||
              takes_rows_apart(std::get<ir::View>(node.attrs->values[0]), from)) &&
             holds_scores(base, from.size(), depth - 1);
    }
    for (const ir::OpDef* op : {&ops::add_op, &ops::sub_op, &ops::mul_op, &ops::div_op, &ops::neg_op, &ops::tanh_op,
                                &ops::max_op, &ops::select_op})
      if (node.op == op) {
        for (ValueId operand : graph_.operands(def))
          if (holds_scores(operand, rank, depth - 1)) return true;
        return false;
      }
    return false;
  }

  static bool hide(Met condition, bool holds, double fill, Scores& to) {
    if (std::isnan(fill)) return false;
    to.masks.push_back({Mask::Kind::hides, std::move(condition), fill, holds});
    return true;
  }

  // s b + c (1 - b), where b is 0 or 1, hides: the value s, or none.
  ValueId switched(ValueId v, ValueId other, const Shape& level, double factor, Scores& to) const {
    v = uncast(graph_, v);
    other = uncast(graph_, other);
    const Tensor* computed = constant_of(graph_, other);
    if (defined_by(graph_, v, ops::mul_op) == nullptr ||
        (computed == nullptr && defined_by(graph_, other, ops::mul_op) == nullptr))
      return ir::kNoValue;
    for (size_t i : {0, 1}) {
      const ValueId b = operand_of(graph_, v, i);
      if (computed != nullptr) {
        const auto plane = half_plane(graph_, b);
        const auto fill = plane ? other_side(*plane, *computed) : std::nullopt;
        if (fill && hide({b, level}, true, *fill * factor, to)) return operand_of(graph_, v, 1 - i);
        continue;
      }
      for (size_t j : {0, 1}) {
        const auto fill = number_of(graph_, operand_of(graph_, other, j));
        const ValueId rest = uncast(graph_, operand_of(graph_, other, 1 - j));
        if (!fill || defined_by(graph_, rest, ops::sub_op) == nullptr ||
            number_of(graph_, operand_of(graph_, rest, 0)) != 1 || operand_of(graph_, rest, 1) != b)
          continue;
        if (!is_zero_or_one(graph_, b) || !hide({b, level}, true, *fill * factor, to)) continue;
        return operand_of(graph_, v, 1 - i);
      }
    }
    return ir::kNoValue;
  }

  const Graph& graph_;
};

}  // namespace

ValueId unshifted(const Graph& graph, ValueId v) {
  v = uncast(graph, v);
  if (defined_by(graph, v, ops::sub_op) == nullptr) return v;
  const ValueId rows = operand_of(graph, v, 0);
  return is_row_maximum(graph, operand_of(graph, v, 1), rows) ? uncast(graph, rows) : v;
}

bool keeps_last_axis(const ir::View& view, const Shape& base) {
  const Shape shape = view.shape();
  if (shape.empty() || base.empty() || !(shape.back() == base.back())) return false;
  const std::optional<ir::View> reshape = ir::reshape_view(base, shape);
  return reshape && ir::normalised(*reshape) == ir::normalised(view);
}

std::optional<Scores> read_scores(const Graph& graph, ValueId v) {
  Scores scores;
  scores.levels.push_back(graph.type(v)->shape);
  if (!ScoresReader(graph).read(v, 1, scores)) return std::nullopt;
  return scores;
}

}  // namespace tessera::passes
