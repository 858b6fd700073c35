// A session: a plan bound to its constants, kernels, threads and memory. It runs requests.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/host.h"
#include "tessera/error.h"
#include "tessera/tensor.h"

namespace tessera::kernels {
class KernelSet;
struct Args;
struct Parallel;
}  // namespace tessera::kernels

namespace tessera {
class ThreadPool;
}

namespace tessera::runtime {

// Whether a kernel may be called so: the shapes of its operands and results and its attributes, without data.
using StepChecker = std::function<Status(std::string_view op, const kernels::Args& args)>;

struct SessionOptions {
  int threads = 0;                               // 0: as many as the container gives
  std::shared_ptr<ThreadPool> pool = {};         // shared with other sessions; null: a pool of `threads` of its own
  HostResolver host = {};                        // needed by plans with host steps
  const kernels::KernelSet* kernels = nullptr;   // null: what TESSERA_ISA or the CPU says
  size_t cached_shapes = 4096;                   // instances kept, of all routines together
  size_t cached_shape_bytes = size_t{32} << 20;  // that they take
  bool reuse_memory = true;                      // intermediates take each other's memory
  int64_t max_iterations = int64_t{1} << 22;     // of one loop; E0506 beyond
  // Told of each constant that had to be copied because its memory is not aligned to its elements: the source is read
  // no more, and its pages may be given back.
  std::function<void(const void* data, size_t bytes)> release_source = {};
  // Asked about each kernel call, once for all runs of the same sizes: for plans that come from files, whose shapes may
  // contradict each other. Kernels trust their shapes.
  StepChecker check = {};
};

struct RunOptions {
  // Memory for the outputs: empty, or one entry an output. A tensor with data must have the output's exact type and
  // receives its elements without a copy where the plan allows; it must not overlap an input. Others are allocated.
  std::span<const Tensor> outputs = {};
  const std::atomic<bool>* stop = nullptr;  // E0504 between two steps once it is true
};

// What a run says about itself. Words as in the reference of measures.
struct RunReport {
  // The assumption of the compiled plan that these sizes break: index into main().guards. The run did nothing then.
  std::optional<uint32_t> failed_guard;
  std::optional<double> plan_ms;  // planning the main routine, where these sizes had not been seen
  size_t arena_bytes = 0;
  size_t peak_activation_bytes = 0;  // arenas, outputs and all that was allocated on the way, at their worst together
  size_t live_set_bound_bytes = 0;
};

class Session {
 public:
  // E0603 when the plan does not verify, E0802 when TESSERA_ISA names what is not there; errors of options.host.
  static Result<std::unique_ptr<Session>> make(std::shared_ptr<const plan::Plan> plan, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // May be called from several threads at once: each run has its own memory. Inputs in the plan's order, not copied
  // when aligned to their elements, and not changed unless they are states. Outputs own their memory, except those
  // written into the caller's; a state is given out as the tensor that came in.
  Result<std::vector<Value>> run(std::span<const Value> inputs, const RunOptions& options = {},
                                 RunReport* report = nullptr) const;

  const plan::Plan& plan() const;
  std::string_view isa() const;  // that of the kernels that run
  int threads() const;
  size_t cached_shapes() const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// How kernels reach the pool's threads.
kernels::Parallel parallel_of(ThreadPool& pool);

}  // namespace tessera::runtime
