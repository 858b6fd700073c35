// Runs the passes over a graph: verified, timed, counted, stoppable.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/rewrite.h"
#include "passes/precision.h"

namespace tessera::passes {

class UserRules;  // passes/user_rules.h

struct PipelineOptions {
  int level = 2;        // -O0 to -O3
  bool strict = false;  // only rewrites that keep every bit
  // Rows of a product are rounded and added up alike however many there are.
  bool deterministic = false;
  bool exact_activations = false;  // do not round what quantized and bf16 weights are multiplied by
  bool approximate = false;        // also rules of the class `approx`
  std::shared_ptr<const UserRules> own_rules = {};
  int64_t stop_after = -1;                   // accepted rewrites; negative: no limit
  int64_t fold_elements = int64_t{1} << 20;  // the most elements of operands and results of one folded node
  int64_t fold_total = int64_t{1} << 27;     // the same of all folded nodes: a small file may hold many that grow
  std::vector<PrecisionRule> precision = {};
  // The composites worth having, those with a kernel; all when empty.
  std::function<bool(const ir::OpDef&)> targets = {};
  // Whether an operator's kernels read this operand through any strides; none does when empty.
  std::function<bool(const ir::OpDef&, size_t operand)> strided = {};
  std::vector<std::string> disable = {};  // names of passes and rules
  std::vector<std::string> passes = {};   // these, in this order, instead of those of the level
  std::string dump_after = {};            // a pass, or "all"; shown through `dump`
  std::function<void(std::string_view pass, const ir::Graph&)> dump = {};

  bool disabled(std::string_view name) const;
};

struct PassStage {
  std::string_view pass;
  double ms = 0;
  int64_t nodes = 0;     // afterwards, constants and nested graphs' nodes not counted
  int64_t rewrites = 0;  // 0: unchanged
};

// A formula that was found, and why it stayed as it was.
struct Unfused {
  std::string rule;
  ir::LocId place = 0;  // of the nodes that it would have covered
  std::string why;
};

struct PassReport {
  std::vector<PassStage> stages;
  std::map<std::string, int64_t, std::less<>> rules;  // rule -> accepted rewrites
  std::vector<ir::Edit> journal;                      // in order; the node ids are those before their sweep
  std::vector<Unfused> unfused;                       // as the last sweeps found them
  bool stopped = false;                               // stop_after was reached
};

// Runs the table in pipeline.cpp. E0801 for a name in `disable` or `dump_after` that is no pass or rule; E0901 names a
// pass that does not come to an end.
Result<PassReport> run_pipeline(ir::Graph& graph, const PipelineOptions& options);

}  // namespace tessera::passes
