#include "compile/routine_writer.h"

#include <algorithm>
#include <variant>

#include "base/result.h"
#include "compile/select.h"
#include "ir/core_ops.h"

namespace tessera::compile {

using plan::kNone;

namespace {

plan::Kind kind_of(ir::Kind kind) {
  switch (kind) {
    case ir::Kind::nothing:
    case ir::Kind::tensor:
      return plan::Kind::tensor;
    case ir::Kind::sequence:
      return plan::Kind::sequence;
    case ir::Kind::optional:
      return plan::Kind::optional;
    case ir::Kind::state:
      return plan::Kind::state;
  }
  return plan::Kind::tensor;
}

// The element type of a tensor, or of the tensors in a list or an optional.
DType element_type(ir::TypeRef type) {
  while (type->element != nullptr) type = type->element;
  return type->dtype;
}

std::optional<plan::StepKind> control_kind(std::string_view op) {
  if (op == "branch") return plan::StepKind::branch;
  if (op == "loop") return plan::StepKind::loop;
  if (op == "scan") return plan::StepKind::scan;
  return std::nullopt;
}

Shape sizes_in(const ir::View& view) {
  Shape all = view.offsets;
  for (const std::vector<ir::ViewAtom>& axis : view.axes)
    for (const ir::ViewAtom& atom : axis) all.insert(all.end(), {atom.stride, atom.size});
  return all;
}

// The node alone: operands become inputs, its results outputs.
ir::Graph single_node_graph(const ir::Graph& from, ir::NodeId id) {
  const ir::Node& node = from.node(id);
  ir::Graph graph(from.shared_context());
  std::vector<ir::ValueId> operands;
  for (ir::ValueId v : from.operands(id))
    operands.push_back(v == ir::kNoValue ? v : graph.add_input(from.type(v), fmt::format("x{}", operands.size())));
  std::vector<ir::TypeRef> types;
  for (int i = 0; i < node.n_results; ++i) types.push_back(from.type(from.result(id, i)));
  std::vector<ir::Graph> regions;
  for (const ir::Graph& region : from.regions(id)) regions.push_back(region.clone());
  const ir::NodeId added = graph.add_node(*node.op, operands, node.attrs, types, node.location, std::move(regions));
  for (int i = 0; i < node.n_results; ++i) {
    graph.outputs.push_back(graph.result(added, i));
    graph.output_names.push_back(0);
  }
  return graph;
}

}  // namespace

RoutineWriter::RoutineWriter(PlanWriter& shared, const ir::Graph& graph, uint32_t index, RoutineWriter* parent)
    : shared_(shared), graph_(graph), index_(index), parent_(parent), planned_(graph.value_count(), kNone) {}

Status RoutineWriter::write() {
  out_.name = graph_.name;
  TESSERA_TRY(write_inputs());
  for (ir::NodeId node = 0; node < graph_.node_count(); ++node)
    if (Status done = write_node(node); !done)
      return tl::unexpected(std::move(done).error().within("planning " + graph_.describe(node)));
  TESSERA_TRY(write_outputs());
  TESSERA_TRY(attach_guards());
  shared_.lowered.plan.routines[index_] = std::move(out_);
  shared_.lowered.origins.resize(shared_.lowered.plan.routines.size());
  shared_.lowered.origins[index_] = std::move(origins_);
  return {};
}

Status RoutineWriter::write_inputs() {
  for (ir::ValueId v : graph_.inputs) {
    TESSERA_ASSIGN(const plan::ValueId id, add_value(plan::Storage::input, v));
    out_.values[id].index = static_cast<uint32_t>(out_.inputs.size());
    out_.inputs.push_back(id);
  }
  return {};
}

Status RoutineWriter::write_node(ir::NodeId id) {
  const ir::Node& node = graph_.node(id);
  if (node.op == &ir::core::constant) return write_constant(id);
  if (node.op == &ir::core::view) return write_view(id);
  if (const auto kind = control_kind(node.op->name)) return write_control(id, *kind);
  const plan::KernelRule* rule = select(graph_, id);
  // Sizes that only the operator itself can tell call for a host step: kernels write into memory of a known size.
  for (int i = 0; rule != nullptr && i < node.n_results; ++i)
    for (Dim dim : graph_.type(graph_.result(id, i))->shape)
      if (!resolvable(dim)) rule = nullptr;
  return rule != nullptr ? write_kernel(id, *rule) : write_host(id);
}

Status RoutineWriter::write_constant(ir::NodeId id) {
  const auto constant = static_cast<uint32_t>(std::get<int64_t>(graph_.node(id).attrs->values[0]));
  TESSERA_ASSIGN(const plan::ValueId value, add_value(plan::Storage::constant, graph_.result(id, 0)));
  out_.values[value].index = shared_.constant(graph_.context(), constant);
  return {};
}

Status RoutineWriter::write_view(ir::NodeId id) {
  const ir::ValueId base = graph_.operands(id)[0];
  const ir::TypeRef type = graph_.type(base);
  if (!type->ranked || type->dtype == DType::string) return write_host(id);
  const auto& view = std::get<ir::View>(graph_.node(id).attrs->values[0]);
  PendingView pending;
  pending.linear = ir::linear(view, type->shape);
  pending.node = id;
  TESSERA_ASSIGN(pending.base, operand(base, plan::Layout::dense));
  if (out_.values[pending.base].storage == plan::Storage::view) {
    // Dense, but not from the start of its own base.
    TESSERA_ASSIGN(pending.base, copied(base, views_.at(base)));
  }
  views_.emplace(graph_.result(id, 0), std::move(pending));
  return {};
}

Result<plan::Attr> RoutineWriter::attr(const ir::AttrSpec& spec, const ir::AttrValue& value) {
  plan::Attr attr;
  if (const auto* i = std::get_if<int64_t>(&value)) {
    attr.i = *i;
  } else if (const auto* f = std::get_if<double>(&value)) {
    attr.f = *f;
  } else if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    std::vector<plan::ExprId> ids;
    for (int64_t item : *list) ids.push_back(constant(item));
    attr.list = out_.add_list(ids);
  } else if (const auto* dims = std::get_if<Shape>(&value)) {
    TESSERA_ASSIGN(attr.list, exprs(*dims));
  } else {
    return fail(Code::internal, "no kernel takes the attribute '{}'", spec.name);
  }
  return attr;
}

Result<plan::List> RoutineWriter::operands(ir::NodeId id, const plan::KernelRule* rule) {
  std::vector<plan::ValueId> ids;
  for (ir::ValueId v : graph_.operands(id)) {
    plan::ValueId planned = kNone;
    if (v != ir::kNoValue) {
      const plan::Layout layout = rule == nullptr ? plan::Layout::dense : rule->operand(ids.size())->layout;
      const bool any_axes = rule != nullptr && graph_.node(id).op == &ir::core::copy;
      TESSERA_ASSIGN(planned, any_axes ? elements(v) : operand(v, layout));
    }
    ids.push_back(planned);
  }
  return out_.add_list(ids);
}

plan::Step& RoutineWriter::add_step(plan::StepKind kind, plan::List operands, std::span<const plan::ValueId> results,
                                    ir::NodeId node) {
  plan::Step step;
  step.kind = kind;
  step.operands = operands;
  step.results = out_.add_list(results);
  step.source = shared_.source(graph_, node);
  out_.steps.push_back(step);
  std::vector<ir::LocId> places = {graph_.node(node).location};
  for (ir::ValueId v : graph_.operands(node))
    if (const auto view = views_.find(v); view != views_.end() && view->second.copied == kNone)
      places.push_back(graph_.node(view->second.node).location);
  origins_.push_back({&graph_, node, graph_.context().covering(places)});
  return out_.steps.back();
}

Status RoutineWriter::write_kernel(ir::NodeId id, const plan::KernelRule& rule) {
  const ir::Node& node = graph_.node(id);
  TESSERA_ASSIGN(const plan::List inputs, operands(id, &rule));
  std::vector<plan::ValueId> results;
  for (int i = 0; i < node.n_results; ++i) {
    const ir::ValueId v = graph_.result(id, i);
    const bool state = graph_.type(v)->kind == ir::Kind::state;
    TESSERA_ASSIGN(const plan::ValueId planned, add_value(state ? plan::Storage::successor : plan::Storage::buffer, v));
    if (state)
      for (plan::ValueId operand : out_.list(inputs))
        if (operand != kNone && out_.values[operand].kind == plan::Kind::state) out_.values[planned].base = operand;
    results.push_back(planned);
  }
  std::vector<plan::Attr> attrs;
  for (int i = 0; i < node.op->attrs.size(); ++i) {
    TESSERA_ASSIGN(const plan::Attr made, attr(node.op->attrs[i], node.attrs->values[static_cast<size_t>(i)]));
    attrs.push_back(made);
  }
  plan::Step& step = add_step(plan::StepKind::kernel, inputs, results, id);
  step.op = shared_.kernel(rule);
  step.attrs = static_cast<uint32_t>(out_.attrs.size());
  step.n_attrs = static_cast<uint32_t>(attrs.size());
  out_.attrs.insert(out_.attrs.end(), attrs.begin(), attrs.end());
  return {};
}

Status RoutineWriter::write_host(ir::NodeId id) {
  const ir::Node& node = graph_.node(id);
  TESSERA_ASSIGN(const plan::List inputs, operands(id, nullptr));
  // What a host step reads, symbols in attributes too, must be decided before it.
  if (node.attrs != nullptr)
    for (const ir::AttrValue& value : node.attrs->values) {
      if (const auto* dims = std::get_if<Shape>(&value)) TESSERA_TRY(exprs(*dims));
      if (const auto* view = std::get_if<ir::View>(&value)) TESSERA_TRY(exprs(sizes_in(*view)));
    }
  std::vector<plan::ValueId> results;
  for (int i = 0; i < node.n_results; ++i) {
    TESSERA_ASSIGN(const plan::ValueId planned, add_value(plan::Storage::boxed, graph_.result(id, i)));
    results.push_back(planned);
  }
  add_step(plan::StepKind::host, inputs, results, id).op = static_cast<uint32_t>(shared_.lowered.plan.host_ops.size());
  shared_.lowered.plan.host_ops.push_back({std::string(node.op->name), ""});
  shared_.lowered.host_graphs.push_back(single_node_graph(graph_, id));
  return {};
}

Status RoutineWriter::write_control(ir::NodeId id, plan::StepKind kind) {
  const ir::Node& node = graph_.node(id);
  TESSERA_ASSIGN(const plan::List inputs, operands(id, nullptr));
  uint32_t bodies[2] = {kNone, kNone};
  for (size_t i = 0; i < node.n_regions; ++i) {
    bodies[i] = static_cast<uint32_t>(shared_.lowered.plan.routines.size());
    shared_.lowered.plan.routines.emplace_back();
    TESSERA_TRY(RoutineWriter(shared_, graph_.regions(id)[i], bodies[i], this).write());
  }
  std::vector<plan::ValueId> results;
  for (int i = 0; i < node.n_results; ++i) {
    TESSERA_ASSIGN(const plan::ValueId planned, add_value(plan::Storage::boxed, graph_.result(id, i)));
    results.push_back(planned);
  }
  plan::Step& step = add_step(kind, inputs, results, id);
  std::copy(std::begin(bodies), std::end(bodies), std::begin(step.routines));
  const ir::A attrs(*node.op, *node.attrs);
  if (kind != plan::StepKind::branch) step.carried = static_cast<uint32_t>(attrs.integer("carried"));
  if (kind == plan::StepKind::scan) step.scanned = static_cast<uint32_t>(attrs.integer("sliced"));
  return {};
}

Status RoutineWriter::write_outputs() {
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    TESSERA_ASSIGN(const plan::ValueId planned, operand(graph_.outputs[i], plan::Layout::dense));
    out_.outputs.push_back(planned);
    out_.output_names.emplace_back(i < graph_.output_names.size() ? graph_.context().text(graph_.output_names[i])
                                                                  : std::string_view());
  }
  return {};
}

Result<plan::ValueId> RoutineWriter::add_value(plan::Storage storage, ir::ValueId value) {
  const ir::TypeRef type = graph_.type(value);
  const auto id = static_cast<plan::ValueId>(out_.values.size());
  if (storage == plan::Storage::input || storage == plan::Storage::boxed) {
    define_symbols(value, id);
    define_sizes(type, id);
  }
  plan::Value v;
  v.kind = kind_of(type->kind);
  v.dtype = element_type(type);
  v.storage = storage;
  v.ranked = type->ranked;
  v.name = graph_.value_name(value);
  TESSERA_ASSIGN(v.shape, exprs(type->shape));
  planned_[value] = out_.add_value(std::move(v));
  return id;
}

}  // namespace tessera::compile
