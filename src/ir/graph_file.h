// Graphs in files: text (.tg), and beside it the elements of the large constants (.weights).
#pragma once

#include <string>

#include "ir/parser.h"

namespace tessera::ir {

// Reads a graph's text from `path`. Constants that lie outside of it are mapped, not read, from files in the folder of
// `path` or below it; a path that leaves the folder is E0105, a range past the end of its file E0103.
Result<Graph> load_graph(const std::string& path, const OpFinder& find_op);

// Writes the text to `path`, and constants of more than a few hundred elements to the file beside it whose name ends in
// ".weights" instead; there is none when there are no such constants. Files appear whole or not at all. E0102.
Status save_graph(const Graph& graph, const std::string& path);

}  // namespace tessera::ir
