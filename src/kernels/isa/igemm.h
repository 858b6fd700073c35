// Product of 8-bit integers, exact in i32: c [M, N] = (a [M, K] - a0) (b [N, K] - b0)^T. b is packed into panels as
// signed bytes, with the sums of its columns behind them; a is made into units by panels of rows.
//
// Neighbours along k go into one multiplication: four bytes where the instruction set has it, else two, widened to
// 16 bits so that nothing saturates. Widened, a's zero point is taken away beforehand; else its part, like that of b's
// zero point, is taken away at the end: sum(a b) - a0 sum(b) - b0 sum(a) + K a0 b0.
#pragma once

#include "kernels/isa/pairs.h"
#include "kernels/isa/product.h"

namespace {

struct Int8Product {
  using Sum = VecI;
  using Element = int32_t;
#if defined(__AVX512VNNI__)
  typedef uint8_t Left;
#else
  typedef int16_t Left;
#endif
  static constexpr int kUnit = 4 / static_cast<int>(sizeof(Left)), kUnits = 1, kVectorBytes = kUnit * kLanes;
  template <int U>
  static TESSERA_INLINE VecI load(const char* b) {
#if defined(__AVX512VNNI__)
    VecI v;
    memcpy(&v, b, sizeof v);
    return v;
#else
    return widened_pairs(b);
#endif
  }
  static TESSERA_INLINE VecI madd(VecI sum, const float* a, VecI b) {
    int32_t unit;
    memcpy(&unit, a, 4);
#if defined(__AVX512VNNI__)
    return reinterpret_cast<VecI>(
        _mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), _mm512_set1_epi32(unit), reinterpret_cast<__m512i>(b)));
#else
    return add_pairs(sum, splat_int(unit), b);
#endif
  }
};
constexpr int kTogether = Int8Product::kUnit;
using Left = Int8Product::Left;
constexpr bool kWidened = sizeof(Left) == 2;

// b as bytes: signed ones as they are, unsigned ones less 128.
struct Bytes {
  const uint8_t* data;
  int64_t row, column;  // strides
  bool is_signed;
};

inline int64_t int_lines(int64_t k) { return ceil_div(k, kTogether); }
inline int64_t int_panel_bytes(int64_t k) { return int_lines(k) * kTogether * kTileColumns; }
inline int64_t packed_int_bytes(int64_t n, int64_t k) {
  const int64_t panels = ceil_div(n, kTileColumns);
  return panels * int_panel_bytes(k) + panels * kTileColumns * 4;
}

// Columns [panel * kTileColumns, ...) of b into their place in `out`, zeroed beforehand, and their sums.
inline void pack_int_panel(const Bytes& b, int64_t n, int64_t k, int64_t panel, int8_t* out) {
  const int64_t panels = ceil_div(n, kTileColumns), first = panel * kTileColumns;
  int8_t* const to = out + panel * int_panel_bytes(k);
  int32_t* const sums = reinterpret_cast<int32_t*>(out + panels * int_panel_bytes(k)) + first;
  const int flip = b.is_signed ? 0 : 0x80;
  for (int64_t j = 0; j < kTileColumns && first + j < n; ++j) {
    const uint8_t* from = b.data + (first + j) * b.row;
    int32_t sum = 0;
    for (int64_t i = 0; i < k; ++i) {
      const int8_t v = static_cast<int8_t>(from[i * b.column] ^ flip);
      sum += v;
      to[(i / kTogether * kTileColumns + j) * kTogether + i % kTogether] = v;
    }
    sums[j] = sum;
  }
}
inline void pack_int(const Bytes& b, int64_t n, int64_t k, const tessera::kernels::Parallel* parallel, void* out) {
  parallel_for(parallel, ceil_div(n, kTileColumns), 1 + 16384 / (kTileColumns * (k + 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t p = begin; p < end; ++p) pack_int_panel(b, n, k, p, static_cast<int8_t*>(out));
               });
}

// One number for all rows (or columns), or one each.
template <class T>
struct Each {
  const T* data = nullptr;  // null: `otherwise`
  int64_t step = 0;         // 0: one for all
  T otherwise = 0;
  T at(int64_t i) const { return data == nullptr ? otherwise : data[i * step]; }
};

struct IntProduct {
  int64_t m, n, k;
  const uint8_t* a;  // [m, k], dense
  bool a_signed;
  const int8_t* b;               // packed
  bool b_signed;                 // before it was packed
  Each<uint8_t> a_zero, b_zero;  // of the types of a and b

  int32_t left_zero(int64_t row) const { return a_signed ? static_cast<int8_t>(a_zero.at(row)) : a_zero.at(row); }
  int32_t right_zero(int64_t column) const {
    return b_signed ? static_cast<int8_t>(b_zero.at(column)) : static_cast<int32_t>(b_zero.at(column)) - 128;
  }
};

// a as units, and behind them the sum of each of its rows as they are there.
inline size_t int_rows_room(int64_t m, int64_t k) { return (units_bytes(m, int_lines(k)) + 63) / 64 * 64; }
inline size_t int_scratch(int64_t m, int64_t k) { return int_rows_room(m, k) + static_cast<size_t>(m) * 4; }

// Rows [row, row + height) of a as [lines][height], and their sums.
inline void make_int_rows(const IntProduct& p, int64_t row, int64_t height, float* units, int32_t* sums) {
  constexpr int64_t kBytes = 256;
  alignas(64) float part[kTileRows][kBytes / kTogether];
  Left line[kBytes];
  const int32_t flip = p.a_signed ? 0x80 : 0;  // bytes: unsigned, so signed ones plus 128
  for (int64_t r = 0; r < height; ++r) sums[r] = 0;
  for (int64_t i = 0; i < p.k; i += kBytes) {
    const int64_t n = least(p.k - i, kBytes), lines = ceil_div(n, kTogether);
    for (int64_t r = 0; r < height; ++r) {
      // Widened: less the zero point.
      const int32_t less = kWidened ? flip + p.left_zero(row + r) : 0;
      const uint8_t* from = p.a + (row + r) * p.k + i;
      int32_t sum = 0;
      for (int64_t j = 0; j < n; ++j) {
        const int32_t v = (from[j] ^ flip) - less;
        sum += v;
        line[j] = static_cast<Left>(v);
      }
      for (int64_t j = n; j < lines * kTogether; ++j) line[j] = 0;
      memcpy(part[r], line, static_cast<size_t>(lines) * 4);
      sums[r] += sum;
    }
    pack_row_panel(part[0], kBytes / kTogether, 1, height, lines, units + i / kTogether * height);
  }
}

// Calls put(row, column, rows, columns, c) for each finished tile c [rows][kTileColumns].
template <class Put>
inline void multiply_ints(const IntProduct& p, const tessera::kernels::Parallel* parallel, void* scratch,
                          const Put& put) {
  if (p.m == 0 || p.n == 0) return;
  int32_t* const sums = reinterpret_cast<int32_t*>(static_cast<char*>(scratch) + int_rows_room(p.m, p.k));
  const int32_t* const column_sums =
      reinterpret_cast<const int32_t*>(p.b + ceil_div(p.n, kTileColumns) * int_panel_bytes(p.k));
  const Product shape = {p.m, p.n, int_lines(p.k), nullptr, 0, Rows::kPacked, reinterpret_cast<const char*>(p.b)};
  multiply_made<Int8Product>(
      shape, static_cast<float*>(scratch), parallel,
      [&](int64_t row, int64_t height, float* units) { make_int_rows(p, row, height, units, sums + row); },
      [&](int64_t row, int64_t height, int64_t column, int64_t width, int32_t* c) {
        alignas(64) int32_t right_zero[kTileColumns] = {};
        bool corrects = !kWidened;
        for (int64_t j = 0; j < width; ++j) {
          right_zero[j] = p.right_zero(column + j);
          corrects = corrects || right_zero[j] != 0;
        }
        for (int64_t r = 0; corrects && r < height; ++r) {
          const int32_t zero = kWidened ? 0 : p.left_zero(row + r) + (p.a_signed ? 128 : 0);
          const int32_t total = sums[row + r] - static_cast<int32_t>(p.k) * zero;
          int32_t* const line = c + r * kTileColumns;
          for (int64_t j = 0; j < kTileColumns; ++j) line[j] -= zero * column_sums[column + j] + right_zero[j] * total;
        }
        put(row, column, height, width, c);
      });
}

}  // namespace
