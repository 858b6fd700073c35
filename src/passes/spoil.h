// Planted faults: makes the result of one rewrite wrong. See base/fault.h.
#pragma once

#include "base/fault.h"
#include "ir/rewrite.h"

namespace tessera::passes {

class Spoil {
 public:
  explicit Spoil(PlantedFault fault);
  Spoil(const Spoil&) = delete;

  // For the replacements of one pass; null when none of them can be meant.
  const ir::Spoiler* in_pass(std::string_view pass);
  // For passes that write a graph anew instead of replacing values: after the edits of one sweep, spoils the graph's
  // first output if one of them is meant.
  Status after(ir::Graph& graph, const std::vector<ir::Edit>& edits);

 private:
  bool meant(std::string_view rule) const;
  // The wrong value; the same one where there is none of its type.
  ir::ValueId wrong(ir::Builder& builder, ir::ValueId value) const;

  PlantedFault fault_;
  std::string_view pass_;
  ir::Spoiler spoiler_;
  int64_t seen_ = 0;  // rewrites that were meant
  bool done_ = false;
};

}  // namespace tessera::passes
