// Normal forms of floordiv, min and max.
#include <algorithm>
#include <numeric>

#include "tensor/dim_impl.h"

namespace tessera {
namespace {

// Greatest common divisor of the magnitudes; 0 with x is |x|. INT64_MIN counts as having none but 1.
int64_t gcd(int64_t a, int64_t b) {
  if (a == INT64_MIN || b == INT64_MIN) return 1;
  return std::gcd(a, b);
}

// More operands of one max or min than this are not compared with each other: it is quadratic.
constexpr size_t kMaxOperands = 16;

}  // namespace

Dim DimTable::Impl::floordiv_dims(Dim a, Dim b) {
  return b.is_const() ? floordiv_constant(a, b.value()) : floordiv_symbolic(a, b);
}

// As an atom; opaque where it would pass a limit.
Dim DimTable::Impl::floordiv_atom(Dim a, Dim b) {
  if (auto d = intern_atom(Kind::floordiv, a, b)) return *d;
  return opaque(Op::floordiv, a, b, atom_range(Kind::floordiv, a, b));
}

Dim DimTable::Impl::floordiv_constant(Dim a, int64_t c) {
  if (c == 0 || c == INT64_MIN) return opaque(Op::floordiv, a, c, atom_range(Kind::floordiv, a, c));
  if (c < 0) return floordiv_constant(-a, -c);
  if (c == 1) return a;
  if (a.is_const()) return floordiv(a, c);

  // Whole multiples of c leave: floor((c*q + r) / c) = q + floor(r / c) for every integer q. Coefficients are cut
  // toward zero, which keeps intervals tight; the constant term is brought to [0, c).
  PolyTerm storage;
  Terms whole, rest;
  int64_t common = c;
  for (const PolyTerm& t : terms(a, storage)) {
    int64_t q = t.coefficient / c, r = t.coefficient % c;
    if (t.monomial == kOne && r < 0) r += c, q -= 1;
    if (t.monomial != kOne) common = gcd(common, r);
    if (q != 0) whole.push(t.monomial, q);
    if (r != 0) rest.push(t.monomial, r);
  }
  // floor((g*x + k) / (g*c)) = floor((x + floor(k / g)) / c).
  if (common > 1) {
    Terms divided;
    for (const PolyTerm& t : rest.span()) {
      if (t.coefficient / common != 0) divided.push(t.monomial, t.coefficient / common);
    }
    rest = divided;
    c /= common;
  }
  const auto pulled = intern(whole.span());
  const auto left = intern(rest.span());
  if (!pulled || !left) return floordiv_atom(a, c * common);
  if (c == 1) return *pulled + *left;
  if (left->is_const()) return *pulled + floordiv(*left, c);

  // floor((floor(x / d) + y) / c) = floor((x + d*y) / (c*d)), where only one floor can be meant.
  uint32_t inner = kNone;
  int candidates = 0;
  for (const PolyTerm& t : rest.span()) {
    const uint32_t atom = t.coefficient == 1 ? bare_atom_of(t.monomial) : kNone;
    if (atom == kNone || atoms[atom].atom.kind != Kind::floordiv || !atoms[atom].atom.b.is_const()) continue;
    inner = atom;
    ++candidates;
  }
  if (candidates == 1) {
    const Atom nested = atoms[inner].atom;
    const int64_t d = nested.b.value();
    PolyTerm nested_storage;
    Terms others, numerator;
    const PolyTerm self_term{atoms[inner].monomial, 1};
    int64_t cd;
    if (!__builtin_mul_overflow(c, d, &cd) && add(rest.span(), {&self_term, 1}, -1, others) &&
        add(terms(nested.a, nested_storage), others.span(), d, numerator)) {
      if (auto n = intern(numerator.span())) return *pulled + floordiv_constant(*n, cd);
    }
  }

  const Range r = refine(rest.span());
  if (r.lo > -Range::kInfinity && r.hi < Range::kInfinity) {
    const int128 lo = floor_div(r.lo, c);
    if (lo == floor_div(r.hi, c)) return *pulled + static_cast<int64_t>(lo);
  }
  return *pulled + floordiv_atom(*left, c);
}

// a / b with the largest integer and the largest provably nonzero monomial that divide every term of both removed;
// nothing when there is none.
std::optional<Dim> DimTable::Impl::cancel_common(TermSpan a, TermSpan b) {
  int64_t content = 0;
  std::vector<Factor> shared(monomials[b[0].monomial].span().begin(), monomials[b[0].monomial].span().end());
  std::erase_if(shared, [&](const Factor& f) { return atoms[f.first].range.contains(0); });
  for (TermSpan terms : {a, b}) {
    for (const PolyTerm& t : terms) {
      content = content == 0 ? (t.coefficient == INT64_MIN ? 1 : std::abs(t.coefficient)) : gcd(content, t.coefficient);
      for (Factor& f : shared) {
        int power = 0;
        for (const Factor& other : monomials[t.monomial].span())
          if (other.first == f.first) power = other.second;
        f.second = std::min(f.second, power);
      }
    }
  }
  std::erase_if(shared, [](const Factor& f) { return f.second == 0; });
  if (content <= 1 && shared.empty()) return std::nullopt;
  const PolyTerm divisor{monomial(shared), content};
  Terms x, y;
  if (!divide(a, {&divisor, 1}, x) || !divide(b, {&divisor, 1}, y)) return std::nullopt;
  const auto dx = intern(x.span()), dy = intern(y.span());
  if (!dx || !dy) return std::nullopt;
  return floordiv_dims(*dx, *dy);
}

Dim DimTable::Impl::floordiv_symbolic(Dim a, Dim b) {
  PolyTerm ka, kb;
  const TermSpan ta = terms(a, ka), tb = terms(b, kb);
  const Range rb = refine(tb);
  if (rb.contains(0)) return floordiv_atom(a, b);
  if (a.is(0)) return 0;
  Terms quotient;
  if (divide(ta, tb, quotient)) {
    if (auto q = intern(quotient.span())) return *q;
  }
  if (rb.hi < 0) return floordiv_dims(-a, -b);
  if (auto q = cancel_common(ta, tb)) return *q;

  // Multiples of a divisor of one term leave, as for a constant divisor.
  if (tb.size() == 1) {
    Terms whole, rest;
    std::vector<PolyTerm> quotients;
    for (const PolyTerm& t : ta) {
      const uint32_t m = divide_monomials(t.monomial, tb[0].monomial);
      const int64_t q = m == kNone || tb[0].coefficient == -1 ? 0 : t.coefficient / tb[0].coefficient;
      if (q != 0) quotients.push_back({m, q});
      const int64_t r = t.coefficient - q * tb[0].coefficient;
      if (r != 0) rest.push(t.monomial, r);
    }
    std::ranges::sort(quotients, {}, &PolyTerm::monomial);
    for (const PolyTerm& t : quotients) whole.push(t.monomial, t.coefficient);
    const auto pulled = intern(whole.span()), left = intern(rest.span());
    if (!quotients.empty() && pulled && left) return *pulled + floordiv_dims(*left, b);
  }

  const Range ra = refine(ta);
  if (ra.lo >= 0 && difference(a, b).hi < 0) return 0;
  const uint32_t inner = bare_atom(a);
  if (inner != kNone && atoms[inner].atom.kind == Kind::floordiv) {
    const Atom nested = atoms[inner].atom;
    if (range(nested.b).lo >= 1) return floordiv_dims(nested.a, nested.b * b);
  }
  return floordiv_atom(a, b);
}

void DimTable::Impl::flatten(Kind kind, Dim arg, std::vector<Dim>& out) {
  // k*max(x, y) + r with others under max is max(k*x + r, k*y + r) for k > 0; for k < 0 max and min change places.
  PolyTerm storage;
  const TermSpan ts = terms(arg, storage);
  uint32_t found = kNone;
  int64_t scale = 0;
  int extrema = 0;
  for (const PolyTerm& t : ts) {
    const uint32_t atom = bare_atom_of(t.monomial);
    if (atom == kNone) continue;
    const Kind k = atoms[atom].atom.kind;
    if (k != Kind::min && k != Kind::max) continue;
    ++extrema;
    if ((k == kind) == (t.coefficient > 0)) found = atom, scale = t.coefficient;
  }
  if (extrema != 1 || found == kNone || out.size() >= kMaxOperands) {
    out.push_back(arg);
    return;
  }
  const Atom atom = atoms[found].atom;
  Terms rest, sum;
  const PolyTerm itself{atoms[found].monomial, 1};
  std::array<Dim, 2> parts;
  bool fits = scale != INT64_MIN && add(ts, {&itself, 1}, -scale, rest);
  for (size_t i = 0; fits && i < 2; ++i) {
    PolyTerm k;
    fits = add(rest.span(), terms(i == 0 ? atom.a : atom.b, k), scale, sum);
    const auto d = fits ? intern(sum.span()) : std::nullopt;
    fits = d.has_value();
    if (fits) parts[i] = *d;
  }
  if (!fits) {
    out.push_back(arg);
    return;
  }
  for (Dim part : parts) flatten(kind, part, out);
}

Dim DimTable::Impl::extremum(Kind kind, std::vector<Dim> args) {
  std::vector<Dim> flat;
  for (Dim arg : args) flatten(kind, arg, flat);
  const auto before = [](Dim a, Dim b) {
    if (a.is_const() != b.is_const()) return b.is_const();
    return a.is_const() ? a.value() < b.value() : a.id() < b.id();
  };
  std::ranges::sort(flat, before);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());

  // An operand that another one provably reaches is not needed.
  if (flat.size() <= kMaxOperands) {
    for (size_t i = 0; i < flat.size(); ++i) {
      for (size_t j = 0; j < flat.size();) {
        const bool drop =
            i != j && (kind == Kind::max ? difference(flat[j], flat[i]).hi <= 0 : difference(flat[j], flat[i]).lo >= 0);
        if (!drop) {
          ++j;
          continue;
        }
        flat.erase(flat.begin() + static_cast<ptrdiff_t>(j));
        if (j < i) --i;
      }
    }
  }
  if (flat.size() == 1) return flat[0];

  // What all operands share as an addend leaves: of each monomial the smallest coefficient of a common sign.
  PolyTerm storage;
  const TermSpan first = terms(flat[0], storage);
  Terms common;
  for (const PolyTerm& t : first) {
    int64_t shared = t.coefficient;
    for (size_t i = 1; i < flat.size() && shared != 0; ++i) {
      PolyTerm k;
      const TermSpan other = terms(flat[i], k);
      const auto it = std::ranges::lower_bound(other, t.monomial, {}, &PolyTerm::monomial);
      const int64_t c = it != other.end() && it->monomial == t.monomial ? it->coefficient : 0;
      shared = shared > 0 ? std::clamp<int64_t>(c, 0, shared) : std::clamp<int64_t>(c, shared, 0);
    }
    if (shared != 0) common.push(t.monomial, shared);
  }
  Dim addend = 0;
  if (const auto d = intern(common.span())) addend = *d;
  if (!addend.is(0))
    for (Dim& d : flat) d -= addend;

  // So does a common factor.
  int64_t content = 0;
  for (Dim d : flat) {
    PolyTerm k;
    for (const PolyTerm& t : terms(d, k))
      content = content == 0 && t.coefficient != INT64_MIN ? std::abs(t.coefficient) : gcd(content, t.coefficient);
  }
  if (content > 1) {
    // The smaller operands may compare better, as intervals of floors are rounded.
    for (Dim& d : flat) d = *self->exact_div(d, content);
    return addend + Dim(content) * extremum(kind, std::move(flat));
  }

  std::ranges::sort(flat, before);
  Dim result = flat.back();
  for (size_t i = flat.size() - 1; i-- > 0;) {
    if (auto d = intern_atom(kind, flat[i], result)) {
      result = *d;
    } else {
      const Range r = atom_range(kind, flat[i], result);
      result = opaque(kind == Kind::max ? Op::max : Op::min, flat[i], result, r);
    }
  }
  return addend + result;
}

Dim floordiv(Dim a, Dim b) {
  if (a.is_const() && b.is_const()) {
    const int64_t x = a.value(), y = b.value();
    if (y == 0) return 0;
    if (y == -1) return -a;  // wraps for INT64_MIN
    return x / y - (x % y != 0 && (x < 0) != (y < 0));
  }
  return (a.is_const() ? b : a).table()->impl_->floordiv_dims(a, b);
}

Dim ceildiv(Dim a, Dim b) { return floordiv(a + b - 1, b); }

Dim mod(Dim a, Dim b) { return a - b * floordiv(a, b); }

Dim min(Dim a, Dim b) {
  if (a.is_const() && b.is_const()) return std::min(a.value(), b.value());
  if (a == b) return a;
  return (a.is_const() ? b : a).table()->impl_->extremum(DimTable::AtomKind::min, {a, b});
}

Dim max(Dim a, Dim b) {
  if (a.is_const() && b.is_const()) return std::max(a.value(), b.value());
  if (a == b) return a;
  return (a.is_const() ? b : a).table()->impl_->extremum(DimTable::AtomKind::max, {a, b});
}

}  // namespace tessera
