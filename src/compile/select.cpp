#include "compile/select.h"

#include <optional>
#include <vector>

#include "ir/op_def.h"

namespace tessera::compile {
namespace {

// Kernels take tensors of known rank.
bool plain(ir::TypeRef type) {
  return (type->kind == ir::Kind::tensor || type->kind == ir::Kind::state) && type->ranked &&
         type->rank() <= plan::kMaxKernelRank;
}

}  // namespace

const plan::KernelRule* select(const ir::Graph& graph, ir::NodeId id) {
  const ir::Node& node = graph.node(id);
  if (plan::rules_for(node.op->name).empty() || node.n_regions > 0) return nullptr;
  std::vector<std::optional<DType>> operands, results;
  for (ir::ValueId v : graph.operands(id)) {
    operands.emplace_back();
    if (v == ir::kNoValue) continue;
    if (!plain(graph.type(v))) return nullptr;
    operands.back() = graph.type(v)->dtype;
  }
  for (int i = 0; i < node.n_results; ++i) {
    const ir::TypeRef type = graph.type(graph.result(id, i));
    if (!plain(type)) return nullptr;
    results.emplace_back(type->dtype);
  }
  return plan::select_kernel(node.op->name, operands, results);
}

}  // namespace tessera::compile
