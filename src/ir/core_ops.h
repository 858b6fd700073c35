// The operators that the graph itself knows: everything else comes from the list in src/ops.
#pragma once

#include "ir/op_def.h"

namespace tessera::ir::core {

extern constinit const OpDef constant;  // () {id} -> y: a tensor held by the context
extern constinit const OpDef dims;      // () {sizes} -> y[n]: sizes as an i64 tensor
extern constinit const OpDef view;      // (x) {view} -> y: the same elements under other names
extern constinit const OpDef copy;      // (x) {shape} -> y: x's elements, row-major, under another shape of equal count

}  // namespace tessera::ir::core
