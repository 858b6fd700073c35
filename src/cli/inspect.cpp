#include <map>

#include "base/result.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "engine/cost.h"
#include "engine/model.h"
#include "import/onnx/supported.h"
#include "ir/op_def.h"
#include "ir/printer.h"
#include "plan/plan.h"

namespace tessera::cli {
namespace {

struct Findings {
  std::vector<ValueInfo> inputs, outputs;
  std::optional<int64_t> parameters;
  std::map<std::string, int64_t> nodes;  // by kind
  std::vector<onnx::UnsupportedOp> unsupported;
  std::optional<engine::Cost> cost;
};

void count_kinds(const ir::Graph& graph, std::map<std::string, int64_t>& kinds) {
  for (ir::NodeId n = 0; n < graph.node_count(); ++n) {
    const std::string_view kind = graph.node(n).op->name;
    if (kind != "constant") ++kinds[std::string(kind)];
    for (const ir::Graph& nested : graph.regions(n)) count_kinds(nested, kinds);
  }
}

void count_steps(const plan::Plan& plan, Findings& found) {
  int64_t parameters = 0;
  for (const Tensor& constant : plan.constants) parameters += constant.count();
  found.parameters = parameters;
  for (const plan::Routine& routine : plan.routines) {
    for (const plan::Step& step : routine.steps) {
      if (step.kind == plan::StepKind::kernel) ++found.nodes[plan.kernels[step.op].op];
      if (step.kind == plan::StepKind::host) ++found.nodes[plan.host_ops[step.op].op];
    }
  }
}

Findings look_at(const Model& model, const ir::Graph* graph) {
  Findings found{model.inputs(), model.outputs(), {}, {}, {}, {}};
  if (model.impl()->plan() != nullptr) count_steps(*model.impl()->plan(), found);
  if (graph == nullptr) return found;
  found.parameters = engine::count_parameters(*graph);
  count_kinds(*graph, found.nodes);
  found.cost = engine::cost_of(*graph, DimBindings(static_cast<size_t>(graph->dims().symbol_count())));
  return found;
}

// What a model that cannot be imported declares, and which operators stand in the way.
Result<Findings> look_at_unsupported(const std::string& path) {
  TESSERA_ASSIGN(const std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  TESSERA_ASSIGN(const onnx::ModelProto proto, onnx::parse_model(file->bytes()));
  Findings found;
  TESSERA_ASSIGN(found.inputs, engine::declared_inputs(proto));
  TESSERA_ASSIGN(found.outputs, engine::declared_outputs(proto));
  for (const onnx::NodeProto& node : proto.graph.node) ++found.nodes[std::string(node.op_type)];
  found.unsupported = onnx::unsupported_ops(proto);
  return found;
}

Json describe(const std::vector<ValueInfo>& values) {
  Json list = Json::array();
  for (const ValueInfo& value : values) {
    Json shape = value.ranked ? Json::array() : Json();
    for (size_t i = 0; i < value.shape.size(); ++i)
      shape.push_back(value.sizes[i] >= 0 ? Json(value.sizes[i]) : Json(value.shape[i]));
    list.push_back(
        {{"name", value.name}, {"dtype", name(value.dtype)}, {"shape", std::move(shape)}, {"type", value.type}});
  }
  return list;
}

void print_findings_json(const Findings& found) {
  Json unsupported = Json::array();
  for (const onnx::UnsupportedOp& op : found.unsupported)
    unsupported.push_back({{"op", op.op}, {"count", op.nodes.size()}, {"nodes", op.nodes}});
  print_json({{"inputs", describe(found.inputs)},
              {"outputs", describe(found.outputs)},
              {"parameters", found.parameters},
              {"nodes", found.nodes},
              {"unsupported", std::move(unsupported)},
              {"flops", found.cost ? Json(found.cost->flops) : Json()},
              {"bytes", found.cost ? Json(found.cost->bytes) : Json()}});
}

void print_findings(const Findings& found) {
  for (const ValueInfo& value : found.inputs) say("input   {}: {}\n", value.name, value.type);
  for (const ValueInfo& value : found.outputs) say("output  {}: {}\n", value.name, value.type);
  if (found.parameters) say("{} parameters\n", *found.parameters);
  if (found.cost) {
    say("{:.3f} GFLOP, {} moved\n", found.cost->flops * 1e-9, bytes_text(found.cost->bytes));
  } else if (found.unsupported.empty()) {
    say("FLOPs and bytes depend on sizes that are not known: give them with "
        "--dim\n");
  }
  int64_t total = 0;
  for (const auto& [kind, count] : found.nodes) total += count;
  say("{} nodes\n", total);
  for (const auto& [kind, count] : found.nodes) say("{:>8} {}\n", count, kind);
  for (const onnx::UnsupportedOp& op : found.unsupported)
    say("not supported: {} ({} nodes, the first is '{}')\n", op.op, op.nodes.size(), op.nodes.front());
}

}  // namespace

Result<int> inspect(const Arguments& arguments) {
  const Result<Model> model = Model::load(arguments.subject, {arguments.dims});
  Findings found;
  if (model && (arguments.text || arguments.plan) && model->impl()->plan() != nullptr)
    return fail(Code::unsupported_feature,
                "an artifact holds a plan and no graph: inspect the model it "
                "was compiled from");
  if (model && arguments.plan) return inspect_plan(arguments, *model);
  if (model) {
    if (model->impl()->plan() != nullptr) {
      found = look_at(*model, nullptr);
    } else {
      const Result<ir::Graph> graph = model->impl()->graph();
      if (!graph && (graph.error().code != Code::value_unknown || arguments.text))
        return tl::unexpected<Error>(graph.error());
      if (arguments.text) {
        say("{}", ir::print(*graph, ir::PrintOptions::display()));
        return 0;
      }
      found = look_at(*model, graph ? &*graph : nullptr);
    }
  } else {
    if (model.error().code != Code::unsupported_op) return tl::unexpected<Error>(model.error());
    TESSERA_ASSIGN(found, look_at_unsupported(arguments.subject));
  }
  if (arguments.json) {
    print_findings_json(found);
  } else {
    print_findings(found);
  }
  return 0;
}

}  // namespace tessera::cli
