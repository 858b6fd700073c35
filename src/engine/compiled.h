// Executables that run plans.
#pragma once

#include <functional>
#include <memory>

#include "base/file.h"
#include "base/thread_pool.h"
#include "compile/lower.h"
#include "engine/executable.h"
#include "passes/user_rules.h"
#include "plan/plan.h"

namespace tessera::engine {

struct CompileOptions {
  std::shared_ptr<ThreadPool> pool = {};  // of all executables of one session
  passes::PipelineOptions pipeline = {};  // its targets are set by what kernels there are
  bool reuse_memory = true;
  // Told of memory of constants that will be read no more, or seldom.
  std::function<void(const void* data, size_t bytes)> release_source = MappedFile::release_at;
  // Told of a plan that has been made and stands for itself, and how many nodes its graph has.
  std::function<void(const plan::Plan& plan, int64_t nodes)> keep = {};
};

// The passes as the caller wants them.
Result<passes::PipelineOptions> pipeline_of(const tessera::CompileOptions& options);

// A graph on its way to a plan, with what can be told of it.
struct Compilation {
  passes::PassReport report;
  int64_t nodes = 0;                    // after the passes
  std::unique_ptr<ir::Graph> expanded;  // composites without a kernel taken apart: `lowered.origins` point into it
  compile::Lowered lowered;
  double optimise_ms = 0, plan_ms = 0;
};
// The passes alone: `graph` becomes the optimised one.
Result<passes::PassReport> optimise(ir::Graph& graph, const CompileOptions& options);
Result<Compilation> compile_steps(const ir::Graph& graph, const CompileOptions& options);
// Packs the plan's constants for the instruction set and writes operators without a kernel into it, so that it stands
// for itself.
Status finish(const ir::Graph& graph, Compilation& made, const CompileOptions& options);

// The graph as a plan that stands for itself, as artifacts hold it.
Result<plan::Plan> compile_plan(const ir::Graph& graph, const CompileOptions& options);
// The executable of such a plan, which comes from a file: it is not trusted. `nodes` of its graph where that is known.
Result<std::unique_ptr<const Executable>> run_plan(std::shared_ptr<const plan::Plan> plan,
                                                   const CompileOptions& options, int64_t nodes = -1);

// The executable of a graph of `nodes` nodes that has been lowered, which was made from `source`.
Result<std::unique_ptr<const Executable>> executable_of(const ir::Graph& source, compile::Lowered lowered,
                                                        int64_t nodes, const CompileOptions& options);

// All at once. Operators without a kernel run on the interpreter. The graph's constants go as they are packed, unless
// another holds them.
Result<std::unique_ptr<const Executable>> compile(ir::Graph graph, const CompileOptions& options);

}  // namespace tessera::engine
