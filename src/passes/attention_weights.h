// Weights of attention as a formula of a softmax: what is 0 where there is no number, and the column of a sink.
#pragma once

#include "ir/graph.h"
#include "passes/uses.h"

namespace tessera::passes {

struct Weights {
  ir::ValueId scores = ir::kNoValue;  // what the softmax is over
  ir::ValueId sink = ir::kNoValue;    // one more score of each row that has no value, [..., 1]; none as a rule
};

// The weights that a product's operand is; nothing when it is no softmax of rows, or one that others read.
std::optional<Weights> read_weights(const ir::Graph& graph, const Uses& uses, ir::ValueId used);

}  // namespace tessera::passes
