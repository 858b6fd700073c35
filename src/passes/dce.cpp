// Dead code: what no output needs.
#include "base/result.h"
#include "passes/pipeline.h"

namespace tessera::passes {

Result<std::vector<ir::Edit>> remove_dead(ir::Graph& graph, const PassContext& context) {
  const size_t before = graph.node_count();
  TESSERA_TRY(graph.compact());
  // Removing nodes changes no value, so it happens even past the limit; it is reported as far as the limit goes.
  const size_t removed = std::min(before - graph.node_count(), static_cast<size_t>(context.limit.edits));
  return std::vector<ir::Edit>(removed, ir::Edit{.rule = "dead"});
}

}  // namespace tessera::passes
