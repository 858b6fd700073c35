// What is true of Dims for all values of their symbols: intervals, and proofs by them.
#include <algorithm>
#include <numeric>

#include "tensor/dim_impl.h"

namespace tessera {
namespace {

constexpr int128 kInf = Range::kInfinity;

int128 clamp(int128 v) { return std::clamp(v, -kInf, kInf); }

int128 multiply(int128 a, int128 b) {
  int128 out;
  if (!__builtin_mul_overflow(a, b, &out)) return clamp(out);
  return (a < 0) == (b < 0) ? kInf : -kInf;
}

int128 ceil_div(int128 a, int128 b) { return -floor_div(-a, b); }

Range hull(Range a, Range b) { return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)}; }

// How much work one interval may cost, in terms made by eliminating and shifting atoms: tens of microseconds.
constexpr int kRefineBudget = 256;

}  // namespace

int128 floor_div(int128 a, int128 b) {
  const int128 q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}

// Unbounded sides absorb; a bound beyond kInfinity on the other side is cut back to it, which only widens.
Range operator+(Range a, Range b) {
  return {a.lo == -kInf || b.lo == -kInf ? -kInf : clamp(a.lo + b.lo),
          a.hi == kInf || b.hi == kInf ? kInf : clamp(a.hi + b.hi)};
}

Range operator*(Range a, Range b) {
  const std::array<int128, 4> corners = {multiply(a.lo, b.lo), multiply(a.lo, b.hi), multiply(a.hi, b.lo),
                                         multiply(a.hi, b.hi)};
  return {*std::ranges::min_element(corners), *std::ranges::max_element(corners)};
}

// Empty intersections come only from contradictory bounds; the first operand then stands.
Range meet(Range a, Range b) {
  const Range both{std::max(a.lo, b.lo), std::min(a.hi, b.hi)};
  return both.lo <= both.hi ? both : a;
}

Range power(Range a, int exponent) {
  if (exponent % 2 == 0) {
    const int128 lo = a.lo < 0 ? -a.lo : a.lo, hi = a.hi < 0 ? -a.hi : a.hi;
    a = {a.contains(0) ? 0 : std::min(lo, hi), std::max(lo, hi)};
  }
  Range out = a;
  for (int i = 1; i < exponent; ++i)
    out = {multiply(out.lo, a.lo < 0 ? -a.lo : a.lo), multiply(out.hi, a.hi < 0 ? -a.hi : a.hi)};
  return out;
}

DimBounds to_bounds(Range r) {
  const auto narrow = [](int128 v) {
    return static_cast<int64_t>(std::clamp(v, int128{INT64_MIN}, int128{INT64_MAX}));
  };
  return {narrow(r.lo), narrow(r.hi)};
}

Range to_range(DimBounds b) {
  return {b.lo == INT64_MIN ? -kInf : int128{b.lo}, b.hi == INT64_MAX ? kInf : int128{b.hi}};
}

Range DimTable::Impl::range(Dim d) {
  if (d.is_const()) return {d.value(), d.value()};
  return refine(polys[d.id()].span());
}

Range DimTable::Impl::difference(Dim a, Dim b) {
  PolyTerm ka, kb;
  Terms out;
  if (add(terms(a, ka), terms(b, kb), -1, out)) return refine(out.span());
  return range(a) + Range{-1, -1} * range(b);
}

Range DimTable::Impl::atom_range(Kind kind, Dim a, Dim b) {
  const Range x = range(a), y = range(b);
  switch (kind) {
    case Kind::symbol:
      return {};
    case Kind::min:
      return {std::min(x.lo, y.lo), std::min(x.hi, y.hi)};
    case Kind::max:
      return {std::max(x.lo, y.lo), std::max(x.hi, y.hi)};
    case Kind::floordiv:
      break;
  }
  if (y.lo < 0) {  // a divisor of either sign: |floor(x / y)| <= |x|
    const int128 most = std::max(x.lo < 0 ? -x.lo : x.lo, x.hi < 0 ? -x.hi : x.hi);
    return {-most, most};
  }
  // A divisor of 0 has no value to bound, so it is >= 1. An unbounded side stays so.
  const int128 least = std::max<int128>(y.lo, 1), most = std::max(y.hi, least);
  Range r;
  if (x.lo != -kInf) r.lo = most == kInf && x.lo >= 0 ? 0 : floor_div(x.lo, x.lo >= 0 ? most : least);
  if (x.hi != kInf) r.hi = most == kInf && x.hi < 0 ? -1 : floor_div(x.hi, x.hi >= 0 ? least : most);
  return r;
}

void DimTable::Impl::update_ranges(uint32_t first_atom) {
  for (uint32_t i = first_atom; i < atoms.size(); ++i) {
    const Atom atom = atoms[i].atom;
    if (atom.kind != Kind::symbol) atoms[i].range = meet(atoms[i].range, atom_range(atom.kind, atom.a, atom.b));
  }
}

Range DimTable::Impl::monomial_range(uint32_t monomial) const {
  Range r{1, 1};
  for (const auto& [atom, exponent] : monomials[monomial].span()) {
    const Range& base = atoms[atom].range;
    r = r * (exponent == 1 ? base : power(base, exponent));
  }
  return r;
}

Range DimTable::Impl::interval(TermSpan terms) const {
  Range sum{0, 0};
  for (const PolyTerm& t : terms) sum = sum + Range{t.coefficient, t.coefficient} * monomial_range(t.monomial);
  return sum;
}

// The interval after writing each atom as its lower bound plus something >= 0, which brings out that x*y - x >= 0 for
// y >= 1.
Range DimTable::Impl::shifted_interval(TermSpan terms) {
  const auto shift_of = [&](uint32_t atom) -> int64_t {
    const int128 lo = atoms[atom].range.lo;
    return lo > INT32_MIN && lo < INT32_MAX ? static_cast<int64_t>(lo) : 0;
  };
  bool shifts = false;
  Terms sum, product, next;
  for (const PolyTerm& t : terms) {
    product.count = 0;
    product.push(kOne, t.coefficient);
    for (const auto& [atom, exponent] : Monomial(monomials[t.monomial]).span()) {
      const int64_t shift = shift_of(atom);
      shifts |= shift != 0;
      const std::array<PolyTerm, 2> moved = {PolyTerm{kOne, shift}, PolyTerm{atoms[atom].monomial, 1}};
      const TermSpan factor = shift == 0 ? TermSpan(moved).subspan(1) : TermSpan(moved);
      for (int i = 0; i < exponent; ++i) {
        if (!multiply(product.span(), factor, next)) return {};
        std::swap(product, next);
      }
    }
    if (!add(sum.span(), product.span(), 1, next)) return {};
    std::swap(sum, next);
  }
  if (!shifts) return {};
  Range total{0, 0};
  for (const PolyTerm& t : sum.span()) {
    Range r{t.coefficient, t.coefficient};
    for (const auto& [atom, exponent] : monomials[t.monomial].span()) {
      const int128 shift = shift_of(atom);
      r = r * power(atoms[atom].range + Range{-shift, -shift}, exponent);
    }
    total = total + r;
  }
  return total;
}

Range DimTable::Impl::refine(TermSpan terms) {
  int budget = kRefineBudget;
  return refine(terms, budget);
}

Range DimTable::Impl::refine(TermSpan terms, int& budget) {
  Range r = interval(terms);
  size_t variable = 0;
  bool products = false;
  for (const PolyTerm& t : terms) {
    variable += t.monomial != kOne;
    products |= monomials[t.monomial].degree > 1;
  }
  if (variable < 2 || r.is_point()) return r;
  const auto cost = static_cast<int>(terms.size());
  if (products && (budget -= 4 * cost) > 0) r = meet(r, shifted_interval(terms));

  // Atoms to eliminate: those that occur only to the first power, newest first, as older ones may be their operands.
  std::vector<uint32_t> compound, powers;
  for (const PolyTerm& t : terms) {
    for (const auto& [atom, exponent] : monomials[t.monomial].span()) {
      if (atoms[atom].atom.kind == Kind::symbol) continue;
      (exponent == 1 ? compound : powers).push_back(atom);
    }
  }
  std::ranges::sort(compound, std::greater<>());
  compound.erase(std::unique(compound.begin(), compound.end()), compound.end());
  for (uint32_t atom : compound) {
    if (std::ranges::find(powers, atom) != powers.end()) continue;
    if ((budget -= cost) < 0) break;
    r = meet(r, eliminate(terms, atom, budget));
  }
  return r;
}

// With the polynomial as rest + factor * atom, puts bounds of the atom in its place.
Range DimTable::Impl::eliminate(TermSpan terms, uint32_t atom, int& budget) {
  const Atom x = atoms[atom].atom;
  Terms rest, factor;
  std::vector<PolyTerm> cofactors;
  for (const PolyTerm& t : terms) {
    const uint32_t m = divide_monomials(t.monomial, atoms[atom].monomial);
    if (m == kNone) {
      rest.push(t.monomial, t.coefficient);
    } else {
      cofactors.push_back({m, t.coefficient});
    }
  }
  std::ranges::sort(cofactors, {}, &PolyTerm::monomial);
  for (const PolyTerm& t : cofactors) factor.push(t.monomial, t.coefficient);
  const Range sign = interval(factor.span());

  PolyTerm ka, kb;
  const TermSpan a = this->terms(x.a, ka), b = this->terms(x.b, kb);
  if ((budget -= static_cast<int>(factor.count * (a.size() + b.size()))) < 0) return {};
  // The interval of base * scale + by * value, unbounded where that cannot be formed.
  const auto with = [&](TermSpan base, int64_t scale, TermSpan by, TermSpan value) -> Range {
    Terms product, sum;
    if (!multiply(by, value, product) || !add(product.span(), base, scale, sum)) return {};
    return refine(sum.span(), budget);
  };

  if (x.kind != Kind::floordiv) {
    // The atom is one of its operands, and bounds the other.
    const Range first = with(rest.span(), 1, factor.span(), a), second = with(rest.span(), 1, factor.span(), b);
    Range r = hull(first, second);
    const bool raises = x.kind == Kind::max ? sign.lo >= 0 : sign.hi <= 0;
    const bool lowers = x.kind == Kind::max ? sign.hi <= 0 : sign.lo >= 0;
    if (raises) r.lo = std::max(first.lo, second.lo);
    if (lowers) r.hi = std::min(first.hi, second.hi);
    return r;
  }

  // b * floordiv(a, b) = a - r with r in [0, b - 1], for b >= 1.
  if (interval(b).lo < 0) return {};
  Terms quotient, largest;  // of the factor by b; b - 1
  const PolyTerm one{kOne, 1};
  if (!add(b, {&one, 1}, -1, largest)) return {};
  if (divide(factor.span(), b, quotient)) {
    const Range q = interval(quotient.span());
    if (q.lo < 0 && q.hi > 0) return {};
    Terms base, product;
    if (!multiply(quotient.span(), a, product) || !add(rest.span(), product.span(), 1, base)) return {};
    const Range without = refine(base.span(), budget);
    if (!multiply(quotient.span(), largest.span(), product) || !add(base.span(), product.span(), -1, rest)) return {};
    const Range less = refine(rest.span(), budget);
    return q.lo >= 0 ? Range{less.lo, without.hi} : Range{without.lo, less.hi};
  }
  if (sign.lo < 0 && sign.hi > 0) return {};
  if (!x.b.is_const()) {
    // 0 <= floordiv(a, b) <= a where a >= 0.
    if (interval(a).lo < 0) return {};
    const Range at_most = with(rest.span(), 1, factor.span(), a), at_least = refine(rest.span(), budget);
    return sign.lo >= 0 ? Range{at_least.lo, at_most.hi} : Range{at_most.lo, at_least.hi};
  }
  // c * (rest + factor * floordiv(a, c)) = c * rest + factor * a - factor * r.
  const int64_t c = x.b.value();
  if (c <= 0) return {};
  const Range without = with(rest.span(), c, factor.span(), a);
  Terms product, base;
  if (!multiply(factor.span(), a, product) || !add(product.span(), rest.span(), c, base) ||
      !add(base.span(), factor.span(), 1 - c, product))
    return {};
  const Range less = refine(product.span(), budget);
  Range r = sign.lo >= 0 ? Range{less.lo, without.hi} : Range{without.lo, less.hi};
  if (r.lo > -kInf) r.lo = ceil_div(r.lo, c);
  if (r.hi < kInf) r.hi = floor_div(r.hi, c);
  return r;
}

DimBounds DimTable::bounds(Dim d) const { return to_bounds(impl_->range(d)); }

bool DimTable::proves_eq(Dim a, Dim b) const {
  if (a == b) return true;
  if (a.is_const() && b.is_const()) return false;
  const Range r = impl_->difference(a, b);
  return r.lo == 0 && r.hi == 0;
}

bool DimTable::proves_ne(Dim a, Dim b) const {
  if (a == b) return false;
  if (a.is_const() && b.is_const()) return true;
  if (!impl_->difference(a, b).contains(0)) return true;
  // A common factor of all but the constant term that does not divide the constant term.
  PolyTerm ka, kb;
  Terms out;
  if (!impl_->add(impl_->terms(a, ka), impl_->terms(b, kb), -1, out)) return false;
  int64_t common = 0, constant = 0;
  for (const PolyTerm& t : out.span()) {
    if (t.coefficient == INT64_MIN) return false;
    (t.monomial == Impl::kOne ? constant : common) =
        t.monomial == Impl::kOne ? t.coefficient : std::gcd(common, t.coefficient);
  }
  return common != 0 && constant % common != 0;
}

bool DimTable::proves_le(Dim a, Dim b) const {
  if (a == b) return true;
  if (a.is_const() && b.is_const()) return a.value() <= b.value();
  return impl_->difference(a, b).hi <= 0;
}

bool DimTable::proves_lt(Dim a, Dim b) const {
  if (a == b) return false;
  if (a.is_const() && b.is_const()) return a.value() < b.value();
  return impl_->difference(a, b).hi < 0;
}

bool DimTable::proves_divisible(Dim a, Dim b) const {
  if (b.is(0)) return false;
  if (b.is(1) || b.is(-1) || a.is(0) || exact_div(a, b)) return true;
  if (!b.is_const() && impl_->range(b).contains(0)) return false;
  const Dim rest = mod(a, b);
  return rest.is(0) || proves_eq(rest, 0);
}

}  // namespace tessera
