// Reductions, softmax and what is made of them.
#include "import/onnx/onnx_ops.h"

namespace tessera::onnx {
using ir::mean;
using ir::reduce_max;
using ir::reduce_min;
using ir::square;
using ir::sum;

namespace {

// The axes to reduce: an attribute, or from some version on an input; all of them when none are given, unless the node
// asks for nothing to happen then.
struct Reduction {
  X x;
  Axes axes;
  bool keep = true;
  bool nothing = false;
};

Result<Reduction> reduction(NodeImport& n, int64_t axes_input_since) {
  Reduction r{n.need(0), {}, n.integer("keepdims", 1) != 0};
  TESSERA_TRY(n.b.status());
  std::vector<int64_t> axes;
  if (n.opset >= axes_input_since) {
    if (n.has(1)) {
      std::optional<std::vector<int64_t>> known = n.ints(1);
      if (!known) return n.value_unknown(1);
      axes = *known;
    }
    if (axes.empty() && n.integer("noop_with_empty_axes", 0) != 0) r.nothing = true;
  } else {
    axes = n.integers("axes");
  }
  if (axes.empty() && !r.nothing)
    for (int i = 0; i < r.x.rank(); ++i) axes.push_back(i);
  std::vector<bool> seen(static_cast<size_t>(r.x.rank()), false);
  for (int64_t a : axes) {
    TESSERA_ASSIGN(int axis, n.normal_axis(a, r.x.rank()));
    if (seen[static_cast<size_t>(axis)]) return n.fail(Code::attribute_invalid, "axis {} is given twice", axis);
    seen[static_cast<size_t>(axis)] = true;
    r.axes.push_back(axis);
  }
  return r;
}

X dropped(X y, const Reduction& r) {
  if (r.keep || r.nothing) return y;
  return squeeze(y, std::vector<int>(r.axes.begin(), r.axes.end()));
}

// `each` is applied to every element, `all` folds, `last` finishes; with nothing to reduce the fold is left out.
template <class Each, class Fold, class Last>
Status reduce(NodeImport& n, int64_t axes_input_since, Each each, Fold fold, Last last) {
  TESSERA_ASSIGN(Reduction r, reduction(n, axes_input_since));
  X y = each(r.x);
  if (!r.nothing) y = fold(y, r.axes);
  n.out(dropped(last(y), r));
  return {};
}

X same(X x) { return x; }

// softmax and its like before version 13: over all axes from `axis` on, flattened.
Status over_axis(NodeImport& n, const ir::OpDef& op) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  if (n.opset >= 13) {
    TESSERA_ASSIGN(int axis, n.axis("axis", -1, x.rank()));
    n.out(n.b.add1(op, {x}, {static_cast<int64_t>(axis)}));
    return {};
  }
  int64_t axis = n.integer("axis", 1);
  if (axis < -x.rank() || axis > x.rank())
    return n.fail(Code::axis_out_of_range, "axis {} is outside [-{}, {}]", axis, x.rank(), x.rank());
  if (axis < 0) axis += x.rank();
  if (axis == x.rank() - 1) {  // one axis: nothing to flatten
    n.out(n.b.add1(op, {x}, {int64_t{-1}}));
    return {};
  }
  Shape shape = x.shape();
  Dim rows = product(std::span<const Dim>(shape).first(static_cast<size_t>(axis)));
  Dim columns = product(std::span<const Dim>(shape).subspan(static_cast<size_t>(axis)));
  X flat = reshape(x, {rows, columns});
  n.out(reshape(n.b.add1(op, {flat}, {int64_t{-1}}), shape));
  return {};
}

Status arg(NodeImport& n, const ir::OpDef& op) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int axis, n.axis("axis", 0, x.rank()));
  X y = n.b.add1(op, {x}, {static_cast<int64_t>(axis), n.integer("select_last_index", 0)});
  n.out(n.integer("keepdims", 1) != 0 ? y : squeeze(y, {axis}));
  return {};
}

Status running(NodeImport& n, const ir::OpDef& op) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  std::optional<std::vector<int64_t>> axis = n.ints(1);
  if (!axis || axis->size() != 1) return n.value_unknown(1);
  TESSERA_ASSIGN(int a, n.normal_axis((*axis)[0], x.rank()));
  n.out(n.b.add1(op, {x}, {static_cast<int64_t>(a), n.integer("exclusive", 0), n.integer("reverse", 0)}));
  return {};
}

}  // namespace

Status import_reduce_sum(NodeImport& n) { return reduce(n, 13, same, sum, same); }
Status import_reduce_mean(NodeImport& n) { return reduce(n, 18, same, mean, same); }
Status import_reduce_max(NodeImport& n) { return reduce(n, 18, same, reduce_max, same); }
Status import_reduce_min(NodeImport& n) { return reduce(n, 18, same, reduce_min, same); }
Status import_reduce_l1(NodeImport& n) {
  return reduce(
      n, 18, [](X x) { return abs(x); }, sum, same);
}
Status import_reduce_l2(NodeImport& n) {
  return reduce(n, 18, square, sum, [](X y) {
    if (!y || is_float(y.dtype())) return sqrt(y);
    return cast(sqrt(cast(y, DType::f64)), y.dtype());
  });
}
Status import_reduce_sum_square(NodeImport& n) { return reduce(n, 18, square, sum, same); }
Status import_reduce_log_sum(NodeImport& n) {
  return reduce(n, 18, same, sum, [](X y) {
    if (!y || is_float(y.dtype())) return log(y);
    return cast(log(cast(y, DType::f64)), y.dtype());
  });
}
Status import_reduce_prod(NodeImport& n) {
  return reduce(
      n, 18, same,
      [](X x, Axes axes) { return axes.empty() || !x ? x : x.builder->add1(ops::reduce_prod_op, {x}, {axes}); }, same);
}

// Shifted by the largest element, so that nothing overflows; of infinities nothing is subtracted.
Status import_reduce_log_sum_exp(NodeImport& n) {
  TESSERA_ASSIGN(Reduction r, reduction(n, 18));
  DType type = r.x.dtype();
  X x = is_float(type) ? r.x : cast(r.x, DType::f64);
  X y = x;
  if (!r.nothing && !r.axes.empty()) {
    X top = reduce_max(x, r.axes);
    X infinite = n.b.add1(ops::is_inf_op, {top}, {int64_t{1}, int64_t{1}});
    X shift = select(infinite, like(top, 0), top);
    y = log(sum(exp(x - shift), r.axes)) + shift;
  }
  n.out(dropped(cast(y, type), r));
  return {};
}

Status import_softmax(NodeImport& n) { return over_axis(n, ops::softmax_op); }
Status import_log_softmax(NodeImport& n) { return over_axis(n, ops::log_softmax_op); }

// 1 where the first largest element stands, 0 elsewhere.
Status import_hardmax(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  Shape shape = x.shape();
  bool flatten = n.opset < 13;
  int axis = -1;
  if (flatten) {
    TESSERA_ASSIGN(int from, n.axis("axis", 1, x.rank()));
    Dim rows = product(std::span<const Dim>(shape).first(static_cast<size_t>(from)));
    Dim columns = product(std::span<const Dim>(shape).subspan(static_cast<size_t>(from)));
    x = reshape(x, {rows, columns});
    axis = 1;
  } else {
    TESSERA_ASSIGN(axis, n.axis("axis", -1, x.rank()));
  }
  TESSERA_TRY(n.b.status());
  X best = n.b.add1(ops::argmax_op, {x}, {static_cast<int64_t>(axis), int64_t{0}});
  X y = cast(equal(iota(n.b, x.shape(), axis, DType::i64), best), x.dtype());
  n.out(flatten ? reshape(y, shape) : y);
  return {};
}

Status import_arg_max(NodeImport& n) { return arg(n, ops::argmax_op); }
Status import_arg_min(NodeImport& n) { return arg(n, ops::argmin_op); }
Status import_cum_sum(NodeImport& n) { return running(n, ops::cumsum_op); }
Status import_cum_prod(NodeImport& n) { return running(n, ops::cumprod_op); }

}  // namespace tessera::onnx
