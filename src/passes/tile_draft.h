// A tile program while it grows over the nodes of a graph.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "ops/tile.h"

namespace tessera::passes {

class TileDraft {
 public:
  // Of results of `type`; `parts` are what the program starts from besides operands.
  TileDraft(const ir::Graph& graph, ir::TypeRef type, std::vector<ir::ValueId> parts);

  // Adds what the node computes. False, and nothing changes, when programs do not know its operator, when its types are
  // others, or when the program would become too large.
  bool append(ir::NodeId node);
  // Whether a program may read the value: of the same element type, and it broadcasts to the result.
  bool takes(ir::ValueId v) const;
  // The number of a value that the program starts from, which becomes an operand if it is none yet; -1 when there are
  // too many.
  int64_t input(ir::ValueId v);

  const std::vector<ir::ValueId>& operands() const { return operands_; }
  const std::vector<ir::NodeId>& nodes() const { return nodes_; }
  size_t steps() const { return steps_.size(); }
  // As attributes. Operands must be complete: they number the steps.
  std::vector<int64_t> program() const;
  int64_t number_of(ir::ValueId v) const;  // of a value that the program starts from or computes

 private:
  // A value of the program: where it starts, or what a step gives.
  struct Ref {
    bool step;
    int64_t index;
  };
  struct Step {
    int64_t op;
    std::optional<Ref> args[2];
    uint32_t bits = 0;  // of a literal
  };
  std::optional<Ref> operand(ir::ValueId v);
  Ref add(const ir::OpDef& op, Ref a, std::optional<Ref> b = std::nullopt);
  Ref literal(double number);
  std::optional<Ref> compute(ir::NodeId node);
  int64_t number(Ref ref) const;
  bool same_shape(const Shape& shape) const;

  const ir::Graph& graph_;
  ir::TypeRef type_;
  size_t parts_;
  std::vector<ir::ValueId> operands_;
  std::vector<Step> steps_;
  std::vector<ir::NodeId> nodes_;
  std::unordered_map<ir::ValueId, Ref> refs_;
};

// Whether tile programs know the operator.
bool is_tile_op(const ir::Graph& graph, ir::NodeId node);

}  // namespace tessera::passes
