// What convolutions and pools read from their node: strides, dilations and pads over the spatial axes of x [N, C, *D].
#pragma once

#include <vector>

#include "import/onnx/node_import.h"
#include "ops/window.h"

namespace tessera::onnx {

// One entry a spatial axis. Pads are sizes, since those of auto_pad depend on x.
struct Spatial {
  Shape kernel;
  std::vector<int64_t> strides, dilations;
  Shape low, high;
  Shape extra;  // past `high`, so that ceil_mode's last windows are whole

  // The reach of the kernel along the axis, in elements of x.
  Dim reach(size_t axis) const { return (kernel[axis] - 1) * dilations[axis] + 1; }
};

// Reads strides, dilations, pads, auto_pad and (when it has one) ceil_mode; E0403.
Result<Spatial> read_spatial(NodeImport& n, X x, Shape kernel);
// The kernel_shape attribute, as many sizes as x has spatial axes; E0403.
Result<Shape> read_kernel(NodeImport& n, X x);
// `count` integers in [least, 2^30], or `otherwise` for each when the attribute is absent; E0403.
Result<std::vector<int64_t>> read_sizes(NodeImport& n, std::string_view name, size_t count, int64_t least,
                                        int64_t otherwise);
// E0303 unless x is [N, C, ...] with at least `spatial` spatial axes.
Status check_image(NodeImport& n, X x, int spatial);

// x and the pads as integers that the composites take. Pads that only the sizes of x tell are added to x itself, with
// `value` (0 when absent).
struct Padded {
  X x;
  std::vector<int64_t> low, high;
};
Padded with_pads(X x, const Shape& low, const Shape& high, Opt value = {});
// x [N, C, *D] with `low` and `high` elements more on each spatial axis; fewer where they are negative.
X pad_or_crop(X x, const Shape& low, const Shape& high);

// x [N, C, *D] convolved with w [M, C/G, *K] as the node's attributes say.
Result<X> convolved(NodeImport& n, X x, X w, Opt bias);
// The mean over windows of x [N, C, *D] as the node's attributes say.
Result<X> average_pooled(NodeImport& n, X x);

// The size as a scalar of this type.
X number(Builder& builder, Dim size, DType dtype);
// The type in which low-precision floats are computed.
DType compute_type(DType t);
// How many axes behind the first two.
inline size_t spatial_axes(X x) { return static_cast<size_t>(x.rank() - 2); }

}  // namespace tessera::onnx
