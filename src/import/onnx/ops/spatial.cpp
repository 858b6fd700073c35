#include "import/onnx/ops/spatial.h"

#include <algorithm>

namespace tessera::onnx {
namespace {

// Far above any real size, and low enough that no product of two overflows.
constexpr int64_t kMaxSize = int64_t{1} << 30;

}  // namespace

Result<std::vector<int64_t>> read_sizes(NodeImport& n, std::string_view name, size_t count, int64_t least,
                                        int64_t otherwise) {
  std::vector<int64_t> values = n.integers(name);
  if (values.empty()) values.assign(count, otherwise);
  if (values.size() != count)
    return n.fail(Code::attribute_invalid, "attribute '{}' has {} values but {} are needed", name, values.size(),
                  count);
  for (int64_t v : values)
    if (v < least || v > kMaxSize)
      return n.fail(Code::attribute_invalid, "attribute '{}' holds {}, which is not in [{}, {}]", name, v, least,
                    kMaxSize);
  return values;
}

Status check_image(NodeImport& n, X x, int spatial) {
  if (x.rank() >= 2 + spatial) return {};
  return n.fail(Code::rank_mismatch, "the input is {} but must have at least {} axes", to_string(*x.type()),
                2 + spatial);
}

Result<Shape> read_kernel(NodeImport& n, X x) {
  if (!n.has_attribute("kernel_shape")) return n.fail(Code::attribute_invalid, "attribute 'kernel_shape' is missing");
  TESSERA_ASSIGN(std::vector<int64_t> kernel, read_sizes(n, "kernel_shape", spatial_axes(x), 1, 1));
  return Shape(kernel.begin(), kernel.end());
}

Result<Spatial> read_spatial(NodeImport& n, X x, Shape kernel) {
  const size_t count = spatial_axes(x);
  Spatial s;
  s.kernel = std::move(kernel);
  if (s.kernel.size() != count)
    return n.fail(Code::rank_mismatch, "the kernel has {} spatial axes but the input {}", s.kernel.size(),
                  to_string(*x.type()));
  TESSERA_ASSIGN(s.strides, read_sizes(n, "strides", count, 1, 1));
  TESSERA_ASSIGN(s.dilations, read_sizes(n, "dilations", count, 1, 1));
  s.extra.assign(count, 0);

  const std::string_view automatic = n.text("auto_pad", "NOTSET");
  if (automatic == "NOTSET" || automatic.empty()) {
    TESSERA_ASSIGN(std::vector<int64_t> pads, read_sizes(n, "pads", 2 * count, 0, 0));
    s.low.assign(pads.begin(), pads.begin() + static_cast<ptrdiff_t>(count));
    s.high.assign(pads.begin() + static_cast<ptrdiff_t>(count), pads.end());
  } else if (automatic == "VALID") {
    s.low.assign(count, 0);
    s.high.assign(count, 0);
  } else if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    for (size_t i = 0; i < count; ++i) {
      const Dim size = x.shape()[i + 2];
      Dim total = max((ceildiv(size, s.strides[i]) - 1) * s.strides[i] + s.reach(i) - size, 0);
      Dim less = floordiv(total, 2);
      s.low.push_back(automatic == "SAME_UPPER" ? less : total - less);
      s.high.push_back(total - s.low.back());
    }
  } else {
    return n.fail(Code::attribute_invalid,
                  "attribute 'auto_pad' is '{}' but must be NOTSET, SAME_UPPER, SAME_LOWER or VALID", automatic);
  }

  if (n.integer("ceil_mode", 0) != 0) {
    for (size_t i = 0; i < count; ++i) {
      // Rounded up, but no window starts past the lower pads and the elements.
      const Dim size = x.shape()[i + 2], step = s.strides[i], padded = size + s.low[i] + s.high[i];
      Dim windows = min(ceildiv(padded - s.reach(i), step) + 1, ceildiv(size + s.low[i], step));
      s.extra[i] = max((windows - 1) * step + s.reach(i) - padded, 0);
    }
  }
  return s;
}

Padded with_pads(X x, const Shape& low, const Shape& high, Opt value) {
  Padded padded{x, {}, {}};
  auto known = [](const Dim& d) { return d.is_const(); };
  if (std::all_of(low.begin(), low.end(), known) && std::all_of(high.begin(), high.end(), known)) {
    for (const Dim& d : low) padded.low.push_back(d.value());
    for (const Dim& d : high) padded.high.push_back(d.value());
    return padded;
  }
  padded.low.assign(low.size(), 0);
  padded.high.assign(high.size(), 0);
  Shape before(2, 0), after(2, 0);
  before.insert(before.end(), low.begin(), low.end());
  after.insert(after.end(), high.begin(), high.end());
  padded.x = pad(x, std::move(before), std::move(after), value ? value : X{x.builder, ir::kNoValue});
  return padded;
}

X pad_or_crop(X x, const Shape& low, const Shape& high) {
  if (!x) return x;
  Shape before(2, 0), after(2, 0);
  for (const Dim& d : low) before.push_back(max(d, 0));
  for (const Dim& d : high) after.push_back(max(d, 0));
  Shape sizes = x.shape();
  X y = pad(x, std::move(before), std::move(after));
  for (size_t i = 0; i < low.size(); ++i) {
    const Dim start = max(Dim(0) - low[i], 0);
    const Dim size = sizes[i + 2] + low[i] + high[i];
    y = slice(y, static_cast<int>(i + 2), start, size);
  }
  return y;
}

X number(Builder& builder, Dim size, DType dtype) {
  if (size.is_const()) return builder.scalar(dtype, static_cast<double>(size.value()));
  return cast(builder.size(size), dtype);
}

DType compute_type(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace tessera::onnx
