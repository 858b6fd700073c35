// The register tile of every matrix product: R rows of a by some vectors of columns of packed b, sums in registers.
//
// A product type T says how one step of k is done:
//   Sum           a vector of sums: Vec or VecI
//   kUnit         elements of k that one 4-byte unit of a holds
//   kUnits        units of a that a line of b serves
//   kVectorBytes  bytes of b a line, for one vector of columns
//   load<U>(p)    what unit U of the line needs of b, for one vector of columns
//   madd(s, a, b) s plus the products of a's unit, the same for all columns, and b
// b is packed as panels [lines][kTileColumns]; lines past the end of k hold zeros.
#pragma once

#include "kernels/isa/vec.h"

namespace {

// Six rows by two vectors are 12 of 16 registers, by four 24 of 32: enough independent sums to hide the latency of
// multiply-adds (4 cycles by 2 units, and vdpbf16ps wants 24); the rest hold a line of b and the broadcast unit of a.
constexpr int kTileRows = 6;
constexpr int kTileVectors = kRegisters == 32 ? 4 : 2;
constexpr int kTileColumns = kTileVectors * kLanes;

struct F32Product {
  using Sum = Vec;
  using Element = float;
  static constexpr int kUnit = 1, kUnits = 1, kVectorBytes = 4 * kLanes;
  template <int U>
  static TESSERA_INLINE Vec load(const char* b) {
    return ::load(reinterpret_cast<const float*>(b));
  }
  static TESSERA_INLINE Vec madd(Vec sum, const float* a, Vec b) { return fma(splat(*a), b, sum); }
};

// What a tile reads and writes.
struct TileJob {
  const float* a;      // units: packed as [units][R], or rows as they lie, whose units follow each other
  int64_t a_row;       // from a row to the next, where they lie
  const char* b;       // the first panel
  int64_t b_panel;     // bytes to the next panel, where a tile takes several
  int64_t lines;       // of b
  void* sums;          // [panels][R][kTileColumns]
  bool add;            // to what `sums` holds
  const char* ahead;   // what to fetch meanwhile
  int64_t ahead_step;  // bytes a line
};
enum class Rows { kPacked, kInPlace };
// kAhead fetches into L2 from `ahead`; kStream fetches into L1 what this tile itself will read soon.
enum class Fetch { kNothing, kAhead, kStream };
// How far ahead of its use a stream is fetched: memory takes about 100 ns, in which a core reads some 1.5 KB.
constexpr int64_t kStreamAhead = 1024;

// One line of b over N vectors, kTileVectors a panel. Chains of members instead of arrays, here and below: GCC keeps
// arrays that are indexed in loops on the stack.
template <class T, int I, int N>
struct TileLine {
  decltype(T::template load<0>(nullptr)) head;
  TileLine<T, I + 1, N> tail;
  template <int U, int W>
  TESSERA_INLINE void load(const char* const (&panels)[W]) {
    head = T::template load<U>(panels[I / kTileVectors] + I % kTileVectors * T::kVectorBytes);
    tail.template load<U>(panels);
  }
};
template <class T, int N>
struct TileLine<T, N, N> {
  template <int U, int W>
  TESSERA_INLINE void load(const char* const (&)[W]) {}
};

// The sums of one row.
template <class T, int I, int N>
struct TileRow {
  typename T::Sum head;
  TileRow<T, I + 1, N> tail;
  TESSERA_INLINE void clear() {
    head = typename T::Sum{};
    tail.clear();
  }
  static TESSERA_INLINE int64_t place(int rows) {
    return (I / kTileVectors * rows * kTileVectors + I % kTileVectors) * kLanes;
  }
  TESSERA_INLINE void put(typename T::Element* to, int rows, bool add) const {
    typename T::Sum old{};
    if (add) memcpy(&old, to + place(rows), sizeof old);
    const typename T::Sum sum = head + old;
    memcpy(to + place(rows), &sum, sizeof sum);
    tail.put(to, rows, add);
  }
  TESSERA_INLINE void madd(const float* a, const TileLine<T, I, N>& b) {
    head = T::madd(head, a, b.head);
    tail.madd(a, b.tail);
  }
};
template <class T, int N>
struct TileRow<T, N, N> {
  TESSERA_INLINE void clear() {}
  TESSERA_INLINE void put(typename T::Element*, int, bool) const {}
  TESSERA_INLINE void madd(const float*, const TileLine<T, N, N>&) {}
};

template <class T, int R, int N>
struct TileRows {
  TileRow<T, 0, N> row;
  TileRows<T, R - 1, N> rest;
  TESSERA_INLINE void clear() {
    row.clear();
    rest.clear();
  }
  TESSERA_INLINE void put(typename T::Element* to, int rows, bool add) const {
    row.put(to, rows, add);
    rest.put(to + kTileColumns, rows, add);
  }
  TESSERA_INLINE void madd(const float* a, int64_t a_row, const TileLine<T, 0, N>& b) {
    row.madd(a, b);
    rest.madd(a + a_row, a_row, b);
  }
};
template <class T, int N>
struct TileRows<T, 0, N> {
  TESSERA_INLINE void clear() {}
  TESSERA_INLINE void put(typename T::Element*, int, bool) const {}
  TESSERA_INLINE void madd(const float*, int64_t, const TileLine<T, 0, N>&) {}
};

// R rows by W panels.
template <class T, int R, int W, Rows A, Fetch F>
__attribute__((noinline)) void multiply_tile(const TileJob& job) {
  constexpr int N = W * kTileVectors;
  constexpr int kLineBytes = kTileVectors * T::kVectorBytes;
  auto* const sums = static_cast<typename T::Element*>(job.sums);
  TileRows<T, R, N> tile;
  tile.clear();
  const float* a = job.a;
  const int64_t a_row = A == Rows::kPacked ? 1 : job.a_row, a_step = A == Rows::kPacked ? R : 1;
  const char* panels[W];
  for (int w = 0; w < W; ++w) panels[w] = job.b + w * job.b_panel;
  const char* ahead = job.ahead;
  const auto line = [&]() __attribute__((always_inline)) {
    if constexpr (F == Fetch::kAhead) {
#pragma GCC unroll 4
      for (int i = 0; i < kLineBytes; i += 64) __builtin_prefetch(ahead + i, 0, 2);
      ahead += job.ahead_step;
    }
    if constexpr (F == Fetch::kStream)
#pragma GCC unroll 4
      for (int w = 0; w < W; ++w)
#pragma GCC unroll 4
        for (int i = 0; i < kLineBytes; i += 64) __builtin_prefetch(panels[w] + kStreamAhead + i, 0, 3);
    TileLine<T, 0, N> b;
    b.template load<0>(panels);
    tile.madd(a, a_row, b);
    a += a_step;
    if constexpr (T::kUnits == 2) {
      b.template load<T::kUnits - 1>(panels);
      tile.madd(a, a_row, b);
      a += a_step;
    }
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w) panels[w] += kLineBytes;
  };
  int64_t i = 0;
  for (; i + 4 <= job.lines; i += 4) {
    line();
    line();
    line();
    line();
  }
  for (; i < job.lines; ++i) line();
  tile.put(sums, R, job.add);
}

// The tile of `rows` rows, at most kTileRows, by one panel.
template <class T, Rows A, Fetch F>
TESSERA_INLINE void multiply_rows(int64_t rows, const TileJob& job) {
  static_assert(kTileRows == 6);
  switch (rows) {
    case 1:
      return multiply_tile<T, 1, 1, A, F>(job);
    case 2:
      return multiply_tile<T, 2, 1, A, F>(job);
    case 3:
      return multiply_tile<T, 3, 1, A, F>(job);
    case 4:
      return multiply_tile<T, 4, 1, A, F>(job);
    case 5:
      return multiply_tile<T, 5, 1, A, F>(job);
    default:
      return multiply_tile<T, 6, 1, A, F>(job);
  }
}

}  // namespace
