// Values as parts of one base.
#pragma once

#include <optional>
#include <span>

#include "ir/graph.h"

namespace tessera::passes {

struct Part {
  ir::ValueId base;
  ir::View view;  // in normal form
};
Part part_of(const ir::Graph& graph, ir::ValueId v);

// Parts of one base one behind the other along `axis`, as one view of it; nothing where they are none.
// Those that lie beside each other in the base:
std::optional<ir::View> adjacent_parts(std::span<const Part> parts, size_t axis);
// Those of one shape, each so often, the next one always as far from the one before:
std::optional<ir::View> even_parts(std::span<const Part> parts, size_t axis);

}  // namespace tessera::passes
