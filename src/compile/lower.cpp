#include "compile/lower.h"

#include "base/result.h"
#include "compile/routine_writer.h"

namespace tessera::compile {

uint32_t PlanWriter::constant(const ir::Context& context, uint32_t id) {
  const auto [at, fresh] = constants.try_emplace(id, static_cast<uint32_t>(lowered.plan.constants.size()));
  if (fresh) lowered.plan.constants.push_back(context.constant(id));
  return at->second;
}

uint32_t PlanWriter::kernel(const plan::KernelRule& rule) {
  const auto [at, fresh] = kernels.try_emplace(&rule, static_cast<uint32_t>(lowered.plan.kernels.size()));
  if (fresh) lowered.plan.kernels.push_back({std::string(rule.kernel), std::string(rule.op)});
  return at->second;
}

uint32_t PlanWriter::source(const ir::Graph& graph, ir::NodeId node) {
  const ir::LocId location = graph.node(node).location;
  if (location == 0) return plan::kNone;
  const auto [at, fresh] = sources.try_emplace(location, static_cast<uint32_t>(lowered.plan.sources.size()));
  if (fresh) lowered.plan.sources.push_back(graph.describe(node));
  return at->second;
}

Result<Lowered> lower(const ir::Graph& graph) {
  PlanWriter writer;
  for (const ir::Guard& guard : graph.guards) writer.guards.push_back(&guard);
  writer.lowered.plan.routines.emplace_back();
  TESSERA_TRY(RoutineWriter(writer, graph, 0, nullptr).write());
  return std::move(writer.lowered);
}

}  // namespace tessera::compile
