// f32 matrix product: c [M, N] = a [M, K] b [N, K]^T. b is packed into panels once; a is packed by the block, on the
// stack of the thread that uses it.
#pragma once

#include "kernels/isa/loops.h"
#include "kernels/isa/vec.h"

namespace {

// The register tile: kTileRows x kTileColumns accumulators, two vectors a row. 6 rows take 12 of 16 registers, 12 rows
// 24 of 32; the rest hold a row of b and the broadcast element of a.
constexpr int kTileRows = kRegisters == 32 ? 12 : 6;
constexpr int kTileColumns = 2 * kLanes;
// Steps of k at once: a panel of b, kDepth x kTileColumns, then takes half of a 32 KiB L1.
constexpr int64_t kDepth = 256;
// Rows of a packed at once: 48 KiB of stack, which L2 holds while the panels of b pass by.
constexpr int64_t kBlockRows = 48;

struct Matrix {
  const float* data;
  int64_t row;     // stride between rows (m of a, n of b), in elements
  int64_t column;  // stride along k
};

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Elements of n columns, packed.
inline int64_t packed_size(int64_t n, int64_t k) { return ceil_div(n, kTileColumns) * kTileColumns * k; }

// Weights may lie anywhere in a file.
typedef float UnalignedFloat __attribute__((aligned(1)));

// Columns [0, n) of b, n <= kTileColumns, as [k][kTileColumns]; missing columns are 0. b need not be aligned.
inline void pack_panel(const Matrix& b, int64_t n, int64_t k, float* out) {
  if (b.row == 1) {
    for (int64_t i = 0; i < k; ++i, out += kTileColumns) {
      const float* from = b.data + i * b.column;
      if (n == kTileColumns) {
        store(out, load(from));
        store(out + kLanes, load(from + kLanes));
      } else {
        for (int64_t j = 0; j < kTileColumns; ++j) out[j] = j < n ? static_cast<const UnalignedFloat*>(from)[j] : 0;
      }
    }
    return;
  }
  for (int64_t j = 0; j < kTileColumns; ++j) {
    if (j >= n)
      for (int64_t i = 0; i < k; ++i) out[i * kTileColumns + j] = 0;
  }
  // Sixteen steps of k at a time, so that the lines written stay in L1.
  constexpr int64_t kSteps = 16;
  for (int64_t i0 = 0; i0 < k; i0 += kSteps) {
    const int64_t steps = k - i0 < kSteps ? k - i0 : kSteps;
    for (int64_t j = 0; j < n; ++j) {
      const UnalignedFloat* from = b.data + j * b.row + i0 * b.column;
      float* to = out + i0 * kTileColumns + j;
      for (int64_t i = 0; i < steps; ++i) to[i * kTileColumns] = from[i * b.column];
    }
  }
}

// Rows [0, m) of a over k steps as [ceil(m / kTileRows)][k][kTileRows]; missing rows are 0.
inline void pack_rows(const Matrix& a, int64_t m, int64_t k, float* out) {
  for (int64_t r = 0; r < m; r += kTileRows, out += k * kTileRows) {
    const float* rows[kTileRows];
    for (int i = 0; i < kTileRows; ++i) rows[i] = a.data + (r + i < m ? r + i : r) * a.row;
    for (int64_t p = 0; p < k; ++p)
      for (int i = 0; i < kTileRows; ++i) out[p * kTileRows + i] = rows[i][p * a.column];
  }
}

// Accumulators of R rows. A chain of members instead of arrays: GCC keeps arrays indexed in loops on the stack.
template <int R>
struct Tile {
  Vec low, high;
  Tile<R - 1> rest;
  TESSERA_INLINE void clear() {
    low = high = Vec{};
    rest.clear();
  }
  TESSERA_INLINE void step(const float* a, Vec b_low, Vec b_high) {
    const Vec x = splat(*a);
    low = fma(x, b_low, low);
    high = fma(x, b_high, high);
    rest.step(a + 1, b_low, b_high);
  }
  // c (+)= tile (+ bias)
  TESSERA_INLINE void put(float* c, int64_t row, bool add, Vec bias_low, Vec bias_high) const {
    store(c, low + (add ? load(c) : bias_low));
    store(c + kLanes, high + (add ? load(c + kLanes) : bias_high));
    rest.put(c + row, row, add, bias_low, bias_high);
  }
};
template <>
struct Tile<0> {
  TESSERA_INLINE void clear() {}
  TESSERA_INLINE void step(const float*, Vec, Vec) {}
  TESSERA_INLINE void put(float*, int64_t, bool, Vec, Vec) const {}
};

// c [kTileRows, kTileColumns] (+)= a [k][kTileRows] b [k][kTileColumns]; bias [kTileColumns] or null where c starts.
inline void multiply_tile(const float* a, const float* b, int64_t k, float* c, int64_t row, bool add,
                          const float* bias) {
  Tile<kTileRows> tile;
  tile.clear();
  for (int64_t p = 0; p < k; ++p, a += kTileRows, b += kTileColumns) tile.step(a, load(b), load(b + kLanes));
  tile.put(c, row, add, bias == nullptr ? Vec{} : load(bias), bias == nullptr ? Vec{} : load(bias + kLanes));
}

struct Output {
  float* data;
  int64_t row;
};

// Rows [0, m) of c over `panels` panels of b, of which the last may have fewer than kTileColumns columns: n in all.
// m <= kBlockRows. `b` is packed over all of k. bias [n] or null. `add`: to what c holds.
inline void multiply_block(const Matrix& a, int64_t m, int64_t k, const float* b, int64_t n, const Output& c,
                           const float* bias, bool add = false) {
  alignas(64) float rows[(kBlockRows + kTileRows) * kDepth];
  alignas(64) float edge[kTileRows * kTileColumns];
  alignas(64) float edge_bias[kTileColumns] = {};
  if (k == 0) {
    for (int64_t i = 0; !add && i < m; ++i)
      for (int64_t j = 0; j < n; ++j) c.data[i * c.row + j] = bias == nullptr ? 0 : bias[j];
    return;
  }
  for (int64_t p = 0; p < k; p += kDepth) {
    const int64_t depth = k - p < kDepth ? k - p : kDepth;
    pack_rows({a.data + p * a.column, a.row, a.column}, m, depth, rows);
    for (int64_t j = 0; j < n; j += kTileColumns) {
      const float* panel = b + j * k + p * kTileColumns;
      const int64_t columns = n - j < kTileColumns ? n - j : kTileColumns;
      const float* panel_bias = bias == nullptr ? nullptr : bias + j;
      if (bias != nullptr && columns < kTileColumns) {
        memcpy(edge_bias, bias + j, static_cast<size_t>(columns) * 4);
        panel_bias = edge_bias;
      }
      for (int64_t i = 0; i < m; i += kTileRows) {
        const int64_t height = m - i < kTileRows ? m - i : kTileRows;
        float* to = c.data + i * c.row + j;
        if (height == kTileRows && columns == kTileColumns) {
          multiply_tile(rows + i * depth, panel, depth, to, c.row, add || p > 0, panel_bias);
          continue;
        }
        if (add || p > 0)
          for (int64_t r = 0; r < height; ++r)
            memcpy(edge + r * kTileColumns, to + r * c.row, static_cast<size_t>(columns) * 4);
        multiply_tile(rows + i * depth, panel, depth, edge, kTileColumns, add || p > 0, panel_bias);
        for (int64_t r = 0; r < height; ++r)
          memcpy(to + r * c.row, edge + r * kTileColumns, static_cast<size_t>(columns) * 4);
      }
    }
  }
}

// Several products of one shape: batch i reads a[i], b[i] and writes c[i], in the order of `batch`'s axes.
struct Products {
  int64_t m, n, k;
  Matrix a, b;
  Output c;
  Walk<2> batch;  // over the leading axes, strides of a and b; c is dense: batch i lies at i * c_step
  int64_t batches;
  int64_t c_step;
  const float* bias;  // [n] or null
};

// b packed at most this much at once: a few MB stay in L3 between packing and use.
constexpr int64_t kPackedElements = int64_t{1} << 20;
// Fewer rows than this read b where it lies: packing would cost more than it saves.
constexpr int64_t kFewRows = 4;

inline bool shares_b(const Products& p) {
  for (int a = 0; a < p.batch.rank; ++a)
    if (p.batch.stride[1][a] != 0) return false;
  return true;
}

// Columns packed at once, a multiple of kTileColumns, and products packed at once.
struct Slices {
  int64_t columns, products;
};
inline Slices slices_of(const Products& p) {
  const int64_t one = packed_size(p.n, p.k);
  if (one <= kPackedElements) {
    const int64_t most = one == 0 ? p.batches : kPackedElements / one;
    return {ceil_div(p.n, kTileColumns) * kTileColumns, shares_b(p) ? 1 : most < p.batches ? most : p.batches};
  }
  const int64_t panels = kPackedElements / (kTileColumns * p.k);
  return {(panels < 1 ? 1 : panels) * kTileColumns, 1};
}

inline size_t packed_scratch(const Products& p) {
  const Slices s = slices_of(p);
  return static_cast<size_t>(s.products * packed_size(s.columns, p.k)) * 4;
}
inline size_t products_scratch(const Products& p) { return p.m <= kFewRows ? 0 : packed_scratch(p); }

// Rows m of a against every column, along k: b's rows are contiguous. Four columns at once hide the addition's latency.
template <int M>
inline void rows_along_k(const Products& p, const float* a, const float* b, float* c, int64_t begin, int64_t end) {
  constexpr int kAtOnce = M <= 2 ? 4 : 2;
  for (int64_t j = begin; j < end; j += kAtOnce) {
    const float* columns[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) columns[i] = b + (j + i < end ? j + i : j) * p.b.row;
    Vec sums[M][kAtOnce] = {};
    int64_t x = 0;
    for (; x + kLanes <= p.k; x += kLanes)
#pragma GCC unroll 4
      for (int i = 0; i < kAtOnce; ++i) {
        const Vec v = load(columns[i] + x);
#pragma GCC unroll 4
        for (int r = 0; r < M; ++r) sums[r][i] = fma(load(a + r * p.a.row + x), v, sums[r][i]);
      }
    for (int i = 0; i < kAtOnce && j + i < end; ++i)
      for (int r = 0; r < M; ++r) {
        float sum = sum_lanes(sums[r][i]);
        for (int64_t y = x; y < p.k; ++y) sum += a[r * p.a.row + y] * columns[i][y];
        c[r * p.c.row + j + i] = sum + (p.bias == nullptr ? 0 : p.bias[j + i]);
      }
  }
}

// The same for any strides: 64 columns of one row at once, k outside.
inline void row_across_n(const Products& p, const float* a, const float* b, float* c, int64_t begin, int64_t end) {
  constexpr int64_t kColumns = 64;
  for (int64_t j0 = begin; j0 < end; j0 += kColumns) {
    const int64_t n = end - j0 < kColumns ? end - j0 : kColumns;
    float sums[kColumns] = {};
    for (int64_t x = 0; x < p.k; ++x) {
      const float v = a[x * p.a.column];
      const float* row = b + x * p.b.column + j0 * p.b.row;
      if (p.b.row == 1 && n == kColumns)
        for (int64_t j = 0; j < kColumns; ++j) sums[j] += v * row[j];
      else
        for (int64_t j = 0; j < n; ++j) sums[j] += v * row[j * p.b.row];
    }
    for (int64_t j = 0; j < n; ++j) c[j0 + j] = sums[j] + (p.bias == nullptr ? 0 : p.bias[j0 + j]);
  }
}

// Products of few rows, b read where it lies.
inline void multiply_few_rows(const Products& p, const tessera::kernels::Parallel* parallel) {
  constexpr int64_t kColumns = 64;  // of one task
  const int64_t parts = ceil_div(p.n, kColumns);
  const int64_t work = kColumns * (p.k + 1) * p.m;  // multiply-adds of a task; 2^15 take a few microseconds
  parallel_for(parallel, p.batches * parts, 1 + (int64_t{1} << 15) / work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t at[2];
      walk_offsets(p.batch, p.batch.rank, i / parts, at);
      const float* a = p.a.data + at[0];
      const float* b = p.b.data + at[1];
      float* c = p.c.data + i / parts * p.c_step;
      const int64_t first = i % parts * kColumns;
      const int64_t last = first + kColumns < p.n ? first + kColumns : p.n;
      if (p.b.column != 1 || p.a.column != 1) {
        for (int64_t r = 0; r < p.m; ++r) row_across_n(p, a + r * p.a.row, b, c + r * p.c.row, first, last);
      } else if (p.m == 1) {
        rows_along_k<1>(p, a, b, c, first, last);
      } else if (p.m == 2) {
        rows_along_k<2>(p, a, b, c, first, last);
      } else if (p.m == 3) {
        rows_along_k<3>(p, a, b, c, first, last);
      } else {
        rows_along_k<4>(p, a, b, c, first, last);
      }
    }
  });
}

// All products, b packed by pack(product, column, n, out): columns [column, column + n), n <= kTileColumns, of the b of
// one product. `scratch` has room for what slices_of(p) says.
template <class Pack>
inline void multiply_packed(const Products& p, const tessera::kernels::Parallel* parallel, void* scratch,
                            const Pack& pack) {
  if (p.m == 0 || p.n == 0 || p.batches == 0) return;
  float* packed = static_cast<float*>(scratch);
  const Slices s = slices_of(p);
  const bool shared = shares_b(p);
  const int64_t bands = ceil_div(p.m, kBlockRows);
  for (int64_t batch = 0; batch < p.batches; batch += shared ? p.batches : s.products) {
    const int64_t packs = shared ? 1 : p.batches - batch < s.products ? p.batches - batch : s.products;
    const int64_t products = shared ? p.batches : packs;
    for (int64_t j = 0; j < p.n; j += s.columns) {
      const int64_t n = p.n - j < s.columns ? p.n - j : s.columns;
      const int64_t panels = ceil_div(n, kTileColumns);
      const int64_t size = panels * kTileColumns * p.k;
      parallel_for(parallel, packs * panels, 1 + 8192 / (kTileColumns * (p.k + 1)), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t column = i % panels * kTileColumns;
          pack(batch + i / panels, j + column, n - column < kTileColumns ? n - column : kTileColumns,
               packed + i / panels * size + column * p.k);
        }
      });
      // Tasks are bands of rows by groups of panels: groups of 16 repack a band of a for 256 or 512 columns each.
      constexpr int64_t kGroup = 16;
      const int64_t groups = ceil_div(panels, kGroup);
      const int64_t rows = p.m < kBlockRows ? p.m : kBlockRows;
      const int64_t work = rows * (n < kGroup * kTileColumns ? n : kGroup * kTileColumns) * (p.k + 1);
      parallel_for(parallel, products * bands * groups, 1 + (int64_t{1} << 18) / work, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t product = i / (bands * groups);
          const int64_t band = i / groups % bands * kBlockRows;
          const int64_t column = i % groups * kGroup * kTileColumns;
          int64_t at[2];
          walk_offsets(p.batch, p.batch.rank, batch + product, at);
          const int64_t width = kGroup * kTileColumns < n - column ? kGroup * kTileColumns : n - column;
          multiply_block({p.a.data + at[0] + band * p.a.row, p.a.row, p.a.column},
                         p.m - band < kBlockRows ? p.m - band : kBlockRows, p.k,
                         packed + (shared ? 0 : product) * size + column * p.k, width,
                         {p.c.data + (batch + product) * p.c_step + band * p.c.row + j + column, p.c.row},
                         p.bias == nullptr ? nullptr : p.bias + j + column);
        }
      });
    }
  }
}

// One product, b packed whole beforehand: its panels follow each other. Tasks are bands of rows by groups of panels,
// wide enough that packing a band of a costs little, and enough of them that two threads end together.
inline void multiply_prepacked(const Products& p, const float* packed, const tessera::kernels::Parallel* parallel) {
  if (p.m == 0 || p.n == 0) return;
  constexpr int64_t kGroup = 8;
  const int64_t panels = ceil_div(p.n, kTileColumns), groups = ceil_div(panels, kGroup);
  const int64_t bands = ceil_div(p.m, kBlockRows);
  parallel_for(parallel, bands * groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t band = i % bands * kBlockRows, column = i / bands * kGroup * kTileColumns;
      const int64_t width = p.n - column < kGroup * kTileColumns ? p.n - column : kGroup * kTileColumns;
      multiply_block({p.a.data + band * p.a.row, p.a.row, p.a.column},
                     p.m - band < kBlockRows ? p.m - band : kBlockRows, p.k, packed + column * p.k, width,
                     {p.c.data + band * p.c.row + column, p.c.row}, p.bias == nullptr ? nullptr : p.bias + column);
    }
  });
}

// All products. `scratch` has products_scratch(p) bytes.
inline void multiply(const Products& p, const tessera::kernels::Parallel* parallel, void* scratch) {
  if (p.m == 0 || p.n == 0 || p.batches == 0) return;
  if (p.m <= kFewRows) return multiply_few_rows(p, parallel);
  multiply_packed(p, parallel, scratch, [&](int64_t product, int64_t column, int64_t n, float* out) {
    int64_t at[2];
    walk_offsets(p.batch, p.batch.rank, product, at);
    pack_panel({p.b.data + at[1] + column * p.b.row, p.b.row, p.b.column}, n, p.k, out);
  });
}

}  // namespace
