// What is known of a graph's form before it runs: constant loops and lists, and sizes that guards say are equal.
#include <algorithm>

#include "base/result.h"
#include "ops/ops.h"
#include "passes/pipeline.h"
#include "passes/replay.h"

namespace tessera::passes {
namespace {

bool has_form(const ir::OpDef* op) {
  return op == &ops::loop_op || op == &ops::branch_op || op == &ops::seq_make_op || op == &ops::seq_split_op;
}

// Takes the new graph, if there is one.
std::vector<ir::Edit> take(ir::Graph& graph, std::optional<Replayed> made, int64_t limit) {
  if (!made || made->edits.empty()) return {};
  graph = std::move(made->graph);
  if (static_cast<int64_t>(made->edits.size()) > limit) made->edits.resize(static_cast<size_t>(limit));
  return std::move(made->edits);
}

}  // namespace

Result<std::vector<ir::Edit>> unroll(ir::Graph& graph, const PassContext& context) {
  bool any = false;
  for (ir::NodeId n = 0; n < graph.node_count() && !any; ++n) any = has_form(graph.node(n).op);
  if (!any || context.nested) return std::vector<ir::Edit>();
  return take(graph, replay(graph, DimMap(graph.dims())), context.limit.edits);
}

Result<std::vector<ir::Edit>> equal_sizes(ir::Graph& graph, const PassContext& context) {
  if (context.nested) return std::vector<ir::Edit>();
  std::vector<bool> bound(static_cast<size_t>(graph.dims().symbol_count()), false);
  for (ir::ValueId v : graph.inputs)
    if (graph.type(v)->is_tensor())
      for (Dim d : graph.type(v)->shape)
        if (!d.is_const())
          for (int symbol : graph.dims().symbols_of(d)) bound[static_cast<size_t>(symbol)] = true;
  const auto known = [&](Dim d) {
    if (d.is_const()) return true;
    const std::vector<int> symbols = graph.dims().symbols_of(d);
    return std::all_of(symbols.begin(), symbols.end(), [&](int s) { return bound[static_cast<size_t>(s)]; });
  };
  DimMap map(graph.dims());
  std::vector<ir::Edit> edits;
  for (const ir::Guard& guard : graph.guards)
    if (guard.kind == ir::Guard::Kind::equal && known(guard.a) && known(guard.b) && map.solve(guard.a - guard.b))
      edits.push_back({.rule = "equal_size", .place = to_string(guard.a) + " == " + to_string(guard.b)});
  // Once done, the sizes stand in the guards alone.
  bool used = false;
  for (ir::ValueId v = 0; v < graph.value_count() && !used; ++v)
    if (graph.type(v)->is_tensor() && graph.type(v)->ranked)
      used = !(map.apply(graph.type(v)->shape) == graph.type(v)->shape);
  if (edits.empty() || !used) return std::vector<ir::Edit>();
  std::optional<Replayed> made = replay(graph, std::move(map));
  if (made) made->edits = std::move(edits);
  return take(graph, std::move(made), context.limit.edits);
}

}  // namespace tessera::passes
