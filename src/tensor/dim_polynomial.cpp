// Sums, products and exact quotients of polynomials.
#include <algorithm>

#include "tensor/dim_impl.h"

namespace tessera {

bool DimTable::Impl::add(TermSpan a, TermSpan b, int64_t scale, Terms& out) const {
  out.count = 0;
  if (scale == 0) b = {};
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (j == b.size() || (i < a.size() && a[i].monomial < b[j].monomial)) {
      if (!out.push(a[i].monomial, a[i].coefficient)) return false;
      ++i;
      continue;
    }
    int64_t coefficient;
    if (__builtin_mul_overflow(b[j].coefficient, scale, &coefficient)) return false;
    if (i < a.size() && a[i].monomial == b[j].monomial) {
      if (__builtin_add_overflow(coefficient, a[i].coefficient, &coefficient)) return false;
      ++i;
    }
    if (coefficient != 0 && !out.push(b[j].monomial, coefficient)) return false;
    ++j;
  }
  return true;
}

bool DimTable::Impl::multiply(TermSpan a, TermSpan b, Terms& out) {
  out.count = 0;
  if (a.empty() || b.empty()) return true;
  const auto collect = [](std::span<PolyTerm> all, Terms& out) {
    std::ranges::sort(all, {}, &PolyTerm::monomial);
    for (size_t i = 0; i < all.size();) {
      int128 sum = 0;
      const uint32_t m = all[i].monomial;
      for (; i < all.size() && all[i].monomial == m; ++i) sum += all[i].coefficient;
      if (sum < INT64_MIN || sum > INT64_MAX) return false;
      if (sum != 0 && !out.push(m, static_cast<int64_t>(sum))) return false;
    }
    return true;
  };
  const auto fill = [&](PolyTerm* next) {
    for (const PolyTerm& x : a) {
      for (const PolyTerm& y : b) {
        next->monomial = multiply_monomials(x.monomial, y.monomial);
        if (next->monomial == kNone || __builtin_mul_overflow(x.coefficient, y.coefficient, &next->coefficient))
          return false;
        ++next;
      }
    }
    return true;
  };
  // Nearly all products are of few terms: those need no heap.
  const size_t count = a.size() * b.size();
  std::array<PolyTerm, 64> few;
  if (count <= few.size()) return fill(few.data()) && collect({few.data(), count}, out);
  std::vector<PolyTerm> many(count);
  return fill(many.data()) && collect(many, out);
}

namespace {

// Graded lexicographic order, which products preserve (a < b implies a*c < b*c): what long division needs.
template <class Monomial>
bool less(const Monomial& a, const Monomial& b) {
  if (a.degree != b.degree) return a.degree < b.degree;
  for (uint32_t i = 0; i < std::min(a.count, b.count); ++i) {
    if (a.factors[i].first != b.factors[i].first) return a.factors[i].first > b.factors[i].first;
    if (a.factors[i].second != b.factors[i].second) return a.factors[i].second < b.factors[i].second;
  }
  return false;  // equal degrees and equal common factors: the same monomial
}

}  // namespace

bool DimTable::Impl::divide(TermSpan a, TermSpan b, Terms& quotient) {
  quotient.count = 0;
  if (b.empty()) return false;
  const auto leading = [&](TermSpan terms) {
    return *std::ranges::max_element(terms, [&](const PolyTerm& x, const PolyTerm& y) {
      return less(monomials[x.monomial], monomials[y.monomial]);
    });
  };
  const PolyTerm divisor = leading(b);
  Terms rest, next, sum, step;
  std::ranges::copy(a, rest.items.begin());
  rest.count = static_cast<uint32_t>(a.size());
  // Each step removes the leading term of what is left, so a quotient of kMaxTerms terms is the bound.
  while (rest.count != 0) {
    const PolyTerm head = leading(rest.span());
    const uint32_t m = divide_monomials(head.monomial, divisor.monomial);
    if (m == kNone || (divisor.coefficient == -1 && head.coefficient == INT64_MIN) ||
        head.coefficient % divisor.coefficient != 0)
      return false;
    const PolyTerm term{m, head.coefficient / divisor.coefficient};
    if (term.coefficient == INT64_MIN || quotient.count == kMaxTerms) return false;
    if (!multiply({&term, 1}, b, step) || !add(rest.span(), step.span(), -1, next)) return false;
    if (!add(quotient.span(), {&term, 1}, 1, sum)) return false;
    std::swap(rest, next);
    std::swap(quotient, sum);
  }
  return true;
}

Dim DimTable::Impl::add_dims(Dim a, Dim b, int64_t sign) {
  PolyTerm ka, kb;
  Terms out;
  if (add(terms(a, ka), terms(b, kb), sign, out)) {
    if (auto d = intern(out.span())) return *d;
  }
  const Range rb = range(b);
  return opaque(sign > 0 ? Op::add : Op::subtract, a, b, range(a) + (sign > 0 ? rb : Range{-1, -1} * rb));
}

Dim DimTable::Impl::multiply_dims(Dim a, Dim b) {
  PolyTerm ka, kb;
  Terms out;
  if (multiply(terms(a, ka), terms(b, kb), out)) {
    if (auto d = intern(out.span())) return *d;
  }
  return opaque(Op::multiply, a, b, range(a) * range(b));
}

Dim DimOps::add(Dim a, Dim b) {
  if (a.is(0)) return b;
  if (b.is(0)) return a;
  return (a.table_ ? a : b).table_->impl_->add_dims(a, b, 1);
}

Dim DimOps::subtract(Dim a, Dim b) {
  if (b.is(0)) return a;
  if (a == b) return 0;
  return (a.table_ ? a : b).table_->impl_->add_dims(a, b, -1);
}

Dim DimOps::multiply(Dim a, Dim b) {
  if (a.is(1)) return b;
  if (b.is(1)) return a;
  if (a.is(0) || b.is(0)) return 0;
  return (a.table_ ? a : b).table_->impl_->multiply_dims(a, b);
}

std::optional<Dim> DimTable::exact_div(Dim a, Dim b) const {
  if (b.is(0)) return std::nullopt;
  if (b.is(1) || a.is(0)) return a;
  if (a == b) return Dim(1);
  PolyTerm ka, kb;
  Terms quotient;
  if (!impl_->divide(impl_->terms(a, ka), impl_->terms(b, kb), quotient)) return std::nullopt;
  return impl_->intern(quotient.span());
}

}  // namespace tessera
