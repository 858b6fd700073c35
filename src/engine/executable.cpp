#include "engine/executable.h"

#include <unordered_set>

#include "base/result.h"
#include "engine/replay.h"
#include "ir/core_ops.h"
#include "ir/interpreter.h"

namespace tessera::engine {
namespace {

class Interpreted final : public Executable {
 public:
  explicit Interpreted(ir::Graph graph) : graph_(std::move(graph)) {}

  Result<std::vector<Value>> run(std::span<const Value> inputs, const ExecuteOptions& options,
                                 ExecuteReport& report) const override {
    std::vector<ir::RefValue> operands;
    for (const Value& input : inputs) {
      TESSERA_ASSIGN(ir::RefValue operand, ir::to_ref(input));
      operands.push_back(std::move(operand));
    }
    if (Status holds = ir::check_guards(graph_, operands); !holds) {
      report.failed_assumption = holds.error().message;
      return std::vector<Value>();
    }
    TESSERA_ASSIGN(std::vector<ir::RefValue> results, ir::Interpreter({.stop = options.stop}).run(graph_, operands));
    std::vector<Value> outputs;
    for (const ir::RefValue& result : results) {
      TESSERA_ASSIGN(Value output, ir::from_ref(result));
      outputs.push_back(std::move(output));
    }
    return outputs;
  }

  void describe(SessionStatistics& statistics) const override {
    statistics.isa = "reference";
    statistics.nodes = count_nodes(graph_);
    statistics.kernels = statistics.host_steps = statistics.nodes;
    statistics.weight_bytes = constant_bytes(graph_);
  }

 private:
  ir::Graph graph_;
};

void add_constants(const ir::Graph& graph, std::unordered_set<const void*>& seen, std::vector<Tensor>& constants) {
  for (ir::NodeId n = 0; n < graph.node_count(); ++n) {
    if (graph.node(n).op == &ir::core::constant) {
      const auto id = static_cast<uint32_t>(std::get<int64_t>(graph.node(n).attrs->values[0]));
      const Tensor& tensor = graph.context().constant(id);
      if (seen.insert(tensor.data()).second) constants.push_back(tensor);
    }
    for (const ir::Graph& nested : graph.regions(n)) add_constants(nested, seen, constants);
  }
}

}  // namespace

std::unique_ptr<const Executable> interpret(ir::Graph graph) { return std::make_unique<Interpreted>(std::move(graph)); }

int64_t count_nodes(const ir::Graph& graph) {
  int64_t nodes = 0;
  for (ir::NodeId n = 0; n < graph.node_count(); ++n) {
    nodes += graph.node(n).op != &ir::core::constant;
    for (const ir::Graph& nested : graph.regions(n)) nodes += count_nodes(nested);
  }
  return nodes;
}

std::vector<Tensor> constants_of(const ir::Graph& graph) {
  std::unordered_set<const void*> seen;
  std::vector<Tensor> constants;
  add_constants(graph, seen, constants);
  return constants;
}

int64_t constant_bytes(const ir::Graph& graph) {
  int64_t bytes = 0;
  for (const Tensor& constant : constants_of(graph)) bytes += static_cast<int64_t>(constant.bytes());
  return bytes;
}

}  // namespace tessera::engine
