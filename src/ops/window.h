// What convolutions and pools share: windows that slide over the spatial axes of x [N, C, *D].
#pragma once

#include <span>
#include <vector>

#include "ops/math.h"

namespace tessera::ops {

// One entry a spatial axis. Window o of an axis starts `low` elements before o * stride and touches `kernel` elements,
// `dilation` apart.
struct Windows {
  Shape kernel;
  std::vector<int64_t> strides, dilations;
  std::vector<int64_t> low, high;  // elements added before and after

  // Reads the attributes strides, dilations, low and high.
  static Windows of(const ir::A& attrs, std::span<const Dim> kernel);
  // How many windows an axis of this size has.
  Dim count(size_t axis, Dim size) const;
  // [*O] for x [N, C, *D].
  Shape counts(const Shape& x) const;
};

// Checks the attributes (E0403) and that the windows fit (E0313, or a guard), and gives [*O].
Status check_windows(ir::Infer& infer, const Windows& windows);

// x [N, C, *D] as [N, C, *O, *K], padded with `value` (0 when absent).
ir::X windows_of(ir::X x, const Windows& windows, ir::Opt value = {});

// What every element of x's type reaches at least, as a scalar of the type.
ir::X lowest(ir::X x);

// The axes [from, from + count).
ir::Axes axes_from(int from, int count);

}  // namespace tessera::ops
