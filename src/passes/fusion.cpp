// Raises primitives to the composite operators whose formulas they spell.
#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/result.h"
#include "ir/core_ops.h"
#include "ir/signature.h"
#include "ops/math.h"
#include "passes/match.h"
#include "passes/patterns.h"
#include "passes/pipeline.h"
#include "passes/user_rules.h"
#include "passes/uses.h"

namespace tessera::passes {
namespace {

using ir::NodeId;
using ir::TermId;
using ir::ValueId;
using ir::X;

// How far two numbers of a formula may be rounded apart, relative: a few units in the last place.
double rounding_of(DType dtype) { return dtype == DType::f16 ? 1e-3 : dtype == DType::bf16 ? 8e-3 : 0; }

// All matches of the patterns of one tier in one graph.
class FusionSweep {
 public:
  FusionSweep(ir::Graph& graph, int tier, ir::EditLimit limit)
      : graph_(graph), rewrite_(graph, limit), terms_(graph, tier > 1), uses_(graph) {
    taken_.assign(graph.node_count(), false);
    nodes_ = static_cast<NodeId>(graph.node_count());
    for (NodeId n = nodes_; n-- > 0;) sort_in(n);
  }

  // Users before operands, so that a formula is found before its parts are.
  void run(const FusionPattern& compiled) {
    for (NodeId n : roots_for(compiled.pattern.terms()[compiled.pattern.root()])) {
      if (rewrite_.exhausted()) break;
      try_root(compiled, n);
    }
    settle();
  }

  // A rule whose pattern depends on the shape of what it gives.
  void run_at_shapes(const Rule& rule) {
    std::map<ir::TypeRef, std::unique_ptr<FusionPattern>> patterns;
    for (NodeId n = nodes_; n-- > 0 && !rewrite_.exhausted();) {
      if (graph_.node(n).op != rule.root || taken_[n] || graph_.node(n).n_results != 1) continue;
      const ir::TypeRef type = graph_.type(graph_.result(n, 0));
      if (!type->ranked) continue;
      const auto [at, fresh] = patterns.try_emplace(type);
      if (fresh) at->second = pattern_at(rule, type->shape, graph_.shared_context());
      if (at->second != nullptr) try_root(*at->second, n);
    }
    settle();
  }

  Result<std::vector<ir::Edit>> finish(std::vector<Unfused>* unfused) {
    if (unfused != nullptr)
      for (auto& [root, why] : refused_)
        if (!taken_[root]) unfused->push_back(std::move(why));
    // Also without a match: attempts leave views behind that would count as users.
    if (rewrite_.journal().empty() && graph_.node_count() == nodes_) return std::vector<ir::Edit>();
    TESSERA_TRY(rewrite_.finish());
    return rewrite_.journal();
  }

 private:
  // A match on its way into the graph.
  struct Candidate {
    const FusionPattern* compiled;
    NodeId root;
    std::vector<X> operands;
    std::vector<ir::AttrValue> attrs;
    double left_number = 1;
    bool product = true;                         // what is left outside multiplies; else it is added
    std::vector<std::pair<ValueId, bool>> left;  // value, and whether it is taken away (sum) or divides (product)
    std::vector<NodeId> cone;                    // the nodes between root and operands, root first
  };

  // Puts the node among those that patterns of one kind of root may match.
  void sort_in(NodeId n) {
    using Kind = ir::Term::Kind;
    const ir::Node& node = graph_.node(n);
    if (node.n_results != 1 || node.op == &ir::core::constant || node.op == &ir::core::view) return;
    const ir::Term& term = terms_[terms_.of(node.results)];
    if (term.kind == Kind::apply) applied_[term.op].push_back(n);
    if (term.kind == Kind::apply || term.kind == Kind::product) products_.push_back(n);
    if (term.kind == Kind::sum) sums_.push_back(n);
    all_.push_back(n);
  }

  std::span<const NodeId> roots_for(const ir::Term& root) const {
    using Kind = ir::Term::Kind;
    if (root.kind == Kind::sum) return sums_;
    if (root.kind == Kind::product) return products_;
    if (root.kind != Kind::apply) return all_;
    const auto found = applied_.find(root.op);
    return found == applied_.end() ? std::span<const NodeId>() : found->second;
  }

  // Most terms do not have the pattern's operators, or too few parts, and need no search.
  bool may_hold(const Pattern& pattern, const ir::Term& root, TermId t) const {
    using Kind = ir::Term::Kind;
    if ((pattern.needs() & ~terms_.operators(t)) != 0) return false;
    const ir::Term& term = terms_[t];
    if (root.kind == Kind::apply) return term.op == root.op;
    if (root.kind != Kind::sum && root.kind != Kind::product) return true;
    if (term.kind != root.kind) return root.kind == Kind::product && root.args.size() == 1;  // a product of itself
    return term.args.size() >= root.args.size();
  }

  void try_root(const FusionPattern& compiled, NodeId n) {
    const ir::Node& node = graph_.node(n);
    if (taken_[n]) return;
    const ir::Term& root = compiled.pattern.terms()[compiled.pattern.root()];
    const TermId term = terms_.of(node.results);
    if (!may_hold(compiled.pattern, root, term)) return;
    // What rules make already, unless a rule is about just that.
    if (!node.op->is_primitive() && compiled.rule->sides == nullptr &&
        (root.kind != ir::Term::Kind::apply || root.op != node.op))
      return;
    const double tolerance = compiled.rule->sides == nullptr ? rounding_of(graph_.type(node.results)->dtype) : 0;
    match(compiled.pattern, terms_, term, tolerance, [&](const Match& found) { return accept(compiled, n, found); });
  }

  // A value of this term and type of element; views are made where only their base is there.
  ValueId value_of(TermId t, DType dtype, std::unordered_set<ValueId>& boundary) {
    ValueId found = ir::kNoValue;
    for (ValueId v : terms_.values(t)) {
      boundary.insert(v);
      if (found == ir::kNoValue && graph_.type(v)->dtype == dtype) found = v;
    }
    const ir::Term term = terms_[t];
    const bool view = term.kind == ir::Term::Kind::apply && term.op == &ir::core::view;
    if (found != ir::kNoValue) {
      // Other views of the same base may stand for parts of this one.
      if (view)
        for (ValueId v : terms_.values(term.args[0])) boundary.insert(v);
      return found;
    }
    if (term.kind == ir::Term::Kind::literal) return rewrite_.builder().scalar(dtype, term.number).id;
    if (!view) return ir::kNoValue;
    const ValueId base = value_of(term.args[0], dtype, boundary);
    if (base == ir::kNoValue) return ir::kNoValue;
    return rewrite_.builder().view(rewrite_.builder().wrap(base), std::get<ir::View>(term.attrs->values[0])).id;
  }

  // The nodes between root and boundary, root first; empty when one of them is gone already.
  std::vector<NodeId> inside(NodeId root, const std::unordered_set<ValueId>& boundary) const {
    std::vector<NodeId> cone = {root};
    std::unordered_set<NodeId> seen = {root};
    for (size_t i = 0; i < cone.size(); ++i)
      for (ValueId v : graph_.operands(cone[i])) {
        if (v == ir::kNoValue || boundary.contains(v) || graph_.contents.contains(v)) continue;
        const NodeId def = graph_.value(v).def;
        if (def == ir::kNoNode) return {};
        if (graph_.node(def).op == &ir::core::constant) continue;
        if (seen.insert(def).second) cone.push_back(def);
      }
    for (NodeId n : cone)
      if (taken_[n]) return {};
    return cone;
  }

  // A node that reads something inside the cone and is not in `members`; kNoNode when there is none. Outputs count as
  // the root's reader.
  NodeId outsider(const std::vector<NodeId>& cone, const std::unordered_set<NodeId>& members) const {
    for (NodeId n : cone) {
      // A view costs nothing: it may have other users.
      if (n == cone[0] || graph_.node(n).op == &ir::core::view) continue;
      for (int i = 0; i < graph_.node(n).n_results; ++i) {
        const ValueId v = graph_.result(n, i);
        if (uses_.is_output(v)) return cone[0];
        for (NodeId user : uses_.of(v))
          if (!members.contains(user)) return user;
      }
    }
    return ir::kNoNode;
  }

  // True when the operator takes these operands without assuming anything about sizes.
  bool takes(const ir::OpDef& op, const std::vector<X>& operands, const std::vector<ir::AttrValue>& attrs) const {
    std::vector<ir::TypeRef> types;
    for (X x : operands) types.push_back(x ? graph_.type(x.id) : nullptr);
    while (!types.empty() && types.back() == nullptr) types.pop_back();
    const ir::Attrs values{attrs};
    ir::Infer infer{op, ir::A(op, values), graph_.context(), types, {}};
    if (!op.signature.empty() && !apply_signature(infer)) return false;
    if (op.infer != nullptr && !op.infer(infer)) return false;
    return infer.guards.empty();
  }

  // Whether the operands are of the types of a rule's variables: sizes of one name are one size.
  bool types_fit(const RuleSides& sides, const std::vector<X>& operands) const {
    std::map<std::string, Dim> sizes;
    for (size_t i = 0; i < operands.size(); ++i) {
      const ir::Type &wanted = *sides.left.type(sides.left.inputs[i]), &given = *graph_.type(operands[i].id);
      if (wanted.dtype != given.dtype || !given.ranked || wanted.rank() != given.rank()) return false;
      for (size_t a = 0; a < wanted.shape.size(); ++a) {
        const Dim size = wanted.shape[a].is_const()
                             ? wanted.shape[a]
                             : sizes.emplace(to_string(wanted.shape[a]), given.shape[a]).first->second;
        if (!graph_.dims().proves_eq(size, given.shape[a])) return false;
      }
    }
    return true;
  }

  // The graph's nodes over these inputs.
  X instantiate(const ir::Graph& side, const std::vector<X>& inputs) {
    ir::Builder& builder = rewrite_.builder();
    std::vector<X> values(side.value_count(), X{&builder, ir::kNoValue});
    for (size_t i = 0; i < inputs.size(); ++i) values[side.inputs[i]] = inputs[i];
    for (NodeId n = 0; n < side.node_count(); ++n) {
      const ir::Node& node = side.node(n);
      if (node.op == &ir::core::constant) {
        const auto id = static_cast<uint32_t>(std::get<int64_t>(node.attrs->values[0]));
        values[node.results] = builder.constant(side.context().constant(id));
        continue;
      }
      std::vector<X> operands;
      for (ValueId v : side.operands(n)) operands.push_back(v == ir::kNoValue ? X{&builder, v} : values[v]);
      const ir::Xs results = builder.add(*node.op, operands, node.attrs->values);
      for (int i = 0; i < node.n_results; ++i) values[side.result(n, i)] = results[static_cast<size_t>(i)];
    }
    return values[side.outputs[0]];
  }

  bool accept(const FusionPattern& compiled, NodeId root, const Match& found) {
    const size_t guards = graph_.guards.size();
    Candidate candidate{&compiled, root, {}, {}, 1, true, {}, {}};
    bool accepted = prepare(found, candidate);
    if (accepted) {
      const NodeId reader = outsider(candidate.cone, {candidate.cone.begin(), candidate.cone.end()});
      if (reader != ir::kNoNode) {
        // Perhaps the reader belongs to another match, which then needs this value no more either.
        refuse(candidate, reader == candidate.root ? std::string("what it computes on the way is an output too")
                                                   : fmt::format("what it computes on the way is needed by {} too",
                                                                 graph_.describe(reader)));
        pending_.push_back(std::move(candidate));
      } else {
        accepted = commit(candidate);
      }
    }
    (void)rewrite_.builder().take_status();  // a formula that does not fit these types is no match, and no error
    if (!accepted) graph_.guards.resize(guards);
    return accepted;
  }

  void refuse(const Candidate& candidate, std::string why) {
    std::vector<ir::LocId> places;
    for (NodeId n : candidate.cone.empty() ? std::vector<NodeId>{candidate.root} : candidate.cone)
      places.push_back(graph_.node(n).location);
    refused_[candidate.root] = {std::string(candidate.compiled->rule->name), graph_.context().covering(places),
                                std::move(why)};
  }

  bool prepare(const Match& found, Candidate& candidate) {
    const Rule& rule = *candidate.compiled->rule;
    const Pattern& pattern = candidate.compiled->pattern;
    ir::Builder& builder = rewrite_.builder();
    const DType dtype = graph_.type(graph_.result(candidate.root, 0))->dtype;
    candidate.attrs = rule.attrs;
    for (size_t i = 0; i < found.holes.size(); ++i) {
      if (!found.holes[i]) return false;
      candidate.attrs[static_cast<size_t>(pattern.holes()[i].attr)] = *found.holes[i];
    }
    std::unordered_set<ValueId> boundary;
    candidate.operands.assign(rule.operands.size(), X{&builder, ir::kNoValue});
    for (size_t i = 0; i < found.variables.size(); ++i) {
      const auto at = static_cast<size_t>(pattern.operand(i));
      const ValueId v = value_of(found.variables[i], dtype, boundary);
      if (v == ir::kNoValue) return false;
      if (rule.operands[at].guard != nullptr && !rule.operands[at].guard(graph_, v)) {
        refuse(candidate, fmt::format("{}: {}", graph_.describe_value(v), rule.operands[at].why));
        return false;
      }
      candidate.operands[at] = builder.wrap(v);
    }
    if (rule.sides ? !types_fit(*rule.sides, candidate.operands)
                   : !rule.right && !takes(*rule.op, candidate.operands, candidate.attrs))
      return false;

    candidate.left_number = found.left_number;
    candidate.product = found.left_addends.empty();
    for (auto [base, exponent] : found.left_factors) {
      ValueId v = value_of(exponent == -1 ? base : terms_.product(1, {{base, exponent}}), dtype, boundary);
      if (v == ir::kNoValue) return false;
      candidate.left.emplace_back(v, exponent == -1);
    }
    for (TermId t : found.left_addends) {
      ValueId v = value_of(t, dtype, boundary);
      const bool negative = v == ir::kNoValue;
      if (negative) {
        auto [number, all] = terms_.factors(t);
        v = value_of(terms_.product(-number, std::move(all)), dtype, boundary);
      }
      if (v == ir::kNoValue) return false;
      candidate.left.emplace_back(v, negative);
    }
    candidate.cone = inside(candidate.root, boundary);
    return !candidate.cone.empty();
  }

  bool commit(const Candidate& candidate) {
    const Rule& rule = *candidate.compiled->rule;
    for (NodeId n : candidate.cone)
      if (taken_[n] && n == candidate.root) return false;
    ir::Builder& builder = rewrite_.builder();
    std::vector<ir::LocId> places;
    for (NodeId n : candidate.cone) places.push_back(graph_.node(n).location);
    builder.set_location(graph_.context().covering(places));
    const size_t guards = graph_.guards.size();
    X y = rule.sides   ? instantiate(rule.sides->right, candidate.operands)
          : rule.right ? rule.right(candidate.operands, ir::A(*rule.op, ir::Attrs{candidate.attrs}))[0]
                       : builder.add(*rule.op, candidate.operands, candidate.attrs)[0];
    if (!y) return false;
    if (candidate.product && std::fabs(candidate.left_number - 1) > std::max(2e-6, rounding_of(y.dtype())))
      y = y * candidate.left_number;
    for (auto [v, inverse] : candidate.left) {
      const X x = builder.wrap(v);
      y = candidate.product ? (inverse ? y / x : y * x) : (inverse ? y - x : y + x);
    }
    if (!builder.ok() || graph_.guards.size() != guards) return false;
    if (!rewrite_.replace(graph_.result(candidate.root, 0), y.id, rule.name)) return false;
    for (NodeId n : candidate.cone)
      if (n == candidate.root || graph_.node(n).op != &ir::core::view) taken_[n] = true;
    return true;
  }

  // Accepts the matches that hold each other's readers: what they share is then needed by none.
  void settle() {
    for (bool changed = true; changed;) {
      changed = false;
      std::unordered_set<NodeId> members;
      for (const Candidate& candidate : pending_) members.insert(candidate.cone.begin(), candidate.cone.end());
      for (size_t i = 0; i < pending_.size() && !changed; ++i) {
        changed = outsider(pending_[i].cone, members) != ir::kNoNode;
        if (changed) pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
      }
    }
    for (const Candidate& candidate : pending_) {
      const size_t guards = graph_.guards.size();
      if (!commit(candidate)) graph_.guards.resize(guards);
      (void)rewrite_.builder().take_status();
    }
    pending_.clear();
  }

  ir::Graph& graph_;
  ir::Rewrite rewrite_;
  ir::Terms terms_;
  Uses uses_;
  NodeId nodes_ = 0;
  std::unordered_map<const ir::OpDef*, std::vector<NodeId>> applied_;  // nodes by the operator of their term
  std::vector<NodeId> products_, sums_, all_;                          // users before operands, as applied_
  std::vector<bool> taken_;                                            // by node: part of an accepted match
  std::vector<Candidate> pending_;                                     // those whose inner values have readers outside
  std::map<NodeId, Unfused> refused_;                                  // by root
};

}  // namespace

Result<std::vector<ir::Edit>> sweep_rules(ir::Graph& graph, const RuleSet& rules,
                                          const std::function<bool(const Rule&)>& enabled, ir::EditLimit limit,
                                          std::vector<Unfused>* unfused) {
  for (int tier = 1; tier <= kTiers; ++tier) {
    std::vector<const FusionPattern*> ordered;
    for (const FusionPattern& pattern : rules.patterns)
      if (pattern.rule->tier == tier && enabled(*pattern.rule)) ordered.push_back(&pattern);
    std::stable_sort(ordered.begin(), ordered.end(), [](const FusionPattern* a, const FusionPattern* b) {
      return a->pattern.size() > b->pattern.size();
    });
    FusionSweep sweep(graph, tier, limit);
    for (const Rule* rule : rules.at_shapes)
      if (rule->tier == tier && enabled(*rule)) sweep.run_at_shapes(*rule);
    for (const FusionPattern* pattern : ordered) sweep.run(*pattern);
    TESSERA_ASSIGN(std::vector<ir::Edit> edits, sweep.finish(unfused));
    if (!edits.empty()) return edits;
  }
  return std::vector<ir::Edit>();
}

Result<std::vector<ir::Edit>> fuse(ir::Graph& graph, const PassContext& context) {
  if (context.options.strict) return std::vector<ir::Edit>();  // a formula in another order rounds elsewhere
  const PipelineOptions& options = context.options;
  auto enabled = [&](const Rule& rule) {
    return !options.disabled(rule.name) && (!rule.approximate || options.approximate) &&
           (!options.targets || options.targets(*rule.op));
  };
  return sweep_rules(graph, built_in_rules(), enabled, context.limit, context.unfused);
}

Result<std::vector<ir::Edit>> apply_own_rules(ir::Graph& graph, const PassContext& context) {
  const PipelineOptions& options = context.options;
  if (options.own_rules == nullptr) return std::vector<ir::Edit>();
  auto enabled = [&](const Rule& rule) {
    return !options.disabled(rule.name) && (!rule.approximate || options.approximate) &&
           (rule.bitwise || !options.strict);
  };
  for (const RuleSet* rules : {&options.own_rules->plain(), &options.own_rules->raised()}) {
    TESSERA_ASSIGN(std::vector<ir::Edit> edits, sweep_rules(graph, *rules, enabled, context.limit, context.unfused));
    if (!edits.empty()) return edits;
  }
  return std::vector<ir::Edit>();
}

}  // namespace tessera::passes
