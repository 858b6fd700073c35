// Who reads each value of a graph, as long as the graph does not change.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace tessera::passes {

class Uses {
 public:
  explicit Uses(const ir::Graph& graph) : output_(graph.value_count(), false) {
    first_.assign(graph.value_count() + 1, 0);
    for (ir::NodeId n = 0; n < graph.node_count(); ++n)
      for (ir::ValueId v : graph.operands(n))
        if (v != ir::kNoValue) ++first_[v + 1];
    for (size_t i = 0; i < graph.value_count(); ++i) first_[i + 1] += first_[i];
    users_.resize(first_.back());
    std::vector<uint32_t> next(first_.begin(), first_.end() - 1);
    for (ir::NodeId n = 0; n < graph.node_count(); ++n)
      for (ir::ValueId v : graph.operands(n))
        if (v != ir::kNoValue) users_[next[v]++] = n;
    for (ir::ValueId v : graph.outputs) output_[v] = true;
  }

  // A node stands once for each operand that is v.
  std::span<const ir::NodeId> of(ir::ValueId v) const { return {users_.data() + first_[v], first_[v + 1] - first_[v]}; }
  bool is_output(ir::ValueId v) const { return output_[v]; }
  bool unused(ir::ValueId v) const { return of(v).empty() && !output_[v]; }
  // The node that alone reads v; kNoNode when there is none, or another, or v is an output.
  ir::NodeId only_user(ir::ValueId v) const {
    const auto users = of(v);
    if (users.empty() || output_[v]) return ir::kNoNode;
    return std::all_of(users.begin(), users.end(), [&](ir::NodeId n) { return n == users[0]; }) ? users[0]
                                                                                                : ir::kNoNode;
  }

 private:
  std::vector<uint32_t> first_;
  std::vector<ir::NodeId> users_;
  std::vector<bool> output_;
};

}  // namespace tessera::passes
