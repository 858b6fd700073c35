// Executables that run plans.
#pragma once

#include <functional>
#include <memory>

#include "base/thread_pool.h"
#include "engine/executable.h"

namespace tessera::engine {

struct CompileOptions {
  std::shared_ptr<ThreadPool> pool = {};  // of all executables of one session
  int optimisation = 2;
  // Told of source memory that will be read no more.
  std::function<void(const void* data, size_t bytes)> release_source = {};
};

// The graph as a plan; operators without a kernel run on the interpreter.
Result<std::unique_ptr<const Executable>> compile(const ir::Graph& graph, const CompileOptions& options);

}  // namespace tessera::engine
