// linear and fused_linear with weights of 16 bits: y [M, N] = x [M, K] w [N, K]^T + b in f32. bf16 weights round x to
// bf16 first, so that the instruction for pairs of them can be used where there is one; f16 weights are widened as they
// are read.
#include "kernels/abi.h"
#include "kernels/isa/export.h"
#include "kernels/isa/half.h"
#include "kernels/isa/linear_call.h"

namespace {

// Lines of a panel hold pairs along k. With vdpbf16ps a unit of a is a pair; else it is one element as f32, and a line
// serves two of them, its even elements being the low halves.
struct Bf16Product {
  using Sum = Vec;
  using Element = float;
  static constexpr int kVectorBytes = 4 * kLanes;
#if defined(__AVX512BF16__)
  static constexpr int kUnit = 2, kUnits = 1;
  template <int U>
  static TESSERA_INLINE VecI load(const char* b) {
    VecI v;
    memcpy(&v, b, sizeof v);
    return v;
  }
  static TESSERA_INLINE Vec madd(Vec sum, const float* a, VecI b) {
    int32_t pair;
    memcpy(&pair, a, 4);
    return reinterpret_cast<Vec>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum),
                                                  reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)),
                                                  reinterpret_cast<__m512bh>(b)));
  }
#else
  static constexpr int kUnit = 1, kUnits = 2;
  template <int U>
  static TESSERA_INLINE Vec load(const char* b) {
    VecI pairs;
    memcpy(&pairs, b, sizeof pairs);
    return of_bits(U == 0 ? pairs << 16 : pairs & static_cast<int32_t>(0xffff0000));
  }
  static TESSERA_INLINE Vec madd(Vec sum, const float* a, Vec b) { return fma(splat(*a), b, sum); }
#endif
  // n elements of a row as units; missing ones at the end are 0.
  static void make(const float* x, int64_t n, float* out) {
    if constexpr (kUnit == 2) {
      alignas(64) uint16_t halves[2 * kUnitsAtOnce] = {};
      f32_block_to_bf16(x, halves, n);
      memcpy(out, halves, static_cast<size_t>((n + 1) / 2) * 4);
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(f32_to_bf16(x[i]));
      if (n % 2 != 0) out[n] = 0;
    }
  }
  static constexpr int64_t kUnitsAtOnce = 64;
};

struct F16Product {
  using Sum = Vec;
  using Element = float;
  static constexpr int kVectorBytes = 2 * kLanes, kUnit = 1, kUnits = 1;
  template <int U>
  static TESSERA_INLINE Vec load(const char* b) {
#if defined(__AVX512F__)
    return reinterpret_cast<Vec>(
        _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b))));
#elif defined(__AVX2__)
    return reinterpret_cast<Vec>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b))));
#else
    uint16_t halves[kLanes];
    memcpy(halves, b, sizeof halves);
    Vec wide;
    for (int j = 0; j < kLanes; ++j) wide[j] = f16_to_f32(halves[j]);
    return wide;
#endif
  }
  static TESSERA_INLINE Vec madd(Vec sum, const float* a, Vec b) { return fma(splat(*a), b, sum); }
  static void make(const float* x, int64_t n, float* out) { memcpy(out, x, static_cast<size_t>(n) * 4); }
  static constexpr int64_t kUnitsAtOnce = 64;
};

// Steps of k that a line serves.
template <class T>
constexpr int64_t kDeep = T::kUnit* T::kUnits;
int64_t deep_of(uint8_t type) { return type == kBF16 ? kDeep<Bf16Product> : kDeep<F16Product>; }

int64_t packed_bytes(const View& w) {
  const int64_t deep = deep_of(w.type);
  return ceil_div(w.shape[0], kTileColumns) * kTileColumns * ceil_div(w.shape[1], deep) * deep * 2;
}

size_t narrow_packed_size(const PackArgs& args) noexcept { return static_cast<size_t>(packed_bytes(*args.operand)); }

// Panels [k / deep][columns][deep]. What is missing stays 0, as `out` is.
void pack_narrow(const View& w, const Parallel* parallel, void* out) {
  const int64_t n = w.shape[0], k = w.shape[1], deep = deep_of(w.type);
  const int64_t panel_size = ceil_div(k, deep) * deep * kTileColumns;
  parallel_for(parallel, ceil_div(n, kTileColumns), 1 + 8192 / (panel_size + 1), [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      uint16_t* const to = static_cast<uint16_t*>(out) + panel * panel_size;
      const int64_t columns = least(n - panel * kTileColumns, kTileColumns);
      const char* const from = static_cast<const char*>(w.data) + panel * kTileColumns * w.stride[0] * 2;
      // A few lines at a time, so that those written stay in L1.
      constexpr int64_t kSteps = 16;
      for (int64_t i0 = 0; i0 < k; i0 += kSteps)
        for (int64_t j = 0; j < columns; ++j)
          for (int64_t i = i0; i < k && i < i0 + kSteps; ++i)
            memcpy(to + (i / deep * kTileColumns + j) * deep + i % deep, from + (j * w.stride[0] + i * w.stride[1]) * 2,
                   2);
    }
  });
}
void pack_narrow_operand(const PackArgs& args, void* out) noexcept { pack_narrow(*args.operand, args.parallel, out); }

// Rows of x, `row` elements apart, as [units][height].
template <class T>
void make_units(const float* x, int64_t row, int64_t k, int64_t height, float* out) {
  constexpr int64_t kElements = T::kUnitsAtOnce * T::kUnit;
  alignas(64) float units[kTileRows][T::kUnitsAtOnce];
  for (int64_t i = 0; i < k; i += kElements) {
    const int64_t n = least(k - i, kElements), count = ceil_div(n, kDeep<T>) * T::kUnits;
    for (int64_t r = 0; r < height; ++r) T::make(x + r * row + i, n, units[r]);
    pack_row_panel(units[0], T::kUnitsAtOnce, 1, height, count, out + i / T::kUnit * height);
  }
}

template <class T>
void multiply_narrow_by(const Products& p, const ProgramJob* program, const char* packed, float* scratch,
                        const Parallel* parallel) {
  if (p.m == 0 || p.n == 0) return;
  const Product shape = {p.m, p.n, ceil_div(p.k, kDeep<T>), nullptr, 0, Rows::kPacked, packed};
  const Epilogue epilogue = {p.bias, program};
  multiply_made<T>(
      shape, scratch, parallel,
      [&](int64_t row, int64_t height, float* out) {
        make_units<T>(p.a.data + row * p.a.row, p.a.row, p.k, height, out);
      },
      [&](int64_t row, int64_t height, int64_t column, int64_t width, float* sums) {
        finish_tile(epilogue, {sums, height, width, row, column}, p.c.data + row * p.c.row + column, p.c.row);
      });
}

// The scratch holds x as units and, behind them, the weights where they were not packed beforehand.
size_t rows_room(const Args& args) {
  const Products p = linear_products(args);
  const int64_t deep = deep_of(args.in[1].type);
  return rounded(units_bytes(p.m, ceil_div(p.k, deep) * deep));
}
template <bool kPacked>
size_t narrow_scratch(const Args& args) noexcept {
  return rows_room(args) + (kPacked ? 0 : rounded(static_cast<size_t>(packed_bytes(args.in[1]))));
}

template <bool kPacked>
void multiply_narrow(const Products& p, const ProgramJob* program, const Args& args) {
  const char* packed = static_cast<const char*>(args.in[1].data);
  if (!kPacked) {
    char* const room = static_cast<char*>(args.scratch) + rows_room(args);
    memset(room, 0, static_cast<size_t>(packed_bytes(args.in[1])));
    pack_narrow(args.in[1], args.parallel, room);
    packed = room;
  }
  float* const units = static_cast<float*>(args.scratch);
  if (args.in[1].type == kBF16)
    multiply_narrow_by<Bf16Product>(p, program, packed, units, args.parallel);
  else
    multiply_narrow_by<F16Product>(p, program, packed, units, args.parallel);
}

template <bool kPacked>
int linear_narrow(const Args& args) noexcept {
  multiply_narrow<kPacked>(linear_products(args), nullptr, args);
  return kDone;
}

size_t fused_scratch(const Args& args) noexcept { return narrow_scratch<true>(args) + parts_bytes(args); }
int fused_linear_narrow(const Args& args) noexcept {
  return fused_linear(args, narrow_scratch<true>(args), true,
                      [&](const Products& p, const ProgramJob* program) { multiply_narrow<true>(p, program, args); });
}

}  // namespace

TESSERA_FAMILY(narrow, {"linear_narrow", linear_narrow<false>, narrow_scratch<false>},
               {"linear_narrow_packed", linear_narrow<true>, narrow_scratch<true>, narrow_packed_size,
                pack_narrow_operand},
               {"fused_linear_narrow_packed", fused_linear_narrow, fused_scratch, narrow_packed_size,
                pack_narrow_operand})
