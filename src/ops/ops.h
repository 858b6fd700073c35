// The list of operators.
#pragma once

#include <span>
#include <string_view>

#include "ir/op_def.h"

namespace tessera::ops {

#define TESSERA_OP(name) extern constinit const ir::OpDef name##_op;
#include "ops/ops.def"
#undef TESSERA_OP

// Every operator, the graph's own four first, then in the order of ops.def.
std::span<const ir::OpDef* const> all_ops();
// The operator of this name; nullptr when there is none.
const ir::OpDef* find_op(std::string_view name);

}  // namespace tessera::ops
