// f32 matrix products: c [M, N] = a [M, K] b [N, K]^T, with b packed beforehand or here.
#pragma once

#include "kernels/isa/epilogue.h"
#include "kernels/isa/product.h"

namespace {

struct Matrix {
  const float* data;
  int64_t row;     // stride between rows (m of a, n of b), in elements
  int64_t column;  // stride along k
};

// Elements of n columns, packed.
inline int64_t packed_size(int64_t n, int64_t k) { return ceil_div(n, kTileColumns) * kTileColumns * k; }

// Columns [0, n) of b, n <= kTileColumns, as [k][kTileColumns]; missing columns are 0. b need not be
// aligned: weights may lie anywhere in a file.
inline void pack_panel(const Matrix& b, int64_t n, int64_t k, float* out) {
  if (b.row == 1) {
    for (int64_t i = 0; i < k; ++i, out += kTileColumns) {
      const float* from = b.data + i * b.column;
      if (n == kTileColumns) {
        memcpy(out, from, kTileColumns * sizeof *out);
      } else {
        memcpy(out, from, static_cast<size_t>(n) * sizeof *out);
        for (int64_t j = n; j < kTileColumns; ++j) out[j] = 0;
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
      const float* from = b.data + j * b.row + i0 * b.column;
      float* to = out + i0 * kTileColumns + j;
      for (int64_t i = 0; i < steps; ++i) memcpy(to + i * kTileColumns, from + i * b.column, sizeof *to);
    }
  }
}

// Columns of b into all its panels, one after the other.
inline void pack_panels(const Matrix& b, int64_t n, int64_t k, const tessera::kernels::Parallel* parallel, float* out) {
  parallel_for(parallel, ceil_div(n, kTileColumns), 1 + 8192 / (kTileColumns * (k + 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin * kTileColumns; i < end * kTileColumns && i < n; i += kTileColumns)
                   pack_panel({b.data + i * b.row, b.row, b.column}, least(n - i, kTileColumns), k, out + i * k);
               });
}

// Row panels [first, last) of m rows of a, each to its place.
inline void pack_row_panels(const Matrix& a, int64_t m, int64_t k, int64_t first, int64_t last, float* out) {
  const Split rows = row_panels(m);
  for (int64_t i = first; i < last; ++i)
    pack_row_panel(a.data + rows.begin(i) * a.row, a.row, a.column, rows.length(i), k, out + rows.begin(i) * k);
}

struct Output {
  float* data;
  int64_t row;
};

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

// Packed at most this much at once, of b and of a: 4 MiB each stay in L3 between packing and use.
constexpr int64_t kPackedElements = int64_t{1} << 20;
// Fewer rows than this read b where it lies: packing would cost more than it saves.
constexpr int64_t kUnpackedRows = 4;

inline bool shares_b(const Products& p) {
  for (int a = 0; a < p.batch.rank; ++a)
    if (p.batch.stride[1][a] != 0) return false;
  return true;
}

// Few rows, or few columns to use them with, do not pay for packing a.
inline bool reads_a_in_place(const Products& p) { return p.a.column == 1 && (p.m <= kFewRows || p.n <= 64); }

// What is packed at once.
struct Slices {
  int64_t columns;   // of b, a multiple of kTileColumns
  int64_t products;  // b and a of each
  int64_t rows;      // of a
};
inline Slices slices_of(const Products& p) {
  Slices s;
  const int64_t k = p.k < 1 ? 1 : p.k;
  const int64_t panels = ceil_div(p.n, kTileColumns), most = kPackedElements / (kTileColumns * k);
  s.columns = least(panels, most < 1 ? 1 : most) * kTileColumns;
  const int64_t parts = ceil_div(p.m * k, kPackedElements);
  s.rows = parts <= 1 ? p.m : ceil_div(p.m, parts);
  const int64_t one_b = shares_b(p) ? 1 : s.columns * k, one_a = s.rows * k;
  s.products = s.columns < p.n || s.rows < p.m ? 1 : kPackedElements / (one_a > one_b ? one_a : one_b);
  s.products = s.products < 1 ? 1 : least(s.products, p.batches);
  return s;
}

inline size_t rows_scratch(const Products& p) {
  const Slices s = slices_of(p);
  return reads_a_in_place(p) ? 0 : static_cast<size_t>(s.products * s.rows * p.k) * 4 + 64;
}
inline size_t packed_scratch(const Products& p) {
  if (p.m == 0 || p.n == 0 || p.batches == 0) return 0;
  const Slices s = slices_of(p);
  return static_cast<size_t>((shares_b(p) ? 1 : s.products) * packed_size(s.columns, p.k)) * 4 + rows_scratch(p);
}
inline size_t products_scratch(const Products& p) { return p.m <= kUnpackedRows ? 0 : packed_scratch(p); }

// Products [first, first + count) by columns [left, left + n) of b, packed at `b`, `b_step` from one to the next.
inline void multiply_columns(const Products& p, int64_t first, int64_t count, int64_t left, int64_t n, const float* b,
                             int64_t b_step, float* rows, const Epilogue& epilogue,
                             const tessera::kernels::Parallel* parallel) {
  const bool in_place = reads_a_in_place(p);
  const int64_t most = in_place ? p.m : slices_of(p).rows;
  const auto a_of = [&](int64_t product) {
    int64_t at[2];
    walk_offsets(p.batch, p.batch.rank, first + product, at);
    return p.a.data + at[0];
  };
  for (int64_t row = 0; row < p.m; row += most) {
    const int64_t m = least(most, p.m - row);
    const int64_t panels = row_panels(m).parts;
    if (!in_place)
      parallel_for(parallel, count * panels, 1 + 8192 / (kTileRows * (p.k + 1)), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          pack_row_panels({a_of(i / panels) + row * p.a.row, p.a.row, p.a.column}, m, p.k, i % panels, i % panels + 1,
                          rows + i / panels * m * p.k);
      });
    const Product shape = {m, n, p.k, nullptr, p.a.row, in_place ? Rows::kInPlace : Rows::kPacked, nullptr};
    const auto at = [&](int64_t product) {
      Product one = shape;
      one.a = in_place ? a_of(product) + row * p.a.row : rows + product * m * p.k;
      one.b = reinterpret_cast<const char*>(b + product * b_step);
      return one;
    };
    const auto finish = [&](int64_t product, int64_t i, int64_t height, int64_t column, int64_t width, float* sums) {
      const int64_t c = (first + product) * p.c_step + (row + i) * p.c.row + left + column;
      finish_tile(epilogue, {sums, height, width, (first + product) * p.m + row + i, left + column}, p.c.data + c,
                  p.c.row);
    };
    if (in_place)
      multiply_products<F32Product, Rows::kInPlace>(count, shape, parallel, at, finish);
    else
      multiply_products<F32Product, Rows::kPacked>(count, shape, parallel, at, finish);
  }
}

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
// one product. `scratch` has packed_scratch(p) bytes.
template <class Pack>
inline void multiply_packed(const Products& p, const Epilogue& epilogue, const tessera::kernels::Parallel* parallel,
                            void* scratch, const Pack& pack) {
  if (p.m == 0 || p.n == 0 || p.batches == 0) return;
  const Slices s = slices_of(p);
  const bool shared = shares_b(p);
  float* const packed = static_cast<float*>(scratch);
  float* const rows = packed + (shared ? 1 : s.products) * packed_size(s.columns, p.k);
  for (int64_t j = 0; j < p.n; j += s.columns) {
    const int64_t n = least(s.columns, p.n - j);
    const int64_t panels = ceil_div(n, kTileColumns), size = panels * kTileColumns * p.k;
    for (int64_t batch = 0; batch < p.batches; batch += s.products) {
      const int64_t products = least(s.products, p.batches - batch), packs = shared ? batch == 0 : products;
      parallel_for(parallel, packs * panels, 1 + 8192 / (kTileColumns * (p.k + 1)), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t column = i % panels * kTileColumns;
          pack(batch + i / panels, j + column, least(n - column, kTileColumns),
               packed + i / panels * size + column * p.k);
        }
      });
      multiply_columns(p, batch, products, j, n, packed, shared ? 0 : size, rows, epilogue, parallel);
    }
  }
}

// All products. `scratch` has products_scratch(p) bytes.
inline void multiply(const Products& p, const tessera::kernels::Parallel* parallel, void* scratch) {
  if (p.m == 0 || p.n == 0 || p.batches == 0) return;
  if (p.m <= kUnpackedRows) return multiply_few_rows(p, parallel);
  multiply_packed(p, {p.bias}, parallel, scratch, [&](int64_t product, int64_t column, int64_t n, float* out) {
    int64_t at[2];
    walk_offsets(p.batch, p.batch.rank, product, at);
    pack_panel({p.b.data + at[1] + column * p.b.row, p.b.row, p.b.column}, n, p.k, out);
  });
}

}  // namespace
