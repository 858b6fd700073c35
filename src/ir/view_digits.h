// Digits of a view with their movements gathered: what view*.cpp compute on. Included by these only.
#pragma once

#include <span>
#include <vector>

#include "ir/view.h"

namespace tessera::ir {

struct Move {
  int axis;
  Dim stride;
  bool operator==(const Move&) const = default;
};

// One digit and all its movements, ascending by axis; none: a broadcast digit.
struct Digit {
  std::vector<Move> moves;
  Dim size;
};

std::vector<Digit> digits_of(std::span<const ViewAtom> atoms);
void append_atoms(const Digit& digit, std::vector<ViewAtom>& atoms);

}  // namespace tessera::ir
