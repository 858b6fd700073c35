// Inside of DimTable: interned monomials, polynomials and atoms. Included by dim*.cpp only.
#pragma once

#include <array>
#include <unordered_map>

#include "tensor/dim.h"

namespace tessera {

__extension__ typedef __int128 int128;

// An interval over the integers. |lo|, |hi| <= kInfinity, which stands for unbounded on its side. Products and sums
// saturate outward, so an interval never loses a value.
struct Range {
  static constexpr int128 kInfinity = int128{1} << 100;
  int128 lo = -kInfinity;
  int128 hi = kInfinity;

  bool contains(int128 v) const { return lo <= v && v <= hi; }
  bool is_point() const { return lo == hi; }
};
Range operator+(Range a, Range b);
Range operator*(Range a, Range b);
Range meet(Range a, Range b);
Range power(Range a, int exponent);
int128 floor_div(int128 a, int128 b);  // b != 0
DimBounds to_bounds(Range r);
Range to_range(DimBounds b);

// Items kept at stable addresses, freed together.
template <class T>
class Pool {
 public:
  const T* keep(std::span<const T> items) {
    if (items.size() > left_) {
      left_ = std::max(items.size(), size_t{1024});
      blocks_.push_back(std::make_unique<T[]>(left_));
      next_ = blocks_.back().get();
    }
    T* kept = next_;
    std::copy(items.begin(), items.end(), kept);
    next_ += items.size();
    left_ -= items.size();
    return kept;
  }

 private:
  std::vector<std::unique_ptr<T[]>> blocks_;
  T* next_ = nullptr;
  size_t left_ = 0;
};

// Open-addressed hash set of ids of items that the caller keeps.
class IdSet {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  template <class Equal>
  uint32_t find(uint64_t hash, Equal&& equal) const {
    if (slots_.empty()) return kNone;
    for (size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[i];
      if (slot.id == kNone) return kNone;
      if (slot.hash == static_cast<uint32_t>(hash) && equal(slot.id)) return slot.id;
    }
  }
  void insert(uint64_t hash, uint32_t id);

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t id = kNone;
  };
  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t count_ = 0;
};

struct PolyTerm {
  uint32_t monomial;
  int64_t coefficient;  // not 0
  friend bool operator==(const PolyTerm&, const PolyTerm&) = default;
};
using TermSpan = std::span<const PolyTerm>;

// A polynomial on the stack: terms ascending by monomial id.
struct Terms {
  uint32_t count = 0;
  std::array<PolyTerm, DimTable::kMaxTerms> items;

  TermSpan span() const { return {items.data(), count}; }
  bool push(uint32_t monomial, int64_t coefficient) {
    if (count == items.size()) return false;
    items[count++] = {monomial, coefficient};
    return true;
  }
};

struct DimTable::Impl {
  using Kind = AtomKind;
  static constexpr uint32_t kNone = IdSet::kNone;
  static constexpr uint32_t kOne = 0;  // the monomial without factors

  struct Monomial {
    const Factor* factors;
    uint32_t count;
    uint32_t degree;
    uint32_t size;   // nodes as a tree
    uint32_t depth;  // nesting of atoms
    std::span<const Factor> span() const { return {factors, count}; }
  };
  struct Poly {
    const PolyTerm* terms;
    uint32_t count;
    uint32_t size;
    uint32_t depth;
    TermSpan span() const { return {terms, count}; }
  };
  struct AtomRecord {
    Atom atom;
    uint32_t monomial;
    uint32_t size;
    uint32_t depth;
    Range range;
  };
  struct SymbolRecord {
    std::string name;
    DimBounds bounds;
    uint32_t atom;
  };
  enum class Op : uint8_t { add, subtract, multiply, floordiv, min, max };
  struct OpKey {
    Op op;
    Dim a, b;
    friend bool operator==(const OpKey&, const OpKey&) = default;
  };
  struct OpKeyHash {
    size_t operator()(const OpKey& k) const { return (k.a.hash() * 31 + k.b.hash()) * 31 + static_cast<size_t>(k.op); }
  };
  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };

  explicit Impl(DimTable* self);

  // Interning (dim.cpp).
  uint32_t monomial(std::span<const Factor> factors);   // ascending atoms, powers > 0; within the degree limit
  uint32_t multiply_monomials(uint32_t a, uint32_t b);  // kNone past the degree limit
  uint32_t divide_monomials(uint32_t a, uint32_t b);    // kNone when b does not divide a
  std::optional<Dim> intern(TermSpan terms);            // nothing past the size or depth limit
  std::optional<Dim> intern_atom(Kind kind, Dim a, Dim b);
  Dim atom_dim(uint32_t atom);
  Dim make_symbol(std::string name, DimBounds bounds);
  Dim make_fresh(std::string_view hint, DimBounds bounds);
  // The symbol that stands for an operation beyond the limits.
  Dim opaque(Op op, Dim a, Dim b, Range range);
  // The terms of d; a constant's are put into `storage`.
  TermSpan terms(Dim d, PolyTerm& storage) const;
  // The atom when the polynomial is that atom alone, else kNone.
  uint32_t bare_atom(Dim d) const;
  uint32_t bare_atom_of(uint32_t monomial) const;

  // Polynomial arithmetic on the stack (dim_polynomial.cpp): false where a limit is passed.
  bool add(TermSpan a, TermSpan b, int64_t scale, Terms& out) const;  // a + scale * b
  bool multiply(TermSpan a, TermSpan b, Terms& out);
  bool divide(TermSpan a, TermSpan b, Terms& quotient);  // false also when there is a remainder
  Dim add_dims(Dim a, Dim b, int64_t sign);              // a + sign * b
  Dim multiply_dims(Dim a, Dim b);

  // Normal forms of atoms (dim_atoms.cpp).
  Dim floordiv_dims(Dim a, Dim b);
  Dim floordiv_constant(Dim a, int64_t c);
  Dim floordiv_symbolic(Dim a, Dim b);
  std::optional<Dim> cancel_common(TermSpan a, TermSpan b);
  Dim floordiv_atom(Dim a, Dim b);
  Dim extremum(Kind kind, std::vector<Dim> args);
  // Appends to `out` what max/min of `arg` and others flattens into.
  void flatten(Kind kind, Dim arg, std::vector<Dim>& out);

  // Intervals (dim_prove.cpp).
  Range atom_range(Kind kind, Dim a, Dim b);
  Range monomial_range(uint32_t monomial) const;
  Range interval(TermSpan terms) const;  // term by term
  Range shifted_interval(TermSpan terms);
  Range refine(TermSpan terms);  // eliminates atoms too
  Range refine(TermSpan terms, int& budget);
  Range eliminate(TermSpan terms, uint32_t atom, int& budget);
  Range range(Dim d);
  Range difference(Dim a, Dim b);  // of a - b
  void update_ranges(uint32_t first_atom);

  DimTable* self;
  Pool<Factor> factor_pool;
  Pool<PolyTerm> term_pool;
  std::vector<Monomial> monomials;
  std::vector<Poly> polys;
  std::vector<AtomRecord> atoms;
  std::vector<SymbolRecord> symbols;
  IdSet monomial_set, poly_set, atom_set;
  std::unordered_map<std::string, int, NameHash, std::equal_to<>> symbol_by_name;
  std::unordered_map<std::string, int, NameHash, std::equal_to<>> fresh_count;  // last number tried for a hint
  std::unordered_map<OpKey, Dim, OpKeyHash> opaques;
};

}  // namespace tessera
