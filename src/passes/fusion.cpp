// Raises primitives to the composite operators whose formulas they spell.
#include <algorithm>
#include <cmath>
#include <deque>
#include <unordered_set>

#include "base/result.h"
#include "ir/core_ops.h"
#include "ir/signature.h"
#include "ops/math.h"
#include "passes/match.h"
#include "passes/pipeline.h"
#include "passes/rules.h"

namespace tessera::passes {
namespace {

using ir::NodeId;
using ir::TermId;
using ir::ValueId;
using ir::X;

struct Compiled {
  const Rule* rule;
  Pattern pattern;
  Compiled(const Rule& r, ir::Graph graph, std::vector<int> operands, std::vector<Pattern::Hole> holes)
      : rule(&r), pattern(std::move(graph), std::move(operands), std::move(holes), r.tier > 1) {}
};

// All matches of the patterns of one tier in one graph.
class Sweep {
 public:
  Sweep(ir::Graph& graph, int tier, int64_t limit) : graph_(graph), rewrite_(graph, limit), terms_(graph, tier > 1) {
    taken_.assign(graph.node_count(), false);
    first_user_.assign(graph.value_count() + 1, 0);
    for (NodeId n = 0; n < graph.node_count(); ++n)
      for (ValueId v : graph.operands(n))
        if (v != ir::kNoValue) ++first_user_[v + 1];
    for (size_t i = 0; i < graph.value_count(); ++i) first_user_[i + 1] += first_user_[i];
    users_.resize(first_user_.back());
    std::vector<uint32_t> next(first_user_.begin(), first_user_.end() - 1);
    for (NodeId n = 0; n < graph.node_count(); ++n)
      for (ValueId v : graph.operands(n))
        if (v != ir::kNoValue) users_[next[v]++] = n;
    outputs_.insert(graph.outputs.begin(), graph.outputs.end());
    nodes_ = static_cast<NodeId>(graph.node_count());
  }

  // Users before operands, so that a formula is found before its parts are.
  void run(const Compiled& compiled) {
    const ir::Term& root = compiled.pattern.terms()[compiled.pattern.root()];
    for (NodeId n = nodes_; n-- > 0 && !rewrite_.exhausted();) {
      const ir::Node& node = graph_.node(n);
      if (taken_[n] || node.n_results != 1 || !node.op->is_primitive() || node.op == &ir::core::constant ||
          node.op == &ir::core::view)
        continue;
      const TermId term = terms_.of(node.results);
      if (root.kind == ir::Term::Kind::apply && terms_[term].op != root.op) continue;
      if (root.kind == ir::Term::Kind::sum && terms_[term].kind != ir::Term::Kind::sum) continue;
      if (root.kind == ir::Term::Kind::product && terms_[term].kind != ir::Term::Kind::product &&
          terms_[term].kind != ir::Term::Kind::apply)
        continue;
      match(compiled.pattern, terms_, term, [&](const Match& found) { return accept(compiled, n, found); });
    }
  }

  Result<std::vector<ir::Edit>> finish() {
    // Also without a match: attempts leave views behind that would count as users.
    if (rewrite_.journal().empty() && graph_.node_count() == nodes_) return std::vector<ir::Edit>();
    TESSERA_TRY(rewrite_.finish());
    return rewrite_.journal();
  }

 private:
  // A value of this term and type of element; views are made where only their base is there.
  ValueId value_of(TermId t, DType dtype, std::unordered_set<ValueId>& boundary) {
    ValueId found = ir::kNoValue;
    for (ValueId v : terms_.values(t)) {
      boundary.insert(v);
      if (found == ir::kNoValue && graph_.type(v)->dtype == dtype) found = v;
    }
    if (found != ir::kNoValue) return found;
    const ir::Term term = terms_[t];
    if (term.kind == ir::Term::Kind::literal) return rewrite_.builder().scalar(dtype, term.number).id;
    if (term.kind != ir::Term::Kind::apply || term.op != &ir::core::view) return ir::kNoValue;
    const ValueId base = value_of(term.args[0], dtype, boundary);
    if (base == ir::kNoValue) return ir::kNoValue;
    return rewrite_.builder().view(rewrite_.builder().wrap(base), std::get<ir::View>(term.attrs->values[0])).id;
  }

  // The nodes between root and boundary, root first; empty when one of them is needed elsewhere or already gone.
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
    for (NodeId n : cone) {
      if (taken_[n]) return {};
      // A view costs nothing: it may have other users.
      if (n == root || graph_.node(n).op == &ir::core::view) continue;
      for (int i = 0; i < graph_.node(n).n_results; ++i) {
        const ValueId v = graph_.result(n, i);
        if (outputs_.contains(v)) return {};
        for (uint32_t u = first_user_[v]; u < first_user_[v + 1]; ++u)
          if (!seen.contains(users_[u])) return {};
      }
    }
    return cone;
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

  bool accept(const Compiled& compiled, NodeId root, const Match& found) {
    const size_t guards = graph_.guards.size();
    const bool accepted = replace(compiled, root, found);
    (void)rewrite_.builder().take_status();  // a formula that does not fit these types is no match, and no error
    if (!accepted) graph_.guards.resize(guards);
    return accepted;
  }

  bool replace(const Compiled& compiled, NodeId root, const Match& found) {
    const Rule& rule = *compiled.rule;
    const Pattern& pattern = compiled.pattern;
    ir::Builder& builder = rewrite_.builder();
    builder.set_location(graph_.node(root).location);
    const ValueId old = graph_.result(root, 0);
    const DType dtype = graph_.type(old)->dtype;

    std::vector<ir::AttrValue> attrs = rule.attrs;
    for (size_t i = 0; i < found.holes.size(); ++i) {
      if (!found.holes[i]) return false;
      attrs[static_cast<size_t>(pattern.holes()[i].attr)] = *found.holes[i];
    }
    std::unordered_set<ValueId> boundary;
    std::vector<X> operands(rule.operands.size(), X{&builder, ir::kNoValue});
    for (size_t i = 0; i < found.variables.size(); ++i) {
      const auto at = static_cast<size_t>(pattern.operand(i));
      const ValueId v = value_of(found.variables[i], dtype, boundary);
      if (v == ir::kNoValue) return false;
      if (rule.operands[at].guard != nullptr && !rule.operands[at].guard(graph_, v)) return false;
      operands[at] = builder.wrap(v);
    }
    if (!takes(*rule.op, operands, attrs)) return false;

    std::vector<std::pair<ValueId, bool>> left;  // value, and whether it is taken away (sum) or divides (product)
    for (auto [base, exponent] : found.left_factors) {
      ValueId v = value_of(exponent == -1 ? base : terms_.product(1, {{base, exponent}}), dtype, boundary);
      if (v == ir::kNoValue) return false;
      left.emplace_back(v, exponent == -1);
    }
    for (TermId t : found.left_addends) {
      ValueId v = value_of(t, dtype, boundary);
      const bool negative = v == ir::kNoValue;
      if (negative) {
        auto [number, all] = terms_.factors(t);
        v = value_of(terms_.product(-number, std::move(all)), dtype, boundary);
      }
      if (v == ir::kNoValue) return false;
      left.emplace_back(v, negative);
    }
    const std::vector<NodeId> cone = inside(root, boundary);
    if (cone.empty()) return false;
    std::vector<ir::LocId> places;
    for (NodeId n : cone) places.push_back(graph_.node(n).location);
    builder.set_location(graph_.context().covering(places));

    X y = builder.add(*rule.op, operands, attrs)[0];
    const bool product = found.left_addends.empty();
    if (product && std::fabs(found.left_number - 1) > 2e-6) y = y * found.left_number;
    for (auto [v, inverse] : left) {
      const X x = builder.wrap(v);
      y = product ? (inverse ? y / x : y * x) : (inverse ? y - x : y + x);
    }
    if (!builder.ok() || !rewrite_.replace(old, y.id, rule.name)) return false;
    for (NodeId n : cone)
      if (n == root || graph_.node(n).op != &ir::core::view) taken_[n] = true;
    return true;
  }

  ir::Graph& graph_;
  ir::Rewrite rewrite_;
  ir::Terms terms_;
  NodeId nodes_ = 0;
  std::vector<bool> taken_;  // by node: part of an accepted match
  std::vector<uint32_t> first_user_;
  std::vector<NodeId> users_;
  std::unordered_set<ValueId> outputs_;
};

// Far from every constant that formulas hold.
double stand_in(size_t hole) { return 0.371943 + 0.017391 * static_cast<double>(hole); }

using Patterns = std::deque<Compiled>;

Result<std::vector<ir::Edit>> sweep_with(ir::Graph& graph, const Patterns& patterns,
                                         const std::function<bool(const Rule&)>& enabled, int64_t limit) {
  for (int tier = 1; tier <= 2; ++tier) {
    std::vector<const Compiled*> ordered;
    for (const Compiled& compiled : patterns)
      if (compiled.rule->tier == tier && enabled(*compiled.rule)) ordered.push_back(&compiled);
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const Compiled* a, const Compiled* b) { return a->pattern.size() > b->pattern.size(); });
    Sweep sweep(graph, tier, limit);
    for (const Compiled* compiled : ordered) sweep.run(*compiled);
    TESSERA_ASSIGN(std::vector<ir::Edit> edits, sweep.finish());
    if (!edits.empty()) return edits;
  }
  return std::vector<ir::Edit>();
}

// Patterns are written in f64, so that their numbers are exact, and hold what the patterns before them make of them.
void compile_rule(const Rule& rule, Patterns& patterns) {
  ir::Graph graph(std::make_shared<ir::Context>());
  ir::Builder builder(graph);
  std::vector<Pattern::Hole> holes;
  ir::Attrs attrs{rule.attrs};
  for (size_t i = 0; i < attrs.values.size(); ++i) {
    double* real = std::get_if<double>(&attrs.values[i]);
    if (real == nullptr || !std::isnan(*real)) continue;
    *real = stand_in(holes.size());
    holes.push_back({*real, static_cast<int>(i)});
  }
  std::vector<X> formal;
  std::vector<int> operands;
  for (size_t i = 0; i < rule.operands.size(); ++i) {
    if (!rule.operands[i].present) {
      formal.push_back({&builder, ir::kNoValue});
      continue;
    }
    formal.push_back(builder.input(graph.context().tensor(DType::f64, rule.operands[i].shape), ""));
    operands.push_back(static_cast<int>(i));
  }
  const X y = rule.left(formal, ir::A(*rule.op, attrs))[0];
  TESSERA_CHECK(builder.ok());
  graph.outputs = {y.id};
  graph.output_names = {0};
  TESSERA_CHECK(graph.compact().has_value());
  for (;;) {
    auto edits = sweep_with(
        graph, patterns, [&](const Rule& r) { return r.tier < rule.tier || r.op != rule.op; }, INT64_MAX);
    TESSERA_CHECK(edits.has_value());
    if (edits->empty()) break;
  }
  patterns.emplace_back(rule, std::move(graph), std::move(operands), std::move(holes));
}

const Patterns& all_patterns() {
  static const auto* const all = [] {
    auto* patterns = new Patterns();
    for (const Rule& rule : rules()) compile_rule(rule, *patterns);
    return patterns;
  }();
  return *all;
}

}  // namespace

Result<std::vector<ir::Edit>> fuse(ir::Graph& graph, const PassContext& context) {
  if (context.options.strict) return std::vector<ir::Edit>();  // a formula in another order rounds elsewhere
  const PipelineOptions& options = context.options;
  auto enabled = [&](const Rule& rule) {
    return !options.disabled(rule.name) && (!options.targets || options.targets(*rule.op));
  };
  return sweep_with(graph, all_patterns(), enabled, context.limit);
}

}  // namespace tessera::passes
