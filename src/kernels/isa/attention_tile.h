// Products and transposes for attention. Scores are held transposed, keys down and queries across the
// lanes, so that a row's maximum and sum are lane-wise and the weights are already what the second product reads: K and
// V are taken element by element from where they lie, and only the queries are packed.
#pragma once

#include "kernels/isa/half.h"
#include "kernels/isa/vec.h"

namespace {

// The register tile: rows of K or V times three vectors of queries. 4 x 3 accumulators leave 4 of 16 registers for a
// row of b and the element of a; 8 x 3 leave 8 of 32.
constexpr int kTallRows = kRegisters == 32 ? 8 : 4;
constexpr int kQueryVecs = 3;

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most_of(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Element (i, j) of a matrix is data[i * row + j * column].
struct Strided {
  const float* data;
  int64_t row, column;
};

// V vectors side by side. Chains of members instead of arrays: GCC keeps arrays indexed in loops on the stack.
template <int V>
struct Lanes {
  Vec v;
  Lanes<V - 1> rest;
  TESSERA_INLINE void clear() {
    v = Vec{};
    rest.clear();
  }
  TESSERA_INLINE void get(const float* p) {
    v = load(p);
    rest.get(p + kLanes);
  }
  TESSERA_INLINE void put(float* p) const {
    store(p, v);
    rest.put(p + kLanes);
  }
  TESSERA_INLINE void times(const Lanes& f) {
    v *= f.v;
    rest.times(f.rest);
  }
  TESSERA_INLINE void add(Vec x, const Lanes& b) {
    v = fma(x, b.v, v);
    rest.add(x, b.rest);
  }
};
template <>
struct Lanes<0> {
  TESSERA_INLINE void clear() {}
  TESSERA_INLINE void get(const float*) {}
  TESSERA_INLINE void put(float*) const {}
  TESSERA_INLINE void times(const Lanes&) {}
  TESSERA_INLINE void add(Vec, const Lanes&) {}
};

template <int R, int V>
struct Sums {
  Lanes<V> row;
  Sums<R - 1, V> rest;
  TESSERA_INLINE void clear() {
    row.clear();
    rest.clear();
  }
  TESSERA_INLINE void get(const float* c, int64_t step) {
    row.get(c);
    rest.get(c + step, step);
  }
  TESSERA_INLINE void put(float* c, int64_t step) const {
    row.put(c);
    rest.put(c + step, step);
  }
  TESSERA_INLINE void times(const Lanes<V>& f) {
    row.times(f);
    rest.times(f);
  }
  TESSERA_INLINE void add(const float* a, int64_t step, const Lanes<V>& b) {
    row.add(splat(*a), b);
    rest.add(a + step, step, b);
  }
};
template <int V>
struct Sums<0, V> {
  TESSERA_INLINE void clear() {}
  TESSERA_INLINE void get(const float*, int64_t) {}
  TESSERA_INLINE void put(float*, int64_t) const {}
  TESSERA_INLINE void times(const Lanes<V>&) {}
  TESSERA_INLINE void add(const float*, int64_t, const Lanes<V>&) {}
};

// What becomes of c's old values: dropped, added to, or multiplied lane by lane first.
enum class Old { none, kept, scaled };

// c [R, V vectors] = old c + a [R, k] b [k, V vectors]; b and c without gaps.
template <int R, int V>
TESSERA_INLINE void product_tile(const float* a, int64_t row, int64_t step, const float* b, int64_t k, float* c,
                                 Old old, const float* factor) {
  constexpr int kWidth = V * kLanes;
  Sums<R, V> sums;
  if (old == Old::none) {
    sums.clear();
  } else {
    sums.get(c, kWidth);
  }
  if (old == Old::scaled) {
    Lanes<V> f;
    f.get(factor);
    sums.times(f);
  }
#pragma GCC unroll 2
  for (int64_t i = 0; i < k; ++i, a += step, b += kWidth) {
    Lanes<V> lanes;
    lanes.get(b);
    sums.add(a, row, lanes);
  }
  sums.put(c, kWidth);
}

// One of a's strides is 1: addresses are then cheap.
template <int R, int V>
TESSERA_INLINE void product_rows(const Strided& a, const float* b, int64_t k, float* c, Old old, const float* factor) {
  if (a.row == 1) {
    product_tile<R, V>(a.data, 1, a.column, b, k, c, old, factor);
  } else {
    product_tile<R, V>(a.data, a.row, 1, b, k, c, old, factor);
  }
}

// c [m, V vectors] = old c + a [m, k] b [k, V vectors].
template <int V>
TESSERA_OUTLINE void product(Strided a, int64_t m, const float* b, int64_t k, float* c, Old old, const float* factor) {
  constexpr int kWidth = V * kLanes;
  for (; m >= kTallRows; m -= kTallRows, a.data += kTallRows * a.row, c += kTallRows * kWidth)
    product_rows<kTallRows, V>(a, b, k, c, old, factor);
  for (; m > 0; --m, a.data += a.row, c += kWidth) product_rows<1, V>(a, b, k, c, old, factor);
}

// The same where a zero in b stands for an element of a that must not count, whatever it is.
template <int V>
TESSERA_OUTLINE void guarded_product(Strided a, int64_t m, const float* b, int64_t k, float* c, Old old,
                                     const float* factor) {
  constexpr int kWidth = V * kLanes;
  for (int64_t i = 0; i < m; ++i, c += kWidth)
    for (int64_t x = 0; x < kWidth; x += kLanes) {
      Vec sum = old == Old::none ? Vec{} : load(c + x);
      if (old == Old::scaled) sum *= load(factor + x);
      for (int64_t j = 0; j < k; ++j) {
        const Vec w = load(b + j * kWidth + x);
        sum = w != 0.f ? fma(w, splat(a.data[i * a.row + j * a.column]), sum) : sum;
      }
      store(c + x, sum);
    }
}

// to[j][i] = from[i][j] for kLanes rows and columns.
TESSERA_OUTLINE void transpose_square(const float* from, int64_t from_row, float* to, int64_t to_row) {
#if defined(__AVX512F__)
#define TESSERA_SWAP_1_LOW 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define TESSERA_SWAP_1_HIGH 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define TESSERA_SWAP_2_LOW 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define TESSERA_SWAP_2_HIGH 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define TESSERA_SWAP_4_LOW 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define TESSERA_SWAP_4_HIGH 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define TESSERA_SWAP_8_LOW 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define TESSERA_SWAP_8_HIGH 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#elif defined(__AVX2__)
#define TESSERA_SWAP_1_LOW 0, 8, 2, 10, 4, 12, 6, 14
#define TESSERA_SWAP_1_HIGH 1, 9, 3, 11, 5, 13, 7, 15
#define TESSERA_SWAP_2_LOW 0, 1, 8, 9, 4, 5, 12, 13
#define TESSERA_SWAP_2_HIGH 2, 3, 10, 11, 6, 7, 14, 15
#define TESSERA_SWAP_4_LOW 0, 1, 2, 3, 8, 9, 10, 11
#define TESSERA_SWAP_4_HIGH 4, 5, 6, 7, 12, 13, 14, 15
#else
#define TESSERA_SWAP_1_LOW 0, 4, 2, 6
#define TESSERA_SWAP_1_HIGH 1, 5, 3, 7
#define TESSERA_SWAP_2_LOW 0, 1, 4, 5
#define TESSERA_SWAP_2_HIGH 2, 3, 6, 7
#endif
  Vec x[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) x[i] = load(from + i * from_row);
    // Rows i and i + h exchange the columns in which one has the bit h and the other has not.
#define TESSERA_SWAP(h)                                                \
  _Pragma("GCC unroll 16") for (int i = 0; i < kLanes; ++i) {          \
    if ((i & h) != 0) continue;                                        \
    const Vec a = x[i], b = x[i + h];                                  \
    x[i] = __builtin_shufflevector(a, b, TESSERA_SWAP_##h##_LOW);      \
    x[i + h] = __builtin_shufflevector(a, b, TESSERA_SWAP_##h##_HIGH); \
  }
  TESSERA_SWAP(1)
  TESSERA_SWAP(2)
#if defined(__AVX2__)
  TESSERA_SWAP(4)
#endif
#if defined(__AVX512F__)
  TESSERA_SWAP(8)
#endif
#undef TESSERA_SWAP
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) store(to + i * to_row, x[i]);
}

// Lane i: the sum of the lanes of x[i], all in one order. Neighbours are added until one vector is left, each time with
// the shuffles that take one instruction.
template <class V>
TESSERA_INLINE V sums_of(V (&x)[kLanes]) {
#if defined(__AVX512F__)
#define TESSERA_ADD_1 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define TESSERA_ADD_2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define TESSERA_ADD_4 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define TESSERA_ADD_8 TESSERA_ADD_4
#define TESSERA_REST_1 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define TESSERA_REST_2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define TESSERA_REST_4 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#define TESSERA_REST_8 TESSERA_REST_4
#elif defined(__AVX2__)
#define TESSERA_ADD_1 0, 8, 1, 9, 4, 12, 5, 13
#define TESSERA_ADD_2 0, 1, 8, 9, 4, 5, 12, 13
#define TESSERA_ADD_4 0, 1, 2, 3, 8, 9, 10, 11
#define TESSERA_REST_1 2, 10, 3, 11, 6, 14, 7, 15
#define TESSERA_REST_2 2, 3, 10, 11, 6, 7, 14, 15
#define TESSERA_REST_4 4, 5, 6, 7, 12, 13, 14, 15
#else
#define TESSERA_ADD_1 0, 4, 1, 5
#define TESSERA_ADD_2 0, 1, 4, 5
#define TESSERA_REST_1 2, 6, 3, 7
#define TESSERA_REST_2 2, 3, 6, 7
#endif
#define TESSERA_ADD(h)                                                    \
  _Pragma("GCC unroll 16") for (int i = 0; i < kLanes; i += 2 * h) x[i] = \
      __builtin_shufflevector(x[i], x[i + h], TESSERA_ADD_##h) +          \
      __builtin_shufflevector(x[i], x[i + h], TESSERA_REST_##h);
  TESSERA_ADD(1)
  TESSERA_ADD(2)
#if defined(__AVX2__)
  TESSERA_ADD(4)
#endif
#if defined(__AVX512F__)
  TESSERA_ADD(8)
#endif
#undef TESSERA_ADD
  return x[0];
}

// to[j * to_row + i] = factor * from[i * row + j * column] for i < rows, j < columns; columns of `to` up to `width` are
// made 0. `to` has room for width columns in each row.
TESSERA_OUTLINE void pack_transposed(const Strided& from, int64_t rows, int64_t columns, float factor, float* to,
                                     int64_t width) {
  alignas(64) float square[kLanes * kLanes];
  const Vec f = splat(factor);
  for (int64_t j = 0; j < columns; j += kLanes) {
    const int64_t n = least(kLanes, columns - j);
    for (int64_t i = 0; i < width; i += kLanes) {
      const int64_t m = least(kLanes, most_of(rows - i, 0));
      const float* at = from.data + i * from.row + j * from.column;
      float* out = to + j * width + i;
      if (m == kLanes && n == kLanes && from.column == 1) {
        transpose_square(at, from.row, square, kLanes);
        for (int64_t x = 0; x < kLanes; ++x) store(out + x * width, load(square + x * kLanes) * f);
        continue;
      }
      for (int64_t x = 0; x < n; ++x)
        for (int64_t y = 0; y < kLanes; ++y)
          out[x * width + y] = y < m ? at[y * from.row + x * from.column] * factor : 0;
    }
  }
}

// Elements of f32, f16 or bf16 as f32.
TESSERA_INLINE float element_f32(const void* data, uint8_t type, int64_t at) {
  if (type == tessera::kernels::kF32) return static_cast<const float*>(data)[at];
  const uint16_t h = static_cast<const uint16_t*>(data)[at];
  return type == tessera::kernels::kF16 ? f16_to_f32(h) : bf16_to_f32(h);
}
TESSERA_OUTLINE void elements_f32(const void* data, uint8_t type, int64_t at, int64_t step, int64_t n, float* out) {
  if (step == 1 && type == tessera::kernels::kF32) {
    memcpy(out, static_cast<const float*>(data) + at, static_cast<size_t>(n) * 4);
  } else if (step == 1 && type == tessera::kernels::kF16) {
    f16_block_to_f32(static_cast<const uint16_t*>(data) + at, out, n);
  } else if (step == 1) {
    bf16_block_to_f32(static_cast<const uint16_t*>(data) + at, out, n);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = element_f32(data, type, at + i * step);
  }
}
TESSERA_OUTLINE void put_elements(const float* from, void* data, uint8_t type, int64_t at, int64_t n) {
  if (type == tessera::kernels::kF32) {
    memcpy(static_cast<float*>(data) + at, from, static_cast<size_t>(n) * 4);
  } else if (type == tessera::kernels::kF16) {
    f32_block_to_f16(from, static_cast<uint16_t*>(data) + at, n);
  } else {
    f32_block_to_bf16(from, static_cast<uint16_t*>(data) + at, n);
  }
}

}  // namespace
