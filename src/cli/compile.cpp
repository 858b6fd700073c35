#include <fmt/format.h>

#include <chrono>

#ifdef TESSERA_MIMALLOC
#include <mimalloc.h>
#endif

#include "base/result.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "engine/compiled.h"
#include "engine/model.h"
#include "engine/report.h"
#include "ir/printer.h"
#include "plan/artifact.h"
#include "tessera/tessera.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

Json describe(const engine::PlanFigures& figures) {
  return {{"nodes", figures.nodes},
          {"kernels", figures.kernels},
          {"bytes_moved", figures.cost ? Json(figures.cost->bytes) : Json()},
          {"flops", figures.cost ? Json(figures.cost->flops) : Json()},
          {"peak_bytes", figures.arena_bytes},
          {"live_set_bound_bytes", figures.live_set_bound_bytes}};
}

std::vector<std::string> names_of(const ir::Context& context, ir::LocId place) {
  std::vector<std::string> names;
  for (ir::LocId one : context.covered(place))
    if (const ir::NameId name = context.location(one).node; name != 0) names.emplace_back(context.text(name));
  return names;
}

Json report_json(const engine::Compilation& made, const engine::PlanFigures& before, const engine::PlanFigures& after) {
  Json stages = Json::array(), unfused = Json::array();
  for (const passes::PassStage& stage : made.report.stages)
    stages.push_back({{"pass", stage.pass}, {"ms", stage.ms}, {"nodes", stage.nodes}, {"rewrites", stage.rewrites}});
  for (const passes::Unfused& left : made.report.unfused)
    unfused.push_back(
        {{"rule", left.rule}, {"nodes", names_of(made.expanded->context(), left.place)}, {"why", left.why}});
  Json rules = Json::object();
  for (const auto& [rule, count] : made.report.rules) rules[rule] = count;
  return {{"stages", std::move(stages)},
          {"rules", std::move(rules)},
          {"unfused", std::move(unfused)},
          {"before", describe(before)},
          {"after", describe(after)}};
}

void print_stage(std::string_view name, const std::string& ms, const engine::PlanFigures& figures) {
  const auto bytes = [](const auto& value) { return value ? bytes_text(static_cast<double>(*value)) : "-"; };
  std::string moved = "-", flops = "-";
  if (figures.cost) {
    moved = bytes_text(figures.cost->bytes);
    flops = fmt::format("{:.3f} G", figures.cost->flops * 1e-9);
  }
  say("{:<12} {:>9} {:>8} {:>9} {:>8} {:>12} {:>12} {:>12} {:>12}\n", name, ms, figures.nodes, "", figures.kernels,
      moved, flops, bytes(figures.arena_bytes), bytes(figures.live_set_bound_bytes));
}

void print_report(const engine::Compilation& made, const engine::PlanFigures& before,
                  const engine::PlanFigures& after) {
  say("{:<12} {:>9} {:>8} {:>9} {:>8} {:>12} {:>12} {:>12} {:>12}\n", "stage", "ms", "nodes", "rewrites", "kernels",
      "bytes moved", "FLOPs", "arena", "live bound");
  print_stage("-O0", "", before);
  for (const passes::PassStage& stage : made.report.stages)
    say("{:<12} {:>9.2f} {:>8} {:>9}\n", stage.pass, stage.ms, stage.nodes,
        stage.rewrites > 0 ? std::to_string(stage.rewrites) : "unchanged");
  print_stage("plan", fmt::format("{:.2f}", made.plan_ms), after);
  if (after.arena_bytes && after.live_set_bound_bytes && *after.live_set_bound_bytes > 0)
    say("fragmentation {:.2f}%\n",
        100 * (static_cast<double>(*after.arena_bytes) / static_cast<double>(*after.live_set_bound_bytes) - 1));
  for (const auto& [rule, count] : made.report.rules) say("rule {:<28} {:>6}\n", rule, count);
  for (const passes::Unfused& left : made.report.unfused)
    say("not fused: {} at {}: {}\n", left.rule, joined(names_of(made.expanded->context(), left.place), ", "), left.why);
}

// A graph of 100 000 nodes is two hundred MB that passes write anew again and again: in pages of 4 KiB a tenth of the
// time, and more on a busy machine, goes into handing them out.
void prefer_large_pages() {
#ifdef TESSERA_MIMALLOC
  mi_option_enable(mi_option_large_os_pages);
#endif
}

}  // namespace

Result<int> compile(const Arguments& arguments) {
  prefer_large_pages();
  if (arguments.output.empty() && !arguments.report && arguments.dump_after.empty())
    return fail(Code::usage, "compile needs -o FILE, --report or --dump-after");
  const Clock::time_point begin = Clock::now();
  TESSERA_ASSIGN(const Model model, Model::load(arguments.subject, {arguments.dims}));
  TESSERA_ASSIGN(const ir::Graph graph, model.impl()->graph());
  const double import_ms = ms_since(begin);
  TESSERA_TRY(check_stop("planning"));
  engine::CompileOptions options;
  TESSERA_ASSIGN(options.pipeline, engine::pipeline_of(arguments.session.compile));
  options.pipeline.dump_after = arguments.dump_after;
  options.pipeline.dump = [](std::string_view pass, const ir::Graph& after) {
    say("// after {}\n{}", pass, ir::print(after, ir::PrintOptions::display()));
  };
  TESSERA_ASSIGN(engine::Compilation made, engine::compile_steps(graph, options));
  int64_t bytes = 0;
  for (const Tensor& constant : made.lowered.plan.constants) bytes += static_cast<int64_t>(constant.bytes());
  TESSERA_ASSIGN(const engine::PlanFigures after, engine::figures_of(made));
  if (!arguments.output.empty()) {
    TESSERA_TRY(check_stop("writing the artifact"));
    TESSERA_TRY(engine::finish(graph, made, options));
    TESSERA_TRY(
        plan::write_artifact(arguments.output, made.lowered.plan, {{"model", model.path()}, {"tessera", version()}}));
  }
  Json answer = {{"file", arguments.output}, {"nodes", engine::count_nodes(graph)},
                 {"kernels", after.kernels}, {"weight_bytes", bytes},
                 {"import_ms", import_ms},   {"optimise_ms", made.optimise_ms},
                 {"plan_ms", made.plan_ms}};
  if (arguments.report) {
    TESSERA_ASSIGN(const engine::Compilation plain, engine::compile_steps(graph, {.pipeline = {.level = 0}}));
    TESSERA_ASSIGN(const engine::PlanFigures before, engine::figures_of(plain));
    if (arguments.json) {
      answer.update(report_json(made, before, after));
    } else {
      print_report(made, before, after);
    }
  }
  if (arguments.json) {
    print_json(answer);
  } else if (!arguments.output.empty() || arguments.report) {
    say("{}{} nodes as {} kernels, {} of constants; imported in {:.1f} ms, optimised in {:.1f} ms, planned in {:.1f} "
        "ms\n",
        arguments.output.empty() ? "" : arguments.output + ": ", engine::count_nodes(graph), after.kernels,
        bytes_text(static_cast<double>(bytes)), import_ms, made.optimise_ms, made.plan_ms);
  }
  return 0;
}

}  // namespace tessera::cli
