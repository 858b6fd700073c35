#include "tessera/dtype.h"

namespace tessera {
namespace {

constexpr std::string_view kNames[kDTypeCount] = {
    "f64", "f32", "f16", "bf16", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0", "f4e2m1", "i64",  "i32",
    "i16", "i8",  "i4",  "i2",   "u64",      "u32",        "u16",    "u8",         "u4",     "u2",     "bool", "string",
#define TESSERA_BLOCK_TYPE(name, elements, bytes) #name,
#include "tessera/block_types.def"
#undef TESSERA_BLOCK_TYPE
};

}  // namespace

std::string_view name(DType t) { return kNames[static_cast<int>(t)]; }

bool parse_dtype(std::string_view text, DType& out) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kNames[i] == text) {
      out = static_cast<DType>(i);
      return true;
    }
  }
  return false;
}

}  // namespace tessera
