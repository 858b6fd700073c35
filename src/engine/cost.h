// What a graph costs at given sizes: the two sides of the roofline.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace tessera::engine {

struct Cost {
  double flops = 0;  // a multiply-add is two; pointwise and reducing operators count one an element
  double bytes = 0;  // operands and results of every node that touches memory, weights included, views not
};

// Of one node; nothing when a size is not known under `bindings`. Nested graphs count once.
std::optional<Cost> cost_of(const ir::Graph& graph, ir::NodeId node, const DimBindings& bindings);
// Of all nodes.
std::optional<Cost> cost_of(const ir::Graph& graph, const DimBindings& bindings);

// Elements of the constants that the graph uses, each counted once.
int64_t count_parameters(const ir::Graph& graph);

}  // namespace tessera::engine
