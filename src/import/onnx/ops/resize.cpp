// Resize and Upsample: one axis after another, each a gather, or a weighted sum of gathered neighbours.
#include <algorithm>
#include <cmath>
#include <string>

#include "import/onnx/onnx_ops.h"
#include "import/onnx/ops/interpolate.h"

namespace tessera::onnx {
namespace {

struct Options {
  std::string_view mode = "nearest";
  std::string_view coordinates = "asymmetric";
  std::string_view rounding = "floor";
  double cubic_a = -0.75;
  bool exclude_outside = false;
  bool antialias = false;
  double extrapolation = 0;

  bool crops() const { return coordinates == "tf_crop_and_resize"; }
};

// One axis to be resized. Scalars are f64: they may be known only during the run.
struct Resized {
  int axis;
  Dim in;
  std::optional<Dim> out = {};  // the new size where it is known
  std::optional<double> known_scale = {};
  X scale = {};
  X length = {};                   // the new length before it was rounded to a size
  X count = {};                    // the new size
  X roi_start = {}, roi_end = {};  // only for tf_crop_and_resize
};

X element(X list, size_t i) { return squeeze(slice(list, 0, static_cast<int64_t>(i), 1), {0}); }

constexpr double kMaxResized = 1e12;  // far above what memory holds, far below what int64_t does

// floor(in * scale), where the scale is a fraction of small numbers or `in` is a number.
std::optional<Dim> scaled(Dim in, double scale) {
  if (in.is_const())
    return Dim(static_cast<int64_t>(std::min(std::floor(static_cast<double>(in.value()) * scale), kMaxResized)));
  constexpr int kMaxDenominator = 64;
  for (int q = 1; q <= kMaxDenominator; ++q)
    if (double p = scale * q; p == std::floor(p) && p < kMaxResized) return floordiv(in * static_cast<int64_t>(p), q);
  return std::nullopt;
}

// `known` are the elements of `scales`, where they are known.
Result<std::vector<Resized>> from_scales(NodeImport& n, X x, const std::vector<int>& axes, X scales,
                                         const std::optional<std::vector<double>>& known, bool keep_all) {
  if (scales.rank() != 1) return n.fail(Code::rank_mismatch, "scales have {} axes, not 1", scales.rank());
  n.b.require_equal(scales.dim(0), static_cast<int64_t>(axes.size()));
  TESSERA_TRY(n.b.status());
  scales = cast(scales, DType::f64);
  std::vector<Resized> plan;
  for (size_t i = 0; i < axes.size(); ++i) {
    Resized r{axes[i], x.dim(axes[i])};
    if (known && i < known->size()) {
      double scale = (*known)[i];
      if (!(scale > 0) || scale > kMaxResized) return n.fail(Code::value_invalid, "a scale is {}", scale);
      if (scale == 1 && !keep_all) continue;
      r.known_scale = scale;
      r.out = scaled(r.in, scale);
    }
    r.scale = element(scales, i);
    r.length = r.scale * as_f64(n.b, r.in);
    r.count = r.out ? as_f64(n.b, *r.out) : floor(r.length);
    plan.push_back(r);
  }
  return plan;
}

Result<std::vector<Resized>> from_sizes(NodeImport& n, X x, const std::vector<int>& axes, X sizes, const Shape* known,
                                        bool keep_all) {
  if (sizes.rank() != 1) return n.fail(Code::rank_mismatch, "sizes have {} axes, not 1", sizes.rank());
  n.b.require_equal(sizes.dim(0), static_cast<int64_t>(axes.size()));
  TESSERA_TRY(n.b.status());
  std::string_view policy = n.opset >= 18 ? n.text("keep_aspect_ratio_policy", "stretch") : "stretch";
  if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller")
    return n.fail(Code::attribute_invalid, "keep_aspect_ratio_policy is '{}'", policy);
  bool stretch = policy == "stretch", larger = policy == "not_smaller";
  X wanted = cast(sizes, DType::f64);
  std::vector<Resized> plan;
  std::optional<double> shared;
  bool all_known = true;
  X shared_x;
  for (size_t i = 0; i < axes.size(); ++i) {
    Resized r{axes[i], x.dim(axes[i])};
    if (known) {
      r.out = (*known)[i];
      if (r.out->is_const() && r.out->value() < 0)
        return n.fail(Code::shape_invalid, "axis {} is resized to {}", axes[i], r.out->value());
      if (r.out->is_const() && r.in.is_const() && r.in.value() > 0)
        r.known_scale = static_cast<double>(r.out->value()) / static_cast<double>(r.in.value());
    }
    r.length = r.count = r.out ? as_f64(n.b, *r.out) : element(wanted, i);
    r.scale = r.length / as_f64(n.b, r.in);
    all_known &= r.known_scale.has_value();
    if (r.known_scale)
      shared = !shared  ? *r.known_scale
               : larger ? std::max(*shared, *r.known_scale)
                        : std::min(*shared, *r.known_scale);
    shared_x = i == 0 ? r.scale : larger ? max(shared_x, r.scale) : min(shared_x, r.scale);
    if (!stretch || keep_all || !r.out || *r.out != r.in) plan.push_back(r);
  }
  if (stretch) return plan;
  for (Resized& r : plan) {  // one scale for all, sizes rounded half up
    r.known_scale = all_known ? shared : std::nullopt;
    r.scale = shared_x;
    r.length = r.scale * as_f64(n.b, r.in);
    r.out = std::nullopt;
    if (all_known)
      r.out = Dim(static_cast<int64_t>(std::min(*shared * static_cast<double>(r.in.value()) + 0.5, kMaxResized)));
    r.count = r.out ? as_f64(n.b, *r.out) : floor(r.length + 0.5);
  }
  return plan;
}

// Where each new element lies on the old axis, f64[out].
Result<X> positions(NodeImport& n, const Resized& r, std::string_view how) {
  X i = r.out ? iota(n.b, {*r.out}, 0, DType::f64)
              : cast(n.b.add1(ops::range_op, {cast(r.count, DType::i64)}), DType::f64);
  X in = as_f64(n.b, r.in), one = n.b.scalar(DType::f64, 1);
  X half_pixel = (i + 0.5) / r.scale - 0.5;
  if (how == "half_pixel") return half_pixel;
  if (how == "pytorch_half_pixel") return select(less(one, r.length), half_pixel, like(i, 0));
  if (how == "asymmetric") return i / r.scale;
  if (how == "align_corners") return select(equal(r.length, one), like(i, 0), i * (in - 1.0) / (r.length - 1.0));
  if (how == "tf_half_pixel_for_nn" && n.opset < 13) return (i + 0.5) / r.scale;
  if (how == "half_pixel_symmetric" && n.opset >= 19) return half_pixel + in / 2.0 * (1.0 - r.count / r.length);
  if (how == "tf_crop_and_resize") {
    X extent = (r.roi_end - r.roi_start) * (in - 1.0);
    return select(equal(r.length, one), extent / 2.0, i * extent / (r.length - 1.0)) + r.roi_start * (in - 1.0);
  }
  return n.fail(Code::attribute_invalid, "coordinate_transformation_mode is '{}'", how);
}

// Positions as indices of the old axis; what lies outside takes the edge's.
X clamped(Builder& b, X position, Dim in) { return max(min(cast(position, DType::i64), b.size(in - 1)), b.integer(0)); }

Result<X> rounded(NodeImport& n, X position, std::string_view how) {
  if (how == "round_prefer_floor") return ceil(position - 0.5);
  if (how == "round_prefer_ceil") return floor(position + 0.5);
  if (how == "floor") return floor(position);
  if (how == "ceil") return ceil(position);
  return n.fail(Code::attribute_invalid, "nearest_mode is '{}'", how);
}

// The neighbours' offsets from the position rounded down. Shrinking with antialias widens the kernel by 1 / scale.
Result<X> taps(NodeImport& n, const Resized& r, const Options& o) {
  double reach = o.mode == "cubic" ? 2 : 1;
  if (!o.antialias || r.known_scale) {
    double scale = o.antialias ? std::min(*r.known_scale, 1.0) : 1, first = std::floor(-reach / scale) + 1;
    constexpr double kMaxReach = 1 << 20;
    if (!(first >= -kMaxReach)) return n.fail(Code::value_invalid, "a scale of {} is too small for antialias", scale);
    return iota(n.b, {2 - 2 * static_cast<int64_t>(first)}, 0, DType::f64) + first;
  }
  X first = floor(-reach / min(r.scale, n.b.scalar(DType::f64, 1))) + 1.0;
  return cast(n.b.add1(ops::range_op, {cast(2.0 - 2.0 * first, DType::i64)}), DType::f64) + first;
}

Result<X> interpolated(NodeImport& n, X x, X position, const Resized& r, const Options& o) {
  Builder& b = n.b;
  X centre = unsqueeze(position, {1});
  TESSERA_ASSIGN(X offsets, taps(n, r, o));
  X neighbour = floor(centre) + offsets;  // [out, taps]
  X distance = neighbour - centre;
  if (o.antialias) distance = distance * min(r.scale, b.scalar(DType::f64, 1));
  X weight = o.mode == "cubic" ? cubic_kernel(distance, o.cubic_a) : linear_kernel(distance);
  if (o.exclude_outside) {
    X inside = logical_and(less_equal(like(neighbour, 0), neighbour), less(neighbour, as_f64(b, r.in)));
    weight = select(inside, weight, like(weight, 0));
  }
  if (o.antialias || o.exclude_outside) weight = weight / sum(weight, {1});
  X values = gather(x, clamped(b, neighbour, r.in), r.axis);  // [..., out, taps, ...]
  if (!weight || !values) return values;
  Shape shape = weight.shape();
  shape.resize(shape.size() + static_cast<size_t>(x.rank() - r.axis - 1), Dim(1));
  return squeeze(sum(values * reshape(cast(weight, x.dtype()), shape), {r.axis + 1}), {r.axis + 1});
}

Status resize(NodeImport& n, X x, const std::vector<Resized>& plan, const Options& o) {
  bool nearest = o.mode == "nearest";
  if (!nearest && o.mode != "linear" && o.mode != "cubic")
    return n.fail(Code::attribute_invalid, "the mode is '{}'", o.mode);
  DType type = x.dtype();
  // Integers are weighed exactly, half precision in single.
  if (!nearest) x = cast(x, type == DType::f64 || !is_float(type) ? DType::f64 : DType::f32);
  int rank = x.rank();
  Xs outside;
  for (const Resized& r : plan) {
    TESSERA_ASSIGN(X position, positions(n, r, o.coordinates));
    if (nearest) {
      TESSERA_ASSIGN(X index, rounded(n, position, o.rounding));
      x = gather(x, clamped(n.b, index, r.in), r.axis);
    } else {
      TESSERA_ASSIGN(x, interpolated(n, x, position, r, o));
    }
    TESSERA_TRY(n.b.status());
    if (!o.crops()) continue;
    X beyond = logical_or(less(position, like(position, 0)), less(as_f64(n.b, r.in - 1), position));
    std::vector<int> behind;
    for (int i = 1; i < rank - r.axis; ++i) behind.push_back(i);
    outside.push_back(unsqueeze(beyond, behind));
  }
  for (X beyond : outside) x = select(beyond, like(x, o.extrapolation), x);
  n.out(cast(x, type));
  return {};
}

std::vector<int> every_axis(X x) {
  std::vector<int> axes;
  for (int i = 0; i < x.rank(); ++i) axes.push_back(i);
  return axes;
}

bool given(X list) { return list && !(list.rank() == 1 && list.dim(0).is(0)); }

// Fixed rules: the position is i / scale, rounded down.
Status resize_by(NodeImport& n, X x, X scales, const std::optional<std::vector<double>>& known) {
  Options o;
  o.mode = n.text("mode", "nearest");
  if (o.mode == "bilinear") o.mode = "linear";
  TESSERA_ASSIGN(std::vector<Resized> plan, from_scales(n, x, every_axis(x), scales, known, false));
  return resize(n, x, plan, o);
}

X scales_of(Builder& b, const std::vector<double>& values) {
  Result<Tensor> tensor = Tensor::make(DType::f64, {static_cast<int64_t>(values.size())});
  if (!tensor) {
    b.fail_with(std::move(tensor.error()));
    return {&b, ir::kNoValue};
  }
  std::copy(values.begin(), values.end(), tensor->as<double>());
  return b.constant(std::move(*tensor));
}

}  // namespace

Status import_upsample_1(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  if (x.rank() != 4) return n.fail(Code::rank_mismatch, "the input has {} axes but must have 4", x.rank());
  std::vector<double> scales = {1, 1, n.real("height_scale", 1), n.real("width_scale", 1)};
  X list = scales_of(n.b, scales);
  TESSERA_TRY(n.b.status());
  return resize_by(n, x, list, scales);
}

Status import_upsample_7(NodeImport& n) {
  X x = n.need(0);
  std::vector<double> scales = n.reals("scales");
  X list = scales_of(n.b, scales);
  TESSERA_TRY(n.b.status());
  return resize_by(n, x, list, scales);
}

// Upsample 9 and Resize 10.
Status import_resize_10(NodeImport& n) {
  X x = n.need(0), scales = n.need(1);
  TESSERA_TRY(n.b.status());
  return resize_by(n, x, scales, n.reals(1));
}

Status import_resize(NodeImport& n) {
  X x = n.need(0), roi = n.in(1), scales = n.in(2), sizes = n.in(3);
  TESSERA_TRY(n.b.status());
  Options o;
  o.mode = n.text("mode", "nearest");
  o.coordinates = n.text("coordinate_transformation_mode", "half_pixel");
  o.rounding = n.text("nearest_mode", "round_prefer_floor");
  o.cubic_a = n.real("cubic_coeff_a", -0.75);
  o.exclude_outside = n.integer("exclude_outside", 0) != 0;
  o.antialias = n.opset >= 18 && n.integer("antialias", 0) != 0;
  o.extrapolation = n.real("extrapolation_value", 0);
  std::vector<int> axes = every_axis(x);
  if (n.opset >= 18 && n.has_attribute("axes")) {
    axes.clear();
    for (int64_t a : n.integers("axes")) {
      TESSERA_ASSIGN(int axis, n.normal_axis(a, x.rank()));
      if (std::find(axes.begin(), axes.end(), axis) != axes.end())
        return n.fail(Code::attribute_invalid, "axis {} is given twice", axis);
      axes.push_back(axis);
    }
  }
  std::vector<Resized> plan;
  if (given(scales)) {
    TESSERA_ASSIGN(plan, from_scales(n, x, axes, scales, n.reals(2), o.crops()));
  } else if (given(sizes)) {
    TESSERA_ASSIGN(plan, from_sizes(n, x, axes, sizes, n.sizes(3), o.crops()));
  } else {
    return n.fail(Code::arity, "neither scales nor sizes are given");
  }
  if (o.crops()) {
    if (!given(roi) || roi.rank() != 1) return n.fail(Code::arity, "tf_crop_and_resize needs roi, a list");
    n.b.require_equal(roi.dim(0), 2 * static_cast<int64_t>(axes.size()));
    TESSERA_TRY(n.b.status());
    X regions = cast(roi, DType::f64);
    for (size_t i = 0; i < axes.size(); ++i) {  // the plan keeps every axis then
      plan[i].roi_start = element(regions, i);
      plan[i].roi_end = element(regions, axes.size() + i);
    }
  }
  return resize(n, x, plan, o);
}

}  // namespace tessera::onnx
