// Raises softmax over masked scores to attention. What lies between the two products is pointwise on (score, b, h, i,
// j) and is taken apart from the outside in: fills, sums, factors, caps; each mask then goes where it costs least.
#include <cmath>
#include <limits>
#include <unordered_set>

#include "base/result.h"
#include "ir/core_ops.h"
#include "ops/math.h"
#include "passes/band.h"
#include "passes/pipeline.h"
#include "tensor/scalar.h"

namespace tessera::passes {
namespace {

using ir::Graph;
using ir::NodeId;
using ir::ValueId;
using ir::X;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// An added number of this size leaves nothing of a score: it hides as -inf does.
constexpr double kHides = -1e30;
constexpr int kDepth = 24;

// Scores as a formula of q k^T.
struct Scores {
  ValueId q = ir::kNoValue, k = ir::kNoValue;
  double scale = 1, softcap = 0;
  std::vector<std::pair<ValueId, double>> added;  // mask, factor
  std::vector<std::pair<ValueId, bool>> visible;  // condition, and whether it has to hold
  std::optional<double> fill;                     // of what is not visible
};

class Reader {
 public:
  explicit Reader(const Graph& graph, Shape shape) : graph_(graph), shape_(std::move(shape)) {}

  // Adds factor * v to the scores; false when it is no such formula.
  bool read(ValueId v, double factor, Scores& to, int depth = kDepth) {
    v = uncast(graph_, v);
    const NodeId def = graph_.value(v).def;
    if (depth == 0 || def == ir::kNoNode) return false;
    const ir::Node& node = graph_.node(def);
    const auto operand = [&](size_t i) { return graph_.operands(def)[i]; };
    const auto number = [&](size_t i) { return number_of(graph_, operand(i)); };
    if (node.op == &ops::dot_op) {
      to.q = operand(0);
      to.k = operand(1);
      to.scale = factor;
      return true;
    }
    if (node.op == &ops::neg_op) return read(operand(0), -factor, to, depth - 1);
    if (node.op == &ops::select_op) {
      for (size_t i : {1, 2})
        if (const auto fill = number(3 - i); fill && holds_scores(operand(i), depth - 1))
          return hide(operand(0), i == 1, *fill * factor, to) && read(operand(i), factor, to, depth - 1);
      return false;
    }
    if (node.op == &ops::div_op) {
      const auto by = number(1);
      return by && *by != 0 && read(operand(0), factor / *by, to, depth - 1);
    }
    if (node.op == &ops::mul_op) {
      for (size_t i : {0, 1}) {
        const auto times = number(i);
        if (!times) continue;
        const ValueId other = uncast(graph_, operand(1 - i));
        if (defined_by(graph_, other, ops::tanh_op) == nullptr) return read(other, factor * *times, to, depth - 1);
        Scores inner;
        if (to.softcap != 0 || !read(operand_of(graph_, other, 0), 1, inner, depth - 1) || inner.softcap != 0 ||
            !inner.added.empty() || !inner.visible.empty())
          return false;
        to.softcap = factor * *times;
        to.q = inner.q;
        to.k = inner.k;
        to.scale = inner.scale * to.softcap;
        return to.softcap > 0;
      }
      return false;
    }
    if (node.op != &ops::add_op && node.op != &ops::sub_op) return false;
    const double second = node.op == &ops::sub_op ? -factor : factor;
    for (size_t i : {0, 1}) {
      if (!holds_scores(operand(i), depth - 1)) continue;
      const double own = i == 0 ? factor : second, others = i == 0 ? second : factor;
      if (const ValueId inside = switched(operand(i), operand(1 - i), others, to); inside != ir::kNoValue)
        return read(inside, own, to, depth - 1);
      to.added.emplace_back(operand(1 - i), others);
      return read(operand(i), own, to, depth - 1);
    }
    return false;
  }

 private:
  // Whether a product of the scores' shape lies below.
  bool holds_scores(ValueId v, int depth) const {
    v = uncast(graph_, v);
    const NodeId def = graph_.value(v).def;
    if (depth <= 0 || def == ir::kNoNode) return false;
    const ir::Node& node = graph_.node(def);
    if (node.op == &ops::dot_op) return graph_.type(v)->shape.size() == shape_.size();
    for (const ir::OpDef* op :
         {&ops::add_op, &ops::sub_op, &ops::mul_op, &ops::div_op, &ops::neg_op, &ops::tanh_op, &ops::select_op})
      if (node.op == op) {
        for (ValueId operand : graph_.operands(def))
          if (holds_scores(operand, depth - 1)) return true;
        return false;
      }
    return false;
  }

  bool hide(ValueId condition, bool holds, double fill, Scores& to) const {
    if (to.fill && *to.fill != fill) return false;
    if (std::isnan(fill)) return false;
    to.fill = fill;
    to.visible.emplace_back(condition, holds);
    return true;
  }

  // s b + c (1 - b), where b is 0 or 1, hides: the value s, or none.
  ValueId switched(ValueId v, ValueId other, double factor, Scores& to) const {
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
        if (fill && hide(b, true, *fill * factor, to)) return operand_of(graph_, v, 1 - i);
        continue;
      }
      for (size_t j : {0, 1}) {
        const auto fill = number_of(graph_, operand_of(graph_, other, j));
        const ValueId rest = uncast(graph_, operand_of(graph_, other, 1 - j));
        if (!fill || defined_by(graph_, rest, ops::sub_op) == nullptr ||
            number_of(graph_, operand_of(graph_, rest, 0)) != 1 || operand_of(graph_, rest, 1) != b)
          continue;
        const auto plane = half_plane(graph_, b);
        if (!plane || !hide(b, true, *fill * factor, to)) continue;
        return operand_of(graph_, v, 1 - i);
      }
    }
    return ir::kNoValue;
  }

  // The number that a matrix has where the plane does not hold, when it is 0 where it does.
  static std::optional<double> other_side(const Affine& plane, const Tensor& matrix) {
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

  const Graph& graph_;
  Shape shape_;
};

// The call that is being put together.
struct Call {
  X q, k, v, mask, bias;
  double scale, softcap, fill = -kInfinity;
  Shape causal, window;
};

class Attentions {
 public:
  Attentions(Graph& graph, ir::EditLimit limit) : graph_(graph), rewrite_(graph, limit), b_(rewrite_.builder()) {
    users_.resize(graph.value_count());
    for (NodeId n = 0; n < graph.node_count(); ++n)
      for (ValueId v : graph.operands(n))
        if (v != ir::kNoValue) users_[v].push_back(n);
    outputs_.insert(graph.outputs.begin(), graph.outputs.end());
  }

  Result<std::vector<ir::Edit>> run() {
    const size_t count = graph_.node_count();
    for (size_t n = count; n-- > 0 && !rewrite_.exhausted();) {
      const ir::Node& node = graph_.node(static_cast<NodeId>(n));
      if (node.n_results != 1) continue;
      const size_t guards = graph_.guards.size();
      b_.set_location(node.location);
      const bool found = node.op == &ops::dot_op         ? recognise(node.results)
                         : node.op == &ops::attention_op ? join(node.results)
                                                         : true;
      (void)b_.take_status();  // what does not fit is no attention, and no error
      if (!found) graph_.guards.resize(guards);
    }
    if (rewrite_.journal().empty() && graph_.node_count() == count) return std::vector<ir::Edit>();
    TESSERA_TRY(rewrite_.finish());
    return rewrite_.journal();
  }

 private:
  bool recognise(ValueId root) {
    const Shape old = graph_.type(root)->shape;
    const int rank = static_cast<int>(old.size());
    if ((rank != 3 && rank != 4) || !is_float(graph_.type(root)->dtype)) return false;
    const ValueId weights = weights_of(operand_of(graph_, root, 0));
    if (weights == ir::kNoValue || users_[weights].size() != 1 || outputs_.contains(weights)) return false;
    const ValueId scores = scores_of(weights, operand_of(graph_, root, 0));
    if (scores == ir::kNoValue) return false;
    Scores s;
    if (!Reader(graph_, graph_.type(scores)->shape).read(scores, 1, s)) return false;
    if (static_cast<int>(graph_.type(s.q)->shape.size()) != rank) return false;

    Call call{};
    call.mask = call.bias = X{&b_, ir::kNoValue};
    call.scale = s.scale;
    call.softcap = s.softcap;
    if (s.fill) call.fill = *s.fill;
    call.q = unscaled(s.q, call.scale);
    call.k = unscaled(s.k, call.scale);
    call.v = swap_axes(b_.wrap(operand_of(graph_, root, 1)), -1, -2);
    if (!masks(s, rank, call)) return false;
    if (!call.q || !call.k || !call.v) return false;
    const bool joined = rank == 3 ? four_axes(call, root) : turned(root, 2);
    if (rank == 4) ungroup(call);
    if (!b_.ok()) return false;
    // Halves are only halves to what they came from.
    const DType type = graph_.type(root)->dtype;
    for (X* x : {&call.q, &call.k, &call.v}) *x = cast(*x, type);
    const size_t guards = graph_.guards.size();
    X y = b_.add1(ops::attention_op, {call.q, call.k, call.v, call.mask, call.bias},
                  {call.scale, call.causal, call.softcap, call.window, call.fill, int64_t{joined}});
    if (!b_.ok() || graph_.guards.size() != guards) return false;
    if (joined) y = transpose(y, {0, 2, 1, 3});
    y = shaped(y, old);
    return y && b_.ok() && rewrite_.replace(root, y.id, "attention");
  }

  // An attention whose result is only used with rows outside of heads writes it so.
  bool join(ValueId root) {
    const ir::Node node = graph_.node(graph_.value(root).def);
    std::vector<ir::AttrValue> attrs = node.attrs->values;
    if (std::get<int64_t>(attrs[5]) != 0 || !turned(root, 2)) return true;
    attrs[5] = int64_t{1};
    std::vector<X> operands;
    for (ValueId v : graph_.operands(graph_.value(root).def)) operands.push_back({&b_, v});
    const X y = b_.add(*node.op, operands, attrs)[0];
    return b_.ok() && rewrite_.replace(root, transpose(y, {0, 2, 1, 3}).id, "attention_joined");
  }

  // All uses are views that have the axis of queries, `rows`, right behind the batch.
  bool turned(ValueId v, int rows) const {
    if (outputs_.contains(v) || users_[v].empty()) return false;
    for (NodeId n : users_[v]) {
      if (graph_.node(n).op != &ir::core::view) return false;
      const auto& view = std::get<ir::View>(graph_.node(n).attrs->values[0]);
      if (view.axes.size() < 3 || view.axes[1].empty() || view.axes[1][0].axis != rows) return false;
    }
    return true;
  }

  // The softmax behind a product's operand.
  ValueId weights_of(ValueId v) const {
    v = uncast(graph_, v);
    if (defined_by(graph_, v, ir::core::view) != nullptr) v = uncast(graph_, operand_of(graph_, v, 0));
    const ir::Node* node = defined_by(graph_, v, ops::softmax_op);
    if (node == nullptr) return ir::kNoValue;
    const int64_t axis = std::get<int64_t>(node->attrs->values[0]);
    return axis == -1 || axis + 1 == static_cast<int64_t>(graph_.type(v)->shape.size()) ? v : ir::kNoValue;
  }

  // What the softmax is over, in the shape of `used`: a softmax of flattened rows is one of rows.
  ValueId scores_of(ValueId weights, ValueId used) const {
    const ValueId scores = operand_of(graph_, weights, 0);
    used = uncast(graph_, used);
    if (used == weights) return scores;
    const ir::Node *back = defined_by(graph_, used, ir::core::view), *flat = defined_by(graph_, scores, ir::core::view);
    if (back == nullptr || flat == nullptr || operand_of(graph_, used, 0) != weights) return ir::kNoValue;
    const ValueId base = operand_of(graph_, scores, 0);
    const Shape& shape = graph_.type(base)->shape;
    const auto whole =
        ir::compose(std::get<ir::View>(flat->attrs->values[0]), std::get<ir::View>(back->attrs->values[0]));
    if (!whole || !ir::normalised(*whole).is_identity(shape)) return ir::kNoValue;
    return shape.back() == graph_.type(weights)->shape.back() ? base : ir::kNoValue;
  }

  // The value without the numbers that multiply it, under views too.
  X unscaled(ValueId v, double& scale) {
    for (int depth = kDepth; depth > 0; --depth) {
      v = uncast(graph_, v);
      const bool viewed = defined_by(graph_, v, ir::core::view) != nullptr;
      const ValueId inner = viewed ? uncast(graph_, operand_of(graph_, v, 0)) : v;
      const bool times = defined_by(graph_, inner, ops::mul_op) != nullptr;
      if (!times && defined_by(graph_, inner, ops::div_op) == nullptr) break;
      ValueId rest = ir::kNoValue;
      for (size_t i : {1, 0}) {
        const auto number = number_of(graph_, operand_of(graph_, inner, i));
        const ValueId other = operand_of(graph_, inner, 1 - i);
        if (!number || *number == 0 || (!times && i == 0) || graph_.type(other) != graph_.type(inner)) continue;
        scale = times ? scale * *number : scale / *number;
        rest = other;
        break;
      }
      if (rest == ir::kNoValue) break;
      v = viewed
              ? b_.view(b_.wrap(rest), std::get<ir::View>(defined_by(graph_, v, ir::core::view)->attrs->values[0])).id
              : rest;
    }
    return b_.wrap(v);
  }

  // Where each mask goes: into the band, or to an operand.
  bool masks(const Scores& s, int rank, Call& call) {
    X visible{&b_, ir::kNoValue};
    for (auto [condition, holds] : s.visible)
      if (!sees(condition, holds, rank, call, visible)) return false;
    for (auto [mask, factor] : s.added) {
      if (hidden_by(mask, factor, rank, call, visible)) continue;
      X m = b_.wrap(mask);
      if (std::fabs(factor - 1) > 2e-6) m = m * factor;
      X& place = !call.bias ? call.bias : call.mask;
      place = place ? place + m : m;
    }
    if (visible) {
      if (call.mask) {
        call.bias = call.bias + call.mask;
      }
      call.mask = visible;
    } else if (!call.mask) {
      std::swap(call.mask, call.bias);
    }
    return b_.ok();
  }

  // A mask that adds 0 or hides.
  bool hidden_by(ValueId mask, double factor, int rank, Call& call, X& visible) {
    if (call.fill != -kInfinity) return false;
    mask = uncast(graph_, mask);
    if (const Tensor* matrix = constant_of(graph_, mask)) {
      bool plain = true, infinite = true;
      const auto band = diagonals(*matrix, [&](double x) {
        plain = plain && (x == 0 || x * factor <= kHides);
        infinite = infinite && (x == 0 || std::isinf(x));
        return x == 0;
      });
      return band && plain && (infinite || band->every_row) && banded(*band, call);
    }
    if (defined_by(graph_, mask, ops::select_op) == nullptr) return false;
    const auto a = number_of(graph_, operand_of(graph_, mask, 1)), b = number_of(graph_, operand_of(graph_, mask, 2));
    if (!a || !b) return false;
    const bool first = *a == 0 && *b * factor <= kHides, second = *b == 0 && *a * factor <= kHides;
    if (!first && !second) return false;
    // Below -inf a finite number still tells rows that see nothing apart: only what leaves each row a key is the same.
    const ValueId condition = operand_of(graph_, mask, 0);
    const bool infinite = std::isinf(first ? *b : *a);
    if (!infinite && !leaves_a_key(condition, first)) return false;
    return sees(condition, first, rank, call, visible);
  }

  bool leaves_a_key(ValueId condition, bool holds) const {
    const auto plane = plane_of(condition, holds);
    if (!plane || plane->factors.size() < 2 || plane->factors.back() != -1) return false;
    return graph_.dims().bounds(plane->constant).lo >= 0;
  }

  std::optional<Affine> plane_of(ValueId condition, bool holds) const {
    auto plane = half_plane(graph_, condition);
    if (!plane || holds) return plane;
    for (int64_t& f : plane->factors) f = -f;
    plane->constant = Dim(-1) - plane->constant;
    return plane;
  }

  bool sees(ValueId condition, bool holds, int rank, Call& call, X& visible) {
    if (holds && defined_by(graph_, condition, ops::logical_and_op) != nullptr)
      return sees(operand_of(graph_, condition, 0), true, rank, call, visible) &&
             sees(operand_of(graph_, condition, 1), true, rank, call, visible);
    if (!holds && defined_by(graph_, condition, ops::logical_or_op) != nullptr)
      return sees(operand_of(graph_, condition, 0), false, rank, call, visible) &&
             sees(operand_of(graph_, condition, 1), false, rank, call, visible);
    if (defined_by(graph_, condition, ops::logical_not_op) != nullptr)
      return sees(operand_of(graph_, condition, 0), !holds, rank, call, visible);
    if (const auto plane = plane_of(condition, holds); plane && plane->factors.size() >= 2) {
      const size_t n = plane->factors.size();
      bool others = false;
      for (size_t a = 0; a + 2 < n; ++a) others = others || plane->factors[a] != 0;
      const int64_t row = plane->factors[n - 2], column = plane->factors[n - 1];
      // row - column + constant >= 0: keys up to the query's own plus the constant.
      if (!others && row == 1 && column == -1 && call.causal.empty()) {
        call.causal = {plane->constant};
        return true;
      }
      if (!others && row == -1 && column == 1 && call.window.empty()) {
        call.window = {Dim(0) - plane->constant};
        return true;
      }
    }
    if (const Tensor* matrix = constant_of(graph_, condition))
      if (const auto band = diagonals(*matrix, [&](double x) { return (x != 0) == holds; });
          band && banded(*band, call))
        return true;
    X x = b_.wrap(condition);
    if (x.dtype() != DType::boolean) x = cast(x, DType::boolean);
    if (!holds) x = logical_not(x);
    visible = visible ? logical_and(visible, x) : x;
    return static_cast<int>(x.rank()) <= rank;
  }

  // Makes the call see these diagonals only, if none are set yet.
  static bool banded(const Diagonals& band, Call& call) {
    if ((band.high && !call.causal.empty()) || (band.low && !call.window.empty())) return false;
    if (band.high) call.causal = {*band.high};
    if (band.low) call.window = {*band.low};
    return true;
  }

  // [X, T, D] as [b, h, T, D] where X is made of both in all operands, else as one batch of X heads; tells whether the
  // result is used with rows outside of heads.
  bool four_axes(Call& call, ValueId root) {
    std::optional<std::pair<Dim, Dim>> parts;
    bool same = true;
    for (X x : {call.q, call.k, call.v}) {
      const ir::Node* node = defined_by(graph_, x.id, ir::core::view);
      const auto* view = node == nullptr ? nullptr : &std::get<ir::View>(node->attrs->values[0]);
      if (view == nullptr || view->axes[0].size() != 2 || view->axes[0][0].tied || view->axes[0][1].tied) {
        same = false;
        break;
      }
      const std::pair<Dim, Dim> here = {view->axes[0][0].size, view->axes[0][1].size};
      same = same && (!parts || (parts->first == here.first && parts->second == here.second));
      parts = here;
    }
    const Dim all = call.q.dim(0);
    for (X* x : {&call.q, &call.k, &call.v}) {
      if (!same) {
        *x = unsqueeze(*x, {0});
        continue;
      }
      const ValueId base = operand_of(graph_, x->id, 0);
      ir::View view = std::get<ir::View>(defined_by(graph_, x->id, ir::core::view)->attrs->values[0]);
      const ir::ViewAtom head = view.axes[0].back();
      view.axes[0].pop_back();
      view.axes.insert(view.axes.begin() + 1, {head});
      *x = b_.view(b_.wrap(base), std::move(view));
    }
    for (X* m : {&call.mask, &call.bias}) {
      if (!*m || m->rank() < 3) continue;
      if (!same || m->dim(0).is(1)) {
        *m = unsqueeze(*m, {0});
      } else {
        *m = m->dim(0) == all ? reshape(*m, {parts->first, parts->second, m->dim(1), m->dim(2)}) : X{&b_, ir::kNoValue};
      }
    }
    return same && turned(root, 1);
  }

  // Keys that were repeated for each query head of a group.
  void ungroup(Call& call) {
    const auto repeated = [&](X x) -> std::optional<Dim> {
      const ir::Node* node = defined_by(graph_, x.id, ir::core::view);
      if (node == nullptr) return std::nullopt;
      const auto& axis = std::get<ir::View>(node->attrs->values[0]).axes[1];
      if (axis.empty() || axis.back().axis >= 0 || axis.back().tied) return std::nullopt;
      return axis.back().size;
    };
    const auto of_k = repeated(call.k), of_v = repeated(call.v);
    if (!of_k || !of_v || !(*of_k == *of_v)) return;
    for (X* x : {&call.k, &call.v}) {
      const ValueId base = operand_of(graph_, x->id, 0);
      ir::View view = std::get<ir::View>(defined_by(graph_, x->id, ir::core::view)->attrs->values[0]);
      view.axes[1].pop_back();
      *x = b_.view(b_.wrap(base), std::move(view));
    }
  }

  // Sizes that are equal by a guard have two names: the result goes on under the old one.
  X shaped(X y, const Shape& old) {
    if (!y) return y;
    if (old.size() == 3) {
      y = reshape(y, {y.dim(0) * y.dim(1), y.dim(2), y.dim(3)});
      if (!y) return y;
    }
    if (y.shape() == old) return y;
    ir::View view = ir::identity_view(y.shape());
    for (size_t a = 0; a < old.size(); ++a) {
      if (view.axes[a].empty() && old[a].is(1)) continue;
      if (view.axes[a].size() != 1) return {&b_, ir::kNoValue};
      if (y.shape()[a] == old[a]) continue;
      bool guarded = false;
      for (const ir::Guard& guard : graph_.guards)
        guarded = guarded || (guard.kind == ir::Guard::Kind::equal && ((guard.a == old[a] && guard.b == y.shape()[a]) ||
                                                                       (guard.b == old[a] && guard.a == y.shape()[a])));
      if (!guarded) return {&b_, ir::kNoValue};
      view.axes[a][0].size = old[a];
    }
    return b_.view(y, std::move(view));
  }

  Graph& graph_;
  ir::Rewrite rewrite_;
  ir::Builder& b_;
  std::vector<std::vector<NodeId>> users_;
  std::unordered_set<ValueId> outputs_;
};

}  // namespace

Result<std::vector<ir::Edit>> raise_attention(Graph& graph, const PassContext& context) {
  if (context.options.strict) return std::vector<ir::Edit>();
  if (context.options.targets && !context.options.targets(ops::attention_op)) return std::vector<ir::Edit>();
  return Attentions(graph, context.limit).run();
}

}  // namespace tessera::passes
