// Inputs to measure and compare with, when none are given.
#pragma once

#include "tessera/session.h"

namespace tessera::engine {

// Valid values for an input of any model, as far as its name and type tell: masks are all ones, token types zeros,
// positions ascending, other integers small (they may be indices into a small table), floats normally distributed.
// The same seed gives the same values. `shape` overrides the declared one where it is given. E0313 when a size is not
// known, E0402 for sequences.
Result<Value> random_input(const ValueInfo& info, uint64_t seed, const Dims* shape = nullptr);

}  // namespace tessera::engine
