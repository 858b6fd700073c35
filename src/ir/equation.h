// Formulas of values as people write them.
#pragma once

#include <string>

#include "ir/graph.h"

namespace tessera::ir {

// "before = after": what a rewrite says. Nodes from `first_new` on are those that it made; both sides are spelled out
// down to the older values that `after` reads. Long formulas are cut.
std::string equation(const Graph& graph, ValueId before, ValueId after, NodeId first_new);

// "linear('x', 'w')": what a value's own node does.
std::string formula(const Graph& graph, ValueId value);

}  // namespace tessera::ir
