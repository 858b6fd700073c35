// Interning of Dims, symbols, evaluation and substitution.
#include "tensor/dim.h"

#include <algorithm>

#include "tensor/dim_impl.h"

namespace tessera {
namespace {

uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9e3779b97f4a7c15;
  return h ^ (h >> 29);
}

}  // namespace

void IdSet::insert(uint64_t hash, uint32_t id) {
  if (2 * (count_ + 1) > slots_.size()) {
    std::vector<Slot> old(std::max<size_t>(64, 2 * slots_.size()));
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.id == kNone) continue;
      size_t i = slot.hash & (slots_.size() - 1);
      while (slots_[i].id != kNone) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = slot;
    }
  }
  const auto short_hash = static_cast<uint32_t>(hash);
  size_t i = short_hash & (slots_.size() - 1);
  while (slots_[i].id != kNone) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = {short_hash, id};
  ++count_;
}

DimTable::Impl::Impl(DimTable* self) : self(self) { monomial({}); }

uint32_t DimTable::Impl::monomial(std::span<const Factor> factors) {
  uint64_t hash = factors.size();
  for (const auto& [atom, power] : factors) hash = mix(hash, (uint64_t{atom} << 8) + static_cast<uint64_t>(power));
  const uint32_t found =
      monomial_set.find(hash, [&](uint32_t id) { return std::ranges::equal(monomials[id].span(), factors); });
  if (found != kNone) return found;
  Monomial m{factor_pool.keep(factors), static_cast<uint32_t>(factors.size()), 0, 0, 0};
  for (const auto& [atom, power] : factors) {
    m.degree += static_cast<uint32_t>(power);
    m.size += static_cast<uint32_t>(power) * atoms[atom].size;
    m.depth = std::max(m.depth, atoms[atom].depth);
  }
  monomials.push_back(m);
  const auto id = static_cast<uint32_t>(monomials.size() - 1);
  monomial_set.insert(hash, id);
  return id;
}

uint32_t DimTable::Impl::multiply_monomials(uint32_t a, uint32_t b) {
  if (a == kOne) return b;
  if (b == kOne) return a;
  const Monomial &x = monomials[a], &y = monomials[b];
  if (x.degree + y.degree > kMaxDegree) return kNone;
  std::array<Factor, kMaxDegree> out;
  size_t n = 0;
  const Factor *p = x.factors, *q = y.factors, *p_end = p + x.count, *q_end = q + y.count;
  while (p != p_end || q != q_end) {
    if (q == q_end || (p != p_end && p->first < q->first)) {
      out[n++] = *p++;
    } else if (p == p_end || q->first < p->first) {
      out[n++] = *q++;
    } else {
      out[n++] = {p->first, p->second + q->second};
      ++p, ++q;
    }
  }
  return monomial({out.data(), n});
}

uint32_t DimTable::Impl::divide_monomials(uint32_t a, uint32_t b) {
  if (b == kOne) return a;
  if (a == b) return kOne;
  const Monomial &x = monomials[a], &y = monomials[b];
  std::array<Factor, kMaxDegree> out;
  size_t n = 0;
  const Factor *q = y.factors, *q_end = q + y.count;
  for (const Factor& f : x.span()) {
    int power = f.second;
    if (q != q_end && q->first == f.first) power -= (q++)->second;
    if (power < 0) return kNone;
    if (power > 0) out[n++] = {f.first, power};
  }
  return q == q_end ? monomial({out.data(), n}) : kNone;
}

std::optional<Dim> DimTable::Impl::intern(TermSpan terms) {
  if (terms.empty()) return Dim(0);
  if (terms.size() == 1 && terms[0].monomial == kOne) return Dim(terms[0].coefficient);
  uint64_t hash = terms.size();
  for (const PolyTerm& t : terms) hash = mix(mix(hash, t.monomial), static_cast<uint64_t>(t.coefficient));
  uint32_t id = poly_set.find(hash, [&](uint32_t i) { return std::ranges::equal(polys[i].span(), terms); });
  if (id == kNone) {
    uint32_t size = 0, depth = 0;
    for (const PolyTerm& t : terms) {
      size += 1 + monomials[t.monomial].size;
      depth = std::max(depth, monomials[t.monomial].depth);
    }
    if (size > kMaxSize || depth > kMaxDepth) return std::nullopt;
    id = static_cast<uint32_t>(polys.size());
    polys.push_back({term_pool.keep(terms), static_cast<uint32_t>(terms.size()), size, depth});
    poly_set.insert(hash, id);
  }
  return Dim(self, id);
}

std::optional<Dim> DimTable::Impl::intern_atom(Kind kind, Dim a, Dim b) {
  const uint64_t hash = mix(mix(static_cast<uint64_t>(kind), a.hash()), b.hash());
  uint32_t id = atom_set.find(hash, [&](uint32_t i) {
    const Atom& x = atoms[i].atom;
    return x.kind == kind && x.a == a && x.b == b;
  });
  if (id == kNone) {
    uint32_t size = 1, depth = 0;
    for (Dim d : {a, b}) {
      size += d.is_const() ? 1 : polys[d.id()].size;
      depth = std::max(depth, d.is_const() ? 0 : polys[d.id()].depth);
    }
    if (size >= kMaxSize || depth >= kMaxDepth) return std::nullopt;
    id = static_cast<uint32_t>(atoms.size());
    atoms.push_back({Atom{kind, -1, a, b}, 0, size, depth + 1, atom_range(kind, a, b)});
    const Factor factor{id, 1};
    atoms[id].monomial = monomial({&factor, 1});
    atom_set.insert(hash, id);
  }
  return atom_dim(id);
}

Dim DimTable::Impl::atom_dim(uint32_t atom) {
  const PolyTerm term{atoms[atom].monomial, 1};
  const auto d = intern({&term, 1});
  TESSERA_CHECK(d);  // atoms are below the size limit by construction
  return *d;
}

Dim DimTable::Impl::make_symbol(std::string name, DimBounds bounds) {
  const auto index = static_cast<int>(symbols.size());
  const auto id = static_cast<uint32_t>(atoms.size());
  atoms.push_back({Atom{Kind::symbol, index, 0, 0}, 0, 1, 0, to_range(bounds)});
  const Factor factor{id, 1};
  atoms[id].monomial = monomial({&factor, 1});
  symbol_by_name.emplace(name, index);
  symbols.push_back({std::move(name), bounds, id});
  return atom_dim(id);
}

Dim DimTable::Impl::make_fresh(std::string_view hint, DimBounds bounds) {
  if (symbol_by_name.find(hint) == symbol_by_name.end()) return make_symbol(std::string(hint), bounds);
  int& number = fresh_count.try_emplace(std::string(hint), 0).first->second;
  std::string name;
  do {
    name = fmt::format("{}.{}", hint, ++number);
  } while (symbol_by_name.contains(name));
  return make_symbol(std::move(name), bounds);
}

Dim DimTable::Impl::opaque(Op op, Dim a, Dim b, Range range) {
  const OpKey key{op, a, b};
  if (auto it = opaques.find(key); it != opaques.end()) return it->second;
  const Dim d = make_fresh("opaque", to_bounds(range));
  opaques.emplace(key, d);
  return d;
}

TermSpan DimTable::Impl::terms(Dim d, PolyTerm& storage) const {
  if (!d.is_const()) {
    TESSERA_CHECK(d.table() == self);
    return polys[d.id()].span();
  }
  if (d.is(0)) return {};
  storage = {kOne, d.value()};
  return {&storage, 1};
}

uint32_t DimTable::Impl::bare_atom_of(uint32_t monomial) const {
  const Monomial& m = monomials[monomial];
  return m.degree == 1 ? m.factors[0].first : kNone;
}

uint32_t DimTable::Impl::bare_atom(Dim d) const {
  if (d.is_const()) return kNone;
  const Poly& p = polys[d.id()];
  return p.count == 1 && p.terms[0].coefficient == 1 ? bare_atom_of(p.terms[0].monomial) : kNone;
}

DimTable::DimTable() : impl_(std::make_unique<Impl>(this)) {}
DimTable::~DimTable() = default;

Dim DimTable::symbol(std::string_view name) {
  if (auto known = find(name)) return *known;
  return impl_->make_symbol(std::string(name), {0, INT64_MAX});
}

Dim DimTable::fresh(std::string_view hint, DimBounds bounds) { return impl_->make_fresh(hint, bounds); }

Status DimTable::narrow(Dim symbol, DimBounds bounds) {
  const auto index = symbol_index(symbol);
  TESSERA_CHECK(index);
  auto& record = impl_->symbols[static_cast<size_t>(*index)];
  const DimBounds both{std::max(record.bounds.lo, bounds.lo), std::min(record.bounds.hi, bounds.hi)};
  if (both.lo > both.hi)
    return fail(Code::shape_invalid, "dimension '{}' is in [{}, {}] but would have to be in [{}, {}]", record.name,
                record.bounds.lo, record.bounds.hi, bounds.lo, bounds.hi);
  if (both.lo == record.bounds.lo && both.hi == record.bounds.hi) return {};
  record.bounds = both;
  impl_->atoms[record.atom].range = to_range(both);
  impl_->update_ranges(record.atom + 1);
  return {};
}

std::optional<Dim> DimTable::find(std::string_view name) const {
  auto it = impl_->symbol_by_name.find(name);
  if (it == impl_->symbol_by_name.end()) return std::nullopt;
  return impl_->atom_dim(impl_->symbols[static_cast<size_t>(it->second)].atom);
}

int DimTable::symbol_count() const { return static_cast<int>(impl_->symbols.size()); }
std::string_view DimTable::symbol_name(int index) const { return impl_->symbols[static_cast<size_t>(index)].name; }
DimBounds DimTable::symbol_bounds(int index) const { return impl_->symbols[static_cast<size_t>(index)].bounds; }

std::optional<int> DimTable::symbol_index(Dim d) const {
  if (!d.is_const()) TESSERA_CHECK(d.table() == this);
  const uint32_t atom = impl_->bare_atom(d);
  if (atom == Impl::kNone || impl_->atoms[atom].atom.kind != AtomKind::symbol) return std::nullopt;
  return impl_->atoms[atom].atom.symbol;
}

namespace {

void collect_symbols(const DimTable& table, Dim d, std::vector<int>& out) {
  if (d.is_const()) return;
  for (const auto& term : table.terms(d)) {
    for (const auto& [index, power] : term.factors) {
      const DimTable::Atom& atom = table.atom(index);
      if (atom.kind == DimTable::AtomKind::symbol) {
        out.push_back(atom.symbol);
      } else {
        collect_symbols(table, atom.a, out);
        collect_symbols(table, atom.b, out);
      }
    }
  }
}

}  // namespace

std::vector<int> DimTable::symbols_of(Dim d) const {
  std::vector<int> found;
  collect_symbols(*this, d, found);
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::vector<DimTable::Term> DimTable::terms(Dim d) const {
  PolyTerm storage;
  std::vector<Term> out;
  for (const PolyTerm& t : impl_->terms(d, storage))
    out.push_back({t.coefficient, impl_->monomials[t.monomial].span()});
  return out;
}

const DimTable::Atom& DimTable::atom(uint32_t index) const { return impl_->atoms[index].atom; }

namespace {

// Evaluates with 128-bit intermediates, so that only a value that does not fit int64 is an overflow.
struct Evaluation {
  const DimTable& table;
  const DimBindings& bindings;

  Result<int128> run(Dim d) const {
    if (d.is_const()) return int128{d.value()};
    int128 sum = 0;
    for (const auto& term : table.terms(d)) {
      int128 product = term.coefficient;
      for (const auto& [index, power] : term.factors) {
        TESSERA_ASSIGN(const int128 value, run_atom(table.atom(index)));
        for (int i = 0; i < power; ++i)
          if (__builtin_mul_overflow(product, value, &product)) return overflow(d);
      }
      if (__builtin_add_overflow(sum, product, &sum)) return overflow(d);
    }
    return sum;
  }

  Result<int128> run_atom(const DimTable::Atom& atom) const {
    if (atom.kind == DimTable::AtomKind::symbol) {
      const auto i = static_cast<size_t>(atom.symbol);
      if (i >= bindings.size() || !bindings[i])
        return fail(Code::shape_invalid, "dimension '{}' has no value", table.symbol_name(atom.symbol));
      return int128{*bindings[i]};
    }
    TESSERA_ASSIGN(const int128 a, run(atom.a));
    TESSERA_ASSIGN(const int128 b, run(atom.b));
    if (atom.kind == DimTable::AtomKind::min) return std::min(a, b);
    if (atom.kind == DimTable::AtomKind::max) return std::max(a, b);
    if (b == 0) return fail(Code::shape_invalid, "the divisor {} of {} is 0", table.print(atom.b), table.print(atom.a));
    int128 negated;
    if (b == -1 && !__builtin_sub_overflow(int128{0}, a, &negated)) return negated;
    if (b == -1) return overflow(atom.a);
    return floor_div(a, b);
  }

  tl::unexpected<Error> overflow(Dim d) const {
    return fail(Code::shape_invalid, "{} does not fit 64 bits for the given dimensions", table.print(d));
  }
};

}  // namespace

Result<int64_t> DimTable::evaluate(Dim d, const DimBindings& bindings) const {
  if (d.is_const()) return d.value();
  TESSERA_CHECK(d.table() == this);
  const Evaluation evaluation{*this, bindings};
  TESSERA_ASSIGN(const int128 value, evaluation.run(d));
  if (value < INT64_MIN || value > INT64_MAX) return evaluation.overflow(d);
  return static_cast<int64_t>(value);
}

Dim DimTable::substitute(Dim d, std::span<const std::optional<Dim>> to) {
  if (d.is_const()) return d;
  TESSERA_CHECK(d.table() == this);
  Dim sum = 0;
  for (const Term& term : terms(d)) {
    Dim product = term.coefficient;
    for (const auto& [index, power] : term.factors) {
      const Atom atom = impl_->atoms[index].atom;  // a copy: interning moves the records
      Dim value;
      if (atom.kind == AtomKind::symbol) {
        const auto i = static_cast<size_t>(atom.symbol);
        value = i < to.size() && to[i] ? *to[i] : impl_->atom_dim(index);
      } else {
        const Dim a = substitute(atom.a, to), b = substitute(atom.b, to);
        value = atom.kind == AtomKind::floordiv ? floordiv(a, b) : atom.kind == AtomKind::min ? min(a, b) : max(a, b);
      }
      for (int i = 0; i < power; ++i) product *= value;
    }
    sum += product;
  }
  return sum;
}

Dim product(std::span<const Dim> dims) {
  Dim all = 1;
  for (Dim d : dims) all *= d;
  return all;
}

}  // namespace tessera
