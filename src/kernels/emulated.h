// The AVX-512 instructions that kernels name, element by element, so that tests of those kernels run on CPUs that lack
// them: included before every kernel source of a build with TESSERA_EMULATE_AVX512. Semantics: Intel's intrinsics
// guide.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define TESSERA_EMULATED 1
#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512CD__ 1
#define __AVX512DQ__ 1
#define __AVX512VL__ 1
#ifdef TESSERA_EMULATE_VNNI_BF16
#define __AVX512VNNI__ 1
#define __AVX512BF16__ 1
#endif

namespace emulated {

typedef __m512 F;
typedef __m512i I;
typedef long long Bf __attribute__((vector_size(64)));  // __m512bh does not exist without the instruction set

template <class T>
struct Lanes {
  static constexpr int n = 64 / sizeof(T);
  T at[n];
};
template <class T, class V>
inline Lanes<T> lanes(V v) {
  Lanes<T> l;
  memcpy(&l, &v, 64);
  return l;
}
template <class V, class T>
inline V vector(const Lanes<T>& l) {
  V v;
  memcpy(&v, &l, 64);
  return v;
}
template <class V, class T, class O>
inline V each(const O& f) {
  Lanes<T> l;
  for (int i = 0; i < l.n; ++i) l.at[i] = f(i);
  return vector<V>(l);
}

inline float widened(uint16_t half) { return _cvtsh_ss(half); }
inline float of_bf16(uint16_t h) {
  const uint32_t bits = static_cast<uint32_t>(h) << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

inline I setzero() { return I{}; }
inline I set1_epi32(int x) {
  return each<I, int32_t>([&](int) { return x; });
}
inline I set1_epi16(short x) {
  return each<I, int16_t>([&](int) { return x; });
}
inline I load512(const void* p) {
  I v;
  memcpy(&v, p, 64);
  return v;
}
inline I broadcast_i32x4(__m128i v) {
  int32_t part[4];
  memcpy(part, &v, 16);
  return each<I, int32_t>([&](int i) { return part[i % 4]; });
}
inline I shuffle_epi8(I table, I index) {
  const auto t = lanes<uint8_t>(table), x = lanes<uint8_t>(index);
  return each<I, uint8_t>([&](int i) -> uint8_t { return x.at[i] & 0x80 ? 0 : t.at[i / 16 * 16 + (x.at[i] & 15)]; });
}
inline I dpbusd(I sum, I a, I b) {
  const auto s = lanes<int32_t>(sum);
  const auto u = lanes<uint8_t>(a);
  const auto v = lanes<int8_t>(b);
  return each<I, int32_t>([&](int i) {
    int32_t total = s.at[i];
    for (int j = 4 * i; j < 4 * i + 4; ++j) total += u.at[j] * v.at[j];
    return total;
  });
}
inline F dpbf16(F sum, Bf a, Bf b) {
  const auto s = lanes<float>(sum);
  const auto u = lanes<uint16_t>(a), v = lanes<uint16_t>(b);
  return each<F, float>([&](int i) {
    const float first = of_bf16(u.at[2 * i + 1]) * of_bf16(v.at[2 * i + 1]);
    return s.at[i] + first + of_bf16(u.at[2 * i]) * of_bf16(v.at[2 * i]);
  });
}
inline I maddubs(I a, I b) {
  const auto u = lanes<uint8_t>(a);
  const auto v = lanes<int8_t>(b);
  return each<I, int16_t>([&](int i) {
    const int sum = u.at[2 * i] * v.at[2 * i] + u.at[2 * i + 1] * v.at[2 * i + 1];
    return static_cast<int16_t>(sum > 32767 ? 32767 : sum < -32768 ? -32768 : sum);
  });
}
inline I madd(I a, I b) {
  const auto u = lanes<int16_t>(a), v = lanes<int16_t>(b);
  return each<I, int32_t>([&](int i) { return u.at[2 * i] * v.at[2 * i] + u.at[2 * i + 1] * v.at[2 * i + 1]; });
}
inline I dpwssd(I sum, I a, I b) {
  const auto s = lanes<int32_t>(sum), x = lanes<int32_t>(madd(a, b));
  return each<I, int32_t>([&](int i) { return s.at[i] + x.at[i]; });
}
inline I add_epi16(I a, I b) {
  const auto u = lanes<uint16_t>(a), v = lanes<uint16_t>(b);
  return each<I, uint16_t>([&](int i) { return static_cast<uint16_t>(u.at[i] + v.at[i]); });
}
inline I abs_epi8(I a) {
  const auto u = lanes<int8_t>(a);
  return each<I, int8_t>([&](int i) { return static_cast<int8_t>(u.at[i] < 0 ? -u.at[i] : u.at[i]); });
}
inline uint64_t movepi8_mask(I a) {
  const auto u = lanes<uint8_t>(a);
  uint64_t mask = 0;
  for (int i = 0; i < 64; ++i) mask |= static_cast<uint64_t>(u.at[i] >> 7) << i;
  return mask;
}
inline I mask_sub_epi8(I src, uint64_t mask, I a, I b) {
  const auto s = lanes<uint8_t>(src), u = lanes<uint8_t>(a), v = lanes<uint8_t>(b);
  return each<I, uint8_t>(
      [&](int i) -> uint8_t { return mask >> i & 1 ? static_cast<uint8_t>(u.at[i] - v.at[i]) : s.at[i]; });
}
inline F cvtph_ps(__m256i halves) {
  uint16_t h[16];
  memcpy(h, &halves, 32);
  return each<F, float>([&](int i) { return widened(h[i]); });
}
inline F maskz_cvtph_ps(uint16_t mask, __m256i halves) {
  const auto x = lanes<float>(cvtph_ps(halves));
  return each<F, float>([&](int i) { return mask >> i & 1 ? x.at[i] : 0.0f; });
}
inline I maskz_cvtepi8_epi16(uint32_t mask, __m256i bytes) {
  int8_t b[32];
  memcpy(b, &bytes, 32);
  return each<I, int16_t>([&](int i) { return mask >> i & 1 ? b[i] : 0; });
}
inline I maskz_cvtepu16_epi32(uint16_t mask, __m256i halves) {
  uint16_t h[16];
  memcpy(h, &halves, 32);
  return each<I, int32_t>([&](int i) { return mask >> i & 1 ? h[i] : 0; });
}
inline I cvtepi8_epi32(__m128i bytes) {
  int8_t b[16];
  memcpy(b, &bytes, 16);
  return each<I, int32_t>([&](int i) { return b[i]; });
}
inline I maskz_cvtepi8_epi32(uint16_t mask, __m128i bytes) {
  const auto x = lanes<int32_t>(cvtepi8_epi32(bytes));
  return each<I, int32_t>([&](int i) { return mask >> i & 1 ? x.at[i] : 0; });
}
inline F fmadd_ps(F a, F b, F c) {
  __m256 x[2], y[2], z[2];
  memcpy(x, &a, 64);
  memcpy(y, &b, 64);
  memcpy(z, &c, 64);
  for (int i = 0; i < 2; ++i) x[i] = _mm256_fmadd_ps(x[i], y[i], z[i]);
  memcpy(&a, x, 64);
  return a;
}
inline F maskz_min_ps(uint16_t mask, F a, F b) {
  const auto u = lanes<float>(a), v = lanes<float>(b);
  return each<F, float>([&](int i) { return mask >> i & 1 ? (u.at[i] < v.at[i] ? u.at[i] : v.at[i]) : 0.0f; });
}
// a 2^floor(b) for finite b.
inline F maskz_scalef_ps(uint16_t mask, F a, F b) {
  const auto u = lanes<float>(a), v = lanes<float>(b);
  return each<F, float>([&](int i) {
    return mask >> i & 1
               ? (v.at[i] == v.at[i] ? __builtin_ldexpf(u.at[i], static_cast<int>(__builtin_floorf(v.at[i]))) : v.at[i])
               : 0.0f;
  });
}
// The larger; the second operand where either is no number.
inline F maskz_max_ps(uint16_t mask, F a, F b) {
  const auto u = lanes<float>(a), v = lanes<float>(b);
  return each<F, float>([&](int i) { return mask >> i & 1 ? (u.at[i] > v.at[i] ? u.at[i] : v.at[i]) : 0.0f; });
}

}  // namespace emulated

#define __m512bh emulated::Bf
#define _mm512_setzero_si512 emulated::setzero
#define _mm512_set1_epi32 emulated::set1_epi32
#define _mm512_set1_epi16 emulated::set1_epi16
#define _mm512_loadu_si512 emulated::load512
#define _mm512_broadcast_i32x4 emulated::broadcast_i32x4
#define _mm512_shuffle_epi8 emulated::shuffle_epi8
#define _mm512_dpbusd_epi32 emulated::dpbusd
#define _mm512_dpbf16_ps emulated::dpbf16
#define _mm512_maddubs_epi16 emulated::maddubs
#define _mm512_madd_epi16 emulated::madd
#define _mm512_add_epi16 emulated::add_epi16
#define _mm512_abs_epi8 emulated::abs_epi8
#define _mm512_movepi8_mask emulated::movepi8_mask
#define _mm512_mask_sub_epi8 emulated::mask_sub_epi8
#define _mm512_cvtph_ps emulated::cvtph_ps
#define _mm512_maskz_cvtph_ps emulated::maskz_cvtph_ps
#define _mm512_maskz_cvtepi8_epi16 emulated::maskz_cvtepi8_epi16
#define _mm512_maskz_cvtepu16_epi32 emulated::maskz_cvtepu16_epi32
#define _mm512_dpwssd_epi32 emulated::dpwssd
#define _mm512_cvtepi8_epi32 emulated::cvtepi8_epi32
#define _mm512_maskz_cvtepi8_epi32 emulated::maskz_cvtepi8_epi32
#define _mm512_fmadd_ps emulated::fmadd_ps
#define _mm512_maskz_max_ps emulated::maskz_max_ps
#define _mm512_maskz_min_ps emulated::maskz_min_ps
#define _mm512_maskz_scalef_ps emulated::maskz_scalef_ps
