// Quantized weights packed for products of integers, and those products.
//
// kLanes rows of w are a panel. It is cut into records of 256 steps of k (the last may be shorter): first the codes,
// for each 32 steps the bit planes of quad(), each vector of a plane [kLanes rows][4 bytes]; then for each block of the
// format the scales, rows side by side: f16 d, f16 minimum where there is one, and for blocks of 256 a byte a group for
// each multiplier. So a panel is read strictly in order, as are the panels behind it, and no load of a vector crosses a
// line.
#pragma once

#include "kernels/isa/decode.h"
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

template <int kGroup_, bool kShifts_, bool kSigned_, int kBits_, bool kCentred_>
struct Plain;

// What a format's packed codes are. iq4_nl and iq4_xs keep the four bits that look a value up.
template <class Format>
struct Packed {
  static constexpr BlockForm kForm = Format::kForm;
  static constexpr bool kLookup = __is_same(Format, Block_iq4_nl) || __is_same(Format, Block_iq4_xs);
  static constexpr int kBits = kLookup ? 4 : kForm.bits;
  // Signed products, or codes moved by 128 to be unsigned.
  static constexpr bool kSigned = kForm.bits == 8, kShifts = kForm.shifts;
  static constexpr int kCentre = kSigned && kUnsignedCodes ? 128 : kForm.centre;
  static constexpr bool kCentred = kCentre != 0;
  static constexpr int kGroup = kForm.group, kGroups = kForm.elements / kForm.group;  // of a block
  static constexpr bool kMultipliers = kForm.elements > kUnit;
  static constexpr int64_t kUnitBytes = kBits * kVectorBytes;
  static constexpr int64_t kScaleBytes =
      kLanes * (kForm.shifts ? 2 : 1) * (2 + (kMultipliers ? kGroups : 0));  // of a block
  // From a group's multipliers to the next's, and from a unit's scales to the next's within a record.
  static constexpr int64_t kGroupBytes = kLanes;
  static constexpr int64_t kUnitScales = kMultipliers ? kUnit / kGroup * kLanes : kScaleBytes;
  // What stands before the multipliers of a record's groups.
  static constexpr int64_t kBlockScales = kMultipliers ? 2 * kLanes * (kShifts ? 2 : 1) : 0;
  // The same codes a byte each.
  using Unpacked = Plain<kGroup, kShifts, kSigned, kForm.bits, kCentred>;

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

  // What tiles read: the codes of quad q of a unit, [kLanes rows][4 steps of k] ...
  template <int q>
  static VecI code(const uint8_t* unit);
  // ... and what those of a group are multiplied by, and their minima, from those of the block.
  static void start_block(const uint8_t* halves, Vec& d, Vec& minimum);
  static void start_group(const uint8_t* multipliers, Vec d, Vec minimum, Vec& scale, Vec& shift);
};

// A record with a byte a code, as products of many rows read it: the codes of each quad, then for each group its scale
// and minimum as f32. kBits bounds the codes.
template <int kGroup_, bool kShifts_, bool kSigned_, int kBits_, bool kCentred_>
struct Plain {
  static constexpr int kGroup = kGroup_, kBits = kBits_;
  static constexpr bool kShifts = kShifts_, kSigned = kSigned_, kCentred = kCentred_;
  static constexpr bool kMultipliers = true;  // there is nothing to read a unit
  static constexpr int64_t kUnitBytes = 8 * kVectorBytes;
  static constexpr int64_t kGroupBytes = (kShifts ? 2 : 1) * kVectorBytes;
  static constexpr int64_t kUnitScales = kUnit / kGroup * kGroupBytes, kBlockScales = 0;
  static constexpr int64_t kRecordBytes = kRecordUnits * (kUnitBytes + kUnitScales);
  static constexpr int64_t scale_offset(int64_t units) { return units * kUnitBytes; }

  template <int q>
  static VecI code(const uint8_t* unit);
  static void start_block(const uint8_t*, Vec&, Vec&) {}
  static void start_group(const uint8_t* scales, Vec d, Vec minimum, Vec& scale, Vec& shift);
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
// Signed bytes as floats. GCC 12 takes the lanes of a conversion from vectors of bytes apart, one by one.
TESSERA_INLINE Vec load_bytes(const uint8_t* p) {
#if defined(__AVX512F__)
  const VecI wide = reinterpret_cast<VecI>(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  const VecI wide = reinterpret_cast<VecI>(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  VecI wide;
  for (int i = 0; i < kLanes; ++i) wide[i] = static_cast<int8_t>(p[i]);
#endif
  return __builtin_convertvector(wide, Vec);
}

// ---- What tiles read.

template <class Format>
template <int q>
TESSERA_INLINE VecI Packed<Format>::code(const uint8_t* unit) {
  const VecI codes = quad<kBits, q>(unit);
  if constexpr (kLookup) return look_up(codes);
  return codes;
}
template <class Format>
TESSERA_INLINE void Packed<Format>::start_block(const uint8_t* halves, Vec& d, Vec& minimum) {
  d = load_halves(halves);
  if constexpr (kShifts) minimum = load_halves(halves + 2 * kLanes);
}
template <class Format>
TESSERA_INLINE void Packed<Format>::start_group(const uint8_t* multipliers, Vec d, Vec minimum, Vec& scale,
                                                Vec& shift) {
  scale = kMultipliers ? d * load_bytes(multipliers) : d;
  if constexpr (kShifts) shift = kMultipliers ? minimum * load_bytes(multipliers + kGroups * kLanes) : minimum;
}

template <int kGroup_, bool kShifts_, bool kSigned_, int kBits_, bool kCentred_>
template <int q>
TESSERA_INLINE VecI Plain<kGroup_, kShifts_, kSigned_, kBits_, kCentred_>::code(const uint8_t* unit) {
  return load_int(unit + q * kVectorBytes);
}
template <int kGroup_, bool kShifts_, bool kSigned_, int kBits_, bool kCentred_>
TESSERA_INLINE void Plain<kGroup_, kShifts_, kSigned_, kBits_, kCentred_>::start_group(const uint8_t* scales, Vec, Vec,
                                                                                       Vec& scale, Vec& shift) {
  memcpy(&scale, scales, sizeof scale);
  if constexpr (kShifts) memcpy(&shift, scales + kVectorBytes, sizeof shift);
}

// How far ahead of their use codes are fetched: memory takes about 100 ns, in which a core reads some 1.5 KB.
constexpr int64_t kCodesAhead = 1536;
template <class P>
TESSERA_INLINE void fetch_unit(const uint8_t* codes) {
#pragma GCC unroll 8
  for (int64_t line = 0; line < P::kUnitBytes; line += 64) __builtin_prefetch(codes + kCodesAhead + line);
}

// The codes of the quads q and up of a unit, a byte each.
template <class P, int q>
TESSERA_INLINE void unpack_quads(const uint8_t* unit, uint8_t* out) {
  if constexpr (q < 8) {
    const VecI codes = P::template code<q>(unit);
    memcpy(out + q * kVectorBytes, &codes, sizeof codes);
    unpack_quads<P, q + 1>(unit, out);
  }
}
template <class P>
TESSERA_OUTLINE void unpack_record(const uint8_t* codes, int64_t units, uint8_t* out) {
  using Q = typename P::Unpacked;
  const uint8_t* scales = codes + P::scale_offset(units);
  uint8_t* to = out + Q::scale_offset(units);
  Vec d = {}, minimum = {};
  if constexpr (P::kMultipliers) {
    P::start_block(scales, d, minimum);
    scales += P::kBlockScales;
  }
  for (int64_t unit = 0; unit < units; ++unit) {
    fetch_unit<P>(codes);
    unpack_quads<P, 0>(codes, out);
    if constexpr (!P::kMultipliers) P::start_block(scales, d, minimum);
    for (int64_t g = 0; g < kUnit / P::kGroup; ++g, to += Q::kGroupBytes) {
      Vec scale, shift;
      P::start_group(scales + g * P::kGroupBytes, d, minimum, scale, shift);
      memcpy(to, &scale, sizeof scale);
      if constexpr (P::kShifts) memcpy(to + kVectorBytes, &shift, sizeof shift);
    }
    codes += P::kUnitBytes;
    scales += P::kUnitScales;
    out += Q::kUnitBytes;
  }
}

}  // namespace
