// Reshapes of symbolic shapes: which axes of two shapes hold the same elements, and what -1 stands for.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "tensor/dim.h"

namespace tessera {

// Axes [from_begin, from_end) of one shape and [to_begin, to_end) of another, whose sizes have equal products.
struct ReshapeGroup {
  int from_begin, from_end;
  int to_begin, to_end;
  friend bool operator==(const ReshapeGroup&, const ReshapeGroup&) = default;
};

// Splits both shapes into as many groups as possible, in order, each of provably equal products: a reshape is then a
// reshape within each group. Axes of size 1 belong to the group before them, leading ones to the first. No groups for
// two scalars; nothing when no split is proved.
//   [batch, seq, 768] -> [batch, seq, 12, 64]   groups {0,1,0,1} {1,2,1,2} {2,3,2,4}
std::optional<std::vector<ReshapeGroup>> factor_reshape(std::span<const Dim> from, std::span<const Dim> to);

// The shape that ONNX Reshape gives for the wanted sizes `to`. A constant -1 stands for what is left of the elements
// (floordiv where no exact quotient is proved); unless `allow_zero`, a constant 0 stands for the size of the same axis
// of `from`. A size that is not constant is taken as it is. Sizes that occur in both shapes cancel, also where they are
// or may be 0. E0313 when the sizes contradict each other for all values of the symbols.
Result<Shape> infer_minus_one(std::span<const Dim> from, std::span<const Dim> to, bool allow_zero);

}  // namespace tessera
