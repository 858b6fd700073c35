// Operators that rename, reorder or repeat elements.
#include <algorithm>
#include <cmath>

#include "import/onnx/importer.h"
#include "import/onnx/onnx_ops.h"
#include "ir/core_ops.h"
#include "tensor/reshape.h"

namespace tessera::onnx {
namespace {

// Axes from an attribute, or from input `i` on from version `since`; nullopt when there are none. Normalised and
// ascending.
Result<std::optional<std::vector<int>>> axes_of(NodeImport& n, int i, int64_t since, int rank) {
  std::vector<int64_t> axes;
  if (n.opset >= since) {
    if (!n.has(i)) return std::optional<std::vector<int>>();
    std::optional<std::vector<int64_t>> known = n.ints(i);
    if (!known) return n.value_unknown(i);
    axes = *known;
  } else {
    if (!n.has_attribute("axes")) return std::optional<std::vector<int>>();
    axes = n.integers("axes");
  }
  std::vector<int> result;
  for (int64_t a : axes) {
    TESSERA_ASSIGN(int axis, n.normal_axis(a, rank));
    result.push_back(axis);
  }
  std::sort(result.begin(), result.end());
  if (std::adjacent_find(result.begin(), result.end()) != result.end())
    return n.fail(Code::attribute_invalid, "an axis is given twice");
  return std::optional<std::vector<int>>(std::move(result));
}

// Whether the value repeats along the axis what has size 1 there.
bool repeats(const ir::Graph& graph, ir::ValueId v, size_t axis) {
  const ir::NodeId def = graph.value(v).def;
  if (def == ir::kNoNode) return false;
  const ir::Node& node = graph.node(def);
  if (node.op == &ir::core::view) {
    const auto& digits = std::get<ir::View>(node.attrs->values[0]).axes[axis];
    return digits.size() == 1 && digits[0].axis < 0;
  }
  if (node.op != &ops::broadcast_to_op) return false;
  const ir::Type& base = *graph.type(graph.operands(def)[0]);
  return base.ranked && base.shape.size() == graph.type(v)->shape.size() && base.shape[axis].is(1);
}

// PyTorch's exporter writes repeat_interleave along axis d of sizes that it does not know as Unsqueeze(d + 1), Expand,
// and a Reshape to 0 ... 0, -1, 0 ... 0: it counts the axes behind d without the one that it has put in, and ONNX then
// reads the repeats as a size (docs/decisions/0005-repeats-of-pytorch.md). Gives those zeros the axes that they mean.
void name_axes_behind_repeats(NodeImport& n, X x, Shape& wanted) {
  const auto rest = std::find_if(wanted.begin(), wanted.end(), [](Dim d) { return d.is(-1); });
  const auto axis = static_cast<size_t>(rest - wanted.begin()) + 1;
  if (n.importer.producer() != "pytorch" || axis >= wanted.size() || x.shape().size() != wanted.size() + 1) return;
  if (!repeats(n.b.graph(), x.id, axis)) return;
  for (size_t i = axis; i < wanted.size(); ++i)
    if (wanted[i].is(0)) wanted[i] = x.dim(static_cast<int>(i) + 1);
}

// Sizes from an input, as i64[n].
X as_i64(X x) { return cast(x, DType::i64); }

}  // namespace

Status import_shape(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  int64_t rank = x.rank();
  auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
  int64_t begin = clamp(n.integer("start", 0)), end = clamp(n.integer("end", rank));
  Shape sizes(x.shape().begin() + begin, x.shape().begin() + std::max(begin, end));
  n.out(n.b.sizes(sizes));
  return {};
}

Status import_size(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  n.out(n.b.size(product(x.shape())));
  return {};
}

Status import_reshape(NodeImport& n) {
  X x = n.opset >= 5 && n.has(1) && n.sizes(1) == nullptr ? n.any(0) : n.need(0);
  TESSERA_TRY(n.b.status());
  bool allow_zero = n.opset >= 14 && n.integer("allowzero", 0) != 0;
  Shape wanted;
  if (n.opset < 5) {
    for (int64_t size : n.integers("shape")) wanted.push_back(size);
  } else if (const Shape* known = n.sizes(1)) {
    wanted = *known;
  } else {
    // 0 copies the size of x's axis, -1 takes what is left.
    X shape = as_i64(n.need(1));
    TESSERA_TRY(n.b.status());
    if (!shape.dim(0).is_const()) {
      n.out(n.b.add1(ops::reshape_to_op, {x, shape}));
      return {};
    }
    int64_t length = shape.dim(0).value();
    if (length > 64) return n.fail(Code::unsupported_feature, "the shape has {} axes, more than 64", length);
    if (!allow_zero && x.type()->ranked) {
      Shape own = x.shape();
      own.resize(static_cast<size_t>(length), Dim(0));
      shape = select(equal(shape, n.b.integer(0)), n.b.sizes(own), shape);
    }
    if (x.type()->ranked) {
      X free = less(shape, n.b.integer(0));
      X rest = n.b.add1(ops::reduce_prod_op, {select(free, n.b.integer(1), shape)}, {Axes{0}});
      X total = n.b.size(product(x.shape()));
      // An empty tensor leaves nothing to divide.
      X quotient = total / max(rest, n.b.integer(1));
      shape = select(free, quotient, shape);
    }
    n.out(n.b.add1(ops::reshape_to_op, {x, shape}));
    return {};
  }
  if (!allow_zero) name_axes_behind_repeats(n, x, wanted);
  TESSERA_ASSIGN(Shape shape, infer_minus_one(x.shape(), wanted, allow_zero));
  n.out(reshape(x, std::move(shape)));
  return {};
}

Status import_transpose(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  std::vector<int64_t> wanted = n.integers("perm");
  std::vector<int> permutation;
  if (wanted.empty()) {
    for (int i = x.rank() - 1; i >= 0; --i) permutation.push_back(i);
  } else {
    if (static_cast<int>(wanted.size()) != x.rank())
      return n.fail(Code::attribute_invalid, "perm has {} entries but the input has {} axes", wanted.size(), x.rank());
    std::vector<bool> seen(wanted.size(), false);
    for (int64_t p : wanted) {
      TESSERA_ASSIGN(int axis, n.normal_axis(p, x.rank()));
      if (seen[static_cast<size_t>(axis)]) return n.fail(Code::attribute_invalid, "perm names axis {} twice", axis);
      seen[static_cast<size_t>(axis)] = true;
      permutation.push_back(axis);
    }
  }
  n.out(transpose(x, std::move(permutation)));
  return {};
}

Status import_squeeze(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(std::optional<std::vector<int>> axes, axes_of(n, 1, 13, x.rank()));
  if (!axes) {
    axes.emplace();
    for (int i = 0; i < x.rank(); ++i) {
      if (x.dim(i).is(1)) axes->push_back(i);
      // Which axes go depends on the sizes of the run.
      if (!x.dim(i).is_const() && !n.b.dims().proves_ne(x.dim(i), 1)) return n.value_unknown(0);
    }
  }
  for (int a : *axes) {
    if (x.dim(a).is_const() && !x.dim(a).is(1))
      return n.fail(Code::shape_invalid, "axis {} has the size {}, so it cannot be squeezed", a, x.dim(a).value());
    if (!x.dim(a).is_const()) n.b.require_equal(x.dim(a), 1);
  }
  n.out(squeeze(x, *axes));
  return {};
}

Status import_unsqueeze(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  size_t count = 0;
  if (n.opset >= 13) {
    std::optional<std::vector<int64_t>> known = n.ints(1);
    if (!known) return n.value_unknown(1);
    count = known->size();
  } else {
    count = n.integers("axes").size();
  }
  TESSERA_ASSIGN(std::optional<std::vector<int>> axes, axes_of(n, 1, 13, x.rank() + static_cast<int>(count)));
  if (!axes) return n.fail(Code::attribute_invalid, "axes are missing");
  n.out(unsqueeze(x, *axes));
  return {};
}

Status import_flatten(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  int64_t axis = n.integer("axis", 1);
  if (axis < -x.rank() || axis > x.rank())
    return n.fail(Code::axis_out_of_range, "axis {} is outside [-{}, {}]", axis, x.rank(), x.rank());
  size_t at = static_cast<size_t>(axis < 0 ? axis + x.rank() : axis);
  std::span<const Dim> shape = x.shape();
  n.out(reshape(x, {product(shape.first(at)), product(shape.subspan(at))}));
  return {};
}

Status import_concat(NodeImport& n) {
  Xs xs = n.all();
  TESSERA_TRY(n.b.status());
  if (n.opset >= 4 && !n.has_attribute("axis")) return n.fail(Code::attribute_invalid, "axis is missing");
  TESSERA_ASSIGN(int axis, n.axis("axis", 1, xs[0].rank()));
  n.out(concat(std::move(xs), axis));
  return {};
}

Status import_split(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int axis, n.axis("axis", 0, x.rank()));
  Dim size = x.dim(axis);
  int64_t parts = n.outputs();
  Shape sizes;
  if (n.opset < 13) {
    for (int64_t s : n.integers("split")) sizes.push_back(s);
    if (n.opset == 1 && sizes.empty() && n.has(1)) {
      const Shape* known = n.sizes(1);
      if (known == nullptr) return n.value_unknown(1);
      sizes = *known;
    }
  } else if (n.has(1)) {
    const Shape* known = n.sizes(1);
    if (known == nullptr) return n.value_unknown(1);
    sizes = *known;
  }
  if (sizes.empty()) {
    if (n.opset >= 18 && n.has_attribute("num_outputs")) parts = n.integer("num_outputs", parts);
    if (parts < 1) return n.fail(Code::attribute_invalid, "num_outputs is {}", parts);
    // Equal parts, the last one smaller where they do not divide.
    Dim each = ceildiv(size, parts);
    for (int64_t i = 0; i + 1 < parts; ++i) sizes.push_back(each);
    sizes.push_back(size - (parts - 1) * each);
  }
  if (static_cast<int64_t>(sizes.size()) < n.outputs())
    return n.fail(Code::arity, "{} outputs for {} parts", n.outputs(), sizes.size());
  Dim start = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].is_const() && sizes[i].value() < 0)
      return n.fail(Code::shape_invalid, "part {} has the size {}", i, sizes[i].value());
    n.out(static_cast<int>(i), slice(x, axis, start, sizes[i]));
    start = start + sizes[i];
  }
  n.b.require_equal(start, size);
  return {};
}

Status import_tile(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  Shape repeats(static_cast<size_t>(x.rank()), Dim(1));
  if (n.opset < 6) {
    std::optional<std::vector<int64_t>> tiles = n.ints(1), axis = n.ints(2);
    if (!tiles || !axis || tiles->size() != 1 || axis->size() != 1) return n.value_unknown(1);
    TESSERA_ASSIGN(int a, n.normal_axis((*axis)[0], x.rank()));
    repeats[static_cast<size_t>(a)] = (*tiles)[0];
  } else if (const Shape* known = n.sizes(1)) {
    repeats = *known;
  } else {
    // x[i mod size] along each axis in turn.
    X wanted = as_i64(n.need(1));
    TESSERA_TRY(n.b.status());
    if (wanted.rank() != 1 || (wanted.dim(0).is_const() && !wanted.dim(0).is(x.rank())))
      return n.fail(Code::shape_mismatch, "repeats of shape {} for {} axes", to_string(wanted.shape()), x.rank());
    for (int i = 0; i < x.rank(); ++i) {
      X size = n.b.size(x.dim(i));
      X length = squeeze(slice(wanted, 0, i, 1), {0}) * size;
      x = gather(x, mod(n.b.add1(ops::range_op, {length}), max(size, n.b.integer(1))), i);
      TESSERA_TRY(n.b.status());
    }
    n.out(x);
    return {};
  }
  if (static_cast<int>(repeats.size()) != x.rank())
    return n.fail(Code::shape_mismatch, "{} repeats for {} axes", repeats.size(), x.rank());
  // A stride-0 axis before each repeated one, then merged with it.
  Shape wide, merged;
  std::vector<int> positions;
  for (size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i].is_const() && repeats[i].value() < 0)
      return n.fail(Code::shape_invalid, "axis {} is repeated {} times", i, repeats[i].value());
    positions.push_back(static_cast<int>(2 * i));
    wide.push_back(repeats[i]);
    wide.push_back(x.dim(static_cast<int>(i)));
    merged.push_back(repeats[i] * x.dim(static_cast<int>(i)));
  }
  n.out(reshape(broadcast(unsqueeze(x, positions), wide), merged));
  return {};
}

Status import_expand(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  const Shape* known = n.sizes(1);
  if (known == nullptr) {
    n.out(n.b.add1(ops::broadcast_to_op, {x, as_i64(n.need(1))}));
    return {};
  }
  Shape wanted = *known;
  for (Dim d : wanted)
    if (d.is_const() && d.value() < 0) return n.fail(Code::shape_invalid, "a size is {}", d.value());
  TESSERA_ASSIGN(Shape shape, n.b.broadcast(x.shape(), wanted));
  n.out(broadcast(x, std::move(shape)));
  return {};
}

Status import_constant_of_shape(NodeImport& n) {
  Tensor value;
  if (n.has_attribute("value")) {
    TESSERA_ASSIGN(value, n.tensor("value"));
    if (value.count() != 1)
      return n.fail(Code::attribute_invalid, "the value has {} elements but must have one", value.count());
    value = value.reshaped({});
  } else {
    TESSERA_ASSIGN(value, Tensor::make(DType::f32, {}));
  }
  X x = n.b.constant(std::move(value));
  if (const Shape* known = n.sizes(0)) {
    for (Dim d : *known)
      if (d.is_const() && d.value() < 0) return n.fail(Code::shape_invalid, "a size is {}", d.value());
    n.out(broadcast(x, *known));
  } else {
    n.out(n.b.add1(ops::broadcast_to_op, {x, n.need(0)}));
  }
  return {};
}

Status import_eye_like(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  if (x.rank() != 2) return n.fail(Code::rank_mismatch, "the input has {} axes but must have 2", x.rank());
  DType dtype = n.dtype("dtype", x.dtype());
  X row = iota(n.b, x.shape(), 0, DType::i64), column = iota(n.b, x.shape(), 1, DType::i64);
  n.out(cast(equal(row + n.b.integer(n.integer("k", 0)), column), dtype));
  return {};
}

// start + i * delta for i in [0, max(0, ceil((limit - start) / delta))).
Status import_range(NodeImport& n) {
  auto scalar = [&](int i) {
    X x = n.need(i);
    return x && x.rank() > 0 ? reshape(x, {}) : x;
  };
  X start = scalar(0), limit = scalar(1);
  // com.microsoft's Range, of whose domain this is version 1, may leave the step out.
  X delta = n.opset < 11 && !n.has(2) ? like(start, 1) : scalar(2);
  TESSERA_TRY(n.b.status());
  DType type = start.dtype();
  X count;
  if (is_float(type)) {
    // The count is taken in double, or rounding of the quotient could move it by one.
    X quotient = (cast(limit, DType::f64) - cast(start, DType::f64)) / cast(delta, DType::f64);
    count = cast(n.b.add1(ops::ceil_op, {quotient}), DType::i64);
  } else {
    // ceil for either sign of delta: -floor(-d / delta), floor by the remainder with the divisor's sign.
    X distance = cast(start, DType::i64) - cast(limit, DType::i64), step = cast(delta, DType::i64);
    count = -((distance - mod(distance, step)) / step);
  }
  count = max(count, n.b.integer(0));
  X index;
  if (const Shape* known = n.b.contents(count)) {
    index = iota(n.b, {(*known)[0]}, 0, DType::i64);
  } else if (auto s = n.reals(0), l = n.reals(1), d = n.reals(2);
             s && l && d && s->size() == 1 && l->size() == 1 && d->size() == 1) {
    double trips = std::ceil(((*l)[0] - (*s)[0]) / (*d)[0]);
    if (!(trips < 1e9)) return n.fail(Code::value_invalid, "a range of {} elements", trips);
    index = iota(n.b, {static_cast<int64_t>(std::max(0.0, trips))}, 0, DType::i64);
  } else {
    index = n.b.add1(ops::range_op, {count});
  }
  n.out(start + cast(index, type) * delta);
  return {};
}

Status import_trilu(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  if (x.rank() < 2) return n.fail(Code::rank_mismatch, "the input has {} axes but must have at least 2", x.rank());
  X k = n.has(1) ? reshape(cast(n.need(1), DType::i64), {}) : n.b.integer(0);
  Shape matrix = {x.dim(-2), x.dim(-1)};
  X row = iota(n.b, matrix, 0, DType::i64) + k, column = iota(n.b, matrix, 1, DType::i64);
  X keep = n.integer("upper", 1) != 0 ? less_equal(row, column) : less_equal(column, row);
  X zero = x.dtype() == DType::boolean ? n.b.integer(0, DType::boolean) : like(x, 0);
  n.out(select(keep, x, zero));
  return {};
}

// [N, C, H, W] <-> blocks of `size` x `size`.
Status import_depth_to_space(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  int64_t size = n.integer("blocksize", 0);
  if (x.rank() != 4 || size < 1)
    return n.fail(Code::shape_invalid, "the input has {} axes and blocksize is {}", x.rank(), size);
  std::optional<Dim> channels = x.dim(1).is_const() ? (x.dim(1).value() % (size * size) == 0
                                                           ? std::optional<Dim>(x.dim(1).value() / (size * size))
                                                           : std::nullopt)
                                                    : n.b.dims().exact_div(x.dim(1), size * size);
  if (!channels)
    return n.fail(Code::shape_invalid, "{} channels are no multiple of {}", to_string(x.dim(1)), size * size);
  Shape shape = x.shape();
  bool dcr = n.text("mode", "DCR") == "DCR";
  X y = dcr ? transpose(reshape(x, {shape[0], size, size, *channels, shape[2], shape[3]}), {0, 3, 4, 1, 5, 2})
            : transpose(reshape(x, {shape[0], *channels, size, size, shape[2], shape[3]}), {0, 1, 4, 2, 5, 3});
  n.out(reshape(y, {shape[0], *channels, shape[2] * size, shape[3] * size}));
  return {};
}

Status import_space_to_depth(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  int64_t size = n.integer("blocksize", 0);
  if (x.rank() != 4 || size < 1)
    return n.fail(Code::shape_invalid, "the input has {} axes and blocksize is {}", x.rank(), size);
  Shape shape = x.shape();
  auto part = [&](Dim d) -> Result<Dim> {
    if (d.is_const() && d.value() % size == 0) return Dim(d.value() / size);
    if (!d.is_const())
      if (std::optional<Dim> q = n.b.dims().exact_div(d, size)) return *q;
    return n.fail(Code::shape_invalid, "size {} is no multiple of {}", to_string(d), size);
  };
  TESSERA_ASSIGN(Dim h, part(shape[2]));
  TESSERA_ASSIGN(Dim w, part(shape[3]));
  X y = transpose(reshape(x, {shape[0], shape[1], h, size, w, size}), {0, 3, 5, 1, 2, 4});
  n.out(reshape(y, {shape[0], shape[1] * (size * size), h, w}));
  return {};
}

// Crops or pads around the centre; the odd element goes to the end.
Status import_center_crop_pad(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  const Shape* known = n.sizes(1);
  if (known == nullptr) return n.value_unknown(1);
  Shape wanted = *known;
  std::vector<int> axes;
  if (n.has_attribute("axes")) {
    for (int64_t a : n.integers("axes")) {
      TESSERA_ASSIGN(int axis, n.normal_axis(a, x.rank()));
      axes.push_back(axis);
    }
  } else {
    for (int i = 0; i < x.rank(); ++i) axes.push_back(i);
  }
  if (axes.size() != wanted.size())
    return n.fail(Code::shape_mismatch, "{} sizes for {} axes", wanted.size(), axes.size());
  Shape low(static_cast<size_t>(x.rank()), Dim(0)), high = low;
  for (size_t i = 0; i < axes.size(); ++i) {
    Dim size = x.dim(axes[i]);
    if (!size.is_const() || !wanted[i].is_const()) return n.value_unknown(1);
    int64_t have = size.value(), want = wanted[i].value();
    if (want < 0) return n.fail(Code::shape_invalid, "a size is {}", want);
    if (have > want) {
      x = slice(x, axes[i], (have - want) / 2, want);
    } else {
      low[static_cast<size_t>(axes[i])] = (want - have) / 2;
      high[static_cast<size_t>(axes[i])] = want - have - (want - have) / 2;
    }
  }
  n.out(pad(x, low, high));
  return {};
}

// The first lengths[b] steps of each example in reverse.
Status import_reverse_sequence(NodeImport& n) {
  X x = n.need(0), lengths = n.need(1);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int batch, n.axis("batch_axis", 1, x.rank()));
  TESSERA_ASSIGN(int time, n.axis("time_axis", 0, x.rank()));
  if (batch == time) return n.fail(Code::attribute_invalid, "batch_axis and time_axis are both {}", batch);
  X step = iota(n.b, x.shape(), time, DType::i64);
  Shape along(static_cast<size_t>(x.rank()), Dim(1));
  along[static_cast<size_t>(batch)] = x.dim(batch);
  X length = reshape(cast(lengths, DType::i64), along);
  X index = select(less(step, length), length - n.b.integer(1) - step, step);
  n.out(n.b.add1(ops::gather_elements_op, {x, index}, {static_cast<int64_t>(time)}));
  return {};
}

}  // namespace tessera::onnx
