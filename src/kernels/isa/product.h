// Blocking and threads of matrix products over packed b, the same for every product type of tile.h.
//
// A task is some row panels of a by some column panels of b. Within it, from outside in: blocks of k, column panels,
// row panels. So a block of a stays in L2, a panel of b in L1 (or near it), and sums go through memory once a block of
// k. Blocks of k depend on k alone, and each sum adds them in order, so results depend neither on caches nor on
// threads, nor on how many other rows there are.
#pragma once

#include "kernels/isa/loops.h"
#include "kernels/isa/tile.h"

namespace {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// [0, n) in `parts` parts whose lengths differ by at most one.
struct Split {
  int64_t n, parts;
  int64_t begin(int64_t i) const { return n * i / parts; }
  int64_t length(int64_t i) const { return begin(i + 1) - begin(i); }
};

// Row panels of m rows: of equal height, as 128 rows go faster in 22 panels of 5 and 6 than in 21 of 6 and one of 2.
inline Split row_panels(int64_t m) { return {m, ceil_div(m, kTileRows)}; }

// One product as tiles read it. a is packed by row panel, panel i at row_panels(m).begin(i) * units, or lies in rows.
struct Product {
  int64_t m, n;
  int64_t lines;  // of a panel of b
  const float* a;
  int64_t a_row;
  Rows a_rows;
  const char* b;
};

// Sums of a task between blocks of k, on the stack of its thread.
constexpr int64_t kTaskSums = (128 << 10) / 4;
// Column panels of a task: 16 vectors wide, a unit of a from L2 then serves 8 cycles of multiply-adds.
constexpr int64_t kTaskPanels = 16 / kTileVectors;
// Row panels of a task at most.
constexpr int64_t kTaskRows = kTaskSums / (kTaskPanels * kTileColumns) / kTileRows;
// Up to so many rows memory is what limits, and packing a would show.
constexpr int64_t kFewRows = 24;

// Lines of a block of k. 512 lines of two vectors of 8 lanes are 32 KiB, of four vectors of 16 lanes 128 KiB: a panel
// stays in L1, or in a part of L2 that leaves room for a. Longer sums would also lose digits.
inline int64_t depth_of(int64_t lines) { return lines < 1 ? 1 : ceil_div(lines, ceil_div(lines, 512)); }

struct Blocks {
  int64_t rows;    // row panels of a task
  int64_t panels;  // column panels of a task
};
template <class T>
inline Blocks blocks_of(int64_t m, int64_t n, int64_t lines, int64_t count,
                        const tessera::kernels::Parallel* parallel) {
  const tessera::kernels::Caches caches = parallel == nullptr ? tessera::kernels::Caches() : parallel->caches;
  Blocks blocks;
  // A block of a takes at most half of L2.
  const int64_t row_bytes = depth_of(lines) * T::kUnits * 4;
  int64_t rows = least(caches.l2 / 2 / row_bytes / kTileRows, kTaskRows);
  if (rows < 1) rows = 1;
  const int64_t row_parts = row_panels(m).parts, panels = ceil_div(n, kTileColumns);
  blocks.rows = ceil_div(row_parts, ceil_div(row_parts, rows));
  // Enough tasks that all threads end together.
  const int64_t wanted = 8 * (parallel == nullptr ? 1 : parallel->threads);
  const int64_t bands = ceil_div(row_parts, blocks.rows) * count;
  int64_t width = panels * bands / wanted;
  width = width < 1 ? 1 : least(width, kTaskPanels);
  blocks.panels = ceil_div(panels, ceil_div(panels, width));
  return blocks;
}

// Row panels [first, last) by column panels [left, right), of which the last may have fewer columns.
// finish(row, rows, column, columns, sums [rows][kTileColumns]) takes each tile of finished sums and may change it.
template <class T, Rows A, class Finish>
inline void multiply_task(const Product& p, int64_t first, int64_t last, int64_t left, int64_t right,
                          const Finish& finish) {
  constexpr int64_t kLineBytes = kTileVectors * T::kVectorBytes;
  using Element = typename T::Element;
  alignas(64) Element kept[kTaskSums];
  alignas(64) Element done[kTileRows * kTileColumns];
  // Where the row panels begin, worked out once: the divisions would take as long as many a step of k.
  int64_t begins[kTaskRows + 1];
  const Split rows = row_panels(p.m);
  for (int64_t i = first; i <= last; ++i) begins[i - first] = rows.begin(i);
  const int64_t origin = begins[0], height_of_all = begins[last - first] - origin;
  const int64_t depth = depth_of(p.lines), parts = ceil_div(p.lines, depth) + (p.lines == 0), panels = right - left;
  const bool whole = parts == 1;
  // Few rows read b in the order of its addresses, and all of them share the fetching of what comes next; of many, a
  // block of a serves all panels.
  const bool few = p.m <= kFewRows;
  const int64_t passes = few ? last - first : 1;
  struct Place {
    int64_t panel, line;
  };
  const auto place = [&](int64_t i) {
    return few ? Place{left + i / parts, i % parts * depth} : Place{left + i % panels, i / panels * depth};
  };
  for (int64_t n = 0; n < panels * parts; ++n) {
    const auto [j, line] = place(n);
    const Place following = place(n + 1 < panels * parts ? n + 1 : n);
    const int64_t lines = least(depth, p.lines - line);
    const bool ends = line + lines == p.lines;
    TileJob job;
    job.b = p.b + (j * p.lines + line) * kLineBytes;
    job.b_panel = 0;
    job.lines = lines;
    job.a_row = p.a_row;
    job.add = line > 0;
    job.ahead_step = kLineBytes / passes;
    const char* const next = p.b + (following.panel * p.lines + following.line) * kLineBytes;
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = begins[i - first], height = begins[i - first + 1] - row;
      const int64_t unit = line * T::kUnits;
      job.a = A == Rows::kPacked ? p.a + row * p.lines * T::kUnits + unit * height : p.a + row * p.a_row + unit;
      Element* const keep = kept + ((j - left) * height_of_all + row - origin) * kTileColumns;
      job.sums = whole ? done : keep;
      if (i - first < passes) {
        job.ahead = next + (i - first) * lines * job.ahead_step;
        multiply_rows<T, A, Fetch::kAhead>(height, job);
      } else {
        multiply_rows<T, A, Fetch::kNothing>(height, job);
      }
      if (ends) finish(row, height, j * kTileColumns, least(p.n - j * kTileColumns, kTileColumns), whole ? done : keep);
    }
  }
}

// R rows, all of them, by panels [left, right) of b, each read once from memory.
template <class T, int R, Rows A, class Finish>
inline void multiply_stream(const Product& p, int64_t left, int64_t right, const Finish& finish) {
  // Streams: more independent sums, and more of memory at once, as far as the registers reach.
  constexpr int W = R == 1 ? 4 : R <= 3 ? 2 : 1;
  constexpr int64_t kLineBytes = kTileVectors * T::kVectorBytes;
  alignas(64) typename T::Element sums[W * R * kTileColumns];
  TileJob job = {p.a, p.a_row, nullptr, p.lines * kLineBytes, 0, sums, false, nullptr, 0};
  const int64_t depth = depth_of(p.lines);
  for (int64_t j = left; j < right;) {
    const int64_t panels = right - j >= W ? W : W == 4 && right - j >= 2 ? 2 : 1;
    for (int64_t line = 0; line == 0 || line < p.lines; line += depth) {
      job.a = p.a + line * T::kUnits * (A == Rows::kPacked ? R : 1);
      job.b = p.b + (j * p.lines + line) * kLineBytes;
      job.lines = least(depth, p.lines - line);
      job.add = line > 0;
      if (panels == W)
        multiply_tile<T, R, W, A, Fetch::kStream>(job);
      else if (panels == 2)
        multiply_tile<T, R, W == 4 ? 2 : W, A, Fetch::kStream>(job);
      else
        multiply_tile<T, R, 1, A, Fetch::kStream>(job);
    }
    for (int64_t w = 0; w < panels; ++w, ++j)
      finish(int64_t{0}, int64_t{R}, j * kTileColumns, least(p.n - j * kTileColumns, kTileColumns),
             sums + w * R * kTileColumns);
  }
}
template <class T, Rows A, class Finish>
inline void multiply_streams(const Product& p, int64_t left, int64_t right, const Finish& finish) {
  switch (p.m) {
    case 1:
      return multiply_stream<T, 1, A>(p, left, right, finish);
    case 2:
      return multiply_stream<T, 2, A>(p, left, right, finish);
    case 3:
      return multiply_stream<T, 3, A>(p, left, right, finish);
    case 4:
      return multiply_stream<T, 4, A>(p, left, right, finish);
    case 5:
      return multiply_stream<T, 5, A>(p, left, right, finish);
    default:
      return multiply_stream<T, 6, A>(p, left, right, finish);
  }
}

// Products 0 ... count - 1 of one shape: at(i) gives product i; finish(i, row, rows, column, columns, sums) as above.
template <class T, Rows A, class At, class Finish>
inline void multiply_products(int64_t count, const Product& shape, const tessera::kernels::Parallel* parallel,
                              const At& at, const Finish& finish) {
  const int64_t panels = ceil_div(shape.n, kTileColumns);
  if (shape.m <= kTileRows) {
    // As many panels a task as one row streams at once, unless that leaves threads idle.
    const int64_t wanted = 4 * (parallel == nullptr ? 1 : parallel->threads);
    const int64_t width = least(4, panels * count / wanted + 1);
    const int64_t groups = ceil_div(panels, width);
    const int64_t work = width * kTileColumns * (shape.lines + 1) * T::kUnits * shape.m;
    // A task of 2^16 multiply-adds takes a few microseconds.
    parallel_for(parallel, count * groups, 1 + (int64_t{1} << 16) / work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t left = i % groups * width;
        multiply_streams<T, A>(at(i / groups), left, least(left + width, panels),
                               [&](auto... tile) { finish(i / groups, tile...); });
      }
    });
    return;
  }
  const Blocks blocks = blocks_of<T>(shape.m, shape.n, shape.lines, count, parallel);
  const int64_t row_parts = row_panels(shape.m).parts;
  const Split bands = {row_parts, ceil_div(row_parts, blocks.rows)};
  const Split groups = {panels, ceil_div(panels, blocks.panels)};
  const int64_t tasks = bands.parts * groups.parts;
  const int64_t work = shape.m * shape.n * (shape.lines + 1) * T::kUnits / tasks + 1;
  parallel_for(parallel, count * tasks, 1 + (int64_t{1} << 16) / work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      // Bands of one group follow each other: they find its panels in a cache that threads share.
      const int64_t group = i % tasks / bands.parts, band = i % bands.parts;
      multiply_task<T, A>(at(i / tasks), bands.begin(band), bands.begin(band + 1), groups.begin(group),
                          groups.begin(group + 1), [&](auto... tile) { finish(i / tasks, tile...); });
    }
  });
}

typedef float Four __attribute__((vector_size(16)));
TESSERA_INLINE Four load_four(const float* p) {
  Four v;
  memcpy(&v, p, sizeof v);
  return v;
}

// Four rows of a, four units of each, to units of four rows: out[u * height].
TESSERA_INLINE void transpose_four(const float* a, int64_t row, float* out, int64_t height) {
  const Four r0 = load_four(a), r1 = load_four(a + row), r2 = load_four(a + 2 * row), r3 = load_four(a + 3 * row);
  const Four low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
  const Four low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5), high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  const Four units[] = {
      __builtin_shufflevector(low01, low23, 0, 1, 4, 5), __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
      __builtin_shufflevector(high01, high23, 0, 1, 4, 5), __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
#pragma GCC unroll 4
  for (int u = 0; u < 4; ++u) memcpy(out + u * height, &units[u], sizeof units[u]);
}

// `height` rows of 4-byte units as [units][height].
inline void pack_row_panel(const float* a, int64_t row, int64_t column, int64_t height, int64_t units, float* out) {
  int64_t u = 0;
  if (column == 1 && height >= 4) {
    // Rows 0-3 and the last four: those in both are written twice.
    for (; u + 4 <= units; u += 4) {
      transpose_four(a + u, row, out + u * height, height);
      if (height > 4) transpose_four(a + (height - 4) * row + u, row, out + u * height + height - 4, height);
    }
  }
  for (; u < units; ++u)
    for (int64_t r = 0; r < height; ++r) out[u * height + r] = a[r * row + u * column];
}

// Rows of a that are made into units at once: 4 MiB stay in L3 between making and use.
inline int64_t rows_at_once(int64_t m, int64_t units) {
  return ceil_div(m, ceil_div(m * (units + 1), int64_t{1} << 20));
}
inline size_t units_bytes(int64_t m, int64_t units) {
  return m == 0 ? 0 : static_cast<size_t>(rows_at_once(m, units) * units) * 4 + 64;
}

// The product of `shape`, whose a is not there yet: make(row, height, out) writes rows [row, row + height), at most
// kTileRows, as [units][height]. `scratch` has units_bytes(shape.m, units of a row).
template <class T, class Make, class Finish>
inline void multiply_made(const Product& shape, float* scratch, const tessera::kernels::Parallel* parallel,
                          const Make& make, const Finish& finish) {
  const int64_t units = shape.lines * T::kUnits, most = rows_at_once(shape.m, units);
  for (int64_t first = 0; first < shape.m; first += most) {
    Product part = shape;
    part.m = least(most, shape.m - first);
    part.a = scratch;
    part.a_rows = Rows::kPacked;
    const Split rows = row_panels(part.m);
    parallel_for(parallel, rows.parts, 1 + 8192 / (kTileRows * (units + 1)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        make(first + rows.begin(i), rows.length(i), scratch + rows.begin(i) * units);
    });
    multiply_products<T, Rows::kPacked>(
        1, part, parallel, [&](int64_t) { return part; },
        [&](int64_t, int64_t row, auto... tile) { finish(first + row, tile...); });
  }
}

}  // namespace
