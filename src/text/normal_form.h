// Normal forms (Unicode Standard Annex #15) that tell where each code point came from.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::text {

struct SourcedCodePoint {
  uint32_t code_point;
  uint32_t begin, end;  // bytes of the text
};

// Whether a code point's normal form may depend on what stands before it.
bool joins_backward(uint32_t code_point);
// Rewrites `run`, of which no code point but the first may fail joins_backward.
void normalize_run(std::vector<SourcedCodePoint>& run, bool compatible, bool compose);

}  // namespace tessera::text
