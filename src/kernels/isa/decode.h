// Weights in blocks or halves to f32, some elements at a time.
#pragma once

#include "kernels/abi.h"
#include "kernels/isa/half.h"
#include "tensor/block_codes.h"

namespace {

// Elements of the shortest run that starts at a whole byte, and the bytes that they take.
struct Stored {
  int64_t elements, bytes;
};
inline Stored stored(uint8_t type) {
  using namespace tessera::kernels;
  if (type <= kString) return {1, type == kF32 ? 4 : 2};
  return with_block_format(type - kString - 1, []<class Format>(Format) {
    return Stored{Format::kForm.elements, Format::kForm.bytes};
  });
}

template <class Format>
TESSERA_INLINE void decode_block(const uint8_t* block, float* out) {
  constexpr BlockForm form = Format::kForm;
  BlockCodes codes;
  Format::unpack(block, codes);
  const float d = f16_to_f32(codes.d), minimum = f16_to_f32(codes.minimum);
  for (int g = 0; g < form.elements / form.group; ++g) {
    const float scale = d * static_cast<float>(codes.multiplier[g]);
    const float shift = minimum * static_cast<float>(codes.minimum_multiplier[g]);
    const int8_t* code = codes.code + g * form.group;
    float* to = out + g * form.group;
    for (int i = 0; i < form.group; ++i) {
      const float value = scale * static_cast<float>(code[i] - form.centre);
      to[i] = form.shifts ? value + shift : value;
    }
  }
}

// The n elements that start at `element`, both whole numbers of blocks.
TESSERA_OUTLINE void decode_run(uint8_t type, const void* data, int64_t element, int64_t n, float* out) {
  using namespace tessera::kernels;
  if (type == kF16) return f16_block_to_f32(static_cast<const uint16_t*>(data) + element, out, n);
  if (type == kBF16) return bf16_block_to_f32(static_cast<const uint16_t*>(data) + element, out, n);
  with_block_format(type - kString - 1, [&]<class Format>(Format) {
    constexpr BlockForm form = Format::kForm;
    const uint8_t* block = static_cast<const uint8_t*>(data) + element / form.elements * form.bytes;
    for (int64_t i = 0; i < n; i += form.elements, block += form.bytes) decode_block<Format>(block, out + i);
  });
}

}  // namespace
