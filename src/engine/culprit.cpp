#include "engine/culprit.h"

#include "base/result.h"
#include "engine/replay.h"
#include "ir/equation.h"

namespace tessera::engine {
namespace {

using ir::ValueId;

// The values of a graph that have these names; those of one name that stands twice are left out.
std::unordered_map<ir::NameId, ValueId> by_name(const ir::Graph& graph) {
  std::unordered_map<ir::NameId, ValueId> found;
  for (ValueId v = 0; v < graph.value_count(); ++v) {
    const ir::NameId name = graph.value(v).name;
    if (name == 0 || !is_tensor_result(graph, v)) continue;
    const auto [at, fresh] = found.try_emplace(name, v);
    if (!fresh) at->second = ir::kNoValue;
  }
  return found;
}

ValueId find(const std::unordered_map<ir::NameId, ValueId>& names, ir::NameId name) {
  const auto found = names.find(name);
  return found == names.end() ? ir::kNoValue : found->second;
}

class Search {
 public:
  Search(const Reference& reference, std::span<const Compared> values, const Agrees& agrees)
      : reference_(reference), values_(values), agrees_(agrees) {}

  // The first of the values that do not agree whose nodes in this graph are to blame; nothing when none is.
  Result<std::optional<Compared>> first_wrong(const ir::Graph& graph) const {
    std::vector<Compared> suspects;
    for (const Compared& value : values_)
      if (!value.agrees) suspects.push_back(value);
    TESSERA_ASSIGN(const std::vector<bool> wrong, wrong_in(graph, suspects));
    for (size_t i = 0; i < suspects.size(); ++i)
      if (wrong[i]) return std::optional(suspects[i]);
    return std::optional<Compared>();
  }

  Result<bool> is_wrong(const ir::Graph& graph, const Compared& value) const {
    TESSERA_ASSIGN(const std::vector<bool> wrong, wrong_in(graph, {&value, 1}));
    return wrong[0];
  }

 private:
  // Runs the graph from the values that agree. A graph that does not run gives nothing right.
  Result<std::vector<bool>> wrong_in(const ir::Graph& graph, std::span<const Compared> suspects) const {
    const auto names = by_name(graph);
    KnownValues known;
    for (const Compared& value : values_) {
      if (!value.agrees || value.name == 0) continue;
      const ValueId v = find(names, value.name);
      const auto expected = reference_.named.find(value.name);
      if (v != ir::kNoValue && expected != reference_.named.end() &&
          expected->second.array().dtype == graph.type(v)->dtype)
        known.emplace(v, expected->second);
    }
    std::vector<ValueId> wanted;
    for (const Compared& suspect : suspects) {
      const ValueId v =
          suspect.output >= 0 ? graph.outputs[static_cast<size_t>(suspect.output)] : find(names, suspect.name);
      // A value that is gone for now says nothing; the outputs are always there.
      wanted.push_back(v);
    }
    std::vector<ValueId> present;
    for (ValueId v : wanted)
      if (v != ir::kNoValue) present.push_back(v);
    if (present.empty()) present = graph.outputs;
    const Result<std::vector<ir::RefValue>> results = replay(graph, reference_.inputs, known, present, reference_.stop);
    if (!results && results.error().code == Code::interrupted) return tl::unexpected<Error>(results.error());
    std::vector<bool> wrong(suspects.size(), !results);
    for (size_t i = 0, next = 0; results && i < suspects.size(); ++i) {
      if (wanted[i] == ir::kNoValue) continue;
      const ir::RefValue& expected = suspects[i].output >= 0
                                         ? reference_.outputs[static_cast<size_t>(suspects[i].output)]
                                         : reference_.named.at(suspects[i].name);
      wrong[i] = !agrees_((*results)[next++], expected);
    }
    return wrong;
  }

  const Reference& reference_;
  std::span<const Compared> values_;
  const Agrees& agrees_;
};

std::string user_name(const ir::Context& context, ir::LocId place) {
  return std::string(context.text(context.location(place).node));
}

}  // namespace

Result<std::optional<Culprit>> guilty_rewrite(const Reference& reference, std::span<const Compared> values,
                                              const CompileOptions& options, const Agrees& agrees) {
  const Search search(reference, values, agrees);
  // The graph after so many rewrites, and what made it.
  passes::PassReport report;
  auto after = [&](int64_t rewrites) -> Result<ir::Graph> {
    ir::Graph graph = reference.graph.clone();
    CompileOptions limited = options;
    limited.pipeline.stop_after = rewrites;
    TESSERA_ASSIGN(report, optimise(graph, limited));
    return graph;
  };
  TESSERA_ASSIGN(const ir::Graph optimised, after(options.pipeline.stop_after));
  TESSERA_ASSIGN(const std::optional<Compared> wrong, search.first_wrong(optimised));
  if (!wrong) return std::optional<Culprit>();
  // None at all leave the graph as it was; the last one made it wrong.
  int64_t good = 0, bad = static_cast<int64_t>(report.journal.size());
  if (bad == 0) return std::optional<Culprit>();
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    TESSERA_ASSIGN(const ir::Graph graph, after(middle));
    TESSERA_ASSIGN(const bool differs, search.is_wrong(graph, *wrong));
    (differs ? bad : good) = middle;
  }
  TESSERA_ASSIGN(const ir::Graph last, after(bad));
  Culprit culprit;
  int64_t before = 0;
  for (const passes::PassStage& stage : report.stages) {
    culprit.pass = stage.pass;
    before += stage.rewrites;
    if (before >= bad) break;
  }
  const ir::Edit& edit = report.journal.back();
  culprit.rule = edit.rule;
  culprit.node = user_name(last.context(), edit.location);
  if (culprit.node.empty()) culprit.node = edit.place;
  culprit.equation = edit.equation;
  culprit.rewrite = bad - 1;
  culprit.value = wrong->output >= 0
                      ? std::string(last.context().text(last.output_names[static_cast<size_t>(wrong->output)]))
                      : std::string(last.context().text(wrong->name));
  return std::optional(std::move(culprit));
}

Result<std::optional<Culprit>> guilty_kernel(const Reference& reference, const Traced& traced, const Agrees& agrees) {
  const ir::Graph& graph = traced.graph;
  KnownValues known;
  for (size_t i = 0; i < traced.values.size(); ++i) known.emplace(traced.values[i], traced.actual[i]);
  TESSERA_ASSIGN(const std::vector<ir::RefValue> expected,
                 replay(graph, reference.inputs, known, traced.values, reference.stop));
  for (size_t i = 0; i < traced.values.size(); ++i) {
    if (agrees(traced.actual[i], expected[i])) continue;
    const ValueId v = traced.values[i];
    const ir::NodeId n = graph.value(v).def;
    const ir::Context& context = graph.context();
    Culprit culprit;
    culprit.pass = "kernels";
    const auto kernel = traced.kernels.find(n);
    culprit.rule = kernel == traced.kernels.end() ? std::string(graph.node(n).op->name) : kernel->second;
    const auto place = traced.places.find(n);
    const ir::LocId at = place == traced.places.end() ? graph.node(n).location : place->second;
    for (ir::LocId one : context.covered(at))
      if (std::string name = user_name(context, one); !name.empty()) culprit.covers.push_back(std::move(name));
    culprit.node = user_name(context, graph.node(n).location);
    if (culprit.node.empty()) culprit.node = culprit.covers.empty() ? graph.describe(n) : culprit.covers[0];
    culprit.equation = ir::formula(graph, v);
    culprit.value = std::string(graph.value_name(v));
    return std::optional(std::move(culprit));
  }
  return std::optional<Culprit>();
}

}  // namespace tessera::engine
