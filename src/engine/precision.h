// Precision policies as users write them.
#pragma once

#include <string_view>
#include <vector>

#include "passes/precision.h"
#include "tessera/error.h"

namespace tessera::engine {

struct PrecisionPolicy {
  bool strict = false;  // only rewrites that keep every bit
  std::vector<passes::PrecisionRule> rules;
};

// A word (keep, bf16, f16, int8-dynamic, strict), or the text of a JSON array of {"kind"?: glob, "name"?: glob,
// "precision": word}, of which the last one that fits a layer counts. E0801 says what is wrong.
Result<PrecisionPolicy> parse_precision(std::string_view text);

}  // namespace tessera::engine
