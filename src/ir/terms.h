// Canonical terms beside a graph: what a value is, whichever way it was spelled.
//
// Sums and products are multisets: a - b is a + (-1) b, a / c is (1/c) a, a / sqrt(b) is a b^-0.5, constants are
// merged, x x is x^2, x + x y is x (1 + y), erf(-x) is -erf(x), and a sum over n elements divided by n is a mean. An
// inner sum or product dissolves into the one around it when nothing else uses it. Views compose; casts between floats
// are looked through: the terms are equal in real arithmetic, not in rounding. The graph is never changed.
#pragma once

#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "ir/op_def.h"

namespace tessera::ir {

using TermId = uint32_t;
constexpr TermId kNoTerm = ~TermId{0};
// How far below a term its operators are known; patterns look a step less far, since a product that others use too is
// one more step.
constexpr int kDepthOfOperators = 4;

struct Term {
  enum class Kind : uint8_t {
    leaf,     // a value that is not looked into
    literal,  // a number, of whatever shape
    size,     // a number that is known as an expression of sizes
    apply,    // an operator on args
    mean,     // mean of args[0] over attrs' axes
    sum,      // of args
    product,  // number times args[i] ^ exponents[i]
  };
  Kind kind = Kind::leaf;
  const OpDef* op = nullptr;           // apply
  AttrsRef attrs = nullptr;            // apply, mean; the axes of reductions and of softmax count from the end
  double number = 0;                   // literal, product
  Dim size = 0;                        // size; apply of a reduction: how many elements it reduces
  ValueId leaf = kNoValue;             // leaf
  std::vector<TermId> args = {};       // sum, product: ascending
  std::vector<double> exponents = {};  // product: parallel to args
  bool operator==(const Term&) const = default;
};

class Terms {
 public:
  using Factor = std::pair<TermId, double>;  // base, exponent

  // `pull_scalars`: numbers leave the operands of dot and of views.
  Terms(const Graph& graph, bool pull_scalars);

  TermId of(ValueId v) const { return of_value_[v]; }
  const Term& operator[](TermId t) const { return terms_[t]; }  // good as long as the terms
  size_t size() const { return terms_.size(); }
  // The operators that the term and what stands up to kDepthOfOperators below it apply, a bit each (some share one),
  // sums and means included; all for a term that was made later.
  uint64_t operators(TermId t) const { return t < operators_.size() ? operators_[t] : ~uint64_t{0}; }
  uint64_t own_operator(TermId t) const;
  // The graph's values that are this term; none for a term that only normalisation made.
  std::span<const ValueId> values(TermId t) const {
    if (t + 1 >= first_value_.size()) return {};
    return {values_.data() + first_value_[t], first_value_[t + 1] - first_value_[t]};
  }
  // How many operands and outputs are this value.
  uint32_t uses(ValueId v) const { return uses_[v]; }
  const Shape& shape(ValueId v) const { return graph_.type(v)->shape; }

  TermId literal(double number);
  TermId sum(std::vector<TermId> addends);
  TermId product(double number, std::vector<Factor> factors);
  TermId view(TermId base, View view) { return this->view(base, graph_.context().attrs(Attrs{{std::move(view)}})); }
  TermId view(TermId base, AttrsRef view);
  // The term as number and factors: anything is a product of itself.
  std::pair<double, std::vector<Factor>> factors(TermId t) const;

 private:
  struct Hash {
    size_t operator()(const Term& t) const;
  };
  TermId intern(Term term);
  TermId leaf(ValueId v);
  TermId apply(const OpDef& op, AttrsRef attrs, std::vector<TermId> args, Dim size = 0);
  TermId of_node(NodeId n);
  TermId of_real(NodeId n);
  TermId of_constant(NodeId n, ValueId v);
  TermId of_cast(NodeId n);
  TermId reduction(NodeId n);
  TermId dot(NodeId n);
  // Replaces the products that others use too in the parts of a sum (base, number) by their factors, if there are any.
  bool take_apart(std::vector<std::pair<TermId, double>>& parts);
  // Takes out of the parts of a sum (base, number) what all of them are multiplied by.
  std::vector<Factor> take_common(std::vector<std::pair<TermId, double>>& parts);
  // Whether the value may lose itself in the sum or product that uses it.
  bool dissolves(ValueId v) const { return uses_[v] == 1; }
  void add_addends(ValueId v, double sign, std::vector<TermId>& to, int depth);
  // Multiplies v^exponent into number and factors.
  void add_factors(ValueId v, double exponent, double& number, std::vector<Factor>& to);

  void collect_operators();

  const Graph& graph_;
  bool pull_scalars_;
  std::deque<Term> terms_;
  std::vector<uint32_t> first_value_;  // by term, into values_; terms made later have none
  std::vector<ValueId> values_;
  std::vector<TermId> of_value_;
  std::vector<uint64_t> operators_;
  std::vector<uint32_t> uses_;
  struct Slot {
    uint32_t hash = 0;
    TermId term = kNoTerm;
  };
  Slot* free_slot(uint32_t hash);  // where a new term of this hash goes
  std::vector<Slot> interned_;     // an open hash table: a power of two, at most half of it taken
};

}  // namespace tessera::ir
