// Reads the text form of graphs, as print() writes it and people do. The grammar stands in docs/ir.md.
#pragma once

#include <functional>
#include <string_view>

#include "base/result.h"
#include "ir/constant_text.h"
#include "ir/graph.h"

namespace tessera::ir {

// The operator of this name; nullptr when there is none.
using OpFinder = std::function<const OpDef*(std::string_view)>;

struct ParseOptions {
  bool verify = true;
  // Gives the elements of constants that lie outside of the text; without it such a constant is an error.
  ExternalLoader load = {};
  // What constants written "all x" may take together: the only thing in a text that takes more memory than the text.
  size_t max_uniform_bytes = size_t{256} << 20;
  int max_depth = 64;  // of graphs in graphs, and of types in types
};

// Makes the graph in a context of its own. The text is untrusted. Errors give line and column: E0205 where the text
// breaks the grammar, E0401 an operator that `find_op` does not know, E0202 and E0203 values undefined and defined
// twice, E0403 wrong attributes; and what verify() finds.
Result<Graph> parse_graph(std::string_view text, const OpFinder& find_op, const ParseOptions& options = {});

}  // namespace tessera::ir
