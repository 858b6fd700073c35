// What rules may ask of the values that stand for their variables.
#pragma once

#include <span>
#include <string_view>

#include "ir/graph.h"

namespace tessera::passes {

// Says whether an operand may take the place of a variable, beyond what the operator's signature says.
using OperandGuard = bool (*)(const ir::Graph& graph, ir::ValueId value);

struct Guard {
  std::string_view name;  // in rules that users write
  OperandGuard holds;
  std::string_view why;  // what is wrong with a value that it refuses
};

// constant: depends on constants only. row: not as large as what it is applied to, but its last axis alone, as the
// scale of a norm is. finite: no element is infinite, as far as the formula tells.
std::span<const Guard> guards();
bool is_weight(const ir::Graph& graph, ir::ValueId v);
bool is_row(const ir::Graph& graph, ir::ValueId v);
bool is_finite_mask(const ir::Graph& graph, ir::ValueId v);
// A number for each channel of [B, C, H, W].
bool is_channels_of_image(const ir::Graph& graph, ir::ValueId v);

}  // namespace tessera::passes
