// Normalizations.
#include "import/onnx/onnx_ops.h"
#include "import/onnx/ops/spatial.h"
#include "tensor/scalar.h"

namespace tessera::onnx {
namespace {

// [C] so that it broadcasts to x [N, C, *D].
X by_channel(X s, X x) {
  if (!s || !x || s.rank() != 1) return s;
  std::vector<int> behind;
  for (int i = 2; i < x.rank(); ++i) behind.push_back(i - 1);
  return behind.empty() ? s : unsqueeze(s, std::move(behind));
}

// The stash_type attribute: what statistics are computed in.
DType stash_type(NodeImport& n) {
  return n.integer("stash_type", 1) == 0 ? DType::f32 : n.dtype("stash_type", DType::f32);
}

}  // namespace

// Whether batch statistics are used: before version 14 the number of results tells.
Status import_batch_normalization(NodeImport& n) {
  X x = n.need(0), scale = n.need(1), bias = n.need(2), old_mean = n.need(3), old_variance = n.need(4);
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(check_image(n, x, 0));
  bool training = n.integer("training_mode", 0) != 0;
  if (n.opset < 14) {
    training = n.wants(1) || n.wants(2) || n.wants(3) || n.wants(4);
    if (n.opset < 7) training = training && n.integer("is_test", 0) == 0;
  }
  const double eps = n.real("epsilon", 1e-5), momentum = n.real("momentum", 0.9);
  const bool spatial = n.opset >= 9 || n.integer("spatial", 1) != 0;

  const DType type = compute_type(x.dtype());
  for (X s : {scale, bias, old_mean, old_variance})
    if (spatial && (s.rank() != 1 || n.b.dims().proves_ne(s.dim(0), x.dim(1))))
      return n.fail(Code::shape_mismatch, "{} does not hold a value for each channel of {}", to_string(*s.type()),
                    to_string(*x.type()));
  const Shape each(x.shape().begin() + 1, x.shape().end());
  auto placed = [&](X s) { return spatial ? by_channel(cast(s, type), x) : reshape(cast(s, type), each); };
  X wide = cast(x, type), m = placed(old_mean), v = placed(old_variance);
  TESSERA_TRY(n.b.status());
  if (training) {
    Axes axes = {0};
    for (int i = 2; spatial && i < x.rank(); ++i) axes.push_back(i);
    m = mean(wide, axes);
    v = mean(square(wide - m), axes);
  }
  X y = (wide - m) * (rsqrt(v + eps) * placed(scale)) + placed(bias);
  n.out(0, cast(y, x.dtype()));
  if (!training) return {};
  auto flat = [&](X s, X like_this) { return cast(reshape(s, like_this.shape()), like_this.dtype()); };
  X batch_mean = flat(m, old_mean), batch_variance = flat(v, old_variance);
  n.out(1, old_mean * momentum + batch_mean * (1 - momentum));
  n.out(2, old_variance * momentum + batch_variance * (1 - momentum));
  n.out(3, batch_mean);
  n.out(4, batch_variance);
  return {};
}

// A scale of ones and a bias of zeros are there because the operator asks for some.
X unless_all(NodeImport& n, X x, double number) {
  const Tensor* tensor = n.b.constant_of(x);
  if (tensor == nullptr || tensor->dtype() == DType::string) return x;
  for (int64_t i = 0; i < tensor->count(); ++i)
    if (decode(tensor->dtype(), tensor->data(), i) != number) return x;
  return {&n.b, ir::kNoValue};
}

Status import_instance_normalization(NodeImport& n) {
  X x = n.need(0), scale = n.need(1), bias = n.need(2);
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(check_image(n, x, 1));
  const double eps = n.real("epsilon", 1e-5);
  if (x.dim(1).is_const() && x.dim(1).value() > 0) {
    n.out(n.b.add1(ops::group_norm_op, {x, unless_all(n, scale, 1), unless_all(n, bias, 0)}, {x.dim(1).value(), eps}));
    return {};
  }
  Axes axes;
  for (int i = 2; i < x.rank(); ++i) axes.push_back(i);
  X wide = cast(x, compute_type(x.dtype()));
  X d = wide - mean(wide, axes);
  X y = d * rsqrt(mean(square(d), axes) + eps);
  n.out(cast(y, x.dtype()) * by_channel(scale, x) + by_channel(bias, x));
  return {};
}

// In version 18 scale and bias hold one value a group, from 21 on one a channel.
Status import_group_normalization(NodeImport& n) {
  X x = n.need(0), scale = n.need(1), bias = n.need(2);
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(check_image(n, x, 1));
  const int64_t groups = n.integer("num_groups", 0);
  if (groups < 1) return n.fail(Code::attribute_invalid, "attribute 'num_groups' is {} but must be positive", groups);
  if (n.opset < 21) {
    const Dim members = floordiv(x.dim(1), groups);
    auto repeated = [&](X s) {
      return reshape(broadcast(reshape(s, {groups, 1}), {groups, members}), {groups * members});
    };
    scale = repeated(scale);
    bias = repeated(bias);
  }
  n.out(n.b.add1(ops::group_norm_op, {x, unless_all(n, scale, 1), unless_all(n, bias, 0)},
                 {groups, n.real("epsilon", 1e-5)}));
  return {};
}

Status import_layer_normalization(NodeImport& n) {
  X x = n.need(0), scale = n.need(1), bias = n.in(2);
  const DType stash = stash_type(n);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int axis, n.axis("axis", -1, x.rank()));
  const std::vector<AttrValue> attrs = {int64_t{x.rank() - axis}, n.real("epsilon", 1e-5)};
  const X operands[] = {x, scale, bias};
  Xs results = n.b.add(ops::layer_norm_op, operands, attrs);
  n.out(0, results[0]);
  if (!n.wants(1) && !n.wants(2)) return {};
  // The statistics have a type of their own.
  if (x.dtype() != stash) results = n.b.add(ops::layer_norm_op, std::vector<X>{cast(x, stash)}, attrs);
  n.out(1, results[1]);
  n.out(2, results[2]);
  return {};
}

Status import_rms_normalization(NodeImport& n) {
  X x = n.need(0), scale = n.need(1);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int axis, n.axis("axis", -1, x.rank()));
  const std::vector<AttrValue> attrs = {int64_t{x.rank() - axis}, n.real("epsilon", 1e-5)};
  if (x.dtype() == scale.dtype()) {
    n.out(n.b.add1(ops::rms_norm_op, {x, scale}, attrs));
    return {};
  }
  X y = n.b.add1(ops::rms_norm_op, {cast(x, compute_type(x.dtype()))}, attrs);
  n.out(cast(y, scale.dtype()) * scale);
  return {};
}

// x / (bias + alpha / size * the sum of x^2 over `size` channels around)^beta.
Status import_lrn(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(check_image(n, x, 0));
  const int64_t size = n.integer("size", 0);
  if (size < 1 || size > (int64_t{1} << 30))
    return n.fail(Code::attribute_invalid, "attribute 'size' is {} but must be positive", size);
  const double alpha = n.real("alpha", 1e-4), beta = n.real("beta", 0.75), bias = n.real("bias", 1);
  X wide = cast(x, compute_type(x.dtype()));
  Shape low(x.shape().size(), 0), high = low;
  low[1] = (size - 1) / 2;
  high[1] = size - 1 - (size - 1) / 2;
  X squares = pad(square(wide), low, high);
  TESSERA_TRY(n.b.status());
  squares = n.b.view(squares, ir::window_view(squares.shape(), 1, x.dim(1), 1, size, 1));
  X total = squeeze(sum(squares, {-1}), {-1});
  n.out(cast(wide / pow(bias + total * (alpha / static_cast<double>(size)), like(wide, beta)), x.dtype()));
  return {};
}

// x over its 1- or 2-norm along the axis; zeros where that is 0.
Status import_lp_normalization(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int axis, n.axis("axis", -1, x.rank()));
  const int64_t p = n.integer("p", 2);
  if (p != 1 && p != 2) return n.fail(Code::attribute_invalid, "attribute 'p' is {} but must be 1 or 2", p);
  X wide = cast(x, compute_type(x.dtype()));
  X norm = p == 1 ? sum(abs(wide), {axis}) : sqrt(sum(square(wide), {axis}));
  X none = equal(norm, like(wide, 0));
  n.out(cast(select(none, like(wide, 0), wide / select(none, like(wide, 1), norm)), x.dtype()));
  return {};
}

Status import_mean_variance_normalization(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  std::vector<int64_t> given = n.integers("axes", {0, 2, 3});
  std::vector<bool> seen(x.shape().size(), false);
  Axes axes;
  for (int64_t a : given) {
    TESSERA_ASSIGN(int axis, n.normal_axis(a, x.rank()));
    if (seen[static_cast<size_t>(axis)]) return n.fail(Code::attribute_invalid, "axis {} is given twice", axis);
    seen[static_cast<size_t>(axis)] = true;
    axes.push_back(axis);
  }
  X wide = cast(x, compute_type(x.dtype()));
  X d = wide - mean(wide, axes);
  n.out(cast(d / (sqrt(mean(square(d), axes)) + 1e-9), x.dtype()));
  return {};
}

}  // namespace tessera::onnx
