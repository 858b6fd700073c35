// From a graph to a plan: kernels selected, views folded into operands, control flow as nested routines.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "plan/plan.h"
#include "tessera/error.h"

namespace tessera::compile {

// What a step was made from.
struct Origin {
  const ir::Graph* graph = nullptr;  // the graph that was lowered, or one nested in it
  ir::NodeId node = ir::kNoNode;
  ir::LocId place = 0;  // the node's, and those of the views that it reads through
};

struct Lowered {
  plan::Plan plan;
  std::vector<std::vector<Origin>> origins;  // by routine, by step
  // For each of plan.host_ops a graph with one node: its inputs are the present operands in order, its outputs the
  // results. It shares the context of the graph that was lowered. Blobs are left empty.
  std::vector<ir::Graph> host_graphs;
};

// `graph` has been verified and compacted, composites that are to run as their meaning have been taken apart. Nodes
// without a kernel become host steps. E0603 when a size is read that no value decides.
Result<Lowered> lower(const ir::Graph& graph);

}  // namespace tessera::compile
