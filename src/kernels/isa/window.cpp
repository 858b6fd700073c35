// max_pool and average_pool in f32, over one to three spatial axes.
#include "kernels/isa/export.h"
#include "kernels/isa/windows.h"

namespace {

// Calls f(x's plane, span an axis, output index) for every output of every channel.
template <class F>
void over_windows(const Args& args, const Windows& w, const F& f) {
  const View& x = args.in[0];
  const int64_t channels = x.shape[0] * x.shape[1];
  const float* from = static_cast<const float*>(x.data);
  float* to = static_cast<float*>(args.out[0].data);
  parallel_for(args.parallel, channels, 1 + 16384 / (w.outputs * w.taps + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* y = to + i * w.outputs;
      for (int64_t a = 0; a < w.out[0]; ++a)
        for (int64_t b = 0; b < w.out[1]; ++b)
          for (int64_t c = 0; c < w.out[2]; ++c) {
            const int64_t o[kSpatial] = {a, b, c};
            *y++ = f(from + i * w.inputs, o);
          }
    }
  });
}

// Folds the elements of x's plane that window o touches, in order.
template <class F>
float fold_window(const Windows& w, const float* x, const int64_t (&o)[kSpatial], float start, const F& f) {
  Span spans[kSpatial];
  for (int a = 0; a < kSpatial; ++a) spans[a] = taps_inside(w, a, o[a], 0, w.in[a]);
  float result = start;
  for (int64_t d = spans[0].first; d < spans[0].last; ++d)
    for (int64_t h = spans[1].first; h < spans[1].last; ++h) {
      const int64_t plane = o[0] * w.stride[0] - w.low[0] + d * w.dilation[0];
      const int64_t line = o[1] * w.stride[1] - w.low[1] + h * w.dilation[1];
      const float* row = x + (plane * w.in[1] + line) * w.in[2] + o[2] * w.stride[2] - w.low[2];
      for (int64_t v = spans[2].first; v < spans[2].last; ++v) result = f(result, row[v * w.dilation[2]]);
    }
  return result;
}

int max_pool(const Args& args) noexcept {
  const Windows w = windows_of(args.in[0], args.out[0], args.attrs[0].list, args.attrs + 1);
  over_windows(args, w, [&](const float* x, const int64_t(&o)[kSpatial]) {
    return fold_window(w, x, o, -__builtin_inff(), [](float a, float b) { return a > b || a != a ? a : b; });
  });
  return kDone;
}

int average_pool(const Args& args) noexcept {
  const Windows w = windows_of(args.in[0], args.out[0], args.attrs[0].list, args.attrs + 1);
  const bool padded = args.attrs[6].i != 0;
  over_windows(args, w, [&](const float* x, const int64_t(&o)[kSpatial]) {
    int64_t count = 1;
    for (int a = 0; a < kSpatial; ++a) {
      const Span span = taps_inside(w, a, o[a], padded ? -w.low[a] : 0, w.in[a] + (padded ? w.high[a] : 0));
      count *= span.last > span.first ? span.last - span.first : 0;
    }
    return fold_window(w, x, o, 0, [](float a, float b) { return a + b; }) / static_cast<float>(count);
  });
  return kDone;
}

}  // namespace

TESSERA_FAMILY(window, {"max_pool_f32", max_pool, nullptr}, {"average_pool_f32", average_pool, nullptr})
