#include <chrono>

#include "base/result.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "engine/compiled.h"
#include "engine/model.h"
#include "plan/artifact.h"
#include "tessera/tessera.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

Result<int> compile(const Arguments& arguments) {
  const Clock::time_point begin = Clock::now();
  TESSERA_ASSIGN(const Model model, Model::load(arguments.subject, {arguments.dims}));
  TESSERA_ASSIGN(const ir::Graph graph, model.impl()->graph());
  const double import_ms = ms_since(begin);
  TESSERA_TRY(check_stop("planning"));
  const Clock::time_point planning = Clock::now();
  TESSERA_ASSIGN(const plan::Plan plan, engine::compile_plan(graph, {.optimisation = arguments.session.optimisation}));
  const double plan_ms = ms_since(planning);
  TESSERA_TRY(check_stop("writing the artifact"));
  TESSERA_TRY(plan::write_artifact(arguments.output, plan, {{"model", model.path()}, {"tessera", version()}}));

  int64_t kernels = 0;
  for (const plan::Routine& routine : plan.routines)
    for (const plan::Step& step : routine.steps)
      kernels += step.kind == plan::StepKind::kernel || step.kind == plan::StepKind::host;
  size_t bytes = 0;
  for (const Tensor& constant : plan.constants) bytes += constant.bytes();
  if (arguments.json) {
    print_json({{"file", arguments.output},
                {"nodes", engine::count_nodes(graph)},
                {"kernels", kernels},
                {"weight_bytes", bytes},
                {"import_ms", import_ms},
                {"plan_ms", plan_ms}});
  } else {
    say("{}: {} nodes as {} kernels, {} of constants; imported in {:.1f} ms, "
        "planned in {:.1f} ms\n",
        arguments.output, engine::count_nodes(graph), kernels, bytes_text(static_cast<double>(bytes)), import_ms,
        plan_ms);
  }
  return 0;
}

}  // namespace tessera::cli
