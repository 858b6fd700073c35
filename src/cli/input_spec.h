// Inputs as the command line names them.
#pragma once

#include <span>

#include "tessera/session.h"

namespace tessera::cli {

// Reads "NAME=FILE.npy", "NAME=FILE.pb", "NAME=random" and "NAME=random:2,3" for the inputs of a model. The value is
// read as the type that the model declares for the name. E0801 for what is none of these, E0502 for unknown names.
Result<std::vector<NamedValue>> read_inputs(const std::vector<ValueInfo>& inputs, std::span<const std::string> specs,
                                            uint64_t seed);

// Random values for all inputs that `given` does not have; optional ones are left out.
Status add_random_inputs(const std::vector<ValueInfo>& inputs, uint64_t seed, std::vector<NamedValue>& given);

}  // namespace tessera::cli
