// Executables that run plans.
#pragma once

#include <functional>
#include <memory>

#include "base/thread_pool.h"
#include "engine/executable.h"
#include "plan/plan.h"

namespace tessera::engine {

struct CompileOptions {
  std::shared_ptr<ThreadPool> pool = {};  // of all executables of one session
  int optimisation = 2;
  bool exact_activations = false;  // as the pipeline's
  // Told of source memory that will be read no more.
  std::function<void(const void* data, size_t bytes)> release_source = {};
};

// The graph as a plan that stands for itself, as artifacts hold it.
Result<plan::Plan> compile_plan(const ir::Graph& graph, const CompileOptions& options);
// The executable of such a plan.
Result<std::unique_ptr<const Executable>> run_plan(std::shared_ptr<const plan::Plan> plan,
                                                   const CompileOptions& options);

// Both at once. Operators without a kernel run on the interpreter.
Result<std::unique_ptr<const Executable>> compile(const ir::Graph& graph, const CompileOptions& options);

}  // namespace tessera::engine
