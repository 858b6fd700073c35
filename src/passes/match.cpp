#include "passes/match.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>

#include "ir/core_ops.h"

namespace tessera::passes {
namespace {

using ir::Term;
using ir::TermId;
using ir::Terms;
using Kind = Term::Kind;
using Factor = Terms::Factor;

// Sums and products of more parts are not searched: a bit each.
constexpr size_t kMostParts = 64;

// A search this long has found nothing that a person would call the same formula.
constexpr int kMaxSteps = 4000;

bool close(double a, double b, double tolerance) {
  return a == b || std::fabs(a - b) <= tolerance * std::max(std::fabs(a), std::fabs(b));
}

bool same_attrs(const ir::Attrs& a, const ir::Attrs& b, double tolerance) {
  if (a.values.size() != b.values.size()) return false;
  for (size_t i = 0; i < a.values.size(); ++i) {
    const double* x = std::get_if<double>(&a.values[i]);
    const double* y = std::get_if<double>(&b.values[i]);
    if (x && y ? !close(*x, *y, tolerance) : a.values[i] != b.values[i]) return false;
  }
  return true;
}

// The permutation that a view of a base of this shape is: result axis i is base axis p[i]; nothing when it is none.
std::optional<std::vector<int>> permutation_of(const ir::View& view, const Shape& shape) {
  std::vector<int> permutation;
  std::vector<bool> seen(view.offsets.size(), false);
  for (const auto& axis : view.axes) {
    if (axis.size() != 1 || axis[0].axis < 0 || axis[0].tied || !axis[0].stride.is(1)) return std::nullopt;
    const auto base = static_cast<size_t>(axis[0].axis);
    if (seen[base] || !view.offsets[base].is(0) || !(axis[0].size == shape[base])) return std::nullopt;
    seen[base] = true;
    permutation.push_back(axis[0].axis);
  }
  if (permutation.size() != seen.size()) return std::nullopt;
  return permutation;
}

// What has to match as well; refers to a function that outlives it.
class Next {
 public:
  template <class F>
  Next(const F& f) : f_(&f), call_([](const void* g) { return (*static_cast<const F*>(g))(); }) {}
  Next(const Next&) = default;
  bool operator()() const { return call_(f_); }

 private:
  const void* f_;
  bool (*call_)(const void*);
};

class Matcher {
 public:
  Matcher(const Pattern& pattern, Terms& subject, double tolerance)
      : pattern_(pattern), p_(pattern.terms()), s_(subject), tolerance_(std::max(tolerance, pattern.tolerance())) {
    found_.variables.assign(pattern.variables(), ir::kNoTerm);
    found_.holes.assign(pattern.holes().size(), std::nullopt);
  }

  bool run(TermId root, const std::function<bool(const Match&)>& accept) {
    const auto all_bound = [&] {
      for (TermId t : found_.variables)
        if (t == ir::kNoTerm) return false;
      return accept(found_);
    };
    return match(pattern_.root(), root, true, all_bound);
  }

 private:
  bool match(TermId p, TermId s, bool root, const Next& next) {
    if (++steps_ > kMaxSteps) return false;
    if (const int variable = pattern_.variable(p); variable >= 0) return bind(variable, s, next);
    const Term& pattern = p_[p];
    switch (pattern.kind) {
      case Kind::leaf:
      case Kind::size:
        return false;
      case Kind::literal:
        return s_[s].kind == Kind::literal && number(pattern.number, s_[s].number, next);
      case Kind::apply:
        return match_apply(pattern, s, next);
      case Kind::mean:
        return s_[s].kind == Kind::mean && same_attrs(*pattern.attrs, *s_[s].attrs, tolerance_) &&
               match(pattern.args[0], s_[s].args[0], false, next);
      case Kind::sum: {
        const Term& subject = s_[s];
        if (subject.kind != Kind::sum || subject.args.size() > kMostParts) return false;
        std::vector<Factor> given, apart;
        for (TermId t : subject.args) {
          given.emplace_back(t, 1);
          if (s_[t].kind != Kind::sum)
            apart.emplace_back(t, 1);
          else
            for (TermId inner : s_[t].args) apart.emplace_back(inner, 1);
        }
        // A sum inside that others use too stands as one addend; the pattern may see into it.
        const bool nested = apart.size() != given.size() && apart.size() <= kMostParts;
        return match_all({Kind::sum, pattern_.parts(p), std::move(given), root, next}, 0, 0) ||
               (nested && match_all({Kind::sum, pattern_.parts(p), std::move(apart), root, next}, 0, 0));
      }
      case Kind::product:
        return match_product(p, s, root, next);
    }
    return false;
  }

  bool bind(int variable, TermId s, const Next& next) {
    TermId& bound = found_.variables[static_cast<size_t>(variable)];
    if (bound != ir::kNoTerm) return bound == s && next();
    if (s_[s].kind == Kind::literal || s_[s].kind == Kind::size) return false;
    bound = s;
    if (next()) return true;
    found_.variables[static_cast<size_t>(variable)] = ir::kNoTerm;
    return false;
  }

  // A number of the pattern against one of the graph.
  bool number(double wanted, double given, const Next& next) {
    for (size_t i = 0; i < pattern_.holes().size(); ++i) {
      if (std::fabs(wanted - pattern_.holes()[i].stand_in) > 1e-9) continue;
      std::optional<double>& hole = found_.holes[i];
      if (hole) return close(*hole, given, tolerance_) && next();
      hole = given;
      if (next()) return true;
      found_.holes[i].reset();
      return false;
    }
    return close(wanted, given, tolerance_) && next();
  }
  bool is_hole(double wanted) const {
    return std::any_of(pattern_.holes().begin(), pattern_.holes().end(),
                       [&](const Pattern::Hole& h) { return std::fabs(wanted - h.stand_in) <= 1e-9; });
  }

  bool match_apply(const Term& pattern, TermId s, const Next& next) {
    if (pattern.op == &ir::core::view)
      if (const int variable = pattern_.variable(pattern.args[0]); variable >= 0)
        return match_view(variable, pattern, s, next);
    const Term& subject = s_[s];
    if (subject.kind != Kind::apply || subject.op != pattern.op || subject.args.size() != pattern.args.size() ||
        !same_attrs(*pattern.attrs, *subject.attrs, tolerance_))
      return false;
    if (match_args(pattern, subject.args, 0, next)) return true;
    if (!pattern.op->commutative || subject.args.size() != 2) return false;
    const TermId swapped[] = {subject.args[1], subject.args[0]};
    return match_args(pattern, swapped, 0, next);
  }

  // A view of a variable: what is bound has this view, or whatever stands there is the variable, taken back.
  bool match_view(int variable, const Term& pattern, TermId s, const Next& next) {
    const auto& view = std::get<ir::View>(pattern.attrs->values[0]);
    const TermId bound = found_.variables[static_cast<size_t>(variable)];
    if (const auto permutation = permutation_of(view, p_.shape(pattern_.value_of(variable)))) {
      const std::optional<Shape> shape = shape_of(s);
      if (!shape || shape->size() != permutation->size()) return false;
      std::vector<int> inverse(permutation->size());
      for (size_t i = 0; i < inverse.size(); ++i) inverse[static_cast<size_t>((*permutation)[i])] = static_cast<int>(i);
      return match(pattern.args[0], s_.view(s, ir::transpose_view(*shape, inverse)), false, next);
    }
    if (bound != ir::kNoTerm) {
      const std::optional<Shape> shape = shape_of(bound);  // tables may have fewer axes than the pattern's
      return shape && static_cast<int>(shape->size()) == view.base_rank() && s_.view(bound, view) == s && next();
    }
    const TermId whole = widened(p_.shape(pattern_.value_of(variable)), view, s);
    return whole != ir::kNoTerm && match(pattern.args[0], whole, false, next);
  }

  // What `s` is every n-th element of, from the first, along the last axis; kNoTerm when that cannot be told. What
  // lies between is looked at when the variable is met again.
  TermId widened(const Shape& whole, const ir::View& view, TermId s) {
    const Term& term = s_[s];
    if (whole.empty() || view.axes.size() != whole.size() || term.kind != Kind::apply || term.op != &ir::core::view)
      return ir::kNoTerm;
    const int last = static_cast<int>(whole.size()) - 1;
    for (int a = 0; a <= last; ++a) {
      const auto& atoms = view.axes[static_cast<size_t>(a)];
      if (!view.offsets[static_cast<size_t>(a)].is(0)) return ir::kNoTerm;
      if (whole[static_cast<size_t>(a)].is(1) && atoms.empty()) continue;
      if (atoms.size() != 1 || atoms[0].axis != a || (a < last && !(atoms[0].size == whole[static_cast<size_t>(a)])))
        return ir::kNoTerm;
    }
    ir::View found = std::get<ir::View>(term.attrs->values[0]);
    if (found.axes.size() != whole.size() || found.axes.back().size() != 1) return ir::kNoTerm;
    ir::ViewAtom& atom = found.axes.back()[0];
    const Dim step = view.axes.back()[0].stride;
    if (atom.axis < 0 || !(atom.size == view.axes.back()[0].size) || !step.is_const() || !atom.stride.is_const() ||
        step.value() < 1 || atom.stride.value() % step.value() != 0)
      return ir::kNoTerm;
    atom.stride = atom.stride.value() / step.value();
    atom.size = whole.back();
    const TermId base = term.args[0];
    return s_.view(base, std::move(found));
  }

  bool match_args(const Term& pattern, std::span<const TermId> args, size_t i, const Next& next) {
    if (i == args.size()) return next();
    if ((pattern.args[i] == ir::kNoTerm) != (args[i] == ir::kNoTerm)) return false;
    auto rest = [&, i] { return match_args(pattern, args, i + 1, next); };
    return args[i] == ir::kNoTerm ? rest() : match(pattern.args[i], args[i], false, rest);
  }

  std::optional<Shape> shape_of(TermId s) const {
    const Term& term = s_[s];
    if (term.kind == Kind::apply && term.op == &ir::core::view)
      return std::get<ir::View>(term.attrs->values[0]).shape();
    if (s_.values(s).empty()) return std::nullopt;
    return s_.shape(s_.values(s)[0]);
  }

  // Of `given`, those whose bit is set in a number have their partner.
  struct Group {
    Kind kind;
    std::span<const Factor> wanted;
    std::vector<Factor> given;
    bool root;
    const Next& next;
  };

  bool match_product(TermId p, TermId s, bool root, const Next& next) {
    auto [number, given] = s_.factors(s);
    if (match_factors(p, number, given, root, next)) return true;
    // A product inside that others use too stands as one factor; the pattern may see into it.
    std::vector<Factor> apart;
    bool nested = false;
    for (const Factor& f : given) {
      if (f.second != 1 || s_[f.first].kind != Kind::product) {
        apart.push_back(f);
        continue;
      }
      const auto [own, inner] = s_.factors(f.first);
      number *= own;
      apart.insert(apart.end(), inner.begin(), inner.end());
      nested = true;
    }
    if (!nested) return false;
    std::tie(number, apart) = s_.factors(s_.product(number, std::move(apart)));
    return match_factors(p, number, std::move(apart), root, next);
  }

  bool match_factors(TermId p, double given_number, std::vector<Factor> given, bool root, const Next& next) {
    const Term& pattern = p_[p];
    if (given.size() > kMostParts) return false;
    const Group group{Kind::product, pattern_.parts(p), std::move(given), root, next};
    if (root && !is_hole(pattern.number)) {
      found_.left_number = given_number / pattern.number;
      return match_all(group, 0, 0);
    }
    const auto rest = [&] { return match_all(group, 0, 0); };
    return number(pattern.number, given_number, rest);
  }

  static std::vector<Factor> left_of(const Group& group, uint64_t taken) {
    std::vector<Factor> left;
    for (size_t j = 0; j < group.given.size(); ++j)
      if ((taken >> j & 1) == 0) left.push_back(group.given[j]);
    return left;
  }

  // Finds a partner among group.given for each of wanted from `i` on.
  bool match_all(const Group& group, size_t i, uint64_t taken) {
    if (i == group.wanted.size()) {
      std::vector<Factor> left = left_of(group, taken);
      if (left.empty()) return group.next();
      return group.root && with_leftovers(group, std::move(left));
    }
    const auto [wanted, exponent] = group.wanted[i];
    for (size_t j = 0; j < group.given.size(); ++j) {
      if ((taken >> j & 1) != 0 || group.given[j].second != exponent) continue;
      const auto rest = [&] { return match_all(group, i + 1, taken | uint64_t{1} << j); };
      if (match(wanted, group.given[j].first, false, rest)) return true;
    }
    // Inside, the last variable takes all that is left.
    if (group.root || i + 1 != group.wanted.size() || exponent != 1 || pattern_.variable(wanted) < 0) return false;
    std::vector<Factor> left = left_of(group, taken);
    if (left.size() < 2) return false;
    std::vector<TermId> addends;
    for (const Factor& f : left) addends.push_back(f.first);
    const TermId rest = group.kind == Kind::sum ? s_.sum(std::move(addends)) : s_.product(1, std::move(left));
    return !s_.values(rest).empty() && match(wanted, rest, false, group.next);
  }

  bool with_leftovers(const Group& group, std::vector<Factor> left) {
    if (group.kind == Kind::product) {
      found_.left_factors = std::move(left);
    } else {
      for (const Factor& f : left) found_.left_addends.push_back(f.first);
    }
    if (group.next()) return true;
    found_.left_factors.clear();
    found_.left_addends.clear();
    return false;
  }

  const Pattern& pattern_;
  const Terms& p_;
  Terms& s_;
  double tolerance_;
  Match found_;
  int steps_ = 0;
};

}  // namespace

Pattern::Pattern(ir::Graph graph, std::vector<int> operands, std::vector<Hole> holes, Options options)
    : graph_(std::move(graph)),
      operands_(std::move(operands)),
      holes_(std::move(holes)),
      terms_(graph_, options.pull_scalars),
      size_(0),
      tolerance_(options.tolerance) {
  for (ir::NodeId n = 0; n < graph_.node_count(); ++n) size_ += graph_.node(n).op != &ir::core::constant;
  variables_.assign(terms_.size(), -1);
  for (size_t i = 0; i < graph_.inputs.size(); ++i) variables_[terms_.of(graph_.inputs[i])] = static_cast<int>(i);
  parts_.resize(terms_.size());
  for (TermId t = 0; t < terms_.size(); ++t) {
    const Term& term = terms_[t];
    if (term.kind != Kind::sum && term.kind != Kind::product) continue;
    for (size_t i = 0; i < term.args.size(); ++i)
      parts_[t].emplace_back(term.args[i], term.kind == Kind::product ? term.exponents[i] : 1);
    std::stable_sort(parts_[t].begin(), parts_[t].end(),
                     [&](const Factor& a, const Factor& b) { return rank(a.first) < rank(b.first); });
  }
  needs_ = needs(root(), ir::kDepthOfOperators - 1) & ~terms_.own_operator(root());
}

int Pattern::rank(TermId t) const { return variable(t) >= 0 ? 2 : holds_part(t) ? 1 : 0; }

bool Pattern::holds_part(TermId t) const {
  const Term& term = terms_[t];
  if (term.kind == Kind::apply && term.op == &ir::core::view && variable(term.args[0]) >= 0)
    return !permutation_of(std::get<ir::View>(term.attrs->values[0]), terms_.shape(terms_[term.args[0]].leaf));
  return std::any_of(term.args.begin(), term.args.end(),
                     [&](TermId arg) { return arg != ir::kNoTerm && holds_part(arg); });
}

uint64_t Pattern::needs(TermId t, int depth) const {
  const Term& term = terms_[t];
  if (variable(t) >= 0) return 0;
  // A view of a variable is whatever stands there, taken back.
  const bool view = term.kind == Kind::apply && term.op == &ir::core::view;
  if (view && variable(term.args[0]) >= 0) return 0;
  uint64_t all = view ? 0 : terms_.own_operator(t);
  for (size_t i = 0; depth > 0 && i < term.args.size(); ++i)
    if (term.args[i] != ir::kNoTerm) all |= needs(term.args[i], depth - 1);
  return all;
}

bool match(const Pattern& pattern, Terms& subject, TermId root, double tolerance,
           const std::function<bool(const Match&)>& accept) {
  return Matcher(pattern, subject, tolerance).run(root, accept);
}

}  // namespace tessera::passes
