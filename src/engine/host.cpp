#include "engine/host.h"

#include "base/result.h"
#include "ir/interpreter.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ops/ops.h"

namespace tessera::engine {
namespace {

class GraphFunction final : public runtime::HostFunction {
 public:
  explicit GraphFunction(ir::Graph graph) : graph_(std::move(graph)) {}

  Result<std::vector<Value>> run(const runtime::HostCall& call) const override {
    std::vector<ir::RefValue> operands;
    for (const Value* operand : call.operands) {
      if (operand == nullptr) continue;
      TESSERA_ASSIGN(ir::RefValue value, ir::to_ref(*operand));
      operands.push_back(std::move(value));
    }
    // Plan and graph know the same sizes by the same names.
    const DimTable& table = graph_.dims();
    DimBindings bindings(static_cast<size_t>(table.symbol_count()));
    for (size_t i = 0; i < call.symbols.size(); ++i)
      if (const std::optional<Dim> symbol = table.find(call.symbols[i].name))
        bindings[static_cast<size_t>(*table.symbol_index(*symbol))] = call.sizes[i];
    const ir::Interpreter interpreter({.max_iterations = call.max_iterations});
    TESSERA_ASSIGN(const std::vector<ir::RefValue> results, interpreter.run_region(graph_, operands, &bindings));
    std::vector<Value> values;
    for (const ir::RefValue& result : results) {
      TESSERA_ASSIGN(Value value, ir::from_ref(result));
      values.push_back(std::move(value));
    }
    return values;
  }

 private:
  ir::Graph graph_;
};

}  // namespace

std::unique_ptr<runtime::HostFunction> host_function(ir::Graph graph) {
  return std::make_unique<GraphFunction>(std::move(graph));
}

void embed_host_graphs(const std::vector<ir::Graph>& graphs, plan::Plan& plan) {
  for (size_t i = 0; i < graphs.size(); ++i) plan.host_ops[i].blob = ir::print(graphs[i]);
}

Result<std::unique_ptr<runtime::HostFunction>> parse_host_function(const plan::HostOp& op) {
  Result<ir::Graph> graph = ir::parse_graph(op.blob, ops::find_op);
  if (!graph)
    return tl::unexpected<Error>(std::move(graph.error()).within("reading the host operator '" + op.op + "'"));
  return host_function(std::move(*graph));
}

}  // namespace tessera::engine
