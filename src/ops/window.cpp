#include "ops/window.h"

#include <limits>
#include <string_view>

namespace tessera::ops {
namespace {

// Keeps every product and sum of attributes far from overflow.
constexpr int64_t kMaxSize = int64_t{1} << 30;

}  // namespace

Windows Windows::of(const ir::A& attrs, std::span<const Dim> kernel) {
  return {Shape(kernel.begin(), kernel.end()), attrs.integers("strides"), attrs.integers("dilations"),
          attrs.integers("low"), attrs.integers("high")};
}

Dim Windows::count(size_t axis, Dim size) const {
  Dim reach = (kernel[axis] - 1) * dilations[axis] + 1;
  return floordiv(size + low[axis] + high[axis] - reach, strides[axis]) + 1;
}

Shape Windows::counts(const Shape& x) const {
  Shape counts;
  for (size_t i = 0; i < kernel.size(); ++i) counts.push_back(count(i, x[i + 2]));
  return counts;
}

Status check_windows(ir::Infer& infer, const Windows& windows) {
  const Shape& x = infer.shape(0);
  const size_t spatial = x.size() - 2;
  auto check = [&](std::string_view name, const std::vector<int64_t>& values, int64_t least) -> Status {
    if (values.size() != spatial)
      return fail(Code::attribute_invalid, "{}: {} has {} values for {} spatial axes", infer.op.name, name,
                  values.size(), spatial);
    for (int64_t v : values)
      if (v < least || v > kMaxSize)
        return fail(Code::attribute_invalid, "{}: {} holds {}, which is not in [{}, {}]", infer.op.name, name, v, least,
                    kMaxSize);
    return {};
  };
  TESSERA_TRY(check("strides", windows.strides, 1));
  TESSERA_TRY(check("dilations", windows.dilations, 1));
  TESSERA_TRY(check("low", windows.low, 0));
  TESSERA_TRY(check("high", windows.high, 0));
  if (windows.kernel.size() != spatial)
    return fail(Code::rank_mismatch, "{}: the kernel has {} spatial axes but x {} has {}", infer.op.name,
                windows.kernel.size(), to_string(*infer.operands[0]), spatial);
  for (size_t i = 0; i < spatial; ++i) {
    Dim k = windows.kernel[i];
    if (k.is_const() && (k.value() < 1 || k.value() > kMaxSize))
      return fail(Code::shape_invalid, "{}: the kernel has {} elements along spatial axis {}, not 1 to {}",
                  infer.op.name, k.value(), i, kMaxSize);
    Dim count = windows.count(i, x[i + 2]);
    if (infer.dims().proves_le(0, count)) continue;
    if (infer.dims().proves_lt(count, 0))
      return fail(Code::shape_invalid, "{}: {} elements {} apart reach past spatial axis {} of {}, padded by {} and {}",
                  infer.op.name, to_string(k), windows.dilations[i], i, to_string(*infer.operands[0]), windows.low[i],
                  windows.high[i]);
    infer.guards.push_back({ir::Guard::Kind::at_most, 0, count});
  }
  return {};
}

ir::X windows_of(ir::X x, const Windows& windows, ir::Opt value) {
  if (!x) return x;
  const size_t spatial = windows.kernel.size();
  Shape counts = windows.counts(x.shape());
  Shape low(x.shape().size(), 0), high = low;
  for (size_t i = 0; i < spatial; ++i) low[i + 2] = windows.low[i], high[i + 2] = windows.high[i];
  if (!value) value = ir::X{x.builder, ir::kNoValue};
  x = pad(x, std::move(low), std::move(high), value);
  for (size_t i = 0; i < spatial && x; ++i)
    x = x.builder->view(x, ir::window_view(x.shape(), static_cast<int>(i + 2), counts[i], windows.strides[i],
                                           windows.kernel[i], windows.dilations[i]));
  return x;
}

ir::X lowest(ir::X x) {
  if (!x || is_float(x.dtype())) return ir::like(x, -std::numeric_limits<double>::infinity());
  const int64_t least = is_signed_int(x.dtype()) ? INT64_MIN >> (64 - bits(x.dtype())) : 0;
  return x.builder->integer(least, x.dtype());
}

ir::Axes axes_from(int from, int count) {
  ir::Axes axes;
  for (int i = 0; i < count; ++i) axes.push_back(from + i);
  return axes;
}

}  // namespace tessera::ops
