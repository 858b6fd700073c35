#include "passes/patterns.h"

#include <cmath>

#include "base/result.h"

namespace tessera::passes {
namespace {

using ir::X;

// Far from every constant that formulas hold.
double stand_in(size_t hole) { return 0.371943 + 0.017391 * static_cast<double>(hole); }

// The rule's left side over operands of these shapes. Patterns are written in f64, so that their numbers are exact.
struct WrittenRule {
  ir::Graph graph;
  std::vector<int> operands;
  std::vector<Pattern::Hole> holes;
};

WrittenRule write(const Rule& rule, const std::vector<Shape>& shapes, std::shared_ptr<ir::Context> context) {
  WrittenRule made{ir::Graph(std::move(context)), {}, {}};
  ir::Builder builder(made.graph);
  ir::Attrs attrs{rule.attrs};
  for (size_t i = 0; i < attrs.values.size(); ++i) {
    double* real = std::get_if<double>(&attrs.values[i]);
    if (real == nullptr || !std::isnan(*real)) continue;
    *real = stand_in(made.holes.size());
    made.holes.push_back({*real, static_cast<int>(i)});
  }
  std::vector<X> formal;
  for (size_t i = 0; i < rule.operands.size(); ++i) {
    if (!rule.operands[i].present) {
      formal.push_back({&builder, ir::kNoValue});
      continue;
    }
    formal.push_back(builder.input(made.graph.context().tensor(DType::f64, shapes[i]), ""));
    made.operands.push_back(static_cast<int>(i));
  }
  const X y = rule.left(formal, ir::A(*rule.op, attrs))[0];
  TESSERA_CHECK(builder.ok());
  made.graph.outputs = {y.id};
  made.graph.output_names = {0};
  TESSERA_CHECK(made.graph.compact().has_value());
  return made;
}

}  // namespace

void RuleSet::add(const Rule& rule) {
  if (rule.shapes != nullptr) {
    at_shapes.push_back(&rule);
    return;
  }
  std::vector<Shape> shapes;
  for (const RuleOperand& operand : rule.operands) shapes.push_back(operand.shape);
  WrittenRule made = write(rule, shapes, std::make_shared<ir::Context>());
  for (;;) {
    auto edits = sweep_rules(
        made.graph, *this, [&](const Rule& r) { return r.tier < rule.tier || r.op != rule.op; }, INT64_MAX, nullptr);
    TESSERA_CHECK(edits.has_value());
    if (edits->empty()) break;
  }
  patterns.emplace_back(rule, std::move(made.graph), std::move(made.operands), std::move(made.holes));
}

void RuleSet::add_sides(const Rule& rule, const RuleSet* raise) {
  ir::Graph left = rule.sides->left.clone();
  // Operators that rules make may not swallow the variables: one sweep, of what stands whole inside.
  if (raise != nullptr) {
    auto edits = sweep_rules(
        left, *raise, [](const Rule& r) { return r.tier == 1; }, INT64_MAX, nullptr);
    if (!edits || edits->empty()) return;
  }
  std::vector<int> operands;
  for (size_t i = 0; i < rule.operands.size(); ++i) operands.push_back(static_cast<int>(i));
  patterns.emplace_back(rule, std::move(left), std::move(operands), std::vector<Pattern::Hole>());
}

std::unique_ptr<FusionPattern> pattern_at(const Rule& rule, const Shape& shape, std::shared_ptr<ir::Context> context) {
  const std::vector<Shape> shapes = rule.shapes(shape);
  if (shapes.empty()) return nullptr;
  WrittenRule made = write(rule, shapes, std::move(context));
  return std::make_unique<FusionPattern>(rule, std::move(made.graph), std::move(made.operands), std::move(made.holes));
}

const RuleSet& built_in_rules() {
  static const auto* const all = [] {
    auto* set = new RuleSet();
    for (const Rule& rule : rules()) set->add(rule);
    return set;
  }();
  return *all;
}

}  // namespace tessera::passes
