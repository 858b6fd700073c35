// What Resize and GridSample share: interpolation kernels as functions of the distance to a point.
#pragma once

#include "ops/math.h"

namespace tessera::onnx {

// max(0, 1 - |d|).
inline ir::X linear_kernel(ir::X d) { return max(1.0 - abs(d), like(d, 0)); }

// Cubic convolution with the free coefficient a. Keys 1981.
inline ir::X cubic_kernel(ir::X d, double a) {
  ir::X t = abs(d);
  ir::X near = ((t * (a + 2) - (a + 3)) * t) * t + 1.0;
  ir::X far = ((t * a - 5 * a) * t + 8 * a) * t - 4 * a;
  return select(less_equal(t, like(t, 1)), near, select(less(t, like(t, 2)), far, like(t, 0)));
}

}  // namespace tessera::onnx
