// Raises softmax over masked scores to attention: each mask goes where it costs least.
#include <cmath>
#include <limits>

#include "base/result.h"
#include "ir/core_ops.h"
#include "ops/math.h"
#include "passes/attention_masks.h"
#include "passes/attention_weights.h"
#include "passes/pipeline.h"
#include "passes/uses.h"

namespace tessera::passes {
namespace {

using ir::Graph;
using ir::NodeId;
using ir::ValueId;
using ir::X;

constexpr int kScoreDepth = 24;

// The call that is being put together.
struct Call {
  X q, k, v, mask, bias, sinks;
  double scale, softcap, fill = -kInfinity;
  Shape causal, window;
  Shape lead;  // batch, heads, queries
};

Shape leading(const Shape& shape, size_t count) {
  return {shape.begin(), shape.begin() + static_cast<ptrdiff_t>(count)};
}
bool all_one(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](Dim d) { return d.is(1); });
}

class Attentions {
 public:
  Attentions(Graph& graph, ir::EditLimit limit)
      : graph_(graph), rewrite_(graph, limit), b_(rewrite_.builder()), uses_(graph) {}

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
    const size_t rank = old.size();
    if (rank < 2 || !is_float(graph_.type(root)->dtype)) return false;
    const ValueId used = operand_of(graph_, root, 0);
    const std::optional<Weights> weights = read_weights(graph_, uses_, used);
    if (!weights) return false;
    const std::optional<Scores> s = read_scores(graph_, weights->scores);
    if (!s) return false;

    const size_t guards = graph_.guards.size();
    Call call{};
    call.mask = call.bias = call.sinks = X{&b_, ir::kNoValue};
    call.scale = s->scale;
    call.softcap = s->softcap;
    const X q = rows_of(unscaled(s->q, call.scale), s->rows), k = unscaled(s->k, call.scale),
            v = swap_axes(b_.wrap(operand_of(graph_, root, 1)), -1, -2);
    if (!q || !k || !v) return false;
    const Shape of_scores = leading(s->level, s->level.size() - 1);
    Shape of_values = leading(graph_.type(uncast(graph_, used))->shape, rank - 1);
    if (!(of_values.back() == of_scores.back())) of_values = of_scores;  // rows taken apart
    if (!choose_lead(*s, {q, k, v}, call)) return false;
    call.q = queries(q, of_scores, call);
    call.k = keys(k, of_scores, call);
    call.v = keys(v, of_values, call);
    if (!call.q || !call.k || !call.v || !scaled_by(*s, call)) return false;
    const bool alone = call.lead[1].is(1);
    ungroup(call);
    if (!masks(*s, call) || !sinks(weights->sink, s->levels[0], call)) return false;
    const bool joined = !alone && rank > 2 && turned(root, static_cast<int>(rank) - 2);
    if (!b_.ok()) return false;
    // Halves are only halves to what they came from.
    const DType type = graph_.type(root)->dtype;
    for (X* x : {&call.q, &call.k, &call.v}) *x = cast(*x, type);
    const X none{&b_, ir::kNoValue};
    X y = b_.add1(ops::attention_op, {call.q, call.k, call.v, call.mask, call.bias, none, none, none, call.sinks},
                  {call.scale, call.causal, call.softcap, call.window, call.fill, int64_t{joined}});
    if (!b_.ok()) return false;
    if (joined) y = transpose(y, {0, 2, 1, 3});
    y = shaped(y, old);
    return y && b_.ok() && graph_.guards.size() == guards && rewrite_.replace(root, y.id, "attention");
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
    if (uses_.is_output(v) || uses_.of(v).empty()) return false;
    for (NodeId n : uses_.of(v)) {
      if (graph_.node(n).op != &ir::core::view) return false;
      const auto& view = std::get<ir::View>(graph_.node(n).attrs->values[0]);
      if (view.axes.size() < 3 || view.axes[1].empty() || view.axes[1][0].axis != rows) return false;
    }
    return true;
  }

  // Batch, heads and queries, whichever axes the product has.
  bool choose_lead(const Scores& s, std::initializer_list<X> operands, Call& call) const {
    const Shape& level = s.level;
    const size_t axes = level.size() - 2;
    const Dim rows = level[axes];
    if (axes == 0) call.lead = {1, 1, rows};
    if (axes == 2) call.lead = {level[0], level[1], rows};
    if (axes == 1) {
      // Heads within the batch: someone knows how many there are.
      std::optional<std::pair<Dim, Dim>> parts;
      for (const Shape& other : s.levels)
        if (other.size() == 4 && !parts) parts = {other[0], other[1]};
      for (X x : operands) {
        const ir::Node* node = defined_by(graph_, x.id, ir::core::view);
        if (parts || node == nullptr) break;
        const auto& atoms = std::get<ir::View>(node->attrs->values[0]).axes[0];
        if (atoms.size() == 2 && !atoms[0].tied && !atoms[1].tied) parts = {atoms[0].size, atoms[1].size};
      }
      call.lead = parts ? Shape{parts->first, parts->second, rows} : Shape{level[0], 1, rows};
    }
    if (axes == 3) {
      // Query heads that share keys belong together, else what else there is to the batch.
      const bool grouped = std::all_of(operands.begin() + 1, operands.end(), [&](X x) {
        if (x.rank() == 4 && level.size() == 5) return true;  // rows taken apart
        if (x.rank() != 5) return false;
        const ir::Node* node = defined_by(graph_, x.id, ir::core::view);
        const bool repeated = node != nullptr && std::get<ir::View>(node->attrs->values[0]).axes[2].size() == 1 &&
                              std::get<ir::View>(node->attrs->values[0]).axes[2][0].axis < 0;
        return repeated || x.dim(2).is(1);
      });
      call.lead = grouped ? Shape{level[0], level[1] * level[2], rows} : Shape{level[0] * level[1], level[2], rows};
    }
    return axes <= 3;
  }

  // x [of the axes of `level`, N] over batch, heads, and its own rows, of which there are `rows`.
  X over_heads(X x, const Shape& level, Dim rows, const Call& call) {
    const size_t axes = level.size();
    if (!x || x.rank() < 2) return {&b_, ir::kNoValue};
    const Dim last = x.dim(-1);
    Shape own = x.shape();
    own.pop_back();
    if (own.size() > axes) return {&b_, ir::kNoValue};
    if (own.size() < axes) own.insert(own.begin(), axes - own.size(), 1);
    own.push_back(last);
    x = reshape(x, own);
    Shape full = leading(level, axes - 1);
    full.push_back(own[axes - 1]);
    full.push_back(last);
    x = broadcast(x, full);
    return reshape(x, {call.lead[0], call.lead[1], rows, last});
  }

  // q in the order of the rows of its product.
  X rows_of(X q, const std::optional<ir::View>& rows) {
    if (!rows || !q) return q;
    ir::View view = *rows;
    view.axes.back() = {{q.rank() - 1, 1, q.dim(-1)}};
    return b_.view(q, std::move(view));
  }

  // Where the rows of a product were taken apart, its operands have an axis less.
  X queries(X x, const Shape& level, const Call& call) {
    if (x && x.rank() == static_cast<int>(level.size())) {
      Shape apart = level;
      apart.push_back(x.dim(-1));
      x = reshape(x, apart);
    }
    if (x && level.size() == 3 && x.rank() == 4) return over_batch(x, call, true);
    return over_heads(x, level, level.back(), call);
  }
  X keys(X x, const Shape& level, const Call& call) {
    if (x && x.rank() == static_cast<int>(level.size())) x = unsqueeze(x, {x.rank() - 2});
    if (!x) return x;
    if (level.size() == 3 && x.rank() == 4) return over_batch(x, call, false);
    return over_heads(x, level, x.dim(-2), call);
  }
  // Four axes as they should be, but for those of size 1 that stand for all.
  X over_batch(X x, const Call& call, bool heads) {
    Shape shape = x.shape();
    if (shape[0].is(1)) shape[0] = call.lead[0];
    if (heads && shape[1].is(1)) shape[1] = call.lead[1];
    return shape == x.shape() ? x : broadcast(x, shape);
  }

  // A mask or factor that broadcasts to `level`, so that it broadcasts to [B, H, T, S].
  X over_scores(X x, const Shape& level, const Call& call) {
    const size_t axes = level.size();
    if (!x || x.rank() < 2 || (axes == 4 && level[0] == call.lead[0] && level[1] == call.lead[1])) return x;
    if (static_cast<size_t>(x.rank()) > axes) return {&b_, ir::kNoValue};
    Shape own = x.shape();
    own.insert(own.begin(), axes - own.size(), 1);
    const Dim rows = own[axes - 2], columns = own[axes - 1];
    Shape target = {call.lead[0], call.lead[1], call.lead[2], columns};
    if (rows.is(1) && level[axes - 2] == call.lead[2]) target[2] = 1;
    if (all_one(leading(own, axes - 1))) return reshape(x, {1, 1, 1, columns});
    if (all_one(leading(own, axes - 2)) && level[axes - 2] == call.lead[2]) return reshape(x, {1, 1, rows, columns});
    Shape full = level;
    full.back() = columns;
    if (target[2].is(1)) full[axes - 2] = 1;
    x = reshape(broadcast(reshape(x, own), full), target);
    if (!x) return x;
    for (int a = 0; a < 3; ++a) {
      const ir::Node* node = defined_by(graph_, x.id, ir::core::view);
      if (node == nullptr || x.dim(a).is(1)) continue;
      const auto& atoms = std::get<ir::View>(node->attrs->values[0]).axes[static_cast<size_t>(a)];
      if (std::all_of(atoms.begin(), atoms.end(), [](const ir::ViewAtom& atom) { return atom.axis < 0; }))
        x = slice(x, a, 0, 1);
    }
    return x;
  }

  // What multiplies rows of the scores multiplies queries, and what multiplies columns keys.
  bool scaled_by(const Scores& s, Call& call) {
    for (const auto& [by, inverse] : s.times) {
      X x = over_scores(b_.wrap(by.value), by.level, call);
      if (!x) return false;
      const bool columns = x.rank() > 0 && !x.dim(-1).is(1);
      if (columns && x.rank() == 1) x = unsqueeze(x, {1});
      if (columns && x.rank() > 1) x = swap_axes(x, -1, -2);
      // A row of heads does not multiply the keys that they share.
      if (columns && x.rank() >= 3 && !x.dim(-3).is(1)) return false;
      X& to = columns ? call.k : call.q;
      if (!columns && x.rank() == 1) x = reshape(x, {});
      if (x.dtype() != to.dtype()) x = cast(x, to.dtype());
      const Shape shape = to.shape();
      to = inverse ? to / x : to * x;
      if (!to || !(to.shape() == shape)) return false;
    }
    return true;
  }

  // The value without the numbers that multiply it, under views too.
  X unscaled(ValueId v, double& scale) {
    for (int depth = kScoreDepth; depth > 0; --depth) {
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

  // One number a head, from a column of scores that has the same one for each row of each batch.
  bool sinks(ValueId column, const Shape& level, Call& call) {
    if (column == ir::kNoValue) return true;
    X x = over_scores(b_.wrap(uncast(graph_, column)), level, call);
    if (!x || x.rank() != 4 || !(x.dim(1) == call.lead[1] || x.dim(1).is(1))) return false;
    for (int axis : {0, 2}) {
      if (x.dim(axis).is(1)) continue;
      const ir::Node* node = defined_by(graph_, x.id, ir::core::view);
      if (node == nullptr) return false;
      for (const ir::ViewAtom& atom : std::get<ir::View>(node->attrs->values[0]).axes[static_cast<size_t>(axis)])
        if (atom.axis >= 0) return false;
      x = slice(x, axis, 0, 1);
    }
    x = broadcast(reshape(x, {x.dim(1)}), {call.lead[1]});
    call.sinks = cast(x, graph_.type(call.q.id)->dtype);
    return b_.ok();
  }

  // Where each mask goes: into the band, or to an operand.
  bool masks(const Scores& s, Call& call) {
    std::optional<Masks> placed = place_masks(graph_, s, call.lead[2]);
    if (!placed) return false;
    call.fill = placed->fill;
    X visible{&b_, ir::kNoValue};
    for (const Mask& mask : placed->hides)
      if (!sees(mask.met, mask.holds, call, visible)) return false;
    if (visible && !placed->after.empty()) {
      // One operand for both: the fill is added, and hides as well.
      if (call.fill > kHides || !placed->before.empty()) return false;
      call.causal.clear();
      call.window.clear();
      placed->after.insert(placed->after.end(), placed->hides.begin(), placed->hides.end());
      call.fill = -kInfinity;
      visible = {&b_, ir::kNoValue};
    }
    if (call.fill == -kInfinity && !visible && !s.floor && placed->before.size() > 1) {
      // Two operands broadcast each for itself.
      placed->after.push_back(placed->before.back());
      placed->before.pop_back();
    }
    if (!add(placed->after, call, call.mask) || !add(placed->before, call, call.bias)) return false;
    if (s.floor && call.bias) call.bias = max(call.bias, like(call.bias, *s.floor));
    if (visible) call.mask = visible;
    if (!call.mask && call.fill == -kInfinity) std::swap(call.mask, call.bias);
    return b_.ok();
  }

  // The sum of masks.
  bool add(const std::vector<Mask>& masks, const Call& call, X& sum) {
    for (const Mask& mask : masks) {
      X m = over_scores(b_.wrap(mask.met.value), mask.met.level, call);
      if (!m) return false;
      if (mask.kind == Mask::Kind::hides) {
        if (m.dtype() != DType::boolean) m = cast(m, DType::boolean);
        const X none = b_.scalar(DType::f32, 0), fill = b_.scalar(DType::f32, mask.number);
        m = mask.holds ? select(m, none, fill) : select(m, fill, none);
      } else if (std::fabs(mask.number - 1) > 2e-6) {
        m = m * mask.number;
      }
      if (sum && m.dtype() != sum.dtype()) m = cast(m, sum.dtype());
      sum = sum ? sum + m : m;
    }
    return b_.ok();
  }

  bool sees(const Met& met, bool holds, Call& call, X& visible) {
    const ValueId condition = met.value;
    const auto part = [&](size_t i, bool wanted) {
      return sees({operand_of(graph_, condition, i), met.level}, wanted, call, visible);
    };
    // A product is not 0 where neither factor is.
    const bool product = defined_by(graph_, condition, ops::mul_op) != nullptr && is_zero_or_one(graph_, condition);
    if (holds && (product || defined_by(graph_, condition, ops::logical_and_op) != nullptr))
      return part(0, true) && part(1, true);
    if (!holds && defined_by(graph_, condition, ops::logical_or_op) != nullptr) return part(0, false) && part(1, false);
    if (defined_by(graph_, condition, ops::logical_not_op) != nullptr) return part(0, !holds);
    if (defined_by(graph_, condition, ops::cast_op) != nullptr &&
        graph_.type(operand_of(graph_, condition, 0))->dtype == DType::boolean)
      return part(0, holds);
    if (defined_by(graph_, condition, ops::equal_op) != nullptr)
      for (size_t i : {0, 1})
        if (number_of(graph_, operand_of(graph_, condition, 1 - i)) == 0) return part(i, !holds);
    const bool rows = has_rows(met, call.lead[2]);
    if (rows && within(planes_of(graph_, condition, holds), call)) return true;
    if (const Tensor* matrix = rows ? constant_of(graph_, condition) : nullptr)
      if (const auto band = diagonals(*matrix, [&](double x) { return (x != 0) == holds; });
          band && banded(*band, call))
        return true;
    X x = over_scores(b_.wrap(condition), met.level, call);
    if (!x) return false;
    if (x.dtype() != DType::boolean) x = cast(x, DType::boolean);
    if (!holds) x = logical_not(x);
    visible = visible ? logical_and(visible, x) : x;
    return b_.ok();
  }

  // Makes the call see what lies in these half planes only, if they are bands and it has none yet.
  static bool within(const std::vector<Affine>& planes, Call& call) {
    Shape causal, window;
    for (const Affine& plane : planes) {
      const size_t n = plane.factors.size();
      if (n < 2) return false;
      for (size_t a = 0; a + 2 < n; ++a)
        if (plane.factors[a] != 0) return false;
      const int64_t row = plane.factors[n - 2], column = plane.factors[n - 1];
      // row - column + constant >= 0: keys up to the query's own plus the constant.
      if (row == 1 && column == -1 && causal.empty()) {
        causal = {plane.constant};
      } else if (row == -1 && column == 1 && window.empty()) {
        window = {Dim(0) - plane.constant};
      } else {
        return false;
      }
    }
    if (planes.empty() || (!causal.empty() && !call.causal.empty()) || (!window.empty() && !call.window.empty()))
      return false;
    if (!causal.empty()) call.causal = causal;
    if (!window.empty()) call.window = window;
    return true;
  }

  // Makes the call see these diagonals only, if none are set yet.
  static bool banded(const Diagonals& band, Call& call) {
    if ((band.high && !call.causal.empty()) || (band.low && !call.window.empty())) return false;
    if (band.high) call.causal = {*band.high};
    if (band.low) call.window = {*band.low};
    return true;
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
    } else if (old.size() != 4 ||
               (!(y.dim(1) == old[1]) && product(leading(y.shape(), 3)) == product(leading(old, 3)))) {
      y = reshape(y, old);
    }
    if (!y) return y;
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
  Uses uses_;
};

}  // namespace

Result<std::vector<ir::Edit>> raise_attention(Graph& graph, const PassContext& context) {
  if (context.options.strict) return std::vector<ir::Edit>();
  if (context.options.targets && !context.options.targets(ops::attention_op)) return std::vector<ir::Edit>();
  return Attentions(graph, context.limit).run();
}

}  // namespace tessera::passes
