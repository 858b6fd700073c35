// Constants behind values.
#pragma once

#include "ir/graph.h"

namespace tessera::passes {

// The tensor of a value that a constant node defines; null for any other.
const Tensor* constant_at(const ir::Graph& graph, ir::ValueId v);
// The tensor that a value renames, copies or casts; null when it depends on anything else.
const Tensor* constant_behind(const ir::Graph& graph, ir::ValueId v);
// The number of a constant of one element.
std::optional<double> literal_at(const ir::Graph& graph, ir::ValueId v);

}  // namespace tessera::passes
