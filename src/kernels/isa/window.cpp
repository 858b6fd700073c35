// conv, max_pool and average_pool in f32, over one to three spatial axes.
#include "kernels/abi.h"
#include "kernels/isa/export.h"
#include "kernels/isa/gemm.h"
#include "kernels/isa/program.h"

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
// The windows [first, last) of axis a whose tap k lies in the axis.
Span windows_inside(const Windows& w, int a, int64_t k) {
  const int64_t shift = w.low[a] - k * w.dilation[a];  // tap k of window o lies at o * stride - shift
  const int64_t first = shift <= 0 ? 0 : ceil_div(shift, w.stride[a]);
  const int64_t past = w.in[a] + shift;
  const int64_t last = past <= 0 ? 0 : ceil_div(past, w.stride[a]);
  return {first, last < w.out[a] ? last : w.out[a]};
}

struct Conv {
  Windows w;
  int64_t images, groups, channels, rows;  // channels and rows (outputs) of one group
  const float* x;
  const float* weights;
  const float* bias;
  float* y;
};

Conv conv_of(const Args& args) {
  const View& x = args.in[0];
  const View& w = args.in[1];
  const View& y = args.out[0];
  Conv c;
  c.w = windows_of(x, y, w.shape + 2, args.attrs);
  c.images = x.shape[0];
  c.groups = args.attrs[4].i;
  c.channels = w.shape[1];
  c.rows = w.shape[0] / c.groups;
  c.x = static_cast<const float*>(x.data);
  c.weights = static_cast<const float*>(w.data);
  c.bias = args.n_in > 2 && args.in[2].present ? static_cast<const float*>(args.in[2].data) : nullptr;
  c.y = static_cast<float*>(y.data);
  return c;
}

// y [rows, outputs] = weights [rows, taps] columns [taps, outputs] for each image and group.
Products products_of(const Conv& c) {
  Products p;
  p.m = c.rows;
  p.n = c.w.outputs;
  p.k = c.channels * c.w.taps;
  p.a = {c.weights, p.k, 1};
  p.b = {nullptr, 1, p.n};
  p.c = {c.y, p.n};
  p.batch.rank = 2;
  p.batch.shape[0] = c.images;
  p.batch.shape[1] = c.groups;
  p.batch.stride[0][0] = 0;
  p.batch.stride[0][1] = p.m * p.k;
  p.batch.stride[1][0] = p.batch.stride[1][1] = 1;  // every product has columns of its own
  p.batches = c.images * c.groups;
  p.c_step = p.m * p.n;
  p.bias = nullptr;
  return p;
}

// Few products a tap: taps are added straight from x, and packing columns would cost more than they do.
bool is_direct(const Conv& c) { return c.channels * c.rows <= 4; }

// Windows [column, column + n) of a group's channels, as [channel, tap][kTileColumns].
void pack_windows(const Conv& c, int64_t product, int64_t column, int64_t n, float* out) {
  const Windows& w = c.w;
  const float* x = c.x + product * c.channels * w.inputs;
  // Where each window starts; the last one repeats in the columns that are missing, whose products nobody reads.
  int64_t at[kTileColumns][kSpatial];
  bool straight = n == kTileColumns && w.stride[2] == 1;
  for (int64_t j = 0; j < kTileColumns; ++j) {
    const int64_t o = column + (j < n ? j : n - 1);
    at[j][0] = o / (w.out[1] * w.out[2]) * w.stride[0] - w.low[0];
    at[j][1] = o / w.out[2] % w.out[1] * w.stride[1] - w.low[1];
    at[j][2] = o % w.out[2] * w.stride[2] - w.low[2];
    straight = straight && at[j][0] == at[0][0] && at[j][1] == at[0][1];
  }
  for (int64_t channel = 0; channel < c.channels; ++channel, x += w.inputs)
    for (int64_t d = 0; d < w.kernel[0]; ++d)
      for (int64_t h = 0; h < w.kernel[1]; ++h)
        for (int64_t v = 0; v < w.kernel[2]; ++v, out += kTileColumns) {
          const int64_t z = d * w.dilation[0], y = h * w.dilation[1], shift = v * w.dilation[2];
          if (straight) {
            const int64_t plane = at[0][0] + z, line = at[0][1] + y, first = at[0][2] + shift;
            if (plane < 0 || plane >= w.in[0] || line < 0 || line >= w.in[1]) {
              memset(out, 0, kTileColumns * sizeof *out);
              continue;
            }
            const float* row = x + (plane * w.in[1] + line) * w.in[2];
            if (first >= 0 && first + kTileColumns <= w.in[2]) {
              memcpy(out, row + first, kTileColumns * sizeof *out);
              continue;
            }
            for (int64_t j = 0; j < kTileColumns; ++j)
              out[j] = first + j >= 0 && first + j < w.in[2] ? row[first + j] : 0;
            continue;
          }
          for (int64_t j = 0; j < kTileColumns; ++j) {
            const int64_t plane = at[j][0] + z, line = at[j][1] + y, place = at[j][2] + shift;
            const bool inside =
                plane >= 0 && plane < w.in[0] && line >= 0 && line < w.in[1] && place >= 0 && place < w.in[2];
            out[j] = inside ? x[(plane * w.in[1] + line) * w.in[2] + place] : 0;
          }
        }
}

// One output channel, a tap at a time along whole rows.
void conv_channel(const Conv& c, int64_t image, int64_t m) {
  const Windows& w = c.w;
  float* y = c.y + (image * c.groups * c.rows + m) * w.outputs;
  const float start = c.bias == nullptr ? 0 : c.bias[m];
  for (int64_t i = 0; i < w.outputs; ++i) y[i] = start;
  const float* weights = c.weights + m * c.channels * w.taps;
  for (int64_t channel = 0; channel < c.channels; ++channel) {
    const float* x = c.x + ((image * c.groups + m / c.rows) * c.channels + channel) * w.inputs;
    for (int64_t d = 0; d < w.kernel[0]; ++d)
      for (int64_t h = 0; h < w.kernel[1]; ++h)
        for (int64_t v = 0; v < w.kernel[2]; ++v, ++weights) {
          const Span planes = windows_inside(w, 0, d), lines = windows_inside(w, 1, h),
                     places = windows_inside(w, 2, v);
          const float weight = *weights;
          const int64_t shift = v * w.dilation[2] - w.low[2], step = w.stride[2];
          for (int64_t a = planes.first; a < planes.last; ++a)
            for (int64_t b = lines.first; b < lines.last; ++b) {
              const int64_t plane = a * w.stride[0] - w.low[0] + d * w.dilation[0];
              const int64_t line = b * w.stride[1] - w.low[1] + h * w.dilation[1];
              const float* row = x + (plane * w.in[1] + line) * w.in[2] + shift;
              float* to = y + (a * w.out[1] + b) * w.out[2];
              if (step == 1)
                for (int64_t i = places.first; i < places.last; ++i) to[i] += weight * row[i];
              else
                for (int64_t i = places.first; i < places.last; ++i) to[i] += weight * row[i * step];
            }
        }
  }
}

size_t conv_scratch(const Args& args) noexcept {
  const Conv c = conv_of(args);
  return is_direct(c) ? 0 : packed_scratch(products_of(c));
}

int conv(const Args& args) noexcept {
  if (element_count(args.out[0]) == 0) return kDone;
  const Conv c = conv_of(args);
  const int64_t channels = c.groups * c.rows;
  if (is_direct(c)) {
    const int64_t work = c.w.outputs * c.w.taps * c.channels;
    parallel_for(args.parallel, c.images * channels, 1 + 32768 / (work + 1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) conv_channel(c, i / channels, i % channels);
    });
    return kDone;
  }
  multiply_packed(
      products_of(c), args.parallel, args.scratch,
      [&](int64_t product, int64_t column, int64_t n, float* out) { pack_windows(c, product, column, n, out); });
  if (c.bias == nullptr) return kDone;
  parallel_for(args.parallel, c.images * channels, 1 + 16384 / c.w.outputs, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < c.w.outputs; ++j) c.y[i * c.w.outputs + j] += c.bias[i % channels];
  });
  return kDone;
}

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

// The first operands and attributes are those of conv, on whose result the program runs where it lies.
int fused_conv(const Args& args) noexcept {
  Args alone = args;
  if (alone.n_in > 3) alone.n_in = 3;
  const int failure = conv(alone);
  if (failure != kDone) return failure;
  View values[kMaxTileInputs] = {args.out[0]};
  int count = 1;
  for (int i = 3; i < args.n_in; ++i) values[count++] = args.in[i];
  run_flat(tile_code(args.attrs + 5, count), tile_operands(args.out[0], values, count), args.out[0], nullptr,
           args.parallel);
  return kDone;
}

}  // namespace

TESSERA_FAMILY(window, {"conv_f32", conv, conv_scratch}, {"fused_conv_f32", fused_conv, conv_scratch},
               {"max_pool_f32", max_pool, nullptr}, {"average_pool_f32", average_pool, nullptr})
