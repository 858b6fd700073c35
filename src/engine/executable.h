// A graph made ready to run, in one of several ways.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "tessera/session.h"

namespace tessera::engine {

struct ExecuteOptions {
  std::span<const Tensor> outputs = {};  // memory for the outputs, by position; empty tensors where there is none
  const std::atomic<bool>* stop = nullptr;
};

struct ExecuteReport {
  // What the graph assumed about all sizes and these inputs break, in words: nothing ran then.
  std::optional<std::string> failed_assumption;
  std::optional<double> plan_ms;  // planning, where these sizes had not been seen
  int64_t arena_bytes = 0;
  int64_t peak_activation_bytes = 0;
  int64_t live_set_bound_bytes = 0;
};

// May run on several threads at once.
class Executable {
 public:
  virtual ~Executable() = default;
  // Inputs and outputs by position.
  virtual Result<std::vector<Value>> run(std::span<const Value> inputs, const ExecuteOptions& options,
                                         ExecuteReport& report) const = 0;
  // Fills in what does not change from run to run.
  virtual void describe(SessionStatistics& statistics) const = 0;
};

// Runs the graph as it is on the reference interpreter. It only reads the graph's context.
std::unique_ptr<const Executable> interpret(ir::Graph graph);

// Nodes of a graph and those nested in it, constants left out.
int64_t count_nodes(const ir::Graph& graph);
// The constants that the graph and those nested in it use, each once; and their bytes.
std::vector<Tensor> constants_of(const ir::Graph& graph);
int64_t constant_bytes(const ir::Graph& graph);

}  // namespace tessera::engine
