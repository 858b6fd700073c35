// Blocks of quantized weights taken apart into integers, as GGUF files lay them out
// (github.com/ggml-org/ggml/blob/master/src/ggml-common.h). C headers only and nothing visible outside of the including
// file: kernels compiled for each instruction set read it too.
#pragma once

#include <stdint.h>
#include <string.h>

namespace {

// Element i of a block is
//   d * multiplier[i / group] * (code[i] - centre) + minimum * minimum_multiplier[i / group]
// with d and minimum given as the bits of an f16. Every product of these is exact in f32, so the value rounds once.
struct BlockCodes {
  uint16_t d, minimum;
  int8_t multiplier[16], minimum_multiplier[16];
  int8_t code[256];
};

// What the blocks of one type have in common.
struct BlockForm {
  int elements;
  int bytes;
  int group;    // elements that share a multiplier: 16 or 32
  int centre;   // subtracted from codes
  int bits;     // of a code: codes are in [0, 2^bits), or in [-128, 127] when 8
  bool shifts;  // whether there are minima
};

// iq4_nl and iq4_xs: what the codes stand for.
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

inline uint16_t block_u16(const uint8_t* at) {
  uint16_t value;
  memcpy(&value, at, 2);
  return value;
}

// The low halves of 16 bytes, then the high halves.
inline void split_nibbles(const uint8_t* bytes, int n, int8_t* low, int8_t* high) {
  for (int i = 0; i < n; ++i) {
    low[i] = static_cast<int8_t>(bytes[i] & 15);
    high[i] = static_cast<int8_t>(bytes[i] >> 4);
  }
}

inline void one_group(BlockCodes& out, uint16_t d, uint16_t minimum, int8_t minimum_multiplier) {
  out.d = d;
  out.minimum = minimum;
  out.multiplier[0] = 1;
  out.minimum_multiplier[0] = minimum_multiplier;
}

// Bit i of the 32 at `bits` as the fifth bit of code i.
inline void add_fifth_bits(const uint8_t* bits, int8_t* code) {
  for (int i = 0; i < 32; ++i) code[i] = static_cast<int8_t>(code[i] | (bits[i / 8] >> (i % 8) & 1) << 4);
}

struct Block_q8_0 {
  static constexpr BlockForm kForm = {32, 34, 32, 0, 8, false};
  static void unpack(const uint8_t* b, BlockCodes& out) {
    one_group(out, block_u16(b), 0, 0);
    memcpy(out.code, b + 2, 32);
  }
};

struct Block_q4_0 {
  static constexpr BlockForm kForm = {32, 18, 32, 8, 4, false};
  static void unpack(const uint8_t* b, BlockCodes& out) {
    one_group(out, block_u16(b), 0, 0);
    split_nibbles(b + 2, 16, out.code, out.code + 16);
  }
};

struct Block_q4_1 {
  static constexpr BlockForm kForm = {32, 20, 32, 0, 4, true};
  static void unpack(const uint8_t* b, BlockCodes& out) {
    one_group(out, block_u16(b), block_u16(b + 2), 1);
    split_nibbles(b + 4, 16, out.code, out.code + 16);
  }
};

struct Block_q5_0 {
  static constexpr BlockForm kForm = {32, 22, 32, 16, 5, false};
  static void unpack(const uint8_t* b, BlockCodes& out) {
    one_group(out, block_u16(b), 0, 0);
    split_nibbles(b + 6, 16, out.code, out.code + 16);
    add_fifth_bits(b + 2, out.code);
  }
};

struct Block_q5_1 {
  static constexpr BlockForm kForm = {32, 24, 32, 0, 5, true};
  static void unpack(const uint8_t* b, BlockCodes& out) {
    one_group(out, block_u16(b), block_u16(b + 2), 1);
    split_nibbles(b + 8, 16, out.code, out.code + 16);
    add_fifth_bits(b + 4, out.code);
  }
};

struct Block_iq4_nl {
  static constexpr BlockForm kForm = {32, 18, 32, 0, 8, false};
  static void unpack(const uint8_t* b, BlockCodes& out) {
    one_group(out, block_u16(b), 0, 0);
    split_nibbles(b + 2, 16, out.code, out.code + 16);
    for (int i = 0; i < 32; ++i) out.code[i] = kIq4Values[out.code[i]];
  }
};

struct Block_iq4_xs {
  static constexpr BlockForm kForm = {256, 136, 32, 0, 8, false};
  static void unpack(const uint8_t* b, BlockCodes& out) {
    out.d = block_u16(b);
    out.minimum = 0;
    const uint16_t high = block_u16(b + 2);
    for (int g = 0; g < 8; ++g) {
      const int scale = (b[4 + g / 2] >> (4 * (g % 2)) & 15) | (high >> (2 * g) & 3) << 4;
      out.multiplier[g] = static_cast<int8_t>(scale - 32);
      out.minimum_multiplier[g] = 0;
      split_nibbles(b + 8 + 16 * g, 16, out.code + 32 * g, out.code + 32 * g + 16);
    }
    for (int i = 0; i < 256; ++i) out.code[i] = kIq4Values[out.code[i]];
  }
};

// Two bits a code: each byte holds those of four elements, 32 apart.
inline void split_crumbs(const uint8_t* bytes, int8_t* code) {
  for (int half = 0; half < 2; ++half)
    for (int j = 0; j < 4; ++j)
      for (int i = 0; i < 32; ++i)
        code[128 * half + 32 * j + i] = static_cast<int8_t>(bytes[32 * half + i] >> (2 * j) & 3);
}

struct Block_q2_k {
  static constexpr BlockForm kForm = {256, 84, 16, 0, 2, true};
  static void unpack(const uint8_t* b, BlockCodes& out) {
    out.d = block_u16(b + 80);
    out.minimum = block_u16(b + 82);
    for (int g = 0; g < 16; ++g) {
      out.multiplier[g] = static_cast<int8_t>(b[g] & 15);
      out.minimum_multiplier[g] = static_cast<int8_t>(-(b[g] >> 4));
    }
    split_crumbs(b + 16, out.code);
  }
};

struct Block_q3_k {
  static constexpr BlockForm kForm = {256, 110, 16, 4, 3, false};
  static void unpack(const uint8_t* b, BlockCodes& out) {
    const uint8_t* scales = b + 96;
    out.d = block_u16(b + 108);
    out.minimum = 0;
    for (int g = 0; g < 16; ++g) {
      const int low = scales[g % 8] >> (4 * (g / 8)) & 15;
      const int high = scales[8 + g % 4] >> (2 * (g / 4)) & 3;
      out.multiplier[g] = static_cast<int8_t>((low | high << 4) - 32);
      out.minimum_multiplier[g] = 0;
    }
    split_crumbs(b + 32, out.code);
    for (int i = 0; i < 256; ++i) out.code[i] = static_cast<int8_t>(out.code[i] | (b[i % 32] >> (i / 32) & 1) << 2);
  }
};

// The eight pairs of a scale and a minimum, of six bits each, in twelve bytes.
inline void unpack_pairs(const uint8_t* b, BlockCodes& out) {
  for (int g = 0; g < 8; ++g) {
    const int scale = g < 4 ? b[g] & 63 : (b[g + 4] & 15) | (b[g - 4] >> 6) << 4;
    const int minimum = g < 4 ? b[g + 4] & 63 : b[g + 4] >> 4 | (b[g] >> 6) << 4;
    out.multiplier[g] = static_cast<int8_t>(scale);
    out.minimum_multiplier[g] = static_cast<int8_t>(-minimum);
  }
}

struct Block_q4_k {
  static constexpr BlockForm kForm = {256, 144, 32, 0, 4, true};
  static void unpack(const uint8_t* b, BlockCodes& out) {
    out.d = block_u16(b);
    out.minimum = block_u16(b + 2);
    unpack_pairs(b + 4, out);
    for (int j = 0; j < 4; ++j) split_nibbles(b + 16 + 32 * j, 32, out.code + 64 * j, out.code + 64 * j + 32);
  }
};

struct Block_q5_k {
  static constexpr BlockForm kForm = {256, 176, 32, 0, 5, true};
  static void unpack(const uint8_t* b, BlockCodes& out) {
    out.d = block_u16(b);
    out.minimum = block_u16(b + 2);
    unpack_pairs(b + 4, out);
    for (int j = 0; j < 4; ++j) split_nibbles(b + 48 + 32 * j, 32, out.code + 64 * j, out.code + 64 * j + 32);
    for (int i = 0; i < 256; ++i)
      out.code[i] = static_cast<int8_t>(out.code[i] | (b[16 + i % 32] >> (i / 32) & 1) << 4);
  }
};

struct Block_q6_k {
  static constexpr BlockForm kForm = {256, 210, 16, 32, 6, false};
  static void unpack(const uint8_t* b, BlockCodes& out) {
    out.d = block_u16(b + 208);
    out.minimum = 0;
    memcpy(out.multiplier, b + 192, 16);
    memset(out.minimum_multiplier, 0, 16);
    for (int half = 0; half < 2; ++half) {
      const uint8_t* low = b + 64 * half;
      int8_t* code = out.code + 128 * half;
      split_nibbles(low, 64, code, code + 64);
    }
    int8_t high[256];
    split_crumbs(b + 128, high);
    for (int i = 0; i < 256; ++i) out.code[i] = static_cast<int8_t>(out.code[i] | high[i] << 4);
  }
};

// Calls f with the format of a block type, which counts in the order of block_types.def.
template <class F>
inline auto with_block_format(int index, const F& f) {
  int at = 0;
#define TESSERA_BLOCK_TYPE(name, elements_, bytes_)                                                       \
  static_assert(Block_##name::kForm.elements == elements_ && Block_##name::kForm.bytes == bytes_, #name); \
  if (index == at++) return f(Block_##name());
#include "tessera/block_types.def"
#undef TESSERA_BLOCK_TYPE
  __builtin_unreachable();
}

}  // namespace
