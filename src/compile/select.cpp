#include "compile/select.h"

#include <optional>
#include <vector>

#include "ir/core_ops.h"
#include "ir/op_def.h"
#include "ir/view.h"

namespace tessera::compile {
namespace {

// Kernels take tensors of known rank.
bool plain(ir::TypeRef type) {
  return (type->kind == ir::Kind::tensor || type->kind == ir::Kind::state) && type->ranked &&
         type->rank() <= plan::kMaxKernelRank;
}

// A constant, or a view of one that moves along every axis: what can be laid out anew before a run.
bool is_constant(const ir::Graph& graph, ir::ValueId v) {
  if (v == ir::kNoValue || graph.value(v).def == ir::kNoNode) return false;
  const ir::NodeId def = graph.value(v).def;
  const ir::Node& node = graph.node(def);
  if (node.op == &ir::core::constant) return true;
  if (node.op != &ir::core::view || !is_constant(graph, graph.operands(def)[0])) return false;
  const auto& view = std::get<ir::View>(node.attrs->values[0]);
  for (Dim offset : view.offsets)
    if (!offset.is_const()) return false;
  for (const std::vector<ir::ViewAtom>& axis : view.axes)
    for (const ir::ViewAtom& atom : axis)
      if (!atom.size.is_const() || !atom.stride.is_const() || atom.stride.is(0)) return false;
  return true;
}

}  // namespace

const plan::KernelRule* select(const ir::Graph& graph, ir::NodeId id) {
  const ir::Node& node = graph.node(id);
  if (plan::rules_for(node.op->name).empty() || node.n_regions > 0) return nullptr;
  std::vector<std::optional<DType>> operands, results;
  plan::ConstantOperands constants = 0;
  for (ir::ValueId v : graph.operands(id)) {
    if (operands.size() < 64 && is_constant(graph, v)) constants |= uint64_t{1} << operands.size();
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
  return plan::select_kernel(node.op->name, operands, results, constants);
}

}  // namespace tessera::compile
