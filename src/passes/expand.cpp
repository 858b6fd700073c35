// Composites that nothing computes whole: their formulas hold what other rules recognise.
#include "base/result.h"
#include "passes/pipeline.h"

namespace tessera::passes {
namespace {

// In narrower types each step of a formula would round.
bool wide(ir::TypeRef type) {
  return type->is_tensor() && type->ranked &&
         (!is_float(type->dtype) || type->dtype == DType::f32 || type->dtype == DType::f64);
}

bool expands(const ir::Graph& graph, ir::NodeId n, const PipelineOptions& options) {
  const ir::Node& node = graph.node(n);
  if (node.op->is_primitive() || node.n_regions > 0 || options.targets(*node.op)) return false;
  for (ir::ValueId v : graph.operands(n))
    if (v != ir::kNoValue && !wide(graph.type(v))) return false;
  return wide(graph.type(graph.result(n, 0)));
}

}  // namespace

Result<std::vector<ir::Edit>> expand_composites(ir::Graph& graph, const PassContext& context) {
  if (!context.options.targets) return std::vector<ir::Edit>();
  ir::Rewrite rewrite(graph, context.limit);
  const size_t count = graph.node_count();
  for (ir::NodeId n = 0; n < count && !rewrite.exhausted(); ++n) {
    if (!expands(graph, n, context.options)) continue;
    const ir::Node node = graph.node(n);
    rewrite.builder().set_location(node.location);
    ir::Xs operands;
    for (ir::ValueId v : graph.operands(n)) operands.push_back(rewrite.builder().wrap(v));
    const ir::Xs results = node.op->meaning(operands, ir::A(*node.op, *node.attrs));
    TESSERA_TRY(rewrite.builder().take_status());
    for (int i = 0; i < node.n_results; ++i)
      rewrite.replace(graph.result(n, i), results[static_cast<size_t>(i)].id, node.op->name);
  }
  if (rewrite.journal().empty()) return std::vector<ir::Edit>();
  TESSERA_TRY(rewrite.finish());
  return rewrite.journal();
}

}  // namespace tessera::passes
