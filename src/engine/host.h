// Runs operators without a kernel on the reference interpreter.
#pragma once

#include <memory>

#include "ir/graph.h"
#include "runtime/host.h"

namespace tessera::engine {

// A function that runs a graph: the inputs are the operands that are present. It only reads the graph's context.
std::unique_ptr<runtime::HostFunction> host_function(ir::Graph graph);

}  // namespace tessera::engine
