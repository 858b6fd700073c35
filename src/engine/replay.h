// Parts of graphs on the reference interpreter, started from values that are known.
#pragma once

#include <atomic>
#include <map>

#include "ir/interpreter.h"

namespace tessera::engine {

using KnownValues = std::map<ir::ValueId, ir::RefValue>;

// The graph's tensors that a run can be asked for: no constants and no inputs, of a known number of axes.
bool is_tensor_result(const ir::Graph& graph, ir::ValueId v);

// What `wanted` are when `inputs` are the graph's and `known` stand for what their nodes would give to others. A wanted
// value is computed even where it is known.
Result<std::vector<ir::RefValue>> replay(const ir::Graph& graph, std::span<const ir::RefValue> inputs,
                                         const KnownValues& known, std::span<const ir::ValueId> wanted,
                                         const std::atomic<bool>* stop);

}  // namespace tessera::engine
