#include "passes/driver.h"

#include <algorithm>
#include <chrono>

#include "base/result.h"
#include "ir/core_ops.h"
#include "ir/verifier.h"
#include "passes/pipeline.h"
#include "passes/rules.h"
#include "passes/spoil.h"
#include "passes/user_rules.h"

namespace tessera::passes {
namespace {

// Every sweep shrinks the graph or raises it to larger operators; real graphs settle after two or three.
constexpr int kMaxSweeps = 64;

// Debug builds check every rule about graphs after each pass.
#ifdef NDEBUG
constexpr bool kDebug = false;
#else
constexpr bool kDebug = true;
#endif

int64_t count_nodes(const ir::Graph& graph) {
  int64_t count = 0;
  for (ir::NodeId n = 0; n < graph.node_count(); ++n) count += graph.node(n).op != &ir::core::constant;
  return count;
}

// What every pass relies on: operands stand before their use, and attributes are those that the operator declares.
Status check(const ir::Graph& graph) {
  for (ir::NodeId n = 0; n < graph.node_count(); ++n) {
    const ir::Node& node = graph.node(n);
    for (ir::ValueId v : graph.operands(n)) {
      if (v == ir::kNoValue) continue;
      if (v >= graph.value_count() || (graph.value(v).def != ir::kNoNode && graph.value(v).def >= n))
        return fail(Code::graph_invalid, "{} reads a value before it is made", graph.describe(n));
    }
    if (static_cast<int>(node.attrs->values.size()) != node.op->attrs.size())
      return fail(Code::graph_invalid, "{} has {} attributes but '{}' declares {}", graph.describe(n),
                  node.attrs->values.size(), node.op->name, node.op->attrs.size());
  }
  return {};
}

std::string pass_names() {
  std::string names;
  for (const Pass& pass : pipeline()) names += (names.empty() ? "" : ", ") + std::string(pass.name);
  return names;
}

class Driver {
 public:
  Driver(const PipelineOptions& options, Spoil* spoil)
      : options_(options), spoil_(spoil), folds_left_(options.fold_total) {
    if (options.stop_after >= 0) left_ = options.stop_after;
  }

  Status run(const Pass& pass, ir::Graph& graph, bool inner = false) {
    for (ir::NodeId n = 0; n < graph.node_count(); ++n)
      for (ir::Graph& nested : graph.mutable_regions(n)) TESSERA_TRY(run(pass, nested, true));
    for (int sweep = 0; left_ > 0; ++sweep) {
      std::vector<Unfused> unfused;
      const ir::Spoiler* spoiler = spoil_ != nullptr ? spoil_->in_pass(pass.name) : nullptr;
      Result<std::vector<ir::Edit>> edits =
          pass.run(graph, PassContext{options_, {left_, spoiler}, inner, &unfused, &folds_left_});
      if (!edits) return tl::unexpected<Error>(std::move(edits.error()).within(fmt::format("in pass '{}'", pass.name)));
      if (Status valid = check(graph); !valid)
        return tl::unexpected<Error>(std::move(valid.error()).within(fmt::format("after pass '{}'", pass.name)));
      if (edits->empty()) {
        std::move(unfused.begin(), unfused.end(), std::back_inserter(report.unfused));
        return {};
      }
      if (spoil_ != nullptr) TESSERA_TRY(spoil_->after(graph, *edits));
      left_ -= static_cast<int64_t>(edits->size());
      const ir::Edit last = edits->back();
      for (ir::Edit& edit : *edits) {
        ++report.rules[edit.rule];
        report.journal.push_back(std::move(edit));
      }
      if (sweep == kMaxSweeps)
        return fail(pass.run == apply_own_rules ? Code::graph_invalid : Code::internal,
                    "pass '{}' still rewrites after {} sweeps, last by '{}' at {}", pass.name, kMaxSweeps, last.rule,
                    graph.context().text(graph.context().location(last.location).node));
    }
    return {};
  }

  bool stopped() const { return left_ <= 0; }
  PassReport report;

 private:
  const PipelineOptions& options_;
  Spoil* spoil_;  // null: no fault is planted
  int64_t left_ = INT64_MAX;
  int64_t folds_left_;
};

}  // namespace

bool PipelineOptions::disabled(std::string_view name) const {
  return std::find(disable.begin(), disable.end(), name) != disable.end();
}

Result<PassReport> run_pipeline(ir::Graph& graph, const PipelineOptions& options) {
  auto known = [](std::string_view name) {
    return std::any_of(pipeline().begin(), pipeline().end(), [&](const Pass& pass) { return pass.name == name; });
  };
  auto known_rule = [&](std::string_view name) {
    return std::any_of(rules().begin(), rules().end(), [&](const Rule& rule) { return rule.name == name; }) ||
           (options.own_rules != nullptr && options.own_rules->has(name));
  };
  for (const std::string& name : options.disable)
    if (!known(name) && !known_rule(name)) return fail(Code::usage, "there is no pass or rule '{}' to disable", name);
  if (!options.dump_after.empty() && options.dump_after != "all" && !known(options.dump_after))
    return fail(Code::usage, "there is no pass '{}' to dump after", options.dump_after);

  std::vector<const Pass*> order;
  for (const Pass& pass : pipeline())
    if (options.passes.empty() && pass.level <= options.level) order.push_back(&pass);
  for (const std::string& name : options.passes) {
    if (!known(name)) return fail(Code::usage, "there is no pass '{}' to run; there are {}", name, pass_names());
    order.push_back(
        &*std::find_if(pipeline().begin(), pipeline().end(), [&](const Pass& p) { return p.name == name; }));
  }
  std::erase_if(order, [&](const Pass* pass) { return options.disabled(pass->name); });

  auto verified = [&](std::string_view when) -> Status {
    if (!kDebug) return {};
    if (Status valid = ir::verify(graph); !valid)
      return tl::unexpected<Error>(std::move(valid.error()).within(std::string(when)));
    return {};
  };
  TESSERA_TRY(verified("before the passes"));
  TESSERA_ASSIGN(std::optional<PlantedFault> fault, planted_fault());
  if (fault && fault->where == PlantedFault::Where::pass && !known(fault->name))
    return fail(Code::usage, "there is no pass '{}' to plant a fault in", fault->name);
  std::optional<Spoil> spoil;
  if (fault && fault->where != PlantedFault::Where::kernel) spoil.emplace(std::move(*fault));
  Driver driver(options, spoil ? &*spoil : nullptr);
  for (const Pass* chosen : order) {
    const Pass& pass = *chosen;
    const auto start = std::chrono::steady_clock::now();
    const size_t before = driver.report.journal.size();
    TESSERA_TRY(driver.run(pass, graph));
    if (driver.report.journal.size() > before) TESSERA_TRY(verified(fmt::format("after pass '{}'", pass.name)));
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    driver.report.stages.push_back(
        {pass.name, elapsed.count(), count_nodes(graph), static_cast<int64_t>(driver.report.journal.size() - before)});
    if (options.dump && (options.dump_after == pass.name || options.dump_after == "all"))
      options.dump(pass.name, graph);
    if (driver.stopped()) break;
  }
  driver.report.stopped = driver.stopped();
  return std::move(driver.report);
}

}  // namespace tessera::passes
