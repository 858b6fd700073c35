// Quantized weights packed for products of integers, and those products.
//
// kLanes rows of w are a panel. It is cut into records of 256 steps of k (the last may be shorter): first the codes,
// for each 32 steps the bit planes of quad(), each vector of a plane [kLanes rows][4 bytes]; then for each block of the
// format the scales, rows side by side: f16 d, f16 minimum where there is one, and for blocks of 256 a byte a group for
// each multiplier. So a panel is read strictly in order, as are the panels behind it, and no load of a vector crosses a
// line.
#pragma once

#include "kernels/isa/decode.h"
#include "kernels/isa/quantize.h"
#include "kernels/isa/vec.h"

namespace {

constexpr int64_t kUnit = 32;  // steps of k whose codes stand together: eight quads
constexpr int64_t kRecordUnits = 8;
constexpr int kVectorBytes = 4 * kLanes;

#if defined(__AVX512VNNI__)
constexpr bool kUnsignedCodes = true;  // vpdpbusd takes the weights as u8
#else
constexpr bool kUnsignedCodes = false;
#endif

// What a format's packed codes are. iq4_nl and iq4_xs keep the four bits that look a value up.
template <class Format>
struct Packed {
  static constexpr BlockForm kForm = Format::kForm;
  static constexpr bool kLookup = __is_same(Format, Block_iq4_nl) || __is_same(Format, Block_iq4_xs);
  static constexpr int kBits = kLookup ? 4 : kForm.bits;
  // Signed products, or codes moved by 128 to be unsigned.
  static constexpr bool kSigned = kForm.bits == 8;
  static constexpr int kCentre = kSigned && kUnsignedCodes ? 128 : kForm.centre;
  static constexpr int kGroups = kForm.elements / kForm.group;  // of a block
  static constexpr bool kMultipliers = kForm.elements > kUnit;
  static constexpr int64_t kUnitBytes = kBits * kVectorBytes;
  static constexpr int64_t kScaleBytes =
      kLanes * (kForm.shifts ? 2 : 1) * (2 + (kMultipliers ? kGroups : 0));  // of a block

  // A record of `units` units: its codes, then its scales.
  static constexpr int64_t scale_offset(int64_t units) { return units * kUnitBytes; }
  static constexpr int64_t record_bytes(int64_t units) {
    const int64_t scales = units * kUnit / kForm.elements * kScaleBytes;
    return scale_offset(units) + (scales + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  }
  static int64_t panel_bytes(int64_t k) {
    const int64_t units = k / kUnit;
    const int64_t last = units % kRecordUnits == 0 ? 0 : record_bytes(units % kRecordUnits);
    return (units / kRecordUnits * record_bytes(kRecordUnits) + last + 63) / 64 * 64;
  }
};

// ---- Packing.

// Element i of a unit of row r, as `bits` low bits of c, into the planes.
template <int kBits>
inline void put_code(uint8_t* unit, int r, int i, int c) {
  const int quad = i / 4, at = 4 * r + i % 4;
  const auto add = [&](int vector, int bits) {
    uint8_t& byte = unit[vector * kVectorBytes + at];
    byte = static_cast<uint8_t>(byte | bits);
  };
  if constexpr (kBits == 8) {
    add(quad, c & 255);
  } else if constexpr (kBits >= 4) {
    add(quad % 4, quad < 4 ? c & 15 : (c & 15) << 4);
    if constexpr (kBits == 5) add(4, (c >> 4 & 1) << quad);
    if constexpr (kBits == 6) add(4 + quad / 4, (c >> 4 & 3) << (2 * (quad % 4)));
  } else {
    add(quad / 4, (c & 3) << (2 * (quad % 4)));
    if constexpr (kBits == 3) add(2, (c >> 2 & 1) << quad);
  }
}

// Rows [0, n) of blocks, n <= kLanes, each `row_bytes` long, as a zeroed panel. Rows that are missing stay zero.
template <class Format>
void pack_quant_panel(const uint8_t* rows, int64_t row_bytes, int n, int64_t k, uint8_t* panel) {
  using P = Packed<Format>;
  constexpr BlockForm form = P::kForm;
  uint8_t index[256];  // of a looked-up value
  for (int i = 0; i < 16; ++i) index[static_cast<uint8_t>(kIq4Values[i])] = static_cast<uint8_t>(i);
  constexpr int64_t kBlockUnits = form.elements / kUnit;
  for (int r = 0; r < n; ++r) {
    const uint8_t* block = rows + r * row_bytes;
    for (int64_t b = 0; b < k / form.elements; ++b, block += form.bytes) {
      BlockCodes codes;
      Format::unpack(block, codes);
      const int64_t unit = b * kBlockUnits, first = unit / kRecordUnits * kRecordUnits;
      const int64_t count = k / kUnit - first < kRecordUnits ? k / kUnit - first : kRecordUnits;
      uint8_t* record = panel + first / kRecordUnits * P::record_bytes(kRecordUnits);
      uint8_t* units = record + (unit - first) * P::kUnitBytes;
      for (int i = 0; i < form.elements; ++i) {
        int c = codes.code[i];
        if constexpr (P::kLookup) {
          c = index[static_cast<uint8_t>(c)];
        } else if constexpr (P::kSigned && kUnsignedCodes) {
          c += 128;
        }
        put_code<P::kBits>(units + i / kUnit * P::kUnitBytes, r, static_cast<int>(i % kUnit), c);
      }
      uint8_t* to = record + P::scale_offset(count) + (unit - first) / kBlockUnits * P::kScaleBytes;
      memcpy(to + 2 * r, &codes.d, 2);
      to += 2 * kLanes;
      if (form.shifts) {
        memcpy(to + 2 * r, &codes.minimum, 2);
        to += 2 * kLanes;
      }
      if constexpr (P::kMultipliers) {
        for (int g = 0; g < P::kGroups; ++g) {
          to[g * kLanes + r] = static_cast<uint8_t>(codes.multiplier[g]);
          if (form.shifts) to[(P::kGroups + g) * kLanes + r] = static_cast<uint8_t>(codes.minimum_multiplier[g]);
        }
      }
    }
  }
}

// ---- Reading.

TESSERA_INLINE VecI load_int(const uint8_t* p) {
  VecI v;
  memcpy(&v, p, sizeof v);
  return v;
}
// The same bits of every byte.
TESSERA_INLINE VecI bytes_of(int mask) {
  return splat_int(static_cast<int32_t>(0x01010101u * static_cast<uint32_t>(mask)));
}

// `width` bits that stand at bit `from` of each byte, moved to bit `to`.
template <int from, int to, int width>
TESSERA_INLINE VecI move_bits(VecI v) {
  constexpr int kMask = ((1 << width) - 1) << to;
  if constexpr (from > to) {
    v >>= from - to;
  } else if constexpr (from < to) {
    v <<= to - from;
  }
  return v & bytes_of(kMask);
}

// The codes of quad q of a unit: [kLanes rows][4 steps of k].
template <int kBits, int q>
TESSERA_INLINE VecI quad(const uint8_t* unit) {
  const auto vector = [&](int i) { return load_int(unit + i * kVectorBytes); };
  if constexpr (kBits == 8) {
    return vector(q);
  } else if constexpr (kBits >= 4) {
    const VecI low = move_bits<q / 4 * 4, 0, 4>(vector(q % 4));
    if constexpr (kBits == 5) return low | move_bits<q, 4, 1>(vector(4));
    if constexpr (kBits == 6) return low | move_bits<2 * (q % 4), 4, 2>(vector(4 + q / 4));
    return low;
  } else {
    const VecI low = move_bits<2 * (q % 4), 0, 2>(vector(q / 4));
    if constexpr (kBits == 3) return low | move_bits<q, 2, 1>(vector(2));
    return low;
  }
}

// iq4: each byte's value, moved by 128 where products take unsigned weights.
TESSERA_INLINE VecI look_up(VecI codes) {
  constexpr int kMove = kUnsignedCodes ? 128 : 0;
  alignas(16) int8_t table[16];
  for (int i = 0; i < 16; ++i) table[i] = static_cast<int8_t>(kIq4Values[i] + kMove);
#if defined(__AVX512BW__)
  const __m512i all = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
  return reinterpret_cast<VecI>(_mm512_shuffle_epi8(all, reinterpret_cast<__m512i>(codes)));
#elif defined(__AVX2__)
  const __m256i all = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
  return reinterpret_cast<VecI>(_mm256_shuffle_epi8(all, reinterpret_cast<__m256i>(codes)));
#else
  uint8_t bytes[kVectorBytes];
  memcpy(bytes, &codes, sizeof bytes);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(table[b]);
  memcpy(&codes, bytes, sizeof bytes);
  return codes;
#endif
}

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

TESSERA_INLINE Vec load_halves(const uint8_t* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#elif defined(__F16C__)
  return reinterpret_cast<Vec>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
  Vec v;
  for (int i = 0; i < kLanes; ++i) v[i] = f16_to_f32(block_u16(p + 2 * i));
  return v;
#endif
}
TESSERA_INLINE Vec load_bytes(const uint8_t* p) {
  typedef int8_t Bytes __attribute__((vector_size(kLanes)));
  Bytes bytes;
  memcpy(&bytes, p, sizeof bytes);
  return __builtin_convertvector(__builtin_convertvector(bytes, VecI), Vec);
}

// ---- Products.

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
    w = quad<P::kBits, q>(unit);
    if constexpr (P::kLookup) w = look_up(w);
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
    d = load_halves(halves);
    if constexpr (P::kForm.shifts) minimum = load_halves(halves + 2 * kLanes);
    rest.start_block(halves + stride, stride);
  }
  TESSERA_INLINE void start_group(const uint8_t* multipliers, int64_t stride) {
    scale = d;
    if constexpr (P::kForm.shifts) shift = minimum;
    if constexpr (P::kMultipliers) {
      scale *= load_bytes(multipliers);
      if constexpr (P::kForm.shifts) shift *= load_bytes(multipliers + P::kGroups * kLanes);
    }
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
  Sum<P::kBits, P::kSigned, P::kForm.group> sum;
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
    row.start(P::kCentre == 0 ? 0 : *from);
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
  TESSERA_INLINE void put(float* y, int64_t stride, int64_t step, int64_t n, const float* bias) const {
    row.put(y, step, n, bias);
    rest.put(y + stride, stride, step, n, bias);
  }
};
template <class P, int N>
struct Rows<P, 0, N> {
  TESSERA_INLINE void clear() {}
  TESSERA_INLINE void start(const int32_t*, int64_t) {}
  template <int q>
  TESSERA_INLINE void add(const Quads<P, N>&, const int8_t*, int64_t) {}
  TESSERA_INLINE void finish(const Scales<P, N>&, const float*, int64_t) {}
  TESSERA_INLINE void shift(const Scales<P, N>&, const float*, int64_t) {}
  TESSERA_INLINE void put(float*, int64_t, int64_t, int64_t, const float*) const {}
};

// How far ahead of their use codes are fetched: memory takes about 100 ns, in which a core reads some 1.5 KB.
constexpr int64_t kCodesAhead = 1536;

// The quads q and up of group g of a unit.
template <class P, int M, int N, int g, int q>
TESSERA_INLINE void add_quads(Rows<P, M, N>& rows, const uint8_t* unit, int64_t apart, const int8_t* code,
                              int64_t stride) {
  if constexpr (q < P::kForm.group / 4) {
    constexpr int kQuad = g * (P::kForm.group / 4) + q;
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
  if constexpr (g < kUnit / P::kForm.group) {
    const int64_t at = (k + g * P::kForm.group) / P::kForm.group, stride = columns / P::kForm.group;
    rows.start(x.start + at, stride);
    add_quads<P, M, N, g, 0>(rows, unit, apart, x.code + k, columns);
    w.start_group(multipliers + g * kLanes, apart);
    rows.finish(w, x.scale + k / kUnit, columns / kUnit);
    if constexpr (P::kForm.shifts) rows.shift(w, x.sum + at, stride);
    add_groups<P, M, N, g + 1>(rows, unit, apart, x, columns, k, w, multipliers);
  }
}

// One record of N panels, `apart` bytes from one to the next, at step k of x.
template <class P, int M, int N>
TESSERA_INLINE void add_record(Rows<P, M, N>& rows, const uint8_t* codes, int64_t apart, int64_t units, const Codes& x,
                               int64_t columns, int64_t k) {
  const uint8_t* scales = codes + P::scale_offset(units);
  Scales<P, N> w;
  if constexpr (P::kMultipliers) {
    w.start_block(scales, apart);
    scales += 2 * kLanes * (P::kForm.shifts ? 2 : 1);
  }
#pragma GCC unroll 1
  for (int64_t unit = 0; unit < units; ++unit) {
    for (int n = 0; n < N; ++n)
      for (int64_t line = 0; line < P::kUnitBytes; line += 64)
        __builtin_prefetch(codes + n * apart + kCodesAhead + line);
    if constexpr (!P::kMultipliers) w.start_block(scales, apart);
    add_groups<P, M, N, 0>(rows, codes, apart, x, columns, k, w, scales);
    codes += P::kUnitBytes;
    scales += P::kMultipliers ? kUnit / P::kForm.group * kLanes : P::kScaleBytes;
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
    add_record<P, M, N>(rows, record, apart, units, x, columns, k);
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
