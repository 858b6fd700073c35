// Products of neighbours in 16 bits, added up exactly in 32.
#pragma once

#include "kernels/isa/vec.h"

namespace {

// 2 kLanes signed bytes widened to 16 bits: lane i holds the bytes 2 i and 2 i + 1.
#if defined(__AVX512BW__)
TESSERA_INLINE VecI widened(__m256i bytes) {
  return reinterpret_cast<VecI>(_mm512_maskz_cvtepi8_epi16(0xffffffff, bytes));
}
#elif defined(__AVX2__)
TESSERA_INLINE VecI widened(__m128i bytes) { return reinterpret_cast<VecI>(_mm256_cvtepi8_epi16(bytes)); }
#endif
TESSERA_INLINE VecI widened_pairs(const void* bytes) {
#if defined(__AVX512BW__)
  return widened(_mm256_loadu_si256(static_cast<const __m256i*>(bytes)));
#elif defined(__AVX2__)
  return widened(_mm_loadu_si128(static_cast<const __m128i*>(bytes)));
#else
  int16_t wide[2 * kLanes];
  for (int j = 0; j < 2 * kLanes; ++j) wide[j] = static_cast<const int8_t*>(bytes)[j];
  VecI v;
  memcpy(&v, wide, sizeof v);
  return v;
#endif
}

// Two rows of kPairColumns signed bytes side by side: number i of `out` holds a[i] in its low and b[i] in its high
// half.
constexpr int64_t kPairColumns = 16;
TESSERA_INLINE void interleave(const int8_t* a, const int8_t* b, int32_t* out) {
#if defined(__AVX2__)
  const __m128i left = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a));
  const __m128i right = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
  const __m128i low = _mm_unpacklo_epi8(left, right), high = _mm_unpackhi_epi8(left, right);
#if defined(__AVX512BW__)
  const VecI pairs = widened(_mm256_set_m128i(high, low));
#else
  const VecI pairs[] = {widened(low), widened(high)};
#endif
#else
  int32_t pairs[kPairColumns];
  for (int64_t i = 0; i < kPairColumns; ++i) pairs[i] = (a[i] & 0xffff) | b[i] * 65536;
#endif
  memcpy(out, &pairs, sizeof pairs);
}

// Each lane and the two products of its numbers.
TESSERA_INLINE VecI add_pairs(VecI sum, VecI a, VecI b) {
#if defined(__AVX512VNNI__)
  return reinterpret_cast<VecI>(
      _mm512_dpwssd_epi32(reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX512BW__)
  return sum + reinterpret_cast<VecI>(_mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  sum += reinterpret_cast<VecI>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
  // GCC 12 would add at the end of a loop's body, and keep all products on the stack until then.
  __asm__("" : "+x"(sum));
  return sum;
#else
  return sum + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

}  // namespace
