// Writes a graph anew: with sizes replaced by equal ones, with lists, loops and branches whose form is known taken
// apart.
#pragma once

#include "ir/rewrite.h"
#include "passes/dim_map.h"

namespace tessera::passes {

struct Replayed {
  ir::Graph graph;
  std::vector<ir::Edit> edits;  // what was taken apart
};

// Types follow from the operators once more; sizes that turn out to be others become these everywhere. Nothing when the
// graph cannot be written so; it stays as it was.
std::optional<Replayed> replay(const ir::Graph& graph, DimMap map);

}  // namespace tessera::passes
