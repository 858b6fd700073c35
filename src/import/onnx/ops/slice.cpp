// Slice and Pad.
#include <algorithm>
#include <limits>

#include "import/onnx/onnx_ops.h"

namespace tessera::onnx {
namespace {

// Where a slice begins and how many elements it has, as ONNX clamps them; nullopt when the sizes do not decide it.
struct Cut {
  Dim start, count;
};

// The bound as an index counted from the front, clamped to [low, high].
std::optional<Dim> clamped(DimTable& table, Dim bound, Dim size, Dim low, Dim high) {
  if (bound.is_const()) {
    int64_t b = bound.value();
    // Far ends are what exporters write for "to the end".
    if (b >= std::numeric_limits<int32_t>::max()) return high;
    if (b <= -static_cast<int64_t>(std::numeric_limits<int32_t>::max())) return low;
    return max(low, min(high, b < 0 ? size + b : bound));
  }
  DimBounds bounds = table.bounds(bound);
  if (bounds.lo >= 0) return min(high, bound);
  if (bounds.hi < 0) return max(low, min(high, size + bound));
  return std::nullopt;
}

std::optional<Cut> cut(DimTable& table, Dim size, Dim start, Dim end, int64_t step) {
  if (step > 0) {
    std::optional<Dim> from = clamped(table, start, size, 0, size), to = clamped(table, end, size, 0, size);
    if (!from || !to) return std::nullopt;
    return Cut{*from, max(Dim(0), ceildiv(*to - *from, step))};
  }
  std::optional<Dim> from = clamped(table, start, size, 0, size - 1), to = clamped(table, end, size, -1, size - 1);
  if (!from || !to) return std::nullopt;
  // A negative end that counts past the front means: down to and with element 0.
  return Cut{*from, max(Dim(0), ceildiv(*from - *to, -step))};
}

// The same during the run: x[start + i * step] for the clamped count.
X runtime_cut(NodeImport& n, X x, int axis, X start, X end, X step) {
  Builder& b = n.b;
  X size = b.size(x.dim(axis)), zero = b.integer(0), one = b.integer(1);
  auto from_front = [&](X i) { return select(less(i, zero), i + size, i); };
  X forward = less(zero, step);
  X low = select(forward, zero, -one), high = select(forward, size, size - one);
  X first_low = zero;
  X from = min(max(from_front(start), first_low), high);
  X to = min(max(from_front(end), low), high);
  X distance = select(forward, to - from, from - to), stride = abs(step);
  X count = max((distance + stride - one) / stride, zero);
  // An empty axis has no last element to start from.
  count = select(equal(size, zero), zero, count);
  return gather(x, from + b.add1(ops::range_op, {count}) * step, axis);
}

}  // namespace

Status import_slice(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  std::optional<Shape> starts, ends, steps;
  std::vector<int64_t> axes;
  size_t count = 0;
  if (n.opset < 10) {
    auto of = [](const std::vector<int64_t>& v) { return Shape(v.begin(), v.end()); };
    starts = of(n.integers("starts"));
    ends = of(n.integers("ends"));
    axes = n.integers("axes");
    count = starts->size();
    if (ends->size() != count) return n.fail(Code::attribute_invalid, "{} starts but {} ends", count, ends->size());
    steps = Shape(count, Dim(1));
  } else {
    X s = n.need(1), e = n.need(2);
    TESSERA_TRY(n.b.status());
    if (s.rank() != 1 || !s.dim(0).is_const() || e.rank() != 1 || e.dim(0) != s.dim(0))
      return n.fail(Code::shape_invalid, "starts {} and ends {} must be vectors of one length", to_string(*s.type()),
                    to_string(*e.type()));
    count = static_cast<size_t>(s.dim(0).value());
    if (count > static_cast<size_t>(x.rank()))
      return n.fail(Code::rank_mismatch, "{} starts for the {} axes of the input", count, x.rank());
    if (const Shape* known = n.sizes(1)) starts = *known;
    if (const Shape* known = n.sizes(2)) ends = *known;
    if (n.has(3)) {
      std::optional<std::vector<int64_t>> known = n.ints(3);
      if (!known) return n.value_unknown(3);
      axes = *known;
    }
    if (!n.has(4)) {
      steps = Shape(count, Dim(1));
    } else if (const Shape* known = n.sizes(4)) {
      steps = *known;
    }
    if (steps && steps->size() != count)
      return n.fail(Code::shape_invalid, "{} steps for {} starts", steps->size(), count);
  }
  if (axes.empty())
    for (size_t i = 0; i < count; ++i) axes.push_back(static_cast<int64_t>(i));
  if (axes.size() != count) return n.fail(Code::shape_invalid, "{} axes for {} starts", axes.size(), count);

  std::vector<bool> seen(static_cast<size_t>(x.rank()), false);
  for (size_t i = 0; i < count; ++i) {
    TESSERA_ASSIGN(int axis, n.normal_axis(axes[i], x.rank()));
    if (seen[static_cast<size_t>(axis)]) return n.fail(Code::attribute_invalid, "axis {} is given twice", axis);
    seen[static_cast<size_t>(axis)] = true;
    std::optional<Cut> c;
    if (starts && ends && steps && (*steps)[i].is_const()) {
      int64_t step = (*steps)[i].value();
      if (step == 0) return n.fail(Code::value_invalid, "the step along axis {} is 0", axis);
      // Steps past any size behave as the largest that is safe to multiply with.
      step = std::clamp<int64_t>(step, -(int64_t{1} << 40), int64_t{1} << 40);
      c = cut(n.b.dims(), x.dim(axis), (*starts)[i], (*ends)[i], step);
      if (c) {
        x = slice(x, axis, c->start, c->count, step);
        continue;
      }
    }
    auto element = [&](int input, const std::optional<Shape>& known, int64_t otherwise) {
      if (known) return n.b.size((*known)[i]);
      if (!n.has(input)) return n.b.integer(otherwise);
      return cast(squeeze(slice(n.need(input), 0, static_cast<int64_t>(i), 1), {0}), DType::i64);
    };
    x = runtime_cut(n, x, axis, element(1, starts, 0), element(2, ends, 0), element(4, steps, 1));
    TESSERA_TRY(n.b.status());
  }
  n.out(x);
  return {};
}

namespace {

// Indices into one axis for `low` more elements before and `high` after it: i - low, folded back into [0, size).
X padded_index(NodeImport& n, std::string_view mode, Dim size, Dim low, Dim high) {
  Builder& b = n.b;
  X i = iota(b, {low + size + high}, 0, DType::i64) - b.size(low);
  X last = b.size(size - 1), zero = b.integer(0);
  if (mode == "edge") return min(max(i, zero), last);
  if (mode == "wrap") return mod(i, b.size(size));
  // reflect: a period of 2 (size - 1) without repeating the edge.
  X period = max(b.size(2 * (size - 1)), b.integer(1));
  X folded = mod(i, period);
  return min(folded, period - folded);
}

}  // namespace

Status import_pad(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  std::string_view mode = n.text("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    return n.fail(Code::attribute_invalid, "mode is '{}' but must be constant, reflect, edge or wrap", mode);
  size_t rank = static_cast<size_t>(x.rank());
  Shape pads;
  X value;
  std::vector<int64_t> axes;
  if (n.opset < 11) {
    for (int64_t p : n.integers(n.opset == 1 && !n.has_attribute("pads") ? "paddings" : "pads")) pads.push_back(p);
    value = like(x, n.real("value", 0));
  } else {
    if (n.has(3)) {
      std::optional<std::vector<int64_t>> known = n.ints(3);
      if (!known) return n.value_unknown(3);
      axes = *known;
    }
    value = n.in(2);
    if (value && value.rank() > 0) value = reshape(value, {});
    if (const Shape* known = n.sizes(1)) {
      pads = *known;
    } else if (mode == "constant" && axes.empty()) {
      n.out(n.b.add1(ops::pad_to_op, {x, n.need(1), value}));
      return {};
    } else {
      return n.value_unknown(1);
    }
  }
  if (axes.empty())
    for (size_t i = 0; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
  if (pads.size() != 2 * axes.size())
    return n.fail(Code::shape_invalid, "{} pads for {} axes", pads.size(), axes.size());
  Shape low(rank, Dim(0)), high(rank, Dim(0));
  for (size_t i = 0; i < axes.size(); ++i) {
    TESSERA_ASSIGN(int axis, n.normal_axis(axes[i], x.rank()));
    Dim before = pads[i], after = pads[i + axes.size()];
    // Negative pads crop first.
    auto negative = [](Dim d) { return d.is_const() && d.value() < 0; };
    Dim start = negative(before) ? -before : Dim(0), end = negative(after) ? -after : Dim(0);
    if (negative(before)) before = 0;
    if (negative(after)) after = 0;
    if (!start.is(0) || !end.is(0)) {
      Dim left = x.dim(axis) - start - end;
      if (left.is_const() && left.value() < 0)
        return n.fail(Code::shape_invalid, "axis {} of size {} is cropped by {}", axis, to_string(x.dim(axis)),
                      to_string(start + end));
      x = slice(x, axis, start, left);
    }
    if (mode == "constant") {
      low[static_cast<size_t>(axis)] = before;
      high[static_cast<size_t>(axis)] = after;
    } else if (!before.is(0) || !after.is(0)) {
      if (x.dim(axis).is(0)) return n.fail(Code::shape_invalid, "axis {} is empty: there is nothing to repeat", axis);
      x = gather(x, padded_index(n, mode, x.dim(axis), before, after), axis);
    }
  }
  n.out(pad(x, low, high, value));
  return {};
}

}  // namespace tessera::onnx
