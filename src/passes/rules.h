// The formulas that become composite operators: data.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ir/interpreter.h"

namespace tessera::passes {

// Says whether an operand may take the place of a variable, beyond what the operator's signature says.
using OperandGuard = bool (*)(const ir::Graph& graph, ir::ValueId value);

struct RuleOperand {
  bool present;
  Shape shape;  // in the pattern; only its rank and which sizes agree matter
  OperandGuard guard = nullptr;
};

// `left` over the operands is op(operands, attrs). Equal in real arithmetic; rounding moves.
struct Rule {
  std::string_view name;
  const ir::OpDef* op;
  ir::Meaning left;  // the operator's own meaning, or another spelling
  std::vector<RuleOperand> operands;
  std::vector<ir::AttrValue> attrs;  // a NaN takes the number that stands at its place
  int tier;                          // 1 + the highest tier of an operator in `left`
  std::string_view source;
};

std::span<const Rule> rules();

}  // namespace tessera::passes
