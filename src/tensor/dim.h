// Symbolic sizes. A Dim is an interned polynomial with integer coefficients over symbols and over the atoms
// floordiv(a, b), min(a, b), max(a, b); equal polynomials are the same id, so == is a comparison of ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tessera {

class DimTable;
struct DimOps;

// A size or an integer that sizes are computed from. Constants carry their value and need no table; everything else is
// an id in its table. Arithmetic between Dims of different tables is a broken invariant; constants mix with any.
// Constant arithmetic wraps modulo 2^64 as the element type i64 does. A polynomial whose coefficient would overflow, or
// that would pass a limit below, becomes an opaque symbol, so every operation has a result of bounded size; the same
// operation on the same operands gives the same symbol.
class Dim {
 public:
  constexpr Dim(int64_t value = 0) : table_(nullptr), v_(value) {}
  bool is_const() const { return table_ == nullptr; }
  int64_t value() const {
    TESSERA_CHECK(is_const());
    return v_;
  }
  bool is(int64_t value) const { return is_const() && v_ == value; }
  DimTable* table() const { return table_; }
  uint32_t id() const { return static_cast<uint32_t>(v_); }  // only when !is_const()

  friend bool operator==(const Dim& a, const Dim& b) { return a.table_ == b.table_ && a.v_ == b.v_; }
  friend Dim operator+(Dim a, Dim b);
  friend Dim operator-(Dim a, Dim b);
  friend Dim operator*(Dim a, Dim b);
  friend Dim operator-(Dim a) { return Dim(0) - a; }
  Dim& operator+=(Dim b) { return *this = *this + b; }
  Dim& operator-=(Dim b) { return *this = *this - b; }
  Dim& operator*=(Dim b) { return *this = *this * b; }
  size_t hash() const {
    return (std::hash<const void*>()(table_) ^ static_cast<size_t>(v_)) * size_t{0x9e3779b97f4a7c15};
  }

 private:
  friend class DimTable;
  friend struct DimOps;
  Dim(DimTable* table, uint32_t id) : table_(table), v_(id) {}
  DimTable* table_;
  int64_t v_;
};

// The paths of the operations that are not constant with constant.
struct DimOps {
  static Dim add(Dim a, Dim b);
  static Dim subtract(Dim a, Dim b);
  static Dim multiply(Dim a, Dim b);
};

inline Dim operator+(Dim a, Dim b) {
  if (a.is_const() && b.is_const()) return static_cast<int64_t>(static_cast<uint64_t>(a.v_) + b.v_);
  return DimOps::add(a, b);
}
inline Dim operator-(Dim a, Dim b) {
  if (a.is_const() && b.is_const()) return static_cast<int64_t>(static_cast<uint64_t>(a.v_) - b.v_);
  return DimOps::subtract(a, b);
}
inline Dim operator*(Dim a, Dim b) {
  if (a.is_const() && b.is_const()) return static_cast<int64_t>(static_cast<uint64_t>(a.v_) * b.v_);
  return DimOps::multiply(a, b);
}

// Rounds toward -infinity. Where b is 0 the value is unspecified: constants give 0, evaluate() reports it.
Dim floordiv(Dim a, Dim b);
Dim ceildiv(Dim a, Dim b);
Dim mod(Dim a, Dim b);  // a - b * floordiv(a, b): has the sign of b, and is no atom of its own
Dim min(Dim a, Dim b);
Dim max(Dim a, Dim b);

struct DimBounds {
  int64_t lo;  // inclusive
  int64_t hi;  // inclusive; INT64_MAX when unbounded
};

// Values of symbols, by symbol index; nullopt where not bound.
using DimBindings = std::vector<std::optional<int64_t>>;

// Interns Dims and owns their symbols. evaluate(), print(), terms(), atom() and what tells about symbols only read and
// may run concurrently; everything else, proofs included, may intern and needs the table for itself.
class DimTable {
 public:
  DimTable();
  ~DimTable();
  DimTable(const DimTable&) = delete;
  DimTable& operator=(const DimTable&) = delete;

  // Limits of one Dim: terms of the polynomial, degree of a term, nodes when written as a tree, nesting of atoms.
  static constexpr int kMaxTerms = 64;
  static constexpr int kMaxDegree = 16;
  static constexpr int kMaxSize = 512;
  static constexpr int kMaxDepth = 64;

  // The symbol of this name, made on first use with bounds [0, INT64_MAX].
  Dim symbol(std::string_view name);
  // A new symbol whose name starts with `hint` and is unused ("n", "n.1", ...).
  Dim fresh(std::string_view hint, DimBounds bounds = {0, INT64_MAX});
  // Narrows a symbol's bounds to their intersection with `bounds`. `symbol` must be a bare symbol. A symbol narrowed to
  // one value stays a symbol. E0313 when the intersection is empty.
  Status narrow(Dim symbol, DimBounds bounds);
  std::optional<Dim> find(std::string_view name) const;
  int symbol_count() const;
  std::string_view symbol_name(int index) const;
  DimBounds symbol_bounds(int index) const;
  // The symbol's index when `d` is a bare symbol.
  std::optional<int> symbol_index(Dim d) const;
  // Indices of the symbols that occur anywhere in `d`, ascending.
  std::vector<int> symbols_of(Dim d) const;

  // Interval arithmetic over the symbols' bounds, saturating.
  DimBounds bounds(Dim d) const;
  // True only when proved for all values within bounds: by a - b simplifying to a constant, or by its interval.
  bool proves_eq(Dim a, Dim b) const;
  bool proves_ne(Dim a, Dim b) const;
  bool proves_le(Dim a, Dim b) const;
  bool proves_lt(Dim a, Dim b) const;
  bool proves_divisible(Dim a, Dim b) const;
  // A q with a == q * b for all values: a constant divides all coefficients, or the polynomials divide. Where b can be
  // 0 the equation holds there too, but other q would do as well. Nothing when b is the constant 0.
  std::optional<Dim> exact_div(Dim a, Dim b) const;

  // The value under `bindings`; E0313 when a symbol is unbound or the arithmetic overflows.
  Result<int64_t> evaluate(Dim d, const DimBindings& bindings) const;
  // Replaces symbols by Dims of this or another table (`to[i]` for symbol i, nullopt keeps it; when the target table
  // differs every symbol must be given).
  Dim substitute(Dim d, std::span<const std::optional<Dim>> to);

  // "4*batch*seq + 1", "floordiv(seq + 3, 4)", "max(a, b, 1)". Names that are no identifiers stand in double quotes.
  // The text does not depend on the order in which the table came to know its symbols.
  std::string print(Dim d) const;
  // Reads what print() writes, parentheses, mod() and ceildiv(), creating symbols by name. E0205 otherwise.
  Result<Dim> parse(std::string_view text);

  // For those that walk the structure.
  using Factor = std::pair<uint32_t, int>;  // (atom, power)
  struct Term {
    int64_t coefficient;
    std::span<const Factor> factors;  // ascending atoms; empty for the constant term. Lives as long as the table
  };
  enum class AtomKind : uint8_t { symbol, floordiv, min, max };
  struct Atom {
    AtomKind kind;
    int symbol;  // index, or -1 for the other kinds
    Dim a, b;    // operands, constant 0 for a symbol
  };
  std::vector<Term> terms(Dim d) const;
  const Atom& atom(uint32_t index) const;

 private:
  friend struct DimOps;
  struct Impl;
  std::unique_ptr<Impl> impl_;
  friend Dim floordiv(Dim, Dim);
  friend Dim min(Dim, Dim);
  friend Dim max(Dim, Dim);
};

// "4", "batch", "2*seq": prints through the Dim's own table.
std::string to_string(Dim d);
// "[batch, 4, 2*seq]"
std::string to_string(std::span<const Dim> shape);

using Shape = std::vector<Dim>;
// Product of all dims; 1 for none.
Dim product(std::span<const Dim> dims);

}  // namespace tessera

template <>
struct std::hash<tessera::Dim> {
  size_t operator()(const tessera::Dim& d) const { return d.hash(); }
};
