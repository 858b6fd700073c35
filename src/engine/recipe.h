// Which type each of a model's weights gets when it is stored in fewer bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "tessera/error.h"

namespace tessera::engine {

// `more` goes to the value and down projections of the layers where rounding hurts most, `output` to the last matrix;
// the mixes carry the names under which such files are known.
struct Recipe {
  std::string_view name;
  uint32_t file_type;  // general.file_type
  gguf::GgmlType base, more, output;
};

std::vector<std::string_view> recipes();

// In upper or lower case; "Q4_K" is its middle mix, "Q4_K_M". E0801 for an unknown name.
Result<const Recipe*> find_recipe(std::string_view name);

// A weight as it is, by the name that GGUF files give it.
struct StoredWeight {
  std::string_view name;
  int64_t axes = 0;
  int64_t row = 0;  // elements of the last axis
  gguf::GgmlType type = gguf::GgmlType::F32;
};
// `tied`: the table of tokens is the last matrix too. Vectors, experts' gates, and tables of positions and of token
// types keep their type: they decide much and cost nothing.
gguf::GgmlType type_for(const Recipe& recipe, const StoredWeight& weight, int64_t layers, bool tied);

// The layer in "blk.12.attn_v.weight"; -1 elsewhere.
int64_t layer_of(std::string_view name);

}  // namespace tessera::engine
