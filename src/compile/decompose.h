// Composites that no kernel takes, as their meaning.
#pragma once

#include "ir/graph.h"
#include "tessera/error.h"

namespace tessera::compile {

// A copy of the graph in which every composite without a kernel stands as the primitives (and composites) of its
// meaning. Only where they compute in f32 or f64: in narrower types each step of a meaning would round, and the
// operator stays whole for the reference. Names, places and guards are kept.
Result<ir::Graph> decompose(const ir::Graph& graph);

}  // namespace tessera::compile
