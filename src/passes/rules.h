// The formulas that become composite operators: data.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/interpreter.h"
#include "passes/guards.h"

namespace tessera::passes {

struct RuleOperand {
  bool present;
  Shape shape;  // in the pattern; only its rank and which sizes agree matter
  OperandGuard guard = nullptr;
  std::string_view why = {};  // what is wrong with an operand that the guard refuses
};

// Both sides of a rule as graphs of one output each, with the same inputs in the same order. Variables stand for values
// of these types: of the same rank, sizes of one name equal.
struct RuleSides {
  ir::Graph left, right;
  std::vector<std::string> names;  // of the inputs
  double tolerance = 2e-6;         // of numbers, relative
};

// `left` over the operands is op(operands, attrs), or `right` where there is one. Equal in real arithmetic; rounding
// moves.
struct Rule {
  std::string_view name;
  const ir::OpDef* op;
  ir::Meaning left;  // the operator's own meaning, or another spelling
  std::vector<RuleOperand> operands;
  std::vector<ir::AttrValue> attrs;  // a NaN takes the number that stands at its place
  int tier;                          // 1 + the highest tier of an operator in `left`
  std::string_view source;
  ir::Meaning right = {};  // of the same operands and attributes
  // Where the left side depends on sizes (the halves of a row): the shapes of the operands for a result of a shape,
  // none when there is no such rule; and the operator of the node that gives the result.
  std::vector<Shape> (*shapes)(const Shape& result) = nullptr;
  const ir::OpDef* root = nullptr;
  bool bitwise = false;                         // both sides give the same bits
  bool approximate = false;                     // the sides are only nearly equal: asked for by the user
  std::shared_ptr<const RuleSides> sides = {};  // in place of op, left and right: a user's rule
};

std::span<const Rule> rules();

}  // namespace tessera::passes
