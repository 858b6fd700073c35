// f32 functions lane by lane, to 1-3 units in the last place. The polynomials are Chebyshev fits made for this file.
#pragma once

#include "kernels/isa/vec.h"

namespace {

template <int N>
TESSERA_INLINE Vec polynomial(Vec x, const float (&c)[N]) {  // highest power first
  Vec y = splat(c[0]);
#pragma GCC unroll 16
  for (int i = 1; i < N; ++i) y = fma(y, x, splat(c[i]));
  return y;
}

TESSERA_INLINE VecI to_int(Vec x) { return __builtin_convertvector(x, VecI); }
TESSERA_INLINE Vec to_float(VecI x) { return __builtin_convertvector(x, Vec); }

// To the nearest integer, ties to even, for |x| < 2^22: there adding 1.5 * 2^23 leaves no fraction bits.
constexpr float kRounder = 12582912.f;
TESSERA_INLINE Vec round_small(Vec x) { return x + kRounder - kRounder; }

// 2^r for |r| <= 1/2, to 1.5 units in the last place.
TESSERA_INLINE Vec power_of_two_near_0(Vec r) {
  constexpr float kC[] = {0.00132647271f, 0.00967151265f, 0.0555073374f, 0.240222421f, 0.693146978f, 1.f};
  return polynomial(r, kC);
}
// y 2^n, where shifted is n + kRounder, whose low bits are n's: into the exponent, which must stay one of a normal
// number or reach 128 exactly (infinity) or -127 (0, if y is 1).
TESSERA_INLINE Vec times_power(Vec y, Vec shifted) { return of_bits(bits_of(y) + (bits_of(shifted) << 23)); }
// 2^x for x <= 128: infinity there, exactly 0 from -127 downwards, NaN for NaN.
TESSERA_INLINE Vec power_of_two(Vec x) {
  x = vmax(splat(-127.f), x);
  const Vec shifted = x + kRounder;
  return times_power(power_of_two_near_0(x - (shifted - kRounder)), shifted);
}

TESSERA_INLINE Vec vexp(Vec x) {
  // Past these the result is infinite, or rounds to 0. NaN passes both.
  x = vmax(splat(-104.f), vmin(splat(89.f), x));
  const Vec n = round_small(x * 1.44269504f);
  // ln 2 in two parts, the first with so few bits that its product with n is exact.
  Vec r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  constexpr float kC[] = {0.001392617612f, 0.008363173075f, 0.04166655466f, 0.1666657703f, 0.5f};
  const Vec y = fma(r * r, polynomial(r, kC), r) + 1.f;
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(
      _mm512_maskz_scalef_ps(0xffff, reinterpret_cast<__m512>(y), reinterpret_cast<__m512>(n)));
#else
  // 2^n in two factors: n reaches from -150, a subnormal result, to 128.
  const VecI whole = to_int(n);
  const VecI half = whole >> 1;
  return y * of_bits((half + 127) << 23) * of_bits((whole - half + 127) << 23);
#endif
}

// e^x for x <= 0, which is what softmax asks for; 0 where it would be smaller than any normal number.
TESSERA_INLINE Vec vexp_of_negative(Vec x) {
  constexpr float kLeast = -87.3f;
  constexpr double kWhole = 1.4426950408889634;  // log2 e
  constexpr float kHigh = static_cast<float>(kWhole), kLow = static_cast<float>(kWhole - static_cast<double>(kHigh));
  const Vec bounded = vmax(splat(kLeast), x);
  const Vec shifted = fma(bounded, splat(kHigh), splat(kRounder));
  const Vec r = fma(bounded, splat(kLow), fma(bounded, splat(kHigh), kRounder - shifted));
  return x < kLeast ? Vec{} : times_power(power_of_two_near_0(r), shifted);
}

TESSERA_INLINE Vec vlog(Vec x) {
  const VecI tiny = x < 1.17549435e-38f;
  const Vec scaled = tiny ? x * 8388608.f : x;  // subnormals
  // Mantissa in [sqrt(1/2), sqrt(2)): 0x3f3504f3 is sqrt(1/2). Wraps for negative x.
  const VecI shifted = reinterpret_cast<VecI>(reinterpret_cast<VecU>(scaled) - 0x3f3504f3u);
  const Vec e = to_float((shifted >> 23) - (tiny & 23));
  const Vec r = of_bits((shifted & 0x7fffff) + 0x3f3504f3) - 1.f;
  constexpr float kC[] = {0.06971611471f, -0.1147973385f, 0.1168541992f,  -0.1242568733f, 0.1424905765f,
                          -0.1666780232f, 0.2000071575f,  -0.2499999696f, 0.3333333118f};
  const Vec r2 = r * r;
  Vec y = fma(r2 * r, polynomial(r, kC), e * -2.12194440e-4f);
  y = fma(r2, splat(-0.5f), y);
  y = fma(e, splat(0.693359375f), r + y);
  y = x == __builtin_inff() ? x : y;
  y = x == 0.f ? splat(-__builtin_inff()) : y;
  return x >= 0.f ? y : splat(__builtin_nanf(""));  // NaN for NaN too
}

// log(1 + x) for x >= 0: what rounding 1 + x loses comes back as the factor x / ((1 + x) - 1) (Kahan).
TESSERA_INLINE Vec vlog1p(Vec x) {
  const Vec u = x + 1.f;
  const Vec d = u - 1.f;
  return d == 0.f ? x : vlog(u) * (x / d);
}

TESSERA_INLINE Vec vtanh(Vec x) {
  const Vec a = vabs(x);
  const Vec z = x * x;
  constexpr float kC[] = {-0.006096714166f, 0.020997179f, -0.05385090958f, 0.1333276974f, -0.3333332894f};
  const Vec small = fma(a * z, polynomial(z, kC), a);
  const Vec large = 1.f - 2.f / (vexp(a + a) + 1.f);
  return with_sign_of(a < 0.625f ? small : large, x);  // NaN fails the comparison and passes vexp
}

TESSERA_INLINE Vec vsigmoid(Vec x) { return 1.f / (1.f + vexp(-x)); }

// erf(x) / x as a function of x^2, for |x| < 1.
TESSERA_INLINE Vec erf_ratio(Vec z) {
  constexpr float kC[] = {7.875875063e-5f, -0.0008016864287f, 0.005189087423f, -0.02685421201f,
                          0.1128359472f,   -0.3761262667f,    1.128379166f};
  return polynomial(z, kC);
}
// erfc(t) for t >= 0.8: e^(-t^2) times a polynomial in 1 / (1 + 0.35 t).
TESSERA_INLINE Vec erfc_tail(Vec t) {
  constexpr float kC[] = {-0.1026800803f, 0.2597438915f, -0.09394640174f, 0.2194165451f,
                          0.132065145f,   0.1909836761f, 0.1968604992f,   0.1974944203f};
  const Vec u = 1.f / fma(t, splat(0.35f), splat(1.f));
  // t^2 = high^2 + (t - high)(t + high) with high^2 exact: a rounded t^2 would cost digits of e^(-t^2).
  const Vec high = of_bits(bits_of(t) & -4096);
  return vexp(-high * high) * vexp((high - t) * (high + t)) * (u * polynomial(u, kC));
}

TESSERA_INLINE Vec verf(Vec x) {
  const Vec a = vabs(x);
  const Vec large = 1.f - erfc_tail(a > 4.f ? splat(4.f) : a);  // 1 - erfc(4) rounds to 1
  return with_sign_of(a < 0.9f ? a * erf_ratio(a * a) : large, x);
}

// x times the normal distribution function, without the cancellation of 1 + erf for negative x.
TESSERA_INLINE Vec vgelu(Vec x) {
  const Vec a = vmin(splat(13.2f), vabs(x));  // past it e^(-a^2 / 2) is smaller than any normal number
  // The share of what lies beyond a is e^(-a^2 / 2) times a polynomial in 1 / (1 + 0.305 a), relatively to 1e-7.
  constexpr float kC[] = {0.0366992764f, -0.152988657f, 0.185717478f, -0.0379773304f,
                          0.121021919f,  0.103420801f,  0.122466825f, 0.121639736f};
  const Vec u = 1.f / fma(a, splat(0.305f), splat(1.f));
  // -a^2 / 2 log2 e, as an integer and a rest: of large exponents the rest would lose digits to rounding, so a is
  // multiplied by a constant in two parts first, and what rounding took from that product is added last.
  constexpr double kHalf = 0.72134752044448170368;
  constexpr float kHigh = static_cast<float>(kHalf), kLow = static_cast<float>(kHalf - static_cast<double>(kHigh));
  const Vec h = a * -kHigh;
  const Vec lost = fma(a, splat(-kLow), fma(a, splat(-kHigh), -h));
  const Vec shifted = fma(h, a, splat(kRounder));
  const Vec r = fma(lost, a, fma(h, a, kRounder - shifted));
  const Vec tail = times_power(power_of_two_near_0(r), shifted) * (u * polynomial(u, kC));
  // The larger of x and 0, but NaN for -infinity, less that share.
  return fma(-a, tail, fma(vabs(x), splat(0.5f), 0.5f * x));
}

}  // namespace
