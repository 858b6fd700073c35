// Rows of K and V as they are stored, read once for a few query rows. A result's bits depend neither on the other rows
// that share the reading, nor on how the keys are cut into calls.
#pragma once

#include "kernels/abi.h"
#include "kernels/isa/attention_tile.h"
#include "kernels/isa/math.h"
#include "kernels/isa/pairs.h"

namespace {

// Keys of a block: the distance of two rows of scores. K and V of 64 keys, 64 x 128 f32 each, stay in L2 while the next
// block is fetched.
constexpr int64_t kBlockKeys = 64;

template <uint8_t kType>
constexpr int64_t kStoredBytes = kType == tessera::kernels::kF32  ? 4
                                 : kType == tessera::kernels::kI8 ? 1
                                                                  : 2;

// kLanes elements as they are stored, which are floats.
template <uint8_t kType>
TESSERA_INLINE Vec stored(const void* data, int64_t at) {
  if constexpr (kType == tessera::kernels::kF32) return load(static_cast<const float*>(data) + at);
  const uint16_t* p = static_cast<const uint16_t*>(data) + at;
  if constexpr (kType == tessera::kernels::kBF16) {
#if defined(__AVX512F__)
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return of_bits(reinterpret_cast<VecI>(_mm512_maskz_cvtepu16_epi32(0xffff, halves)) << 16);
#elif defined(__AVX2__)
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return of_bits(reinterpret_cast<VecI>(_mm256_cvtepu16_epi32(halves)) << 16);
#else
    typedef uint16_t Halves __attribute__((vector_size(kLanes * 2)));
    Halves h;
    memcpy(&h, p, sizeof h);
    return of_bits(__builtin_convertvector(h, VecI) << 16);
#endif
  }
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#elif defined(__F16C__)
  return reinterpret_cast<Vec>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = f16_to_f32(p[i]);
  return load(lanes);
#endif
}

// Rows of K or V in memory: element (j, d) is data[at + j * row + d].
struct Stored {
  const void* data;
  int64_t at, row;
};

// Memory that is read next, brought into L2 line by line while something else is computed with: the memory is never
// idle, and is read in the order of its addresses.
struct Fetch {
  const char* at = nullptr;
  const char* end = nullptr;

  TESSERA_INLINE void some(int64_t bytes) {
    if (at >= end) return;
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 3);
    at += bytes;
  }
};
// Of n rows, where they lie together.
template <uint8_t kType>
inline Fetch fetch_of(const Stored& x, int64_t n, int64_t width) {
  const char* at = static_cast<const char*>(x.data) + x.at * kStoredBytes<kType>;
  return x.row == width ? Fetch{at, at + n * width * kStoredBytes<kType>} : Fetch{};
}

// How queries meet keys of a type, kStep elements at once.
template <uint8_t kType>
struct Meeting {
  using Query = float;
  using Sum = Vec;
  static constexpr int kStep = kLanes;
  static TESSERA_INLINE Vec query(const float* q) { return load(q); }
  static TESSERA_INLINE Vec key(const char* k, int64_t at) { return stored<kType>(k, at); }
  static TESSERA_INLINE Vec add(Vec sum, Vec query, Vec key) { return fma(query, key, sum); }
  static TESSERA_INLINE Vec score(Vec sum) { return sum; }
};
// Codes are not widened to f32: queries come in 16 bits, and sums are exact: 2^9 products of 2^15 and 2^7 fit into 32
// bits.
template <>
struct Meeting<tessera::kernels::kI8> {
  using Query = int16_t;
  using Sum = VecI;
  static constexpr int kStep = 2 * kLanes;
  static TESSERA_INLINE VecI query(const int16_t* q) {
    VecI v;
    memcpy(&v, q, sizeof v);
    return v;
  }
  static TESSERA_INLINE VecI key(const char* k, int64_t at) { return widened_pairs(k + at); }
  static TESSERA_INLINE VecI add(VecI sum, VecI query, VecI key) { return add_pairs(sum, query, key); }
  static TESSERA_INLINE Vec score(VecI sum) { return to_float(sum); }
};

// Rows of n numbers, whole vectors, as codes of 16 bits, with one scale a row that gives them back: NaN where one of
// them is NaN or infinite.
constexpr float kMostCode = 32767;
template <int Rows>
TESSERA_INLINE void codes_of(const float* x, int64_t n, int16_t* codes, float* scale) {
  typedef int16_t Codes __attribute__((vector_size(kLanes * 2)));
  // As integers the bits of magnitudes are in order, and those of infinity and NaN are the largest.
  VecI largest[Rows] = {};
  for (int64_t i = 0; i < n; i += kLanes)
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const VecI bits = bits_of(vabs(load(x + r * n + i)));
      largest[r] = bits > largest[r] ? bits : largest[r];
    }
  Vec inverse[Rows];
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
    int32_t lanes[kLanes];
    memcpy(lanes, &largest[r], sizeof lanes);
    for (int w = kLanes / 2; w > 0; w /= 2)
      for (int i = 0; i < w; ++i) lanes[i] = lanes[i + w] > lanes[i] ? lanes[i + w] : lanes[i];
    float most;
    memcpy(&most, lanes, sizeof most);
    const bool finite = lanes[0] < 0x7f800000;
    const float factor = kMostCode / most;
    const bool usable = finite && factor <= __FLT_MAX__;
    inverse[r] = splat(usable ? factor : 0);
    scale[r] = usable ? most / kMostCode : finite ? 0.0f : __builtin_nanf("");
  }
  for (int64_t i = 0; i < n; i += kLanes)
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      // NaN becomes the larger bound, whose scale is NaN.
      const Vec rounded = round_small(load(x + r * n + i) * inverse[r]);
      const Codes code =
          __builtin_convertvector(to_int(vmax(vmin(rounded, splat(kMostCode)), splat(-kMostCode))), Codes);
      memcpy(codes + r * n + i, &code, sizeof code);
    }
}

// s[i * kBlockKeys + j] = q[i] k[j] for Q queries and n keys; q [Q, depth], whole steps.
template <uint8_t kType, int Q>
TESSERA_INLINE void score_rows(const typename Meeting<kType>::Query* q, int64_t depth, const Stored& k, int64_t n,
                               float* s, Fetch& next) {
  using M = Meeting<kType>;
  using Sum = typename M::Sum;
  constexpr int kAtOnce = kLanes / Q;
  const int64_t row = k.row, bytes = kAtOnce * depth * kStoredBytes<kType>;
  const char* data = static_cast<const char*>(k.data) + k.at * kStoredBytes<kType>;
  Fetch mine = next;
  for (int64_t j = 0; j < n; j += kAtOnce) {
    const char* at[kAtOnce];
#pragma GCC unroll 16
    for (int x = 0; x < kAtOnce; ++x) at[x] = data + least(j + x, n - 1) * row * kStoredBytes<kType>;
    mine.some(bytes);
    Sum sums[kLanes] = {};
    for (int64_t d = 0; d < depth; d += M::kStep) {
      Sum keys[kAtOnce];
#pragma GCC unroll 16
      for (int x = 0; x < kAtOnce; ++x) keys[x] = M::key(at[x], d);
#pragma GCC unroll 16
      for (int i = 0; i < Q; ++i) {
        Sum query = M::query(q + i * depth + d);
#if defined(__x86_64__) && !defined(TESSERA_EMULATED)
        // Loaded once for all keys: GCC would make it a memory operand of each product.
        asm("" : "+v"(query));
#endif
#pragma GCC unroll 16
        for (int x = 0; x < kAtOnce; ++x) sums[i * kAtOnce + x] = M::add(sums[i * kAtOnce + x], query, keys[x]);
      }
    }
    alignas(64) float lanes[kLanes];
    store(lanes, M::score(sums_of(sums)));
    if (n - j >= kAtOnce) {
#pragma GCC unroll 16
      for (int i = 0; i < Q; ++i) memcpy(s + i * kBlockKeys + j, lanes + i * kAtOnce, kAtOnce * 4);
    } else {
      for (int i = 0; i < Q; ++i)
        for (int x = 0; j + x < n; ++x) s[i * kBlockKeys + j + x] = lanes[i * kAtOnce + x];
    }
  }
  next = mine;
}

// o[i] += sum over j of w[i, j] v[j], for Q rows and V vectors of columns from `e` on.
template <uint8_t kType, int Q, int V>
TESSERA_INLINE void add_values(const float* w, const Stored& v, int64_t e, int64_t n, float* o, int64_t width,
                               Fetch& next) {
  Vec sums[Q * V];
#pragma GCC unroll 16
  for (int i = 0; i < Q; ++i)
#pragma GCC unroll 16
    for (int x = 0; x < V; ++x) sums[i * V + x] = load(o + i * width + e + x * kLanes);
  // A line of what comes next for each line of these values.
  constexpr int64_t kBytes = V * kLanes * kStoredBytes<kType>, kEvery = kBytes < 64 ? 64 / kBytes : 1;
  const char* at = static_cast<const char*>(v.data) + (v.at + e) * kStoredBytes<kType>;
  const int64_t step = v.row * kStoredBytes<kType>;
  Fetch mine = next;
  for (int64_t j = 0; j < n; ++j, at += step) {
    if (j % kEvery == 0) mine.some(kBytes * kEvery);
    Vec value[V];
#pragma GCC unroll 16
    for (int x = 0; x < V; ++x) value[x] = stored<kType>(at, x * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < Q; ++i) {
      const Vec weight = splat(w[i * kBlockKeys + j]);
#pragma GCC unroll 16
      for (int x = 0; x < V; ++x) sums[i * V + x] = fma(weight, value[x], sums[i * V + x]);
    }
  }
  next = mine;
#pragma GCC unroll 16
  for (int i = 0; i < Q; ++i)
#pragma GCC unroll 16
    for (int x = 0; x < V; ++x) store(o + i * width + e + x * kLanes, sums[i * V + x]);
}

// The same for all columns, whole vectors. Sums take half of the registers, which hides the additions' latency.
template <uint8_t kType, int Q>
TESSERA_INLINE void add_values(const float* w, const Stored& v, int64_t n, float* o, int64_t width, Fetch& next) {
  constexpr int kVecs = kRegisters / 2 / Q > 8 ? 8 : kRegisters / 2 / Q;
  int64_t e = 0;
  for (; e + kVecs * kLanes <= width; e += kVecs * kLanes) add_values<kType, Q, kVecs>(w, v, e, n, o, width, next);
  for (; e < width; e += kLanes) add_values<kType, Q, 1>(w, v, e, n, o, width, next);
}

// o[i] += scale[i] times the sum over pairs p of w[i, p] v[p], for Q rows and V vectors of columns. Both numbers of a
// pair are codes; their products are added exactly: 64 of 2^15 and 2^7 fit into 32 bits.
template <int Q, int V>
TESSERA_INLINE void add_codes(const int16_t* w, const float* scale, const int32_t* v, int64_t pairs, float* o,
                              int64_t width, Fetch& next) {
  VecI sums[Q * V] = {};
  constexpr int64_t kBytes = 2 * V * kLanes, kEvery = kBytes < 64 ? 64 / kBytes : 1;
  Fetch mine = next;
#pragma GCC unroll 2
  for (int64_t p = 0; p < pairs; ++p, v += width) {
    if (p % kEvery == 0) mine.some(kBytes * kEvery);
    VecI value[V];
#pragma GCC unroll 16
    for (int x = 0; x < V; ++x) memcpy(&value[x], v + x * kLanes, sizeof value[x]);
#pragma GCC unroll 16
    for (int i = 0; i < Q; ++i) {
      int32_t pair;
      memcpy(&pair, w + i * kBlockKeys + 2 * p, sizeof pair);
      const VecI weight = splat_int(pair);
#pragma GCC unroll 16
      for (int x = 0; x < V; ++x) sums[i * V + x] = add_pairs(sums[i * V + x], weight, value[x]);
    }
  }
  next = mine;
#pragma GCC unroll 16
  for (int i = 0; i < Q; ++i)
#pragma GCC unroll 16
    for (int x = 0; x < V; ++x) {
      float* at = o + i * width + x * kLanes;
      store(at, fma(splat(scale[i]), to_float(sums[i * V + x]), load(at)));
    }
}
template <int Q>
TESSERA_INLINE void add_codes(const int16_t* w, const float* scale, const int32_t* v, int64_t pairs, float* o,
                              int64_t width, Fetch& next) {
  constexpr int kVecs = kRegisters / 2 / Q > 8 ? 8 : kRegisters / 2 / Q;
  int64_t e = 0;
  for (; e + kVecs * kLanes <= width; e += kVecs * kLanes)
    add_codes<Q, kVecs>(w, scale, v + e, pairs, o + e, width, next);
  for (; e < width; e += kLanes) add_codes<Q, 1>(w, scale, v + e, pairs, o + e, width, next);
}

}  // namespace
