// Activations lane by lane, as primitives' and programs' kernels share them.
#pragma once

#include "kernels/isa/math.h"

namespace {

TESSERA_INLINE Vec vrelu(Vec x) { return x > 0.f || x != x ? x : Vec{}; }
TESSERA_INLINE Vec vsilu(Vec x) { return x / (1.f + vexp(-x)); }
TESSERA_INLINE Vec vgelu_tanh(Vec x) {
  // (1 + tanh(u)) / 2 is 1 / (1 + e^(-2u)), which does not cancel for negative u; -2u log2 e is x (c + 0.044715 c x^2).
  constexpr float kC = -2.302208198f;
  const Vec exponent = x * fma(x * x, splat(0.044715f * kC), splat(kC));
  return x / (1.f + power_of_two(vmin(splat(128.f), exponent)));
}
TESSERA_INLINE Vec vsoftplus(Vec x) {
  const Vec positive = x > 0.f || x != x ? x : Vec{};
  return positive + vlog1p(vexp(-vabs(x)));
}
TESSERA_INLINE Vec vhard_swish(Vec x) {
  const Vec shifted = x + 3.f;
  const Vec low = shifted < 0.f ? Vec{} : shifted;
  return x * ((low > 6.f ? splat(6.f) : low) / 6.f);
}

}  // namespace
