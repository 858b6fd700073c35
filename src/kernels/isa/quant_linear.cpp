// quant_linear: y [*B, N] = x [*B, K] w [N, K]^T + b [N], x rounded to int8 a block, w in blocks, packed. Few rows wait
// for memory, so that they may as well be rounded twice: to int8, and what that leaves to int8 again, as a row of its
// own.
#include "kernels/abi.h"
#include "kernels/isa/export.h"
#include "kernels/isa/loops.h"
#include "kernels/isa/quant_tile.h"

namespace {

using namespace tessera::kernels;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Product {
  int64_t m, n, k;  // m: rows of codes, `terms` for each of x
  int64_t terms;
  const float* x;
  const uint8_t* w;
  const float* bias;  // [n] or null
  float* y;
};
Product product_of(const Args& args) {
  const View& x = args.in[0];
  const View& w = args.in[1];
  Product p = {1,
               w.shape[0],
               w.shape[1],
               1,
               static_cast<const float*>(x.data),
               static_cast<const uint8_t*>(w.data),
               nullptr,
               static_cast<float*>(args.out[0].data)};
  for (int i = 0; i + 1 < x.rank; ++i) p.m *= x.shape[i];
  if (p.m <= args.attrs[0].i) p.terms = 2;
  p.m *= p.terms;
  if (args.n_in > 2 && args.in[2].present) p.bias = static_cast<const float*>(args.in[2].data);
  return p;
}

template <class F>
auto with_format(uint8_t type, const F& f) {
  return with_block_format(type - kString - 1, f);
}

size_t quant_linear_packed_size(const PackArgs& args) noexcept {
  const View& w = *args.operand;
  return with_format(w.type, [&]<class Format>(Format) {
    return static_cast<size_t>(ceil_div(w.shape[0], kLanes) * Packed<Format>::panel_bytes(w.shape[1]));
  });
}

void quant_linear_pack(const PackArgs& args, void* out) noexcept {
  const View& w = *args.operand;
  const int64_t n = w.shape[0], k = w.shape[1];
  with_format(w.type, [&]<class Format>(Format) {
    const int64_t row_bytes = k / Format::kForm.elements * Format::kForm.bytes;
    const int64_t panel_bytes = Packed<Format>::panel_bytes(k);
    parallel_for(args.parallel, ceil_div(n, kLanes), 1 + 16384 / (kLanes * (k + 1)), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const int64_t rows = n - p * kLanes < kLanes ? n - p * kLanes : kLanes;
        pack_quant_panel<Format>(static_cast<const uint8_t*>(w.data) + p * kLanes * row_bytes, row_bytes,
                                 static_cast<int>(rows), k, static_cast<uint8_t*>(out) + p * panel_bytes);
      }
    });
  });
}

// The codes of x, aligned array by array. Sums are of 16, which formats with groups of 32 do not need: room for both.
constexpr int64_t kSumBlock = 16;
int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
size_t quant_linear_scratch(const Args& args) noexcept {
  const Product p = product_of(args);
  const int64_t blocks = p.m * p.k / kCodeBlock, sums = p.m * p.k / kSumBlock;
  return static_cast<size_t>(aligned(p.m * p.k) + aligned(blocks * 4) + 2 * aligned(sums * 4) +
                             (p.terms > 1 ? aligned(p.m * p.n * 4) : 0));
}

// The codes of block b of c, whose values are x.
template <class P>
void quantize_to(const Codes& c, int64_t b, const float* x) {
  constexpr int64_t kGroup = P::kForm.group, kGroups = kCodeBlock / kGroup;
  int8_t* code = c.code + b * kCodeBlock;
  c.scale[b] = quantize_block(x, code);
  if constexpr (P::kCentre == 0 && !P::kForm.shifts) return;
  for (int64_t g = 0; g < kGroups; ++g) {
    int32_t sum = 0;
    for (int64_t i = 0; i < kGroup; ++i) sum += code[g * kGroup + i];
    c.start[b * kGroups + g] = -P::kCentre * sum;
    c.sum[b * kGroups + g] = c.scale[b] * static_cast<float>(sum);
  }
}

// The codes of all rows, in memory that holds them and, behind them, the products of their terms.
template <class P>
Codes quantize_rows(const Product& p, const Args& args, float*& products) {
  char* memory = static_cast<char*>(args.scratch);
  const int64_t blocks = p.m * p.k / kCodeBlock, sums = aligned(p.m * p.k / kSumBlock * 4);
  Codes c;
  c.code = reinterpret_cast<int8_t*>(memory);
  memory += aligned(p.m * p.k);
  c.scale = reinterpret_cast<float*>(memory);
  memory += aligned(blocks * 4);
  c.start = reinterpret_cast<int32_t*>(memory);
  c.sum = reinterpret_cast<float*>(memory + sums);
  products = reinterpret_cast<float*>(memory + 2 * sums);
  const int64_t row_blocks = p.k / kCodeBlock;
  parallel_for(args.parallel, blocks / p.terms, 256, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = p.terms == 1 ? b : b / row_blocks * 2 * row_blocks + b % row_blocks;
      quantize_to<P>(c, first, p.x + b * kCodeBlock);
      if (p.terms == 1) continue;
      float rest[kCodeBlock];
      memcpy(rest, p.x + b * kCodeBlock, sizeof(rest));
      leave(rest, c.code + first * kCodeBlock, c.scale[first]);
      quantize_to<P>(c, first + row_blocks, rest);
    }
  });
  return c;
}

// y = the sums of the products of two terms, and the bias.
void add_terms(const Product& p, const float* products, const Parallel* parallel) {
  parallel_for(parallel, p.n, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < p.m / 2; ++row) {
      const float* a = products + 2 * row * p.n;
      const float* b = a + p.n;
      float* y = p.y + row * p.n;
      for (int64_t i = begin; i < end; ++i) y[i] = a[i] + b[i] + (p.bias == nullptr ? 0 : p.bias[i]);
    }
  });
}

template <class P>
Codes from_row(Codes c, int64_t row, int64_t k) {
  return {c.code + row * k, c.scale + row * (k / kCodeBlock), c.start + row * (k / P::kGroup),
          c.sum + row * (k / P::kGroup)};
}

// The formats of most files get tiles of every shape; the others fewer, as each costs code.
#if defined(__AVX2__)
template <class P>
constexpr bool kCommon = __is_same(P, Packed<Block_q8_0>) || __is_same(P, Packed<Block_q4_0>) ||
                         __is_same(P, Packed<Block_q4_k>) || __is_same(P, Packed<Block_q6_k>);
#else
template <class P>
constexpr bool kCommon = false;
#endif

// ---- One or two rows wait for memory: four streams keep more of it coming. Two of them share registers where those
// reach.
template <class P>
constexpr int kStreams = kCommon<P> ? 4 : 1;
template <class P>
constexpr int kAbreast = kRegisters == 32 && kCommon<P> ? 2 : 1;

// M rows by N times S panels, each `apart` behind the one before.
template <class P, int M, int N, int S>
void multiply_stream(const Product& p, const Codes& c, int64_t panel, int64_t apart) {
  const int64_t stride = apart * P::panel_bytes(p.k);
  const uint8_t* w = p.w + panel * P::panel_bytes(p.k);
  Panels<P, M, N, S> panels;
  panels.clear();
  int64_t k = 0;
  for (; k + kRecordUnits * kUnit <= p.k; k += kRecordUnits * kUnit, w += P::record_bytes(kRecordUnits))
    panels.add(w, stride, kRecordUnits, c, p.k, k);
  if constexpr (!P::kMultipliers) {
    if (k < p.k) panels.add(w, stride, (p.k - k) / kUnit, c, p.k, k);
  }
  const int64_t column = panel * kLanes;
  panels.put(p.y + column, p.n, apart * kLanes, p.n - column, p.bias == nullptr ? nullptr : p.bias + column);
}

// Streams of several panels each, which follow each other in memory: what is fetched ahead of one panel's end is the
// next one.
template <class P, int M>
void multiply_streams(const Product& p, const Codes& c, const Parallel* parallel) {
  constexpr int64_t kRun = 4, kWide = kStreams<P>;
  const int64_t panels = ceil_div(p.n, kLanes);
  parallel_for(parallel, ceil_div(panels, kWide * kRun), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t panel = i * kWide * kRun;
      if (panel + kWide * kRun <= panels) {
        for (int64_t r = 0; r < kRun; ++r)
          multiply_stream<P, M, kAbreast<P>, kStreams<P> / kAbreast<P>>(p, c, panel + r, kRun);
        continue;
      }
      for (; panel < panels && panel < (i + 1) * kWide * kRun; ++panel) multiply_stream<P, M, 1, 1>(p, c, panel, 1);
    }
  });
}

// ---- More rows share what is unpacked: a record of some panels, a byte a code, stays in L1 while a band of rows
// passes.

// Rows and panels of a full tile: each row takes two registers a panel, its total and the sum of a group.
constexpr int kTileRows = 4;
constexpr int kTilePanels = kRegisters == 32 ? 3 : 1;
constexpr int64_t kBandRows = 128;

// A record of N panels, at step k, and where totals wait between records.
template <int N>
struct Passing {
  const uint8_t* record;
  int64_t units, k;
  bool first, last;
  int64_t column;  // the first of the panels'
  float* totals;   // [kBandRows][N * kLanes]
};

// Rows [row, row + M), the i-th and following of the band.
template <class Q, int M, int N>
TESSERA_OUTLINE void add_rows(const Product& p, const Codes& c, int64_t row, int64_t i, const Passing<N>& at) {
  constexpr int64_t kWide = N * kLanes;
  Rows<Q, M, N> rows;
  if (at.first) {
    rows.clear();
  } else {
    rows.take(at.totals + i * kWide);
  }
  add_record<Q, M, N, false>(rows, at.record, Q::kRecordBytes, at.units, from_row<Q>(c, row, p.k), p.k, at.k);
  if (at.last) {
    rows.put(p.y + row * p.n + at.column, p.n, kLanes, p.n - at.column,
             p.bias == nullptr ? nullptr : p.bias + at.column);
  } else {
    rows.put(at.totals + i * kWide, kWide, kLanes, kWide, nullptr);
  }
}

// Rows [row, row + m) by N panels.
template <class P, int N>
void multiply_band(const Product& p, const Codes& c, int64_t row, int64_t m, int64_t panel) {
  using Q = typename P::Unpacked;
  alignas(64) uint8_t record[N * Q::kRecordBytes];
  alignas(64) float totals[kBandRows * N * kLanes];
  constexpr int64_t kSteps = kRecordUnits * kUnit;
  const uint8_t* w = p.w + panel * P::panel_bytes(p.k);
  Passing<N> at = {record, kRecordUnits, 0, true, false, panel * kLanes, totals};
  for (; at.first || at.k < p.k; at.k += kSteps, at.first = false, w += P::record_bytes(kRecordUnits)) {
    if (p.k - at.k < kSteps) at.units = (p.k - at.k) / kUnit;
    at.last = at.k + kSteps >= p.k;
    for (int n = 0; n < N; ++n) unpack_record<P>(w + n * P::panel_bytes(p.k), at.units, record + n * Q::kRecordBytes);
    int64_t i = 0;
    for (; i + kTileRows <= m; i += kTileRows) add_rows<Q, kTileRows, N>(p, c, row + i, i, at);
    for (; i + 2 <= m; i += 2) add_rows<Q, 2, N>(p, c, row + i, i, at);
    if (i < m) add_rows<Q, 1, N>(p, c, row + i, i, at);
  }
}

template <class P>
void multiply(const Product& p, const Codes& c, const Parallel* parallel) {
  if (p.m == 1) return multiply_streams<P, 1>(p, c, parallel);
  if (p.m == 2) return multiply_streams<P, 2>(p, c, parallel);
  const int64_t panels = ceil_div(p.n, kLanes);
  constexpr int kTile = kTilePanels;
  // Of equal height, so that the last band is no sliver.
  const int64_t bands = ceil_div(p.m, kBandRows), groups = ceil_div(panels, kTile);
  const int64_t band = ceil_div(ceil_div(p.m, bands), kTileRows) * kTileRows;
  const int64_t work = band * kTile * kLanes * (p.k + 1);
  parallel_for(parallel, bands * groups, 1 + (int64_t{1} << 21) / work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / groups * band, panel = i % groups * kTile;
      const int64_t m = p.m - row < band ? p.m - row : band;
      if (m <= 0) continue;
      if (panel + kTile <= panels) {
        multiply_band<P, kTile>(p, c, row, m, panel);
      } else {
        for (int64_t last = panel; last < panels; ++last) multiply_band<P, 1>(p, c, row, m, last);
      }
    }
  });
}

int quant_linear(const Args& args) noexcept {
  const Product p = product_of(args);
  if (p.m == 0 || p.n == 0) return kDone;
  with_format(args.in[1].type, [&]<class Format>(Format) {
    using P = Packed<Format>;
    float* products = nullptr;
    const Codes codes = quantize_rows<P>(p, args, products);
    if (p.terms == 1) {
      multiply<P>(p, codes, args.parallel);
      return;
    }
    Product terms = p;
    terms.y = products;
    terms.bias = nullptr;
    multiply<P>(terms, codes, args.parallel);
    add_terms(p, products, args.parallel);
  });
  return kDone;
}

}  // namespace

TESSERA_FAMILY(quant_linear,
               {"quant_linear", quant_linear, quant_linear_scratch, quant_linear_packed_size, quant_linear_pack})
