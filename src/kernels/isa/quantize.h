// Rows of activations as int8 codes with a scale for each 32: what products of integers take.
#pragma once

#include "kernels/isa/loops.h"
#include "kernels/isa/vec.h"

namespace {

constexpr int64_t kCodeBlock = 32;

// Codes of 32 elements, and the scale that gives them back. A block with NaN or infinity gets the scale NaN; one whose
// elements are too small to divide by is all zeroes.
TESSERA_INLINE float quantize_block(const float* x, int8_t* code) {
  float most = 0, poison = 0;
  for (int i = 0; i < kCodeBlock; ++i) {
    const float magnitude = __builtin_fabsf(x[i]);
    most = magnitude > most ? magnitude : most;
    poison += x[i] - x[i];  // NaN unless finite
  }
  const float inverse = 127.0f / most;
  if (!(poison == 0) || !(inverse <= __FLT_MAX__)) {
    memset(code, 0, kCodeBlock);
    return poison == 0 ? 0.0f : __builtin_nanf("");
  }
  for (int i = 0; i < kCodeBlock; ++i) {
    // Adding and taking away 1.5 * 2^23 rounds to the nearest integer, ties to even.
    const float rounded = (x[i] * inverse + 0x1.8p23f) - 0x1.8p23f;
    const int value = static_cast<int>(rounded);
    code[i] = static_cast<int8_t>(value > 127 ? 127 : value < -127 ? -127 : value);
  }
  return most / 127.0f;
}

// What the codes of a block leave of it.
TESSERA_INLINE void leave(float* x, const int8_t* code, float scale) {
  for (int i = 0; i < kCodeBlock; ++i) x[i] -= static_cast<float>(code[i]) * scale;
}

}  // namespace
