// Rules made ready to be matched.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "passes/driver.h"
#include "passes/match.h"
#include "passes/rules.h"

namespace tessera::passes {

constexpr int kTiers = 3;

struct FusionPattern {
  const Rule* rule;
  Pattern pattern;
  FusionPattern(const Rule& r, ir::Graph graph, std::vector<int> operands, std::vector<Pattern::Hole> holes)
      : rule(&r),
        pattern(std::move(graph), std::move(operands), std::move(holes),
                {r.tier > 1, r.sides ? r.sides->tolerance : kLiteralTolerance}) {}
};

// Patterns hold what the patterns before them make of them.
struct RuleSet {
  std::deque<FusionPattern> patterns;
  std::vector<const Rule*> at_shapes;  // those whose patterns are made anew for each shape

  // The rule must outlive the set.
  void add(const Rule& rule);
  // A rule with sides; what `raise` makes of its left side is matched, where it is given.
  void add_sides(const Rule& rule, const RuleSet* raise);
};

// That of rules().
const RuleSet& built_in_rules();

// The pattern of a rule whose result has this shape, over the sizes of `context`; null when it has none.
std::unique_ptr<FusionPattern> pattern_at(const Rule& rule, const Shape& shape, std::shared_ptr<ir::Context> context);

// One sweep over one graph: the edits of the first tier that made some.
Result<std::vector<ir::Edit>> sweep_rules(ir::Graph& graph, const RuleSet& rules,
                                          const std::function<bool(const Rule&)>& enabled, ir::EditLimit limit,
                                          std::vector<Unfused>* unfused);

}  // namespace tessera::passes
