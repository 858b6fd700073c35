// The tensor types that GGUF files name, and which of Tessera's element types holds them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/dtype.h"

namespace tessera::gguf {

enum class GgmlType : uint32_t {
#define TESSERA_GGML_TYPE(number, name, elements, bytes) name = number,
#include "formats/ggml_type.def"
#undef TESSERA_GGML_TYPE
};

struct GgmlTypeInfo {
  GgmlType type;
  std::string_view name;  // "Q4_K"
  uint32_t elements;      // of a block, along the innermost axis
  uint32_t bytes;         // of a block
};

// nullptr for a number that no type has.
const GgmlTypeInfo* find_type(uint32_t number);
const GgmlTypeInfo& describe(GgmlType type);
// By its name in any case: "q4_k", "Q4_K". nullopt when no type has it.
std::optional<GgmlType> parse_type(std::string_view name);

// Tessera's type for it, and back; nullopt when there is none.
std::optional<DType> to_dtype(GgmlType type);
std::optional<GgmlType> from_dtype(DType type);

}  // namespace tessera::gguf
