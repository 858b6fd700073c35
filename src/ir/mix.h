// One hash of several.
#pragma once

#include <cstddef>

namespace tessera::ir {

inline void mix(size_t& seed, size_t value) { seed ^= value + 0x9e3779b97f4a7c15 + (seed << 6) + (seed >> 2); }

}  // namespace tessera::ir
