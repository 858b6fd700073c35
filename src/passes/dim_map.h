// Replaces sizes by equal ones.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace tessera::passes {

class DimMap {
 public:
  explicit DimMap(DimTable& dims) : dims_(dims) {}

  Dim apply(Dim d);
  Shape apply(const Shape& shape);
  ir::View apply(const ir::View& view);
  ir::AttrValue apply(const ir::AttrValue& value);

  // From now on the symbol is `to`.
  void replace_symbol(int symbol, Dim to);
  bool replaces(int symbol) const { return symbols_.contains(symbol); }
  // Looks for a part that is no symbol (a quotient, a smaller or larger one of two) and that `zero == 0` tells from the
  // rest; from now on it is that. False when there is none.
  bool solve(Dim zero);

 private:
  Dim atom(uint32_t index);

  DimTable& dims_;
  std::unordered_map<int, Dim> symbols_;
  std::unordered_map<Dim, Dim> atoms_;
  std::unordered_map<Dim, Dim> memo_;
};

}  // namespace tessera::passes
