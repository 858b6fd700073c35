// f16 and bf16 to and from f32 and f64, rounding once, to nearest even.
#pragma once

#include "kernels/isa/vec.h"

namespace {

TESSERA_INLINE uint32_t float_bits(float x) {
  uint32_t b;
  memcpy(&b, &x, 4);
  return b;
}
TESSERA_INLINE float float_of(uint32_t b) {
  float x;
  memcpy(&x, &b, 4);
  return x;
}

TESSERA_INLINE float bf16_to_f32(uint16_t h) { return float_of(static_cast<uint32_t>(h) << 16); }
TESSERA_INLINE uint16_t f32_to_bf16(float x) {
  const uint32_t b = float_bits(x);
  const uint32_t rounded = (b + 0x7fff + (b >> 16 & 1)) >> 16;
  const uint32_t nan = b >> 16 | 0x40;  // stays a NaN whatever its low bits were
  return static_cast<uint16_t>((b & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

TESSERA_INLINE float f16_to_f32(uint16_t h) {
  const uint32_t magnitude = static_cast<uint32_t>(h & 0x7fff) << 13;
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  // 2^112 moves the exponent from f16's bias to f32's, subnormals included.
  const uint32_t finite = float_bits(float_of(magnitude) * 0x1p112f);
  return float_of(sign | (magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : finite));
}
TESSERA_INLINE uint16_t f32_to_f16(float x) {
  const uint32_t b = float_bits(x);
  const uint32_t sign = b >> 16 & 0x8000;
  const uint32_t a = b & 0x7fffffff;
  uint32_t h;
  if (a > 0x7f800000) {
    h = 0x7e00;
  } else if (a >= 0x47800000) {  // 2^16
    h = 0x7c00;
  } else if (a < 0x38800000) {  // below 2^-14: the last place of 0.5 is f16's smallest subnormal
    h = float_bits(float_of(a) + 0.5f) - 0x3f000000;
  } else {
    h = (a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13;
  }
  return static_cast<uint16_t>(sign | h);
}

// The f32 next to x toward zero, its last bit set when that lost something: rounding it once more to 22 bits or fewer
// gives what rounding x itself would.
TESSERA_INLINE float f64_to_odd_f32(double x) {
  const float f = static_cast<float>(x);
  const double back = static_cast<double>(f);
  if (back == x || x != x) return f;
  uint32_t b = float_bits(f);
  if (__builtin_fabs(back) > __builtin_fabs(x)) b -= 1;
  return float_of(b | 1);
}

TESSERA_OUTLINE void f16_block_to_f32(const uint16_t* in, float* out, int64_t n) {
  const uint16_t* const end = in + n;
#if defined(__F16C__)
  for (; end - in >= 8; in += 8, out += 8)
    _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in))));
#endif
  for (; in != end; ++in, ++out) *out = f16_to_f32(*in);
}
TESSERA_OUTLINE void f32_block_to_f16(const float* in, uint16_t* out, int64_t n) {
  const float* const end = in + n;
#if defined(__F16C__)
  for (; end - in >= 8; in += 8, out += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_cvtps_ph(_mm256_loadu_ps(in), 0));
#endif
  for (; in != end; ++in, ++out) *out = f32_to_f16(*in);
}
TESSERA_OUTLINE void bf16_block_to_f32(const uint16_t* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(in[i]);
}
TESSERA_OUTLINE void f32_block_to_bf16(const float* in, uint16_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = f32_to_bf16(in[i]);
}

}  // namespace
