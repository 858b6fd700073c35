#include "engine/compiled.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_set>

#include "base/result.h"
#include "compile/decompose.h"
#include "compile/lower.h"
#include "engine/check_step.h"
#include "engine/elapsed.h"
#include "engine/host.h"
#include "engine/precision.h"
#include "kernels/dispatch.h"
#include "plan/kernel_desc.h"
#include "plan/pack.h"
#include "runtime/session.h"

namespace tessera::engine {
namespace {

class Compiled final : public Executable {
 public:
  Compiled(std::unique_ptr<runtime::Session> session, int64_t nodes) : session_(std::move(session)), nodes_(nodes) {}

  Result<std::vector<Value>> run(std::span<const Value> inputs, const ExecuteOptions& options,
                                 ExecuteReport& report) const override {
    runtime::RunReport told;
    auto outputs = session_->run(inputs, {.outputs = options.outputs, .stop = options.stop}, &told);
    if (told.failed_guard) {
      report.failed_assumption = "the plan assumes " + session_->plan().main().guards[*told.failed_guard].what;
      return std::vector<Value>();
    }
    report.plan_ms = told.plan_ms;
    report.arena_bytes = static_cast<int64_t>(told.arena_bytes);
    report.peak_activation_bytes = static_cast<int64_t>(told.peak_activation_bytes);
    report.live_set_bound_bytes = static_cast<int64_t>(told.live_set_bound_bytes);
    return outputs;
  }

  void describe(SessionStatistics& statistics) const override {
    const plan::Plan& plan = session_->plan();
    statistics.isa = session_->isa();
    statistics.threads = session_->threads();
    for (const plan::Routine& routine : plan.routines) {
      for (const plan::Step& step : routine.steps) {
        statistics.kernels += step.kind == plan::StepKind::kernel || step.kind == plan::StepKind::host;
        statistics.host_steps += step.kind == plan::StepKind::host;
      }
    }
    statistics.nodes = nodes_ >= 0 ? nodes_ : statistics.kernels;
    for (const Tensor& constant : plan.constants) statistics.weight_bytes += static_cast<int64_t>(constant.bytes());
  }

 private:
  std::unique_ptr<runtime::Session> session_;
  int64_t nodes_;  // of the graph; -1 where only the plan is known
};

Result<std::unique_ptr<const Executable>> make(std::shared_ptr<const plan::Plan> plan, const CompileOptions& options,
                                               runtime::HostResolver host, runtime::StepChecker check, int64_t nodes) {
  runtime::SessionOptions session;
  session.pool = options.pool;
  session.host = std::move(host);
  session.release_source = options.release_source;
  session.reuse_memory = options.reuse_memory;
  session.check = std::move(check);
  TESSERA_ASSIGN(std::unique_ptr<runtime::Session> made, runtime::Session::make(std::move(plan), std::move(session)));
  return std::make_unique<Compiled>(std::move(made), nodes);
}

// Memory of a graph's constants, which the graph need not outlive.
using Memory = std::vector<std::pair<const void*, size_t>>;
Memory memory_of(const ir::Graph& graph) {
  Memory memory;
  for (const Tensor& constant : constants_of(graph)) memory.emplace_back(constant.data(), constant.bytes());
  return memory;
}

// Packs what kernels take packed. Of the graph's constants those that the plan does not have any more are released:
// folded or merged into others before anything is packed, the others as they are packed.
Status pack(const Memory& source, plan::Plan& plan, const CompileOptions& options) {
  TESSERA_ASSIGN(const kernels::KernelSet* kernels, kernels::chosen_set());
  const kernels::Parallel parallel =
      options.pool != nullptr ? runtime::parallel_of(*options.pool) : kernels::Parallel();
  plan::PackOptions how = {.parallel = options.pool != nullptr ? &parallel : nullptr, .release_source = {}};
  if (!options.release_source) return plan::pack_constants(plan, *kernels, how);
  std::unordered_set<const void*> settled;  // released, or still wanted
  for (const Tensor& constant : plan.constants) settled.insert(constant.data());
  for (const auto& [data, bytes] : source)
    if (settled.insert(data).second) options.release_source(data, bytes);
  how.release_source = options.release_source;
  return plan::pack_constants(plan, *kernels, how);
}

// The passes and the plan. `graph` becomes the optimised one.
Result<Compilation> take_steps(ir::Graph& graph, const CompileOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  Compilation made;
  TESSERA_ASSIGN(made.report, optimise(graph, options));
  made.nodes = count_nodes(graph);
  made.optimise_ms = ms_since(begin);
  const auto planning = std::chrono::steady_clock::now();
  TESSERA_ASSIGN(ir::Graph expanded, compile::decompose(graph));
  made.expanded = std::make_unique<ir::Graph>(std::move(expanded));
  TESSERA_ASSIGN(made.lowered, compile::lower(*made.expanded));
  made.plan_ms = ms_since(planning);
  return made;
}

Result<std::unique_ptr<const Executable>> executable_from(const Memory& source, compile::Lowered lowered, int64_t nodes,
                                                          const CompileOptions& options) {
  TESSERA_TRY(pack(source, lowered.plan, options));
  if (options.keep) {
    embed_host_graphs(lowered.host_graphs, lowered.plan);
    options.keep(lowered.plan, nodes);
  }
  auto plan = std::make_shared<const plan::Plan>(std::move(lowered.plan));
  auto graphs = std::make_shared<std::vector<ir::Graph>>(std::move(lowered.host_graphs));
  const auto host = [plan, graphs](const plan::HostOp& op) -> Result<std::unique_ptr<runtime::HostFunction>> {
    return host_function(std::move((*graphs)[static_cast<size_t>(&op - plan->host_ops.data())]));
  };
  return make(plan, options, host, {}, nodes);
}

}  // namespace

Result<passes::PipelineOptions> pipeline_of(const tessera::CompileOptions& options) {
  passes::PipelineOptions pipeline;
  pipeline.level = options.optimisation;
  TESSERA_ASSIGN(PrecisionPolicy precision, parse_precision(options.precision));
  pipeline.strict = options.strict || precision.strict;
  pipeline.precision = std::move(precision.rules);
  pipeline.approximate = options.approximate;
  pipeline.exact_activations = options.exact_activations;
  if (!options.rules.empty()) {
    TESSERA_ASSIGN(pipeline.own_rules, passes::parse_rules(options.rules));
  }
  pipeline.disable = options.disable;
  pipeline.stop_after = options.stop_after;
  pipeline.passes = options.passes;
  pipeline.fold_elements = options.fold_elements;
  return pipeline;
}

Result<passes::PassReport> optimise(ir::Graph& graph, const CompileOptions& options) {
  passes::PipelineOptions pipeline = options.pipeline;
  pipeline.targets = [](const ir::OpDef& op) { return !plan::rules_for(op.name).empty(); };
  pipeline.strided = [](const ir::OpDef& op, size_t operand) {
    const auto rules = plan::rules_for(op.name);
    return !rules.empty() && std::all_of(rules.begin(), rules.end(), [&](const plan::KernelRule& rule) {
      const plan::OperandRule* taken = rule.operand(operand);
      // Rows without gaps are what a part of a wider product is made of.
      return taken != nullptr && (taken->layout == plan::Layout::strided || taken->layout == plan::Layout::rows);
    });
  };
  return passes::run_pipeline(graph, pipeline);
}

Result<Compilation> compile_steps(const ir::Graph& graph, const CompileOptions& options) {
  ir::Graph optimised = graph.clone();
  return take_steps(optimised, options);
}

Status finish(const ir::Graph& graph, Compilation& made, const CompileOptions& options) {
  TESSERA_TRY(pack(memory_of(graph), made.lowered.plan, options));
  embed_host_graphs(made.lowered.host_graphs, made.lowered.plan);
  return {};
}

Result<plan::Plan> compile_plan(const ir::Graph& graph, const CompileOptions& options) {
  TESSERA_ASSIGN(Compilation made, compile_steps(graph, options));
  TESSERA_TRY(finish(graph, made, options));
  return std::move(made.lowered.plan);
}

Result<std::unique_ptr<const Executable>> run_plan(std::shared_ptr<const plan::Plan> plan,
                                                   const CompileOptions& options, int64_t nodes) {
  return make(std::move(plan), options, parse_host_function, check_step, nodes);
}

Result<std::unique_ptr<const Executable>> executable_of(const ir::Graph& source, compile::Lowered lowered,
                                                        int64_t nodes, const CompileOptions& options) {
  return executable_from(memory_of(source), std::move(lowered), nodes, options);
}

Result<std::unique_ptr<const Executable>> compile(ir::Graph graph, const CompileOptions& options) {
  const Memory source = memory_of(graph);
  std::optional<ir::Graph> optimised = std::move(graph);
  TESSERA_ASSIGN(Compilation made, take_steps(*optimised, options));
  // What only the graphs held goes now, and what is packed as it is packed: no weight is held twice.
  made.expanded.reset();
  optimised.reset();
  return executable_from(source, std::move(made.lowered), made.nodes, options);
}

}  // namespace tessera::engine
