#include "passes/dim_map.h"

namespace tessera::passes {

Dim DimMap::atom(uint32_t index) {
  const DimTable::Atom from = dims_.atom(index);
  if (from.kind == DimTable::AtomKind::symbol) {
    const auto found = symbols_.find(from.symbol);
    return found != symbols_.end() ? found->second : dims_.symbol(dims_.symbol_name(from.symbol));
  }
  const Dim a = apply(from.a), b = apply(from.b);
  const Dim made = from.kind == DimTable::AtomKind::floordiv ? floordiv(a, b)
                   : from.kind == DimTable::AtomKind::min    ? min(a, b)
                                                             : max(a, b);
  const auto found = atoms_.find(made);
  return found != atoms_.end() ? found->second : made;
}

Dim DimMap::apply(Dim d) {
  if (d.is_const() || (symbols_.empty() && atoms_.empty())) return d;
  if (const auto known = memo_.find(d); known != memo_.end()) return known->second;
  Dim sum = 0;
  for (const DimTable::Term& term : dims_.terms(d)) {
    Dim product = term.coefficient;
    const std::vector<DimTable::Factor> factors(term.factors.begin(), term.factors.end());
    for (const auto& [index, power] : factors)
      for (int i = 0; i < power; ++i) product = product * atom(index);
    sum = sum + product;
  }
  memo_.emplace(d, sum);
  return sum;
}

Shape DimMap::apply(const Shape& shape) {
  Shape made;
  for (Dim d : shape) made.push_back(apply(d));
  return made;
}

ir::View DimMap::apply(const ir::View& view) {
  ir::View made = view;
  for (Dim& d : made.offsets) d = apply(d);
  for (auto& axis : made.axes)
    for (ir::ViewAtom& atom : axis) atom.size = apply(atom.size), atom.stride = apply(atom.stride);
  return made;
}

ir::AttrValue DimMap::apply(const ir::AttrValue& value) {
  if (const auto* shape = std::get_if<Shape>(&value)) return apply(*shape);
  if (const auto* view = std::get_if<ir::View>(&value)) return apply(*view);
  return value;
}

void DimMap::replace_symbol(int symbol, Dim to) {
  symbols_.insert_or_assign(symbol, to);
  memo_.clear();
}

bool DimMap::solve(Dim zero) {
  zero = apply(zero);
  if (zero.is_const()) return false;
  for (const DimTable::Term& term : dims_.terms(zero)) {
    if ((term.coefficient != 1 && term.coefficient != -1) || term.factors.size() != 1 || term.factors[0].second != 1)
      continue;
    if (dims_.atom(term.factors[0].first).kind == DimTable::AtomKind::symbol) continue;
    const int64_t sign = term.coefficient;
    const Dim part = atom(term.factors[0].first);
    atoms_.emplace(part, (zero - part * sign) * -sign);
    memo_.clear();
    // What stands for other parts may hold this one.
    const std::unordered_map<Dim, Dim> before = atoms_;
    for (const auto& [from, to] : before) atoms_.insert_or_assign(from, apply(to));
    memo_.clear();
    return true;
  }
  return false;
}

}  // namespace tessera::passes
