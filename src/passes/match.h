// Matching of patterns against the terms of a graph.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/terms.h"

namespace tessera::passes {

// Exports write constants with seven digits.
constexpr double kLiteralTolerance = 2e-6;

// A formula over variables, normalised as graphs are.
class Pattern {
 public:
  // A number that stands for an attribute: whatever stands at its place is the attribute.
  struct Hole {
    double stand_in;
    int attr;
  };

  struct Options {
    bool pull_scalars = false;             // as in Terms
    double tolerance = kLiteralTolerance;  // of numbers, relative
  };

  // `graph` has one input a present operand and one output; `operands` says which operand each input is.
  Pattern(ir::Graph graph, std::vector<int> operands, std::vector<Hole> holes, Options options);
  Pattern(Pattern&&) = delete;  // terms_ refers to graph_

  const ir::Terms& terms() const { return terms_; }
  ir::TermId root() const { return terms_.of(graph_.outputs[0]); }
  const std::vector<Hole>& holes() const { return holes_; }
  size_t variables() const { return operands_.size(); }
  ir::ValueId value_of(int variable) const { return graph_.inputs[static_cast<size_t>(variable)]; }
  int operand(size_t variable) const { return operands_[variable]; }
  // The variable that a term is; -1 for any other term.
  int variable(ir::TermId t) const { return variables_[t]; }
  // What the term, a sum or product, is made of, in the order in which to look for it: what holds a variable whole
  // comes before what holds a part of it, and variables themselves last.
  std::span<const ir::Terms::Factor> parts(ir::TermId t) const { return parts_[t]; }
  // Operators that have to stand below what matches the root; bits as of Terms::operators().
  uint64_t needs() const { return needs_; }
  // Operators that the pattern holds: of two that fit, the larger is the better one.
  int size() const { return size_; }
  double tolerance() const { return tolerance_; }

 private:
  ir::Graph graph_;
  std::vector<int> operands_;
  std::vector<Hole> holes_;
  ir::Terms terms_;
  int rank(ir::TermId t) const;
  // Whether the term holds a view of a variable that is no permutation.
  bool holds_part(ir::TermId t) const;
  uint64_t needs(ir::TermId t, int depth) const;

  int size_;
  double tolerance_;
  uint64_t needs_ = 0;
  std::vector<int> variables_;                         // by term
  std::vector<std::vector<ir::Terms::Factor>> parts_;  // by term
};

struct Match {
  std::vector<ir::TermId> variables;         // what each variable is; never kNoTerm
  std::vector<std::optional<double>> holes;  // parallel to Pattern::holes()
  double left_number = 1;                    // a product's root: what is left outside
  std::vector<ir::Terms::Factor> left_factors;
  std::vector<ir::TermId> left_addends;  // a sum's root
};

// Calls accept with the ways in which `subject` contains the pattern as its root, until one is accepted. Inner values
// match whole; the root of a sum or product may leave others outside. `subject` may make new terms. Numbers may differ
// by `tolerance`, relative, or by the pattern's own where that is larger.
bool match(const Pattern& pattern, ir::Terms& subject, ir::TermId root, double tolerance,
           const std::function<bool(const Match&)>& accept);

}  // namespace tessera::passes
