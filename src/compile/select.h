// Which kernel runs a node.
#pragma once

#include "ir/graph.h"
#include "plan/kernel_desc.h"

namespace tessera::compile {

// The first line of the kernel table that takes the node's types; nullptr when none does: then it runs as its meaning,
// or on the reference interpreter.
const plan::KernelRule* select(const ir::Graph& graph, ir::NodeId node);

}  // namespace tessera::compile
