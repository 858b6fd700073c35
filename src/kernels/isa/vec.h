// Vectors of f32 as wide as the instruction set that the compiler was told to use, on GCC's vector extension: operators
// work lane by lane, comparisons give all-ones or zero lanes, `m ? a : b` selects. docs/decisions/vectors.md says why.
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define TESSERA_INLINE inline __attribute__((always_inline))
// Called once a block: inlining it everywhere would only grow the code.
#define TESSERA_OUTLINE inline __attribute__((noinline))

namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kLanes = 4;
constexpr int kRegisters = 32;
#else
constexpr int kLanes = 4;
constexpr int kRegisters = 16;
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t VecI __attribute__((vector_size(kLanes * 4)));
typedef uint32_t VecU __attribute__((vector_size(kLanes * 4)));

TESSERA_INLINE Vec splat(float x) { return x - Vec{}; }  // not x + 0, which would lose -0
TESSERA_INLINE VecI splat_int(int32_t x) { return x + VecI{}; }

TESSERA_INLINE Vec load(const float* p) {
  Vec v;
  memcpy(&v, p, sizeof v);
  return v;
}
TESSERA_INLINE void store(float* p, Vec v) { memcpy(p, &v, sizeof v); }

// The first n lanes, the others `rest`.
TESSERA_INLINE Vec load_first(const float* p, int64_t n, float rest) {
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = rest;
  memcpy(lanes, p, static_cast<size_t>(n) * 4);
  return load(lanes);
}
TESSERA_INLINE void store_first(float* p, int64_t n, Vec v) { memcpy(p, &v, static_cast<size_t>(n) * 4); }

TESSERA_INLINE VecI bits_of(Vec v) { return reinterpret_cast<VecI>(v); }
TESSERA_INLINE Vec of_bits(VecI v) { return reinterpret_cast<Vec>(v); }

// a * b + c, rounded once where the instruction set can.
TESSERA_INLINE Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(
      _mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(
      _mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#elif defined(__aarch64__)
  return reinterpret_cast<Vec>(
      vfmaq_f32(reinterpret_cast<float32x4_t>(c), reinterpret_cast<float32x4_t>(a), reinterpret_cast<float32x4_t>(b)));
#else
  return a * b + c;
#endif
}

// The larger, the smaller; b where either is NaN. GCC 12 makes two instructions of a comparison and a choice, and warns
// of what the forms without a mask leave undefined.
TESSERA_INLINE Vec vmax(Vec a, Vec b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_maskz_max_ps(0xffff, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(_mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
#else
  return a > b ? a : b;
#endif
}
TESSERA_INLINE Vec vmin(Vec a, Vec b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_maskz_min_ps(0xffff, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(_mm256_min_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
#else
  return a < b ? a : b;
#endif
}
TESSERA_INLINE Vec vabs(Vec x) { return of_bits(bits_of(x) & 0x7fffffff); }
TESSERA_INLINE Vec with_sign_of(Vec magnitude, Vec sign) {
  return of_bits(bits_of(magnitude) | (bits_of(sign) & INT32_MIN));
}

// Sums and extrema over the lanes, in an order that depends on the width alone.
TESSERA_INLINE float sum_lanes(Vec v) {
  float lanes[kLanes];
  store(lanes, v);
  for (int n = kLanes / 2; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) lanes[i] += lanes[i + n];
  return lanes[0];
}
TESSERA_INLINE float max_lanes(Vec v) {
  float lanes[kLanes];
  store(lanes, v);
  for (int n = kLanes / 2; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) lanes[i] = lanes[i + n] > lanes[i] ? lanes[i + n] : lanes[i];
  return lanes[0];
}

}  // namespace
