// Whether the shapes of a kernel call are those that its operator gives: for plans from files.
#pragma once

#include <string_view>

#include "kernels/abi.h"
#include "tessera/error.h"

namespace tessera::engine {

// Infers the operator's results from the operands' types and the attributes, and compares. E0602 when they differ.
Status check_step(std::string_view op, const kernels::Args& args);

}  // namespace tessera::engine
