#include "ops/math.h"

#include <algorithm>

namespace tessera::ir {
namespace {

X unary(const OpDef& op, X x) { return x.builder->add1(op, {x}); }
X binary(const OpDef& op, X a, X b) { return a.builder->add1(op, {a, b}); }
X absent(X x) { return {x.builder, kNoValue}; }

// Axes as indices in [0, rank), ascending.
Axes normal_axes(X x, Axes axes) {
  for (int64_t& a : axes) a = a < 0 ? a + x.rank() : a;
  std::sort(axes.begin(), axes.end());
  return axes;
}
int normal_axis(int axis, int rank) { return axis < 0 ? axis + rank : axis; }

}  // namespace

X like(X x, double value) { return x ? x.builder->scalar(x.dtype(), value) : absent(x); }

X operator+(X a, X b) { return binary(ops::add_op, a, b); }
X operator-(X a, X b) { return binary(ops::sub_op, a, b); }
X operator*(X a, X b) { return binary(ops::mul_op, a, b); }
X operator/(X a, X b) { return binary(ops::div_op, a, b); }
X operator-(X a) { return unary(ops::neg_op, a); }
X operator+(X a, double b) { return a + like(a, b); }
X operator-(X a, double b) { return a - like(a, b); }
X operator*(X a, double b) { return a * like(a, b); }
X operator/(X a, double b) { return a / like(a, b); }
X operator+(double a, X b) { return like(b, a) + b; }
X operator-(double a, X b) { return like(b, a) - b; }
X operator*(double a, X b) { return like(b, a) * b; }
X operator/(double a, X b) { return like(b, a) / b; }

X abs(X x) { return unary(ops::abs_op, x); }
X exp(X x) { return unary(ops::exp_op, x); }
X log(X x) { return unary(ops::log_op, x); }
X sqrt(X x) { return unary(ops::sqrt_op, x); }
X ceil(X x) { return unary(ops::ceil_op, x); }
X rsqrt(X x) { return unary(ops::rsqrt_op, x); }
X tanh(X x) { return unary(ops::tanh_op, x); }
X erf(X x) { return unary(ops::erf_op, x); }
X floor(X x) { return unary(ops::floor_op, x); }
X square(X x) { return x * x; }
X min(X a, X b) { return binary(ops::min_op, a, b); }
X max(X a, X b) { return binary(ops::max_op, a, b); }
X mod(X a, X b) { return binary(ops::mod_op, a, b); }
X pow(X a, X b) { return binary(ops::pow_op, a, b); }

X equal(X a, X b) { return binary(ops::equal_op, a, b); }
X less(X a, X b) { return binary(ops::less_op, a, b); }
X less_equal(X a, X b) { return binary(ops::less_equal_op, a, b); }
X logical_not(X x) { return unary(ops::logical_not_op, x); }
X logical_and(X a, X b) { return binary(ops::logical_and_op, a, b); }
X logical_or(X a, X b) { return binary(ops::logical_or_op, a, b); }
X select(X condition, X a, X b) { return condition.builder->add1(ops::select_op, {condition, a, b}); }

X cast(X x, DType to) {
  if (!x || x.dtype() == to) return x;
  return x.builder->add1(ops::cast_op, {x}, {static_cast<int64_t>(to)});
}
X decoded(X weights) {
  if (!weights || !is_block(weights.dtype())) return cast(weights, DType::f32);
  return weights.builder->add1(ops::dequantize_op, {weights});
}

X sum(X x, Axes axes) {
  if (!x || axes.empty()) return x;
  return x.builder->add1(ops::reduce_sum_op, {x}, {normal_axes(x, std::move(axes))});
}
X mean(X x, Axes axes) {
  if (!x || axes.empty()) return x;
  Dim count = 1;
  for (int64_t a : axes) count = count * x.dim(static_cast<int>(a));
  X n = count.is_const() ? like(x, static_cast<double>(count.value())) : cast(x.builder->size(count), x.dtype());
  return sum(x, std::move(axes)) / n;
}
X reduce_max(X x, Axes axes) {
  if (!x || axes.empty()) return x;
  return x.builder->add1(ops::reduce_max_op, {x}, {normal_axes(x, std::move(axes))});
}
X reduce_min(X x, Axes axes) {
  if (!x || axes.empty()) return x;
  return x.builder->add1(ops::reduce_min_op, {x}, {normal_axes(x, std::move(axes))});
}

X dot(X a, X b) { return binary(ops::dot_op, a, b); }
X matmul(X a, X b) { return dot(a, swap_axes(b, -1, -2)); }

X transpose(X x, std::vector<int> permutation) {
  if (!x) return x;
  return x.builder->view(x, transpose_view(x.shape(), permutation));
}
X swap_axes(X x, int a, int b) {
  if (!x) return x;
  std::vector<int> permutation(static_cast<size_t>(x.rank()));
  for (int i = 0; i < x.rank(); ++i) permutation[static_cast<size_t>(i)] = i;
  std::swap(permutation[static_cast<size_t>(normal_axis(a, x.rank()))],
            permutation[static_cast<size_t>(normal_axis(b, x.rank()))]);
  return transpose(x, std::move(permutation));
}
X reshape(X x, Shape shape) {
  if (!x) return x;
  if (std::optional<View> view = reshape_view(x.shape(), shape)) return x.builder->view(x, std::move(*view));
  return x.builder->add1(core::copy, {x}, {std::move(shape)});
}
X broadcast(X x, Shape shape) {
  if (!x) return x;
  return x.builder->view(x, broadcast_view(x.shape(), shape));
}
X unsqueeze(X x, std::vector<int> positions) {
  if (!x) return x;
  int rank = x.rank() + static_cast<int>(positions.size());
  for (int& p : positions) p = normal_axis(p, rank);
  std::sort(positions.begin(), positions.end());
  return x.builder->view(x, unsqueeze_view(x.shape(), positions));
}
X squeeze(X x, std::vector<int> axes) {
  if (!x) return x;
  for (int& a : axes) a = normal_axis(a, x.rank());
  std::sort(axes.begin(), axes.end());
  return x.builder->view(x, squeeze_view(x.shape(), axes));
}
X slice(X x, int axis, Dim start, Dim size, Dim step) {
  if (!x) return x;
  return x.builder->view(x, slice_view(x.shape(), normal_axis(axis, x.rank()), start, step, size));
}
X concat(Xs xs, int axis) {
  if (xs.size() == 1) return xs[0];
  return xs[0].builder->add(ops::concat_op, xs, {static_cast<int64_t>(axis)})[0];
}
X pad(X x, Shape low, Shape high, X value) {
  auto zero = [](const Dim& d) { return d.is(0); };
  if (!x || (std::all_of(low.begin(), low.end(), zero) && std::all_of(high.begin(), high.end(), zero))) return x;
  return x.builder->add1(ops::pad_op, {x, value}, {std::move(low), std::move(high)});
}
X gather(X x, X index, int axis) {
  if (!x) return x;
  return x.builder->add1(ops::gather_op, {x, index}, {static_cast<int64_t>(normal_axis(axis, x.rank()))});
}
X iota(Builder& builder, Shape shape, int axis, DType dtype) {
  return builder.add1(ops::iota_op, {}, {std::move(shape), static_cast<int64_t>(axis), static_cast<int64_t>(dtype)});
}

}  // namespace tessera::ir
