// linear with weights of 16 bits: y [M, N] = x [M, K] w [N, K]^T + b in f32. bf16 weights round x to bf16 first, so
// that the instruction for pairs of them can be used where there is one; f16 weights are widened as they are read.
#include "kernels/abi.h"
#include "kernels/isa/export.h"
#include "kernels/isa/half.h"
#include "kernels/isa/loops.h"

namespace {

using namespace tessera::kernels;

// The register tile: two vectors of columns by as many rows as leave registers for the weights.
constexpr int kNarrowRows = kRegisters == 32 ? 12 : 4;
constexpr int kNarrowColumns = 2 * kLanes;
constexpr int64_t kNarrowBand = 48;  // rows that share one pass over a panel

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// How one vector of columns takes a step along k: kTogether elements at once.
struct Bf16Step {
  static constexpr int kTogether = 2;
#if defined(__AVX512BF16__)
  typedef uint16_t Left;
  static Left left(float x) { return f32_to_bf16(x); }
  static TESSERA_INLINE Vec add(Vec acc, const Left* a, const uint16_t* w) {
    int32_t pair;
    memcpy(&pair, a, 4);
    return reinterpret_cast<Vec>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(acc),
                                                  reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)),
                                                  reinterpret_cast<__m512bh>(_mm512_loadu_si512(w))));
  }
#else
  typedef float Left;
  static Left left(float x) { return bf16_to_f32(f32_to_bf16(x)); }
  static TESSERA_INLINE Vec add(Vec acc, const Left* a, const uint16_t* w) {
    VecI pairs;
    memcpy(&pairs, w, sizeof pairs);
    acc = fma(splat(a[0]), of_bits(pairs << 16), acc);
    return fma(splat(a[1]), of_bits(pairs & static_cast<int32_t>(0xffff0000)), acc);
  }
#endif
};
struct F16Step {
  static constexpr int kTogether = 1;
  typedef float Left;
  static Left left(float x) { return x; }
  static TESSERA_INLINE Vec add(Vec acc, const Left* a, const uint16_t* w) {
#if defined(__AVX512F__)
    const Vec wide =
        reinterpret_cast<Vec>(_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w))));
#elif defined(__AVX2__)
    const Vec wide = reinterpret_cast<Vec>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w))));
#else
    Vec wide;
    for (int j = 0; j < kLanes; ++j) wide[j] = f16_to_f32(w[j]);
#endif
    return fma(splat(*a), wide, acc);
  }
};

// Sums of R rows; a chain of members, as the compiler keeps arrays indexed in loops on the stack.
template <class Step, int R>
struct NarrowTile {
  Vec low = {}, high = {};
  NarrowTile<Step, R - 1> rest;
  TESSERA_INLINE void step(const typename Step::Left* a, const uint16_t* w) {
    low = Step::add(low, a, w);
    high = Step::add(high, a, w + kLanes * Step::kTogether);
    rest.step(a + Step::kTogether, w);
  }
  TESSERA_INLINE void put(float* c) const {
    store(c, low);
    store(c + kLanes, high);
    rest.put(c + kNarrowColumns);
  }
};
template <class Step>
struct NarrowTile<Step, 0> {
  TESSERA_INLINE void step(const typename Step::Left*, const uint16_t*) {}
  TESSERA_INLINE void put(float*) const {}
};

template <class Step, int R>
void multiply_narrow_tile(const typename Step::Left* a, const uint16_t* w, int64_t steps, float* c) {
  NarrowTile<Step, R> tile;
  for (int64_t s = 0; s < steps; ++s, a += R * Step::kTogether, w += kNarrowColumns * Step::kTogether) tile.step(a, w);
  tile.put(c);
}

struct Sizes {
  int64_t m, n, k, panels;
};
Sizes sizes_of(const Args& args) {
  const View& x = args.in[0];
  Sizes s = {1, args.in[1].shape[0], x.shape[x.rank - 1], 0};
  for (int i = 0; i + 1 < x.rank; ++i) s.m *= x.shape[i];
  s.panels = round_up(s.n, kNarrowColumns) / kNarrowColumns;
  return s;
}

int together(uint8_t type) { return type == kBF16 ? Bf16Step::kTogether : F16Step::kTogether; }
int64_t packed_elements(const View& w) {
  return round_up(w.shape[0], kNarrowColumns) * round_up(w.shape[1], together(w.type));
}

size_t narrow_packed_size(const PackArgs& args) noexcept {
  return static_cast<size_t>(packed_elements(*args.operand)) * 2;
}

// Panels [k / together][columns][together]. What is missing stays 0, as `out` is.
void pack_narrow(const View& w, const Parallel* parallel, void* out) {
  const int64_t n = w.shape[0], k = w.shape[1], at_once = together(w.type);
  const int64_t panel_size = round_up(k, at_once) * kNarrowColumns;
  parallel_for(parallel, round_up(n, kNarrowColumns) / kNarrowColumns, 1 + 8192 / (panel_size + 1),
               [&](int64_t begin, int64_t end) {
                 for (int64_t j = begin * kNarrowColumns; j < end * kNarrowColumns && j < n; ++j) {
                   const char* from = static_cast<const char*>(w.data) + j * w.stride[0] * 2;
                   uint16_t* to =
                       static_cast<uint16_t*>(out) + j / kNarrowColumns * panel_size + j % kNarrowColumns * at_once;
                   for (int64_t i = 0; i < k; ++i)
                     memcpy(to + i / at_once * kNarrowColumns * at_once + i % at_once, from + i * w.stride[1] * 2, 2);
                 }
               });
}
void pack_narrow_operand(const PackArgs& args, void* out) noexcept { pack_narrow(*args.operand, args.parallel, out); }

template <class Step>
void multiply_narrow(const Args& args, const uint16_t* packed, void* scratch) {
  using Left = typename Step::Left;
  const Sizes s = sizes_of(args);
  if (s.m == 0 || s.n == 0) return;
  const float* x = static_cast<const float*>(args.in[0].data);
  const float* bias = args.n_in > 2 && args.in[2].present ? static_cast<const float*>(args.in[2].data) : nullptr;
  float* y = static_cast<float*>(args.out[0].data);
  const int64_t steps = round_up(s.k, Step::kTogether) / Step::kTogether;
  const bool one = s.m == 1;
  const int height = one ? 1 : kNarrowRows;
  const int64_t tiles = (s.m + height - 1) / height, tile_size = steps * Step::kTogether * height;
  const int64_t panel_size = steps * Step::kTogether * kNarrowColumns;
  Left* const left = static_cast<Left*>(scratch);
  parallel_for(args.parallel, tiles, 1 + 16384 / (tile_size + 1), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int r = 0; r < height; ++r) {
        const int64_t row = t * height + r;
        Left* to = left + t * tile_size + r * Step::kTogether;
        for (int64_t i = 0; i < steps * Step::kTogether; ++i)
          to[i / Step::kTogether * height * Step::kTogether + i % Step::kTogether] =
              row < s.m && i < s.k ? Step::left(x[row * s.k + i]) : Left{0};
      }
  });
  constexpr int64_t kGroup = 4;  // panels of one task
  const int64_t band = one ? 1 : kNarrowBand / kNarrowRows, bands = (tiles + band - 1) / band;
  const int64_t parts = (s.panels + kGroup - 1) / kGroup;
  const int64_t work = (s.m < kNarrowBand ? s.m : kNarrowBand) * kGroup * kNarrowColumns * (s.k + 1);
  parallel_for(args.parallel, bands * parts, 1 + (int64_t{1} << 18) / work, [&](int64_t begin, int64_t end) {
    alignas(64) float c[kNarrowRows * kNarrowColumns];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t last = i / bands * kGroup + kGroup;
      for (int64_t panel = i / bands * kGroup; panel < last && panel < s.panels; ++panel) {
        const int64_t column = panel * kNarrowColumns;
        const int64_t columns = s.n - column < kNarrowColumns ? s.n - column : kNarrowColumns;
        for (int64_t t = i % bands * band; t < (i % bands + 1) * band && t < tiles; ++t) {
          const Left* a = left + t * tile_size;
          const uint16_t* w = packed + panel * panel_size;
          if (one)
            multiply_narrow_tile<Step, 1>(a, w, steps, c);
          else
            multiply_narrow_tile<Step, kNarrowRows>(a, w, steps, c);
          for (int64_t r = 0; r < height && t * height + r < s.m; ++r)
            for (int64_t j = 0; j < columns; ++j)
              y[(t * height + r) * s.n + column + j] =
                  c[r * kNarrowColumns + j] + (bias == nullptr ? 0 : bias[column + j]);
        }
      }
    }
  });
}

size_t weights_room(const Args& args) { return static_cast<size_t>(round_up(packed_elements(args.in[1]) * 2, 64)); }
template <bool kPacked>
size_t narrow_scratch(const Args& args) noexcept {
  const Sizes s = sizes_of(args);
  return static_cast<size_t>(round_up(s.m, kNarrowRows) * round_up(s.k, 2)) * 4 + (kPacked ? 0 : weights_room(args));
}

template <bool kPacked>
int linear_narrow(const Args& args) noexcept {
  const uint16_t* packed = static_cast<const uint16_t*>(kPacked ? args.in[1].data : args.scratch);
  char* scratch = static_cast<char*>(args.scratch);
  if (!kPacked) {
    memset(scratch, 0, weights_room(args));
    pack_narrow(args.in[1], args.parallel, scratch);
    scratch += weights_room(args);
  }
  if (args.in[1].type == kBF16)
    multiply_narrow<Bf16Step>(args, packed, scratch);
  else
    multiply_narrow<F16Step>(args, packed, scratch);
  return kDone;
}

}  // namespace

TESSERA_FAMILY(narrow, {"linear_narrow", linear_narrow<false>, narrow_scratch<false>},
               {"linear_narrow_packed", linear_narrow<true>, narrow_scratch<true>, narrow_packed_size,
                pack_narrow_operand})
