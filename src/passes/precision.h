// Which precision layers are computed in, as the user asks for it.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::passes {

enum class Precision : uint8_t {
  keep,
  bf16,          // weights and inputs of layers rounded to bf16, sums in f32
  f16,           // weights rounded to f16
  int8_dynamic,  // weights as integers with a scale an output, inputs as integers with a scale a row
};

// Of several that fit a layer, the last one counts.
struct PrecisionRule {
  std::string kind;  // a glob over the operator's name here or in the model; empty: any
  std::string name;  // a glob over the node's name in the model; empty: any
  Precision precision = Precision::keep;
};

}  // namespace tessera::passes
