// Element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

// The element types of tensors. Types under 8 bits are packed, first element in the low bits, as ONNX stores them.
// Block types encode runs of the innermost axis, whose size they must divide; only weights have them.
// clang-format off
enum class DType : uint8_t {
  f64, f32, f16, bf16,
  f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0, f4e2m1,
  i64, i32, i16, i8, i4, i2,
  u64, u32, u16, u8, u4, u2,
  boolean,  // one byte, 0 or 1
  string,   // only carried through containers; no operator computes on it
#define TESSERA_BLOCK_TYPE(name, elements, bytes) name,
#include "tessera/block_types.def"
#undef TESSERA_BLOCK_TYPE
};
// clang-format on
constexpr int kPlainTypeCount = static_cast<int>(DType::string) + 1;  // block types come last
constexpr int kDTypeCount = 0
#define TESSERA_BLOCK_TYPE(name, elements, bytes) +1
#include "tessera/block_types.def"
#undef TESSERA_BLOCK_TYPE
                            + kPlainTypeCount;

constexpr bool is_block(DType t) { return static_cast<int>(t) >= kPlainTypeCount; }
// Elements and bytes of a block; {1, 0} for types that have none.
struct BlockSize {
  uint16_t elements, bytes;
};
constexpr BlockSize block_size(DType t) {
  constexpr BlockSize table[] = {
#define TESSERA_BLOCK_TYPE(name, elements, bytes) {elements, bytes},
#include "tessera/block_types.def"
#undef TESSERA_BLOCK_TYPE
  };
  return is_block(t) ? table[static_cast<int>(t) - kPlainTypeCount] : BlockSize{1, 0};
}

// Bits an element takes; 0 for string and block types.
constexpr int bits(DType t) {
  if (is_block(t)) return 0;
  constexpr uint8_t table[kPlainTypeCount] = {64, 32, 16, 16, 8,  8,  8,  8, 8, 4, 64, 32,
                                              16, 8,  4,  2,  64, 32, 16, 8, 4, 2, 8,  0};
  return table[static_cast<int>(t)];
}
constexpr bool is_float(DType t) { return t <= DType::f4e2m1; }
constexpr bool is_signed_int(DType t) { return t >= DType::i64 && t <= DType::i2; }
constexpr bool is_unsigned_int(DType t) { return t >= DType::u64 && t <= DType::u2; }
constexpr bool is_int(DType t) { return is_signed_int(t) || is_unsigned_int(t); }

// "f32", "bool", "f8e4m3fn", ...: the spelling of the graph's text form.
std::string_view name(DType t);
// Returns false when `text` names no type.
bool parse_dtype(std::string_view text, DType& out);

// Bytes that `count` packed elements take (rounded up). The caller has checked that count is >= 0 and cannot overflow.
constexpr size_t storage_bytes(DType t, int64_t count) {
  if (is_block(t)) return static_cast<size_t>(count) / block_size(t).elements * block_size(t).bytes;
  return (static_cast<size_t>(count) * static_cast<size_t>(bits(t)) + 7) / 8;
}

}  // namespace tessera
