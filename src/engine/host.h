// Runs operators without a kernel on the reference interpreter.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "plan/plan.h"
#include "runtime/host.h"

namespace tessera::engine {

// A function that runs a graph: the inputs are the operands that are present. It only reads the graph's context.
std::unique_ptr<runtime::HostFunction> host_function(ir::Graph graph);

// Writes each graph's text into the plan's host operator of the same index, so that the plan stands for itself.
void embed_host_graphs(const std::vector<ir::Graph>& graphs, plan::Plan& plan);
// Reads them back: the resolver of plans from artifacts. The text is untrusted.
Result<std::unique_ptr<runtime::HostFunction>> parse_host_function(const plan::HostOp& op);

}  // namespace tessera::engine
