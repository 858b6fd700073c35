// Product of 8-bit integers, exact in i32: c [M, N] = (a [M, K] - a0) (b [N, K] - b0)^T. b is packed into panels as
// signed bytes, with the sums of its columns behind them; a is packed by tiles of rows.
//
// Neighbours along k go into one multiplication: four bytes where the instruction set has it, else two, widened to
// 16 bits so that nothing saturates. Widened, a's zero point is taken away beforehand; else its part, like that of b's
// zero point, is taken away at the end: sum(a b) - a0 sum(b) - b0 sum(a) + K a0 b0.
#pragma once

#include "kernels/isa/loops.h"
#include "kernels/isa/vec.h"

namespace {

#if defined(__AVX512VNNI__)
constexpr int kTogether = 4;
typedef uint8_t Left;
#else
constexpr int kTogether = 2;
typedef int16_t Left;
#endif
constexpr bool kWidened = sizeof(Left) == 2;

// The register tile: two vectors of accumulators a row, as for floats; two registers hold b, two more the product.
constexpr int kIntRows = kRegisters == 32 ? 12 : 6;
constexpr int kIntColumns = 2 * kLanes;
// Rows that share one pass over a panel: those of a at K = 768 stay in a 512 KiB L2 beside the panels.
constexpr int64_t kIntBand = 8 * kIntRows;

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// acc[j] += sum over t of a[t] b[j][t]; a is kTogether elements, b kLanes times as many.
TESSERA_INLINE VecI multiply_add(VecI acc, const Left* a, const int8_t* b) {
#if defined(__AVX512VNNI__)
  int32_t group;
  memcpy(&group, a, 4);
  return reinterpret_cast<VecI>(
      _mm512_dpbusd_epi32(reinterpret_cast<__m512i>(acc), _mm512_set1_epi32(group), _mm512_loadu_si512(b)));
#elif defined(__AVX512BW__)
  int32_t group;
  memcpy(&group, a, 4);
  const __m512i wide = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b)));
  return acc + reinterpret_cast<VecI>(_mm512_madd_epi16(_mm512_set1_epi32(group), wide));
#elif defined(__AVX2__)
  int32_t group;
  memcpy(&group, a, 4);
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b)));
  return acc + reinterpret_cast<VecI>(_mm256_madd_epi16(_mm256_set1_epi32(group), wide));
#else
  for (int j = 0; j < kLanes; ++j) acc[j] += a[0] * b[2 * j] + a[1] * b[2 * j + 1];
  return acc;
#endif
}

// Accumulators of R rows: a chain of members, as the compiler keeps arrays indexed in loops on the stack.
template <int R>
struct IntTile {
  VecI low = {}, high = {};
  IntTile<R - 1> rest;
  TESSERA_INLINE void step(const Left* a, const int8_t* b) {
    low = multiply_add(low, a, b);
    high = multiply_add(high, a, b + kLanes * kTogether);
    rest.step(a + kTogether, b);
  }
  TESSERA_INLINE void put(int32_t* c) const {
    memcpy(c, &low, sizeof low);
    memcpy(c + kLanes, &high, sizeof high);
    rest.put(c + kIntColumns);
  }
};
template <>
struct IntTile<0> {
  TESSERA_INLINE void step(const Left*, const int8_t*) {}
  TESSERA_INLINE void put(int32_t*) const {}
};

// c [R, kIntColumns] = a [groups][R][kTogether] b [groups][kIntColumns][kTogether].
template <int R>
inline void multiply_int_tile(const Left* a, const int8_t* b, int64_t groups, int32_t* c) {
  IntTile<R> tile;
  for (int64_t g = 0; g < groups; ++g, a += R * kTogether, b += kIntColumns * kTogether) tile.step(a, b);
  tile.put(c);
}
using IntTileFn = void (*)(const Left*, const int8_t*, int64_t, int32_t*);

// Tiles of fewer rows, so that one row costs little more than reading the weights.
inline int tile_height(int64_t rows) {
  return rows <= 2 ? static_cast<int>(rows) : rows <= 4 ? 4 : rows <= 6 ? 6 : kIntRows;
}
inline IntTileFn tile_function(int height) {
  switch (height) {
    case 1:
      return multiply_int_tile<1>;
    case 2:
      return multiply_int_tile<2>;
    case 4:
      return multiply_int_tile<4>;
    case 6:
      return multiply_int_tile<6>;
    default:
      return multiply_int_tile<kIntRows>;
  }
}

// b as bytes: signed ones as they are, unsigned ones less 128.
struct Bytes {
  const uint8_t* data;
  int64_t row, column;  // strides
  bool is_signed;
};

inline int64_t int_panel_bytes(int64_t k) { return round_up(k, kTogether) * kIntColumns; }
inline int64_t packed_int_bytes(int64_t n, int64_t k) {
  const int64_t panels = round_up(n, kIntColumns) / kIntColumns;
  return panels * int_panel_bytes(k) + panels * kIntColumns * 4;
}

// Columns [panel * kIntColumns, ...) of b into their place in `out`, zeroed beforehand, and their sums.
inline void pack_int_panel(const Bytes& b, int64_t n, int64_t k, int64_t panel, int8_t* out) {
  const int64_t panels = round_up(n, kIntColumns) / kIntColumns, first = panel * kIntColumns;
  int8_t* const to = out + panel * int_panel_bytes(k);
  int32_t* const sums = reinterpret_cast<int32_t*>(out + panels * int_panel_bytes(k)) + first;
  const int flip = b.is_signed ? 0 : 0x80;
  for (int64_t j = 0; j < kIntColumns && first + j < n; ++j) {
    const uint8_t* from = b.data + (first + j) * b.row;
    int32_t sum = 0;
    for (int64_t i = 0; i < k; ++i) {
      const int8_t v = static_cast<int8_t>(from[i * b.column] ^ flip);
      sum += v;
      to[(i / kTogether * kIntColumns + j) * kTogether + i % kTogether] = v;
    }
    sums[j] = sum;
  }
}
inline void pack_int(const Bytes& b, int64_t n, int64_t k, const tessera::kernels::Parallel* parallel, void* out) {
  parallel_for(parallel, round_up(n, kIntColumns) / kIntColumns, 1 + 16384 / (kIntColumns * (k + 1)),
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

// a packed, and the sum of each of its rows as packed.
inline size_t int_scratch(int64_t m, int64_t k) {
  return static_cast<size_t>(
      round_up(round_up(m, kIntRows) * round_up(k, kTogether) * static_cast<int64_t>(sizeof(Left)), 64) +
      round_up(m, kIntRows) * 4);
}

// Rows [row, row + count) of a as [groups][height][kTogether], missing ones 0, and their sums.
inline void pack_int_rows(const IntProduct& p, int64_t row, int64_t count, int height, Left* out, int32_t* sums) {
  const int64_t groups = round_up(p.k, kTogether) / kTogether;
  for (int r = 0; r < height; ++r) {
    Left* to = out + r * kTogether;
    sums[r] = 0;
    if (r >= count) {
      for (int64_t g = 0; g < groups; ++g)
        for (int t = 0; t < kTogether; ++t) to[g * height * kTogether + t] = 0;
      continue;
    }
    const uint8_t* from = p.a + (row + r) * p.k;
    // Widened: less the zero point. Bytes: unsigned, so signed ones plus 128.
    const int32_t flip = p.a_signed ? 0x80 : 0;
    const int32_t less = kWidened ? (p.a_signed ? 128 : 0) + p.left_zero(row + r) : 0;
    int32_t sum = 0;
    for (int64_t g = 0; g < groups; ++g)
      for (int t = 0; t < kTogether; ++t) {
        const int64_t i = g * kTogether + t;
        const int32_t v = i < p.k ? (from[i] ^ flip) - less : 0;
        sum += v;
        to[g * height * kTogether + t] = static_cast<Left>(v);
      }
    sums[r] = sum;
  }
}

// Calls put(row, column, rows, columns, c) for each finished tile c [rows][kIntColumns]. Threads share bands of rows
// and groups of panels.
template <class Put>
inline void multiply_ints(const IntProduct& p, const tessera::kernels::Parallel* parallel, void* scratch,
                          const Put& put) {
  if (p.m == 0 || p.n == 0) return;
  constexpr int64_t kGroup = 4;  // panels of one task
  const int64_t groups = round_up(p.k, kTogether) / kTogether, panels = round_up(p.n, kIntColumns) / kIntColumns;
  const int height = tile_height(p.m);
  const int64_t tiles = (p.m + height - 1) / height, tile_size = groups * height * kTogether;
  Left* const left = static_cast<Left*>(scratch);
  int32_t* const sums = reinterpret_cast<int32_t*>(
      static_cast<char*>(scratch) +
      round_up(round_up(p.m, kIntRows) * groups * kTogether * static_cast<int64_t>(sizeof(Left)), 64));
  parallel_for(parallel, tiles, 1 + 16384 / (tile_size + 1), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      pack_int_rows(p, t * height, p.m - t * height < height ? p.m - t * height : height, height, left + t * tile_size,
                    sums + t * height);
  });
  const IntTileFn multiply = tile_function(height);
  const int32_t* const column_sums = reinterpret_cast<const int32_t*>(p.b + panels * int_panel_bytes(p.k));
  const int64_t band = kIntBand / height;  // tiles
  const int64_t bands = (tiles + band - 1) / band, parts = (panels + kGroup - 1) / kGroup;
  const int64_t work = (p.m < kIntBand ? p.m : kIntBand) * kGroup * kIntColumns * (p.k + 1);
  parallel_for(parallel, bands * parts, 1 + (int64_t{1} << 19) / work, [&](int64_t begin, int64_t end) {
    alignas(64) int32_t c[kIntRows * kIntColumns];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % bands * band, last_panel = i / bands * kGroup + kGroup;
      for (int64_t panel = i / bands * kGroup; panel < last_panel && panel < panels; ++panel) {
        const int64_t column = panel * kIntColumns;
        const int columns = static_cast<int>(p.n - column < kIntColumns ? p.n - column : kIntColumns);
        alignas(64) int32_t right_zero[kIntColumns];
        bool corrects = !kWidened;
        for (int j = 0; j < columns; ++j) {
          right_zero[j] = p.right_zero(column + j);
          corrects = corrects || right_zero[j] != 0;
        }
        for (int64_t t = first; t < first + band && t < tiles; ++t) {
          const int64_t row = t * height;
          const int rows = static_cast<int>(p.m - row < height ? p.m - row : height);
          multiply(left + t * tile_size, p.b + panel * int_panel_bytes(p.k), groups, c);
          for (int r = 0; corrects && r < rows; ++r) {
            const int32_t zero = kWidened ? 0 : p.left_zero(row + r) + (p.a_signed ? 128 : 0);
            const int32_t total = sums[row + r] - static_cast<int32_t>(p.k) * zero;
            for (int j = 0; j < columns; ++j)
              c[r * kIntColumns + j] -= zero * column_sums[column + j] + right_zero[j] * total;
          }
          put(row, column, rows, columns, c);
        }
      }
    }
  });
}

}  // namespace
