#include "compile/decompose.h"

#include <algorithm>

#include "base/result.h"
#include "compile/select.h"
#include "ir/builder.h"

namespace tessera::compile {
namespace {

using ir::kNoValue;
using ir::ValueId;

bool wide(ir::TypeRef type) {
  return !type->is_tensor() || !is_float(type->dtype) || type->dtype == DType::f32 || type->dtype == DType::f64;
}

bool expands(const ir::Graph& graph, ir::NodeId id) {
  const ir::Node& node = graph.node(id);
  if (node.op->is_primitive() || select(graph, id) != nullptr) return false;
  for (ValueId v : graph.operands(id))
    if (v != kNoValue && (!wide(graph.type(v)) || !graph.type(v)->ranked)) return false;
  return wide(graph.type(graph.result(id, 0)));
}

bool any_expands(const ir::Graph& graph) {
  for (ir::NodeId id = 0; id < graph.node_count(); ++id) {
    if (expands(graph, id)) return true;
    for (const ir::Graph& region : graph.regions(id))
      if (any_expands(region)) return true;
  }
  return false;
}

// One level: composites inside the meanings that it writes stay for the next round.
Result<ir::Graph> expand_once(const ir::Graph& graph, bool& changed) {
  ir::Graph copy(graph.shared_context());
  copy.name = graph.name;
  copy.guards = graph.guards;
  ir::Builder builder(copy);
  std::vector<ValueId> at(graph.value_count(), kNoValue);
  auto carry = [&](ValueId from, ValueId to) {
    at[from] = to;
    if (auto known = graph.contents.find(from); known != graph.contents.end()) copy.contents[to] = known->second;
    if (graph.value(from).name != 0 && copy.value(to).name == 0) copy.set_name(to, graph.value_name(from));
  };
  for (ValueId v : graph.inputs) carry(v, copy.add_input(graph.type(v), graph.value_name(v)));
  for (ir::NodeId id = 0; id < graph.node_count(); ++id) {
    const ir::Node& node = graph.node(id);
    builder.set_location(node.location);
    if (expands(graph, id)) {
      ir::Xs operands;
      for (ValueId v : graph.operands(id)) operands.push_back({&builder, v == kNoValue ? kNoValue : at[v]});
      ir::Xs results = node.op->meaning(operands, ir::A(*node.op, *node.attrs));
      TESSERA_TRY(builder.status());
      for (int i = 0; i < node.n_results; ++i) carry(graph.result(id, i), results[static_cast<size_t>(i)].id);
      changed = true;
      continue;
    }
    std::vector<ValueId> operands;
    for (ValueId v : graph.operands(id)) operands.push_back(v == kNoValue ? kNoValue : at[v]);
    std::vector<ir::TypeRef> types;
    for (int i = 0; i < node.n_results; ++i) types.push_back(graph.type(graph.result(id, i)));
    std::vector<ir::Graph> regions;
    for (const ir::Graph& region : graph.regions(id)) {
      TESSERA_ASSIGN(ir::Graph expanded, decompose(region));
      regions.push_back(std::move(expanded));
    }
    ir::NodeId made = copy.add_node(*node.op, operands, node.attrs, types, node.location, std::move(regions));
    for (int i = 0; i < node.n_results; ++i) carry(graph.result(id, i), copy.result(made, i));
  }
  for (ValueId v : graph.outputs) copy.outputs.push_back(at[v]);
  copy.output_names = graph.output_names;
  TESSERA_TRY(copy.compact());
  return copy;
}

}  // namespace

Result<ir::Graph> decompose(const ir::Graph& graph) {
  if (!any_expands(graph)) {
    ir::Graph copy = graph.clone();
    TESSERA_TRY(copy.compact());
    return copy;
  }
  bool changed = false;
  TESSERA_ASSIGN(ir::Graph expanded, expand_once(graph, changed));
  while (changed) {
    changed = false;
    TESSERA_ASSIGN(expanded, expand_once(expanded, changed));
  }
  return expanded;
}

}  // namespace tessera::compile
