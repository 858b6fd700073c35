#include "engine/report.h"

#include <algorithm>

#include "base/result.h"
#include "ir/core_ops.h"
#include "ops/tile.h"
#include "plan/instantiate.h"

namespace tessera::engine {
namespace {

// The sizes of one routine that are known without a run.
struct Known {
  const plan::Routine& routine;
  plan::Sizes sizes;

  explicit Known(const plan::Routine& r) : routine(r), sizes(r, plan::Bindings(r.symbols.size())) {}

  std::optional<double> bytes(plan::ValueId v) const {
    const plan::Value& value = routine.values[v];
    if (value.kind != plan::Kind::tensor && value.kind != plan::Kind::state) return 0;  // lists: only their tensors
    if (!value.ranked) return std::nullopt;
    double count = bits(value.dtype) / 8.0;
    for (plan::ExprId size : routine.shape(v)) {
      if (!sizes.known(size)) return std::nullopt;
      count *= static_cast<double>(sizes[size]);
    }
    return count;
  }

  OperandLine line(plan::ValueId v) const {
    OperandLine line;
    line.dtype = routine.values[v].dtype;
    for (plan::ExprId size : routine.shape(v)) {
      line.shape.push_back(plan::print(routine, size));
      line.sizes.push_back(sizes.get(size).value_or(-1));
    }
    return line;
  }
};

bool is_kernel(const plan::Step& step) {
  return step.kind == plan::StepKind::kernel || step.kind == plan::StepKind::host;
}

std::string_view op_of(const plan::Plan& plan, const plan::Step& step) {
  return step.kind == plan::StepKind::host ? plan.host_ops[step.op].op : plan.kernels[step.op].op;
}

// The operator's name; of those that hold a program, what they are made of.
std::string name_of(std::string_view op, const compile::Origin& origin) {
  const ir::Node& node = origin.graph->node(origin.node);
  if (node.op->name != op || node.op->attrs.find("program") < 0) return std::string(op);
  const std::string program = ops::tile_text(ir::A(*node.op, *node.attrs));
  if (op == "pointwise") return program;
  return std::string(op.substr(op.find('_') + 1)) + (program.empty() ? "" : "+" + program);
}

// Operands and results, weights included. Of a table only the rows that are gathered are read.
std::optional<double> bytes_moved(const plan::Plan& plan, const Known& known, const plan::Step& step) {
  double written = 0, total = 0;
  for (plan::ValueId v : known.routine.results(step)) {
    if (v == plan::kNone) continue;
    const std::optional<double> bytes = known.bytes(v);
    if (!bytes) return std::nullopt;
    written += *bytes;
  }
  bool table = op_of(plan, step) == "gather";
  for (plan::ValueId v : known.routine.operands(step)) {
    if (v == plan::kNone) continue;
    const std::optional<double> bytes = known.bytes(v);
    if (!bytes) return std::nullopt;
    total += table ? std::min(written, *bytes) : *bytes;
    table = false;
  }
  return total + written;
}

std::optional<Cost> cost_of_step(const plan::Plan& plan, const Known& known, const plan::Step& step,
                                 const compile::Origin& origin) {
  const std::optional<double> bytes = bytes_moved(plan, known, step);
  if (!bytes) return std::nullopt;
  std::optional<Cost> cost = Cost();
  // A copy that a view called for has the view as its origin, and computes nothing.
  if (origin.graph->regions(origin.node).empty())
    cost = cost_of(*origin.graph, origin.node, DimBindings(static_cast<size_t>(origin.graph->dims().symbol_count())));
  if (cost) cost->bytes = *bytes;
  return cost;
}

}  // namespace

std::vector<KernelLine> kernel_lines(const Compilation& made) {
  const plan::Plan& plan = made.lowered.plan;
  std::vector<KernelLine> lines;
  for (size_t r = 0; r < plan.routines.size(); ++r) {
    const Known known(plan.routines[r]);
    for (size_t s = 0; s < known.routine.steps.size(); ++s) {
      const plan::Step& step = known.routine.steps[s];
      if (!is_kernel(step)) continue;
      const compile::Origin& origin = made.lowered.origins[r][s];
      KernelLine line;
      line.op = name_of(op_of(plan, step), origin);
      line.kernel = step.kind == plan::StepKind::host ? "host" : plan.kernels[step.op].kernel;
      const ir::Context& context = origin.graph->context();
      for (ir::LocId place : context.covered(origin.place))
        if (const ir::NameId name = context.location(place).node; name != 0)
          line.covers.emplace_back(context.text(name));
      for (plan::ValueId v : known.routine.operands(step))
        if (v != plan::kNone) line.inputs.push_back(known.line(v));
      for (plan::ValueId v : known.routine.results(step))
        if (v != plan::kNone) line.outputs.push_back(known.line(v));
      line.cost = cost_of_step(plan, known, step, origin);
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

Result<PlanFigures> figures_of(const Compilation& made) {
  const plan::Plan& plan = made.lowered.plan;
  PlanFigures figures;
  figures.nodes = made.nodes;
  figures.cost = Cost();
  for (size_t r = 0; r < plan.routines.size(); ++r) {
    const Known known(plan.routines[r]);
    for (size_t s = 0; s < known.routine.steps.size(); ++s) {
      const plan::Step& step = known.routine.steps[s];
      if (!is_kernel(step)) continue;
      ++figures.kernels;
      const auto cost = figures.cost ? cost_of_step(plan, known, step, made.lowered.origins[r][s]) : std::nullopt;
      if (cost) {
        figures.cost->flops += cost->flops;
        figures.cost->bytes += cost->bytes;
      } else {
        figures.cost.reset();
      }
    }
  }
  const Known main(plan.main());
  if (!main.sizes.complete()) return figures;
  const plan::Prepared prepared = plan::outline(std::make_shared<const plan::Plan>(plan));
  TESSERA_ASSIGN(const plan::Instance instance,
                 plan::instantiate(prepared, 0, plan::Bindings(plan.main().symbols.size()), main.sizes));
  figures.live_set_bound_bytes = static_cast<int64_t>(instance.live_set_bound_bytes);
  figures.arena_bytes = static_cast<int64_t>(instance.arena_bytes);
  return figures;
}

}  // namespace tessera::engine
