// Products of rows of int8 codes by panels of quantized weights: the sums of M rows by N panels in registers.
#pragma once

#include "kernels/isa/quant_panels.h"
#include "kernels/isa/quantize.h"

namespace {

// Sums over a group of k of weights times activations, one lane a row of w. Without vpdpbusd products are of 16 bits:
// as many quads are summed in them as cannot overflow (127 times the largest code, two a quad), then widened.
template <int kBits, bool kSigned, int kGroup>
struct Sum {
  static constexpr int kQuads = kGroup / 4;
  static constexpr int kFit = kSigned ? 1 : kBits <= 4 ? 8 : kBits == 5 ? 4 : 2;
  static constexpr int kNarrow = kFit < kQuads ? kFit : kQuads;
  VecI wide;
  VecI narrow;
  TESSERA_INLINE void start(int32_t value) {
    wide = splat_int(value);
    narrow = VecI{};
  }
  // The quad q of the group.
  template <int q>
  TESSERA_INLINE void add(VecI w, VecI x) {
#if defined(__AVX512VNNI__)
    wide = reinterpret_cast<VecI>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(wide), reinterpret_cast<__m512i>(w),
                                                      reinterpret_cast<__m512i>(x)));
#elif defined(__AVX512BW__)
    const __m512i a = reinterpret_cast<__m512i>(w), b = reinterpret_cast<__m512i>(x);
    if constexpr (kSigned) {
      const __m512i signed_x = _mm512_mask_sub_epi8(b, _mm512_movepi8_mask(a), _mm512_setzero_si512(), b);
      narrow_add<q>(reinterpret_cast<VecI>(_mm512_maddubs_epi16(_mm512_abs_epi8(a), signed_x)));
    } else {
      narrow_add<q>(reinterpret_cast<VecI>(_mm512_maddubs_epi16(a, b)));
    }
#elif defined(__AVX2__)
    const __m256i a = reinterpret_cast<__m256i>(w), b = reinterpret_cast<__m256i>(x);
    narrow_add<q>(reinterpret_cast<VecI>(kSigned ? _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(b, a))
                                                 : _mm256_maddubs_epi16(a, b)));
#else
    int8_t a[kVectorBytes], b[kVectorBytes];
    memcpy(a, &w, sizeof a);
    memcpy(b, &x, sizeof b);
    for (int i = 0; i < kLanes; ++i)
      for (int j = 0; j < 4; ++j) wide[i] += a[4 * i + j] * b[4 * i + j];
#endif
  }

 private:
#if defined(__AVX2__)
  template <int q>
  TESSERA_INLINE void narrow_add(VecI products) {
    narrow = q % kNarrow == 0 ? products : add16(narrow, products);
    if constexpr (q % kNarrow == kNarrow - 1) wide = wide + widen(narrow);
  }
#if defined(__AVX512BW__)
  static TESSERA_INLINE VecI add16(VecI a, VecI b) {
    return reinterpret_cast<VecI>(_mm512_add_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
  }
  static TESSERA_INLINE VecI widen(VecI v) {
    return reinterpret_cast<VecI>(_mm512_madd_epi16(reinterpret_cast<__m512i>(v), _mm512_set1_epi16(1)));
  }
#else
  static TESSERA_INLINE VecI add16(VecI a, VecI b) {
    return reinterpret_cast<VecI>(_mm256_add_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
  }
  static TESSERA_INLINE VecI widen(VecI v) {
    return reinterpret_cast<VecI>(_mm256_madd_epi16(reinterpret_cast<__m256i>(v), _mm256_set1_epi16(1)));
  }
#endif
#endif
};

// Rows of x as codes: for row m, code + m * k, and for each 32 (or 16) of k a scale and sums.
struct Codes {
  int8_t* code;    // [m][k]
  float* scale;    // [m][k / 32]
  int32_t* start;  // [m][k / group]: minus the sum of codes times the centre, where sums begin
  float* sum;      // [m][k / group]: the sum of codes times their scale, what minima are multiplied by
};

// Chains of members here and below: GCC keeps arrays of vectors that are indexed in loops on the stack.

// The codes of one quad in N panels, `stride` bytes apart.
template <class P, int N>
struct Quads {
  VecI w;
  Quads<P, N - 1> rest;
  template <int q>
  TESSERA_INLINE void load(const uint8_t* unit, int64_t stride) {
    w = P::template code<q>(unit);
    rest.template load<q>(unit + stride, stride);
  }
};
template <class P>
struct Quads<P, 0> {
  template <int q>
  TESSERA_INLINE void load(const uint8_t*, int64_t) {}
};

// What a group's codes are multiplied by, and their minima, in N panels.
template <class P, int N>
struct Scales {
  Vec d, minimum;  // of the block
  Vec scale, shift;
  Scales<P, N - 1> rest;
  TESSERA_INLINE void start_block(const uint8_t* halves, int64_t stride) {
    P::start_block(halves, d, minimum);
    rest.start_block(halves + stride, stride);
  }
  TESSERA_INLINE void start_group(const uint8_t* multipliers, int64_t stride) {
    P::start_group(multipliers, d, minimum, scale, shift);
    rest.start_group(multipliers + stride, stride);
  }
};
template <class P>
struct Scales<P, 0> {
  TESSERA_INLINE void start_block(const uint8_t*, int64_t) {}
  TESSERA_INLINE void start_group(const uint8_t*, int64_t) {}
};

// The sums of one row of x by N panels.
template <class P, int N>
struct Row {
  Vec total;
  Sum<P::kBits, P::kSigned, P::kGroup> sum;
  Row<P, N - 1> rest;

  TESSERA_INLINE void clear() {
    total = Vec{};
    rest.clear();
  }
  TESSERA_INLINE void start(int32_t value) {
    sum.start(value);
    rest.start(value);
  }
  template <int q>
  TESSERA_INLINE void add(const Quads<P, N>& w, VecI x) {
    sum.template add<q>(w.w, x);
    rest.template add<q>(w.rest, x);
  }
  TESSERA_INLINE void finish(const Scales<P, N>& w, Vec scale) {
    total = fma(__builtin_convertvector(sum.wide, Vec) * scale, w.scale, total);
    rest.finish(w.rest, scale);
  }
  TESSERA_INLINE void shift(const Scales<P, N>& w, Vec codes) {
    total = fma(w.shift, codes, total);
    rest.shift(w.rest, codes);
  }
  // Totals kept before, as put() leaves them where all are there.
  TESSERA_INLINE void take(const float* from) {
    total = load(from);
    rest.take(from + kLanes);
  }
  // n columns of y are there; from those of one panel to those of the next there are `step`.
  TESSERA_INLINE void put(float* y, int64_t step, int64_t n, const float* bias) const {
    if (n <= 0) return;
    if (n >= kLanes) {
      store(y, bias == nullptr ? total : total + load(bias));
    } else {
      store_first(y, n, bias == nullptr ? total : total + load_first(bias, n, 0));
    }
    rest.put(y + step, step, n - step, bias == nullptr ? nullptr : bias + step);
  }
};
template <class P>
struct Row<P, 0> {
  TESSERA_INLINE void clear() {}
  TESSERA_INLINE void take(const float*) {}
  TESSERA_INLINE void start(int32_t) {}
  template <int q>
  TESSERA_INLINE void add(const Quads<P, 0>&, VecI) {}
  TESSERA_INLINE void finish(const Scales<P, 0>&, Vec) {}
  TESSERA_INLINE void shift(const Scales<P, 0>&, Vec) {}
  TESSERA_INLINE void put(float*, int64_t, int64_t, const float*) const {}
};

// M rows of x by N panels.
template <class P, int M, int N>
struct Rows {
  Row<P, N> row;
  Rows<P, M - 1, N> rest;

  TESSERA_INLINE void clear() {
    row.clear();
    rest.clear();
  }
  TESSERA_INLINE void start(const int32_t* from, int64_t stride) {
    row.start(P::kCentred ? *from : 0);
    rest.start(from + stride, stride);
  }
  template <int q>
  TESSERA_INLINE void add(const Quads<P, N>& w, const int8_t* code, int64_t stride) {
    int32_t x;
    memcpy(&x, code, 4);
    row.template add<q>(w, splat_int(x));
    rest.template add<q>(w, code + stride, stride);
  }
  TESSERA_INLINE void finish(const Scales<P, N>& w, const float* scale, int64_t stride) {
    row.finish(w, splat(*scale));
    rest.finish(w, scale + stride, stride);
  }
  TESSERA_INLINE void shift(const Scales<P, N>& w, const float* from, int64_t stride) {
    row.shift(w, splat(*from));
    rest.shift(w, from + stride, stride);
  }
  TESSERA_INLINE void take(const float* from) {
    row.take(from);
    rest.take(from + N * kLanes);
  }
  TESSERA_INLINE void put(float* y, int64_t stride, int64_t step, int64_t n, const float* bias) const {
    row.put(y, step, n, bias);
    rest.put(y + stride, stride, step, n, bias);
  }
};
template <class P, int N>
struct Rows<P, 0, N> {
  TESSERA_INLINE void clear() {}
  TESSERA_INLINE void take(const float*) {}
  TESSERA_INLINE void start(const int32_t*, int64_t) {}
  template <int q>
  TESSERA_INLINE void add(const Quads<P, N>&, const int8_t*, int64_t) {}
  TESSERA_INLINE void finish(const Scales<P, N>&, const float*, int64_t) {}
  TESSERA_INLINE void shift(const Scales<P, N>&, const float*, int64_t) {}
  TESSERA_INLINE void put(float*, int64_t, int64_t, int64_t, const float*) const {}
};

// The quads q and up of group g of a unit.
template <class P, int M, int N, int g, int q>
TESSERA_INLINE void add_quads(Rows<P, M, N>& rows, const uint8_t* unit, int64_t apart, const int8_t* code,
                              int64_t stride) {
  if constexpr (q < P::kGroup / 4) {
    constexpr int kQuad = g * (P::kGroup / 4) + q;
    Quads<P, N> w;
    w.template load<kQuad>(unit, apart);
    rows.template add<q>(w, code + 4 * kQuad, stride);
    add_quads<P, M, N, g, q + 1>(rows, unit, apart, code, stride);
  }
}

// Groups g and up of the unit at step k of x. `multipliers` are those of the unit's first group.
template <class P, int M, int N, int g>
TESSERA_INLINE void add_groups(Rows<P, M, N>& rows, const uint8_t* unit, int64_t apart, const Codes& x, int64_t columns,
                               int64_t k, Scales<P, N>& w, const uint8_t* multipliers) {
  if constexpr (g < kUnit / P::kGroup) {
    const int64_t at = (k + g * P::kGroup) / P::kGroup, stride = columns / P::kGroup;
    rows.start(x.start + at, stride);
    add_quads<P, M, N, g, 0>(rows, unit, apart, x.code + k, columns);
    w.start_group(multipliers + g * P::kGroupBytes, apart);
    rows.finish(w, x.scale + k / kUnit, columns / kUnit);
    if constexpr (P::kShifts) rows.shift(w, x.sum + at, stride);
    add_groups<P, M, N, g + 1>(rows, unit, apart, x, columns, k, w, multipliers);
  }
}

// One record of N panels, `apart` bytes from one to the next, at step k of x.
template <class P, int M, int N, bool kFetches>
TESSERA_INLINE void add_record(Rows<P, M, N>& rows, const uint8_t* codes, int64_t apart, int64_t units, const Codes& x,
                               int64_t columns, int64_t k) {
  const uint8_t* scales = codes + P::scale_offset(units);
  Scales<P, N> w;
  if constexpr (P::kMultipliers) {
    w.start_block(scales, apart);
    scales += P::kBlockScales;
  }
#pragma GCC unroll 1
  for (int64_t unit = 0; unit < units; ++unit) {
    if constexpr (kFetches) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) fetch_unit<P>(codes + n * apart);
    }
    if constexpr (!P::kMultipliers) w.start_block(scales, apart);
    add_groups<P, M, N, 0>(rows, codes, apart, x, columns, k, w, scales);
    codes += P::kUnitBytes;
    scales += P::kUnitScales;
    k += kUnit;
  }
}

// S times N panels: N are walked unit by unit, their sums in registers; S record by record, as streams of memory.
template <class P, int M, int N, int S>
struct Panels {
  Rows<P, M, N> rows;
  Panels<P, M, N, S - 1> rest;

  TESSERA_INLINE void clear() {
    rows.clear();
    rest.clear();
  }
  // A record of each panel; from one panel to the next there are `apart` bytes.
  TESSERA_INLINE void add(const uint8_t* record, int64_t apart, int64_t units, const Codes& x, int64_t columns,
                          int64_t k) {
    add_record<P, M, N, true>(rows, record, apart, units, x, columns, k);
    rest.add(record + N * apart, apart, units, x, columns, k);
  }
  // The sums to y, of which n columns are there; from the columns of one panel to those of the next there are `step`.
  TESSERA_INLINE void put(float* y, int64_t stride, int64_t step, int64_t n, const float* bias) const {
    rows.put(y, stride, step, n, bias);
    rest.put(y + N * step, stride, step, n - N * step, bias == nullptr ? nullptr : bias + N * step);
  }
};
template <class P, int M, int N>
struct Panels<P, M, N, 0> {
  TESSERA_INLINE void clear() {}
  TESSERA_INLINE void add(const uint8_t*, int64_t, int64_t, const Codes&, int64_t, int64_t) {}
  TESSERA_INLINE void put(float*, int64_t, int64_t, int64_t, const float*) const {}
};

}  // namespace
