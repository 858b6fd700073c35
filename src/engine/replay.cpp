#include "engine/replay.h"

#include "base/result.h"
#include "ir/core_ops.h"

namespace tessera::engine {

bool is_tensor_result(const ir::Graph& graph, ir::ValueId v) {
  const ir::Type& type = *graph.type(v);
  const ir::NodeId def = graph.value(v).def;
  return def != ir::kNoNode && graph.node(def).op != &ir::core::constant && type.is_tensor() && type.ranked &&
         type.dtype != DType::string && !is_block(type.dtype);
}

Result<std::vector<ir::RefValue>> replay(const ir::Graph& graph, std::span<const ir::RefValue> inputs,
                                         const KnownValues& known, std::span<const ir::ValueId> wanted,
                                         const std::atomic<bool>* stop) {
  ir::Graph cut = graph.clone();
  std::vector<ir::RefValue> given(inputs.begin(), inputs.end());
  std::vector<ir::ValueId> at(cut.value_count(), ir::kNoValue);
  for (const auto& [v, value] : known) {
    at[v] = cut.add_input(cut.type(v), "");
    given.push_back(value);
  }
  for (ir::NodeId n = 0; n < cut.node_count(); ++n)
    for (ir::ValueId& v : cut.mutable_operands(n))
      if (v != ir::kNoValue && at[v] != ir::kNoValue) v = at[v];
  cut.outputs.assign(wanted.begin(), wanted.end());
  cut.output_names.assign(wanted.size(), 0);
  TESSERA_TRY(cut.compact());
  return ir::Interpreter({.stop = stop}).run(cut, given);
}

}  // namespace tessera::engine
