// The order of the passes, in one table.
#pragma once

#include <span>

#include "passes/driver.h"

namespace tessera::passes {

struct PassContext {
  const PipelineOptions& options;
  ir::EditLimit limit = {};                 // rewrites that are still allowed
  bool nested = false;                      // the graph stands in another one
  std::vector<Unfused>* unfused = nullptr;  // what a sweep found and left; null when nobody asks
  int64_t* folds_left = nullptr;            // elements that may still be folded from and to; null: any number
};

// One sweep over one graph, not over those nested in it: the driver visits them. Returns the accepted edits.
using PassFn = Result<std::vector<ir::Edit>> (*)(ir::Graph&, const PassContext&);

struct Pass {
  std::string_view name;
  PassFn run;
  int level;  // the lowest -O that runs it
  std::string_view why;
};

std::span<const Pass> pipeline();

// The passes, each in its file.
Result<std::vector<ir::Edit>> use_stored_weights(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> fold_shapes(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> raise_quantized(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> fold_constants(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> remove_identities(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> merge_equal(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> remove_dead(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> lower_precision(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> unroll(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> equal_sizes(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> fold_channel_scales(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> lift_rows(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> form_regions(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> merge_siblings(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> merge_rotations(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> apply_own_rules(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> raise_attention(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> expand_composites(ir::Graph& graph, const PassContext& context);
Result<std::vector<ir::Edit>> fuse(ir::Graph& graph, const PassContext& context);

}  // namespace tessera::passes
