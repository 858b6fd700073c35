// Checks the invariants of graphs.
#pragma once

#include <optional>
#include <span>

#include "base/result.h"
#include "ir/graph.h"

namespace tessera::ir {

struct VerifyOptions {
  // Only these nodes, and not the rules about the graph as a whole (names, outputs, state, contents).
  std::optional<std::span<const NodeId>> nodes = std::nullopt;
  // The graphs around it, whose guards hold too.
  std::span<const Graph* const> outer = {};
  bool nested = true;  // the graphs in it as well
};

// What a verified graph keeps to:
// - every id exists; operands are defined before they are used; outputs are there and have names; input names differ
// - each node has the operands, attributes and nested graphs that its operator declares
// - its result types are those that the operator infers: sizes provably equal, or equal by a guard; a size that only a
//   run can tell may have any name. A result whose rank inference does not know may have any shape
// - what inference had to assume is among the guards
// - views stay inside their base and are in normal form, as far as that can be told without a run
// - a state is consumed at most once, and not used after that. It is consumed by a node that gives a state as result,
//   or that holds a graph which consumes it
// - known contents fit their value's type
// Errors name the node in the user's words and the rule; E0206 where no other code says more. May make new symbols in
// the graph's context where inference does.
Status verify(const Graph& graph, const VerifyOptions& options = {});

// The rules about the graph as a whole alone, for nested graphs too.
Status verify_structure(const Graph& graph);

}  // namespace tessera::ir
