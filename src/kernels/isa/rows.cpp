// softmax, log_softmax, layer_norm and rms_norm in f32.
#include <math.h>

#include "kernels/abi.h"
#include "kernels/isa/blocks.h"
#include "kernels/isa/export.h"
#include "kernels/isa/math.h"

namespace {

using namespace tessera::kernels;

constexpr int64_t kRowGrain = 8192;  // elements of the rows that a thread takes at least

// Calls f(vector, width at i) over n floats in whole vectors, then once for the rest with `filler` in the lanes past
// it.
template <class F>
TESSERA_INLINE void for_vectors(const float* x, int64_t n, float filler, const F& f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(load(x + i), i, int64_t{kLanes});
  if (i < n) f(load_first(x + i, n - i, filler), i, n - i);
}
TESSERA_INLINE void put(float* y, int64_t width, Vec v) {
  if (width == kLanes)
    store(y, v);
  else
    store_first(y, width, v);
}

// Begins to bring n floats in: a row's last pass reads caches, and memory would be idle.
TESSERA_INLINE void fetch(const float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) __builtin_prefetch(x + i, 0, 2);
}

// x, y [n]; may be the same memory. Fetches the row behind x. A NaN reaches every element through the sum.
template <bool Log>
void softmax_row(const float* x, float* y, int64_t n) {
  Vec largest = splat(-__builtin_inff());
  for_vectors(x, n, -__builtin_inff(), [&](Vec v, int64_t, int64_t) { largest = vmax(v, largest); });
  const float most = max_lanes(largest);
  Vec sums = {};
  for_vectors(x, n, -__builtin_inff(), [&](Vec v, int64_t i, int64_t width) {
    fetch(x + n + i, width);
    const Vec e = vexp_of_negative(v - most);
    if (!Log) put(y + i, width, e);
    // Past the row -inf gives 0, unless the whole row is -inf: then each result is NaN anyway.
    sums += e;
  });
  const float sum = sum_lanes(sums);
  if (Log) {
    const float shift = logf(sum);
    for_vectors(x, n, 0, [&](Vec v, int64_t i, int64_t width) { put(y + i, width, v - most - shift); });
  } else {
    const float scale = 1 / sum;
    for_vectors(y, n, 0, [&](Vec v, int64_t i, int64_t width) { put(y + i, width, v * scale); });
  }
}

// Columns [0, width) of x [n, inner], width <= kLanes: each lane is a softmax of its own.
template <bool Log>
void softmax_columns(const float* x, float* y, int64_t n, int64_t inner, int64_t width) {
  const auto read = [&](const float* p) { return width == kLanes ? load(p) : load_first(p, width, 0); };
  Vec most = splat(-__builtin_inff());
  for (int64_t k = 0; k < n; ++k) most = vmax(read(x + k * inner), most);
  Vec sum = {};
  for (int64_t k = 0; k < n; ++k) {
    const Vec e = vexp_of_negative(read(x + k * inner) - most);
    if (!Log) put(y + k * inner, width, e);
    sum += e;
  }
  if (Log) {
    const Vec shift = vlog(sum);
    for (int64_t k = 0; k < n; ++k) put(y + k * inner, width, read(x + k * inner) - most - shift);
  } else {
    const Vec scale = 1.f / sum;
    for (int64_t k = 0; k < n; ++k) put(y + k * inner, width, read(y + k * inner) * scale);
  }
}

template <bool Log>
int softmax(const Args& args) noexcept {
  const View& x = args.in[0];
  const float* from = static_cast<const float*>(x.data);
  float* to = static_cast<float*>(args.out[0].data);
  if (element_count(x) == 0) return kDone;
  if (x.rank == 0) {
    softmax_row<Log>(from, to, 1);
    return kDone;
  }
  const int axis = static_cast<int>(args.attrs[0].i < 0 ? args.attrs[0].i + x.rank : args.attrs[0].i);
  int64_t outer = 1, inner = 1;
  const int64_t n = x.shape[axis];
  for (int a = 0; a < axis; ++a) outer *= x.shape[a];
  for (int a = axis + 1; a < x.rank; ++a) inner *= x.shape[a];
  if (inner == 1) {
    parallel_for(args.parallel, outer, 1 + kRowGrain / n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) softmax_row<Log>(from + i * n, to + i * n, n);
    });
    return kDone;
  }
  const int64_t parts = (inner + kLanes - 1) / kLanes;
  parallel_for(args.parallel, outer * parts, 1 + kRowGrain / (n * kLanes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = i % parts * kLanes;
      const int64_t at = i / parts * n * inner + column;
      softmax_columns<Log>(from + at, to + at, n, inner, inner - column < kLanes ? inner - column : kLanes);
    }
  });
  return kDone;
}

// Sum over x [n] of F(x), each lane four times apart so that additions overlap.
template <class F>
TESSERA_INLINE float sum_of(const float* x, int64_t n, const F& f) {
  Vec a = {}, b = {}, c = {}, d = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    a += f(load(x + i));
    b += f(load(x + i + kLanes));
    c += f(load(x + i + 2 * kLanes));
    d += f(load(x + i + 3 * kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) a += f(load(x + i));
  float sum = sum_lanes((a + b) + (c + d));
  if (i < n) {
    float lanes[kLanes];
    store(lanes, f(load_first(x + i, n - i, 0)));
    for (int64_t j = 0; j < n - i; ++j) sum += lanes[j];
  }
  return sum;
}

// Gain and shift of a norm, each absent or broadcast to x.
struct Affine {
  Walk<2> walk;
  Source sources[2];
  bool has[2];
};
Affine affine_of(const Args& args, int operands) {
  const View& x = args.out[0];  // dense, whatever the strides of the operand
  Affine affine;
  const View* views[2] = {&x, &x};
  for (int k = 0; k < 2; ++k) {
    affine.has[k] = k < operands && k + 1 < args.n_in && args.in[k + 1].present;
    if (affine.has[k]) views[k] = &args.in[k + 1];
  }
  affine.walk = make_walk<2>(x.rank, x.shape, views);
  for (int k = 0; k < 2; ++k) affine.sources[k] = {static_cast<const char*>(views[k]->data), 4, false, false, 0};
  return affine;
}

// y [n] = (x - mean) inv g + b at element `at` of the whole. Fetches the row behind x.
void scale_row(const Affine& affine, const float* x, float* y, int64_t n, int64_t at, float mean, float inv) {
  alignas(64) float buffers[2][kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t width = n - i < kBlock ? n - i : kBlock;
    const float* g = nullptr;
    const float* b = nullptr;
    char* room = reinterpret_cast<char*>(buffers[0]);
    if (affine.has[0]) g = static_cast<const float*>(block_of(affine.walk, 0, affine.sources[0], at + i, width, room));
    room = reinterpret_cast<char*>(buffers[1]);
    if (affine.has[1]) b = static_cast<const float*>(block_of(affine.walk, 1, affine.sources[1], at + i, width, room));
    const float* from = x + i;
    float* to = y + i;
    fetch(from + n, width);
    if (g != nullptr && b != nullptr)
      for (int64_t j = 0; j < width; ++j) to[j] = (from[j] - mean) * inv * g[j] + b[j];
    else if (g != nullptr)
      for (int64_t j = 0; j < width; ++j) to[j] = (from[j] - mean) * inv * g[j];
    else if (b != nullptr)
      for (int64_t j = 0; j < width; ++j) to[j] = (from[j] - mean) * inv + b[j];
    else
      for (int64_t j = 0; j < width; ++j) to[j] = (from[j] - mean) * inv;
  }
}

// Rows of the last `axes` axes: each some lines of contiguous floats, one as a rule.
struct Rows {
  int64_t count = 1, n = 1, lines = 1, width = 1;
  Walk<1> walk;
  const float* data;

  Rows(const View& x, int64_t axes) : data(static_cast<const float*>(x.data)) {
    const int first = x.rank - static_cast<int>(axes);
    View outer = x;
    if (axes > 0) width = x.shape[--outer.rank];
    while (outer.rank > first && (x.shape[outer.rank - 1] == 1 || x.stride[outer.rank - 1] == width))
      width *= x.shape[--outer.rank];
    for (int a = 0; a < first; ++a) count *= x.shape[a];
    for (int a = first; a < outer.rank; ++a) lines *= x.shape[a];
    n = lines * width;
    const View* const views[1] = {&outer};
    walk = make_walk<1>(outer.rank, x.shape, views);
  }

  const float* line(int64_t row, int64_t i) const {
    int64_t at[1];
    walk_offsets(walk, walk.rank, row * lines + i, at);
    return data + at[0];
  }
  template <class F>
  float mean_of(int64_t row, const F& f) const {
    float sum = 0;
    for (int64_t i = 0; i < lines; ++i) sum += sum_of(line(row, i), width, f);
    return sum / static_cast<float>(n);
  }
  // y [n] = (row - mean) inv g + b.
  void scale(int64_t row, const Affine& affine, float* y, float mean, float inv) const {
    for (int64_t i = 0; i < lines; ++i)
      scale_row(affine, line(row, i), y + i * width, width, row * n + i * width, mean, inv);
  }
};

int layer_norm(const Args& args) noexcept {
  const Rows rows(args.in[0], args.attrs[0].i);
  const double eps = args.attrs[1].f;
  const Affine affine = affine_of(args, 2);
  float* y = static_cast<float*>(args.out[0].data);
  float* means = static_cast<float*>(args.out[1].data);
  float* invs = static_cast<float*>(args.out[2].data);
  parallel_for(args.parallel, rows.count, 1 + kRowGrain / (rows.n + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float mean = rows.mean_of(i, [](Vec v) { return v; });
      const float variance = rows.mean_of(i, [&](Vec v) { return (v - mean) * (v - mean); });
      const float inv = static_cast<float>(1 / sqrt(static_cast<double>(variance) + eps));
      means[i] = mean;
      invs[i] = inv;
      rows.scale(i, affine, y + i * rows.n, mean, inv);
    }
  });
  return kDone;
}

int rms_norm(const Args& args) noexcept {
  const Rows rows(args.in[0], args.attrs[0].i);
  const double eps = args.attrs[1].f;
  const Affine affine = affine_of(args, 1);
  float* y = static_cast<float*>(args.out[0].data);
  parallel_for(args.parallel, rows.count, 1 + kRowGrain / (rows.n + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float square = rows.mean_of(i, [](Vec v) { return v * v; });
      const float inv = static_cast<float>(1 / sqrt(static_cast<double>(square) + eps));
      rows.scale(i, affine, y + i * rows.n, 0, inv);
    }
  });
  return kDone;
}

}  // namespace

TESSERA_FAMILY(rows, {"softmax_f32", softmax<false>, nullptr}, {"log_softmax_f32", softmax<true>, nullptr},
               {"layer_norm_f32", layer_norm, nullptr}, {"rms_norm_f32", rms_norm, nullptr})
