// Where the windows of convolutions and pools lie, over one to three spatial axes.
#pragma once

#include "kernels/abi.h"
#include "kernels/isa/product.h"

namespace {

using namespace tessera::kernels;

constexpr int kSpatial = 3;

// Windows over x [N, C, *D] that make y [N, M, *O]; missing axes have size 1. Window o of an axis starts `low` elements
// before o * stride and touches `kernel` elements, `dilation` apart.
struct Windows {
  int64_t in[kSpatial] = {1, 1, 1}, out[kSpatial] = {1, 1, 1}, kernel[kSpatial] = {1, 1, 1};
  int64_t stride[kSpatial] = {1, 1, 1}, dilation[kSpatial] = {1, 1, 1}, low[kSpatial] = {0, 0, 0};
  int64_t high[kSpatial] = {0, 0, 0};
  int64_t inputs = 1, outputs = 1, taps = 1;  // products of in, out and kernel
};

// `attrs` points at strides, dilations, low and high.
Windows windows_of(const View& x, const View& y, const int64_t* kernel, const Attr* attrs) {
  Windows w;
  const int axes = x.rank - 2;
  for (int i = 0; i < axes; ++i) {
    const int a = kSpatial - axes + i;
    w.in[a] = x.shape[i + 2];
    w.out[a] = y.shape[i + 2];
    w.kernel[a] = kernel[i];
    w.stride[a] = attrs[0].list[i];
    w.dilation[a] = attrs[1].list[i];
    w.low[a] = attrs[2].list[i];
    w.high[a] = attrs[3].list[i];
  }
  for (int a = 0; a < kSpatial; ++a) {
    w.inputs *= w.in[a];
    w.outputs *= w.out[a];
    w.taps *= w.kernel[a];
  }
  return w;
}

// The taps [first, last) of window `o` of axis a that lie in [from, to) of the axis.
struct Span {
  int64_t first, last;
};
Span taps_inside(const Windows& w, int a, int64_t o, int64_t from, int64_t to) {
  const int64_t start = o * w.stride[a] - w.low[a];
  const int64_t first = start >= from ? 0 : ceil_div(from - start, w.dilation[a]);
  const int64_t last = start >= to ? 0 : ceil_div(to - start, w.dilation[a]);
  return {first, last < w.kernel[a] ? last : w.kernel[a]};
}

}  // namespace
