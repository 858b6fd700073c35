// inspect --plan: the kernels of a model's plan.
#include <fmt/format.h>

#include "base/result.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "engine/model.h"
#include "engine/report.h"

namespace tessera::cli {
namespace {

Json describe(const std::vector<engine::OperandLine>& lines) {
  Json list = Json::array();
  for (const engine::OperandLine& line : lines) {
    Json shape = Json::array();
    for (size_t i = 0; i < line.shape.size(); ++i)
      shape.push_back(line.sizes[i] >= 0 ? Json(line.sizes[i]) : Json(line.shape[i]));
    list.push_back({{"shape", std::move(shape)}, {"dtype", name(line.dtype)}});
  }
  return list;
}

}  // namespace

Result<int> inspect_plan(const Arguments& arguments, const Model& model) {
  TESSERA_ASSIGN(const ir::Graph graph, model.impl()->graph());
  engine::CompileOptions options;
  TESSERA_ASSIGN(options.pipeline, engine::pipeline_of(arguments.session.compile));
  TESSERA_ASSIGN(const engine::Compilation made, engine::compile_steps(graph, options));
  TESSERA_ASSIGN(const engine::PlanFigures figures, engine::figures_of(made));
  const std::vector<engine::KernelLine> lines = engine::kernel_lines(made);
  if (!arguments.json) {
    for (const engine::KernelLine& line : lines)
      say("{:<28} {:<24} {}\n", line.op, line.kernel, joined(line.covers, " "));
    say("{} kernels\n", lines.size());
    return 0;
  }
  Json kernels = Json::array();
  for (const engine::KernelLine& line : lines)
    kernels.push_back({{"op", line.op},
                       {"kernel", line.kernel},
                       {"covers", line.covers},
                       {"inputs", describe(line.inputs)},
                       {"outputs", describe(line.outputs)},
                       {"flops", line.cost ? Json(line.cost->flops) : Json()},
                       {"bytes", line.cost ? Json(line.cost->bytes) : Json()}});
  print_json({{"kernels", std::move(kernels)},
              {"arena_bytes", figures.arena_bytes},
              {"live_set_bound_bytes", figures.live_set_bound_bytes}});
  return 0;
}

}  // namespace tessera::cli
