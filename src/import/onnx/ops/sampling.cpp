// GridSample and AffineGrid. Letters: N batch, C channels, P points of a grid, K taps of a point.
#include <string>

#include "import/onnx/onnx_ops.h"
#include "import/onnx/ops/interpolate.h"

namespace tessera::onnx {
namespace {

enum class Kernel { nearest, linear, cubic };
enum class Padding { zeros, border, reflection };

struct Sampling {
  Kernel kernel;
  Padding padding;
  bool align_corners;
};

Result<Sampling> sampling_of(NodeImport& n) {
  Sampling s{};
  bool old = n.opset < 20;
  std::string_view mode = n.text("mode", old ? "bilinear" : "linear");
  if (mode == "nearest") {
    s.kernel = Kernel::nearest;
  } else if (mode == (old ? "bilinear" : "linear")) {
    s.kernel = Kernel::linear;
  } else if (mode == (old ? "bicubic" : "cubic")) {
    s.kernel = Kernel::cubic;
  } else {
    return n.fail(Code::attribute_invalid, "the mode is '{}'", mode);
  }
  std::string_view padding = n.text("padding_mode", "zeros");
  if (padding == "zeros") {
    s.padding = Padding::zeros;
  } else if (padding == "border") {
    s.padding = Padding::border;
  } else if (padding == "reflection") {
    s.padding = Padding::reflection;
  } else {
    return n.fail(Code::attribute_invalid, "padding_mode is '{}'", padding);
  }
  s.align_corners = n.integer("align_corners", 0) != 0;
  return s;
}

// One axis of the image: its size, and the coordinates of its borders: the outer elements' centres or outer edges.
struct Border {
  X size, low, high;
};

Border border_of(Builder& b, Dim size, DType type, const Sampling& s) {
  X n = cast(b.size(size), type);
  if (s.align_corners) return {n, like(n, 0), n - 1.0};
  return {n, like(n, -0.5), n - 0.5};
}

// Mirrored at the borders until it lies between them.
X reflected(X x, const Border& at) {
  X extent = at.high - at.low;
  extent = select(less(like(extent, 0), extent), extent, like(extent, 1));  // one element has no extent
  X below = less(x, at.low), outside = logical_or(below, less(at.high, x));
  X beyond = select(below, at.low - x, x - at.high);
  X turns = floor(beyond / extent), rest = beyond - turns * extent;
  X even = equal(mod(turns, like(turns, 2)), like(turns, 0));
  return select(outside, select(equal(below, even), at.low + rest, at.high - rest), x);
}

X clamped(X x, X low, X high) { return max(min(x, high), low); }

// The taps along one axis of the image, each [N, P, K].
struct Taps {
  X index;   // i64, inside the image
  X inside;  // whether the tap itself is; absent when padding gives every tap a value
  X weight;  // absent for the nearest element
};

// `at` holds grid coordinates [N, P]: -1 and 1 are the borders.
Taps taps(Builder& b, X at, Dim size, const Sampling& s) {
  Border border = border_of(b, size, at.dtype(), s);
  X x = s.align_corners ? (at + 1.0) / 2.0 * (border.size - 1.0) : ((at + 1.0) * border.size - 1.0) / 2.0;
  if (s.kernel == Kernel::nearest) x = b.add1(ops::round_op, {x});
  X last = border.size - 1.0, zero = like(last, 0);
  if (s.padding == Padding::border) {
    X outside = logical_or(less(x, border.low), less(border.high, x));
    x = select(outside, clamped(x, zero, last), x);
  } else if (s.padding == Padding::reflection) {
    x = reflected(x, border);
  }
  x = unsqueeze(x, {2});
  Taps t;
  X tap = x;
  if (s.kernel != Kernel::nearest) {
    bool cubic = s.kernel == Kernel::cubic;
    tap = floor(x) + (iota(b, {cubic ? 4 : 2}, 0, at.dtype()) - (cubic ? 1.0 : 0.0));
    t.weight = cubic ? cubic_kernel(tap - x, -0.75) : linear_kernel(tap - x);
  }
  if (s.padding == Padding::zeros) t.inside = logical_and(less_equal(zero, tap), less_equal(tap, last));
  if (s.padding == Padding::reflection) tap = reflected(tap, border);
  t.index = clamped(cast(tap, DType::i64), b.integer(0), b.size(size - 1));
  return t;
}

// a op b over every pair of taps: [N, P, K] and [N, P, L] give [N, P, K L].
X pairs(const ir::OpDef& op, X a, X b) {
  if (!a) return b;
  if (!b) return a;
  X y = a.builder->add1(op, {unsqueeze(a, {3}), unsqueeze(b, {2})});
  if (!y) return y;
  return reshape(y, {y.dim(0), y.dim(1), y.dim(2) * y.dim(3)});
}

}  // namespace

// x [N, C, D1...], grid [N, E1..., axes] -> [N, C, E1...]. The grid names the last axis first.
Status import_grid_sample(NodeImport& n) {
  X x = n.need(0), grid = n.need(1);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(Sampling s, sampling_of(n));
  int axes = x.rank() - 2;
  if (axes < 1 || grid.rank() != x.rank())
    return n.fail(Code::rank_mismatch, "the input has {} axes and the grid {}, which must be equal and at least 3",
                  x.rank(), grid.rank());
  n.b.require_equal(grid.dim(-1), axes);
  n.b.require_equal(grid.dim(0), x.dim(0));
  TESSERA_TRY(n.b.status());
  Shape shape = {x.dim(0), x.dim(1)};
  shape.insert(shape.end(), grid.shape().begin() + 1, grid.shape().end() - 1);
  Dim points = product(std::span<const Dim>(shape).subspan(2));

  // Coordinates in the grid's precision, as everyone computes them: ties of the nearest element depend on it.
  DType type = grid.dtype() == DType::f64 ? DType::f64 : DType::f32;
  grid = reshape(cast(grid, type), {x.dim(0), points, axes});
  Taps all;
  for (int a = 0; a < axes; ++a) {
    Dim size = x.dim(a + 2);
    Taps t = taps(n.b, squeeze(slice(grid, 2, axes - 1 - a, 1), {2}), size, s);
    TESSERA_TRY(n.b.status());
    // Row-major position of the tap in the image.
    all.index = all.index ? pairs(ops::add_op, all.index * n.b.size(size), t.index) : t.index;
    all.inside = pairs(ops::logical_and_op, all.inside, t.inside);
    all.weight = pairs(ops::mul_op, all.weight, t.weight);
    TESSERA_TRY(n.b.status());
  }
  Dim count = all.index.dim(2);
  auto flat = [&](X taps) { return reshape(taps, {x.dim(0), 1, points * count}); };
  X pixels = reshape(x, {x.dim(0), x.dim(1), product(std::span<const Dim>(x.shape()).subspan(2))});
  X index = broadcast(flat(all.index), {x.dim(0), x.dim(1), points * count});
  X y = n.b.add1(ops::gather_elements_op, {pixels, index}, {int64_t{2}});
  if (all.inside)
    y = select(flat(all.inside), y, x.dtype() == DType::boolean ? n.b.integer(0, DType::boolean) : like(y, 0));
  if (all.weight) {
    DType wide = x.dtype() == DType::f64 || !is_float(x.dtype()) ? DType::f64 : DType::f32;
    y = cast(y, wide) * cast(flat(all.weight), wide);
    y = squeeze(sum(reshape(y, {x.dim(0), x.dim(1), points, count}), {3}), {3});
  }
  n.out(cast(reshape(y, shape), x.dtype()));
  return {};
}

// theta [N, axes, axes + 1] -> grid [N, D1..., axes]: the points of an even grid, carried by theta.
Status import_affine_grid(NodeImport& n) {
  X theta = n.need(0);
  TESSERA_TRY(n.b.status());
  const Shape* known = n.sizes(1);
  if (known == nullptr) return n.value_unknown(1);
  Shape size = *known;
  if ((size.size() != 4 && size.size() != 5) || theta.rank() != 3)
    return n.fail(Code::rank_mismatch, "theta has {} axes and size {} elements, which must be 3, and 4 or 5",
                  theta.rank(), size.size());
  int axes = static_cast<int>(size.size()) - 2;
  bool align = n.integer("align_corners", 0) != 0;
  Shape shape(size.begin() + 2, size.end());
  Dim points = product(shape);
  Xs columns;  // the last axis first, then a column of ones
  for (int a = axes - 1; a >= 0; --a) {
    X i = iota(n.b, shape, a, DType::f64), count = cast(n.b.size(shape[static_cast<size_t>(a)]), DType::f64);
    X at = align ? i * 2.0 / max(count - 1.0, like(count, 1)) - 1.0 : (i * 2.0 + 1.0) / count - 1.0;
    columns.push_back(reshape(at, {points, 1}));
  }
  columns.push_back(broadcast(n.b.scalar(DType::f64, 1), {points, 1}));
  TESSERA_TRY(n.b.status());
  n.b.require_equal(theta.dim(0), size[0]);
  X grid = dot(concat(columns, 1), cast(theta, DType::f64));  // [N, points, axes]
  shape.insert(shape.begin(), size[0]);
  shape.push_back(axes);
  n.out(cast(reshape(grid, shape), theta.dtype()));
  return {};
}

}  // namespace tessera::onnx
