// Which masks follow from positions alone: causal ones, windows, their offsets symbolic.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ir/builder.h"

namespace tessera::passes {

// sum of factor[a] * index[a] + constant over the axes of a tensor.
struct Affine {
  std::vector<int64_t> factors;  // one an axis
  Dim constant = 0;
};

// The elements of an integer tensor as such a sum; nothing where they are not one, or where that cannot be told.
std::optional<Affine> affine(const ir::Graph& graph, ir::ValueId value);

// Where a condition holds: for the elements with sum >= 0.
// `value` is boolean, or a number that is 0 or 1. Range compares, Trilu and triangular constants, under casts, views
// and negations.
std::optional<Affine> half_plane(const ir::Graph& graph, ir::ValueId value);

// The diagonals on which the elements of a constant matrix that satisfy `test` lie, when all elements on them do and no
// others: column - row is at most `high` and at least `low`, each absent where the matrix does not end it.
struct Diagonals {
  std::optional<int64_t> high, low;
  bool every_row;  // has such an element
};
std::optional<Diagonals> diagonals(const Tensor& tensor, const std::function<bool(double)>& test);

// Whether every element is 0 or 1: what was boolean, and products of such.
bool is_zero_or_one(const ir::Graph& graph, ir::ValueId value);

// The tensor of a constant; nullptr when the value is none, or too large to be looked through.
const Tensor* constant_of(const ir::Graph& graph, ir::ValueId value);

// The number that every element of the value is.
std::optional<double> number_of(const ir::Graph& graph, ir::ValueId value);

// The value before casts between floats, and copies.
ir::ValueId uncast(const ir::Graph& graph, ir::ValueId value);

// The node that defines the value if it is of this operator.
const ir::Node* defined_by(const ir::Graph& graph, ir::ValueId value, const ir::OpDef& op);
// Operand i of the node that defines the value.
ir::ValueId operand_of(const ir::Graph& graph, ir::ValueId value, size_t i);

}  // namespace tessera::passes
