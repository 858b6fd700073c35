// Quantized numbers: floats to 8-bit integers and back, and the products of these.
#include "kernels/abi.h"
#include "kernels/isa/export.h"
#include "kernels/isa/igemm.h"

namespace {

using namespace tessera::kernels;

constexpr int64_t kQuantizeGrain = 8192;  // elements: a few microseconds

// The nearest integer, ties to even, of |x| < 2^22; what is larger, or no number, stays far outside of a byte.
inline float nearest(float x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: its last place is 1
  return (x + kShift) - kShift;
}

void quantize_bytes(const float* x, uint8_t* y, int64_t n, float scale, float zero) {
  for (int64_t i = 0; i < n; ++i) {
    float v = nearest(x[i] / scale) + zero;
    v = v > 0 ? v : 0;
    y[i] = static_cast<uint8_t>(static_cast<int32_t>(v < 255 ? v : 255));
  }
}

struct Range {
  float low, high;
};
Range range_of(const float* x, int64_t n) {
  Vec low = {}, high = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec v = load(x + i);
    low = v < low ? v : low;
    high = v > high ? v : high;
  }
  Range r = {-max_lanes(-low), max_lanes(high)};
  for (; i < n; ++i) {
    r.low = x[i] < r.low ? x[i] : r.low;
    r.high = x[i] > r.high ? x[i] : r.high;
  }
  return r;
}

int64_t quantize_chunks(const Args& args) { return ceil_div(element_count(args.in[0]), kQuantizeGrain); }
size_t quantize_dynamic_scratch(const Args& args) noexcept {
  return static_cast<size_t>(quantize_chunks(args)) * sizeof(Range);
}

int quantize_dynamic(const Args& args) noexcept {
  const float* x = static_cast<const float*>(args.in[0].data);
  uint8_t* y = static_cast<uint8_t*>(args.out[0].data);
  const int64_t n = element_count(args.in[0]), chunks = quantize_chunks(args);
  Range* ranges = static_cast<Range*>(args.scratch);
  auto each_chunk = [&](const auto& f) {
    parallel_for(args.parallel, chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        const int64_t at = c * kQuantizeGrain;
        f(c, at, n - at < kQuantizeGrain ? n - at : kQuantizeGrain);
      }
    });
  };
  each_chunk([&](int64_t c, int64_t at, int64_t count) { ranges[c] = range_of(x + at, count); });
  Range all = {0, 0};
  for (int64_t c = 0; c < chunks; ++c) {
    all.low = ranges[c].low < all.low ? ranges[c].low : all.low;
    all.high = ranges[c].high > all.high ? ranges[c].high : all.high;
  }
  const float range = all.high - all.low;
  const float scale = range == 0 ? 1.0f : range / 255.0f;
  uint8_t zero = 0;
  {
    float v = nearest(-all.low / scale);
    v = v > 0 ? v : 0;
    zero = static_cast<uint8_t>(static_cast<int32_t>(v < 255 ? v : 255));
  }
  static_cast<float*>(args.out[1].data)[0] = scale;
  static_cast<uint8_t*>(args.out[2].data)[0] = zero;
  each_chunk([&](int64_t, int64_t at, int64_t count) { quantize_bytes(x + at, y + at, count, scale, zero); });
  return kDone;
}

int quantize_rows(const Args& args) noexcept {
  const View& in = args.in[0];
  const int64_t columns = in.shape[in.rank - 1], rows = element_count(args.out[1]);
  const float* x = static_cast<const float*>(in.data);
  int8_t* y = static_cast<int8_t*>(args.out[0].data);
  float* scales = static_cast<float*>(args.out[1].data);
  parallel_for(args.parallel, rows, 1 + kQuantizeGrain / (columns + 1), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float poison = 0;  // NaN unless all are finite
      for (int64_t i = r * columns; i < (r + 1) * columns; ++i) poison += x[i] - x[i];
      if (!(poison == 0)) {
        memset(y + r * columns, 0, static_cast<size_t>(columns));
        scales[r] = __builtin_nanf("");
        continue;
      }
      const Range range = range_of(x + r * columns, columns);
      const float top = range.high > -range.low ? range.high : -range.low;
      const float scale = top == 0 ? 1.0f : top / 127.0f;
      for (int64_t i = r * columns; i < (r + 1) * columns; ++i) {
        float v = nearest(x[i] / scale);
        v = v > -127 ? v : -127;
        y[i] = static_cast<int8_t>(static_cast<int32_t>(v < 127 ? v : 127));
      }
      scales[r] = scale;
    }
  });
  return kDone;
}

// Scales and zero points are dense: one for all, or one a row (column).
template <class T>
Each<T> each_of(const Args& args, int i, T otherwise) {
  if (i >= args.n_in || !args.in[i].present) return {nullptr, 0, otherwise};
  return {static_cast<const T*>(args.in[i].data), element_count(args.in[i]) > 1 ? 1 : 0, otherwise};
}

Bytes bytes_of(const View& w) { return {static_cast<const uint8_t*>(w.data), w.stride[0], w.stride[1], w.type == kI8}; }

// x and w stand first; the zero points at `zeros` and behind it. w is packed, or will be at the start of the scratch.
IntProduct int_product(const Args& args, int zeros, bool packed) {
  const View &x = args.in[0], &w = args.in[1];
  IntProduct p = {};
  p.k = x.shape[x.rank - 1];
  p.n = w.shape[0];
  p.m = 1;
  for (int i = 0; i + 1 < x.rank; ++i) p.m *= x.shape[i];
  p.a = static_cast<const uint8_t*>(x.data);
  p.a_signed = x.type == kI8;
  p.b = static_cast<const int8_t*>(packed ? w.data : args.scratch);
  p.b_signed = w.type == kI8;
  p.a_zero = each_of<uint8_t>(args, zeros, 0);
  p.b_zero = each_of<uint8_t>(args, zeros + 1, 0);
  return p;
}

size_t packed_int_size(const PackArgs& args) noexcept {
  return static_cast<size_t>(packed_int_bytes(args.operand->shape[0], args.operand->shape[1]));
}
void pack_int_operand(const PackArgs& args, void* out) noexcept {
  pack_int(bytes_of(*args.operand), args.operand->shape[0], args.operand->shape[1], args.parallel, out);
}

size_t weights_room(const Args& args) {
  return static_cast<size_t>(ceil_div(packed_int_bytes(args.in[1].shape[0], args.in[1].shape[1]), 64) * 64);
}
template <bool kPacked>
size_t int_product_scratch(const Args& args) noexcept {
  const IntProduct p = int_product(args, args.n_in, kPacked);
  return int_scratch(p.m, p.k) + (kPacked ? 0 : weights_room(args));
}
// Packs w when that has not been done; where a is to be packed.
template <bool kPacked>
void* prepare(const Args& args) {
  if (kPacked) return args.scratch;
  const size_t room = weights_room(args);
  memset(args.scratch, 0, room);
  pack_int(bytes_of(args.in[1]), args.in[1].shape[0], args.in[1].shape[1], args.parallel, args.scratch);
  return static_cast<char*>(args.scratch) + room;
}

template <bool kPacked>
int linear_integer(const Args& args) noexcept {
  const IntProduct p = int_product(args, 2, kPacked);
  int32_t* y = static_cast<int32_t*>(args.out[0].data);
  multiply_ints(p, args.parallel, prepare<kPacked>(args),
                [&](int64_t row, int64_t column, int64_t rows, int64_t columns, const int32_t* c) {
                  for (int64_t r = 0; r < rows; ++r)
                    memcpy(y + (row + r) * p.n + column, c + r * kTileColumns, static_cast<size_t>(columns) * 4);
                });
  return kDone;
}

template <bool kPacked>
int linear_quantized(const Args& args) noexcept {
  const IntProduct p = int_product(args, 4, kPacked);
  const Each<float> x_scale = each_of<float>(args, 2, 1), w_scale = each_of<float>(args, 3, 1),
                    bias = args.n_in > 6 && args.in[6].present
                               ? Each<float>{static_cast<const float*>(args.in[6].data), 1, 0}
                               : Each<float>{nullptr, 0, 0};
  const float scale = static_cast<float>(args.attrs[0].f);
  float* y = static_cast<float*>(args.out[0].data);
  multiply_ints(p, args.parallel, prepare<kPacked>(args),
                [&](int64_t row, int64_t column, int64_t rows, int64_t columns, const int32_t* c) {
                  alignas(64) float factor[kTileColumns], added[kTileColumns];
                  for (int64_t j = 0; j < columns; ++j) {
                    factor[j] = w_scale.at(column + j);
                    added[j] = bias.at(column + j);
                  }
                  for (int64_t r = 0; r < rows; ++r) {
                    const float by_row = x_scale.at(row + r) * scale;
                    float* to = y + (row + r) * p.n + column;
                    const int32_t* from = c + r * kTileColumns;
                    for (int64_t j = 0; j < columns; ++j)
                      to[j] = static_cast<float>(from[j]) * (by_row * factor[j]) + added[j];
                  }
                });
  return kDone;
}

// Weights [N, G, block * bits / 8] whose blocks have a scale and a zero point each.
struct BlockWeights {
  const uint8_t* w;
  const float* scale;
  const void* zero;  // null: half of the range
  bool zero_packed;
  int64_t groups, zero_row, bits, block;

  float zero_of(int64_t n, int64_t g) const {
    if (zero == nullptr) return static_cast<float>(1 << (bits - 1));
    if (!zero_packed) return static_cast<const float*>(zero)[n * groups + g];
    const int64_t at = g * bits;
    return static_cast<float>(static_cast<const uint8_t*>(zero)[n * zero_row + at / 8] >> at % 8 & ((1 << bits) - 1));
  }
  // Columns [k, k + count) of row n as floats; they are of one block, and k and count are multiples of 8.
  void read(int64_t n, int64_t k, int64_t count, float* out) const {
    const int64_t g = k / block;
    const uint8_t* from = w + ((n * groups + g) * block + k % block) * bits / 8;
    const float s = scale[n * groups + g], z = zero_of(n, g);
    if (bits == 4) {
      for (int64_t i = 0; i < count / 2; ++i) {
        out[2 * i] = (static_cast<float>(from[i] & 15) - z) * s;
        out[2 * i + 1] = (static_cast<float>(from[i] >> 4) - z) * s;
      }
    } else if (bits == 8) {
      for (int64_t i = 0; i < count; ++i) out[i] = (static_cast<float>(from[i]) - z) * s;
    } else {
      for (int64_t i = 0; i < count; ++i) out[i] = (static_cast<float>(from[i / 4] >> i % 4 * 2 & 3) - z) * s;
    }
  }
};

BlockWeights blocks_of(const Args& args) {
  const bool has_zero = args.n_in > 3 && args.in[3].present;
  BlockWeights b = {};
  b.w = static_cast<const uint8_t*>(args.in[1].data);
  b.scale = static_cast<const float*>(args.in[2].data);
  b.zero = has_zero ? args.in[3].data : nullptr;
  b.zero_packed = has_zero && args.in[3].type == kU8;
  b.zero_row = has_zero ? args.in[3].shape[1] : 0;
  b.groups = args.in[1].shape[1];
  b.bits = args.attrs[0].i;
  b.block = args.attrs[1].i;
  return b;
}

// Columns of weights at once: as floats they stay in L1 while all rows of x pass by.
constexpr int64_t kPart = 256;

// y [R, count] += a [R, k] w [count, k]^T, with w's rows kPart apart.
template <int R>
void add_part(const float* a, int64_t a_row, const float* w, int64_t k, int64_t count, float* y, int64_t y_row) {
  for (int64_t n = 0; n < count; ++n, w += kPart) {
    Vec sums[R] = {};
    int64_t i = 0;
    for (; i + kLanes <= k; i += kLanes) {
      const Vec v = load(w + i);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sums[r] = fma(load(a + r * a_row + i), v, sums[r]);
    }
    for (int r = 0; r < R; ++r) {
      float sum = sum_lanes(sums[r]);
      for (int64_t j = i; j < k; ++j) sum += a[r * a_row + j] * w[j];
      y[r * y_row + n] += sum;
    }
  }
}

int linear_blocks(const Args& args) noexcept {
  const View& x = args.in[0];
  const int64_t k = x.shape[x.rank - 1], n = args.in[1].shape[0], m = element_count(args.out[0]) / (n == 0 ? 1 : n);
  const BlockWeights b = blocks_of(args);
  const float* a = static_cast<const float*>(x.data);
  const float* bias = args.n_in > 4 && args.in[4].present ? static_cast<const float*>(args.in[4].data) : nullptr;
  float* y = static_cast<float*>(args.out[0].data);
  constexpr int64_t kOutputs = 8;  // of one task: 8 KiB of floats
  const int64_t size = b.block < kPart ? b.block : kPart;
  parallel_for(args.parallel, ceil_div(n, kOutputs), 1 + (int64_t{1} << 15) / (k * m * kOutputs + 1),
               [&](int64_t begin, int64_t end) {
                 alignas(64) float part[kOutputs * kPart];
                 for (int64_t first = begin * kOutputs; first < end * kOutputs; first += kOutputs) {
                   const int64_t count = n - first < kOutputs ? n - first : kOutputs;
                   for (int64_t r = 0; r < m; ++r)
                     for (int64_t j = 0; j < count; ++j) y[r * n + first + j] = bias == nullptr ? 0 : bias[first + j];
                   for (int64_t at = 0; at < k; at += kPart) {
                     const int64_t depth = k - at < kPart ? k - at : kPart;
                     for (int64_t j = 0; j < count; ++j)
                       for (int64_t i = 0; i < depth; i += size) b.read(first + j, at + i, size, part + j * kPart + i);
                     int64_t r = 0;
                     for (; r + 4 <= m; r += 4)
                       add_part<4>(a + r * k + at, k, part, depth, count, y + r * n + first, n);
                     for (; r < m; ++r) add_part<1>(a + r * k + at, k, part, depth, count, y + r * n + first, n);
                   }
                 }
               });
  return kDone;
}

}  // namespace

TESSERA_FAMILY(
    quantized, {"quantize_dynamic", quantize_dynamic, quantize_dynamic_scratch},
    {"quantize_rows", quantize_rows, nullptr}, {"linear_integer", linear_integer<false>, int_product_scratch<false>},
    {"linear_integer_packed", linear_integer<true>, int_product_scratch<true>, packed_int_size, pack_int_operand},
    {"linear_quantized", linear_quantized<false>, int_product_scratch<false>},
    {"linear_quantized_packed", linear_quantized<true>, int_product_scratch<true>, packed_int_size, pack_int_operand},
    {"linear_blocks", linear_blocks, nullptr})
