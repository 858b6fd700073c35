// Writes graphs as text. The grammar stands in docs/ir.md; parser.h reads it back.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "ir/constant_text.h"
#include "ir/graph.h"

namespace tessera::ir {

struct PrintOptions {
  bool locations = true;
  // Constants of more elements than this do not stand in the text, unless all their elements are the same. They are
  // referred to where `external` tells where they lie (not asked for strings, which then stay in the text), and elided
  // otherwise: such a text is for reading only.
  int64_t max_inline = std::numeric_limits<int64_t>::max();
  std::function<std::optional<ExternalData>(const Tensor&)> external = {};

  // What a person wants to see of a large model.
  static PrintOptions display() { return {.locations = false, .max_inline = 16}; }
};

// The text of a graph, ending in a line break. With the default options parse_graph() makes the same graph of it, as
// long as operands are defined before they are used. Values are numbered in the order in which they are printed; in a
// compacted graph these numbers are their ids. Ids that do not exist print as %?.
std::string print(const Graph& graph, const PrintOptions& options = {});

// One node without its nested graphs, for messages and reports: "%3 "h": f32[b, 4] = add(%1, %2)". Values by id.
std::string print_node(const Graph& graph, NodeId node);

}  // namespace tessera::ir
