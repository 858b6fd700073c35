// Walks the steps of a plan's routines.
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "plan/prepare.h"
#include "runtime/frame.h"
#include "runtime/host.h"
#include "runtime/instance_cache.h"
#include "runtime/session.h"

namespace tessera::runtime {

// What all runs of a session share.
struct Shared {
  plan::Prepared prepared;
  std::vector<Tensor> constants;                     // aligned to their elements
  std::vector<std::unique_ptr<HostFunction>> hosts;  // by host operator
  std::shared_ptr<ThreadPool> pool;
  kernels::Parallel parallel = {};
  int64_t max_iterations = 0;
  StepChecker check;  // may be empty
  mutable InstanceCache instances;

  Shared(size_t cached_shapes, size_t cached_shape_bytes) : instances(cached_shapes, cached_shape_bytes) {}
};

// The memory of one run, by routine. Kept from run to run.
using Frames = std::vector<Frame>;

// One run of a plan, on one thread.
class Executor {
 public:
  Executor(const Shared& shared, Frames& frames, const std::atomic<bool>* stop)
      : shared_(shared), plan_(*shared.prepared.plan), frames_(frames), stop_(stop) {}

  // Calls a routine. `outer` are the caller's symbols; `buffers` as RunOptions::outputs.
  Result<std::vector<Value>> call(uint32_t routine, std::span<const Value* const> inputs, const plan::Bindings& outer,
                                  std::span<const Tensor> buffers = {});

  RunReport report() const { return report_; }

 private:
  struct Active;  // a routine and its frame

  Status enter(const Active& a, std::span<const Value* const> inputs, const plan::Bindings& outer);
  Status lay_out(const Active& a, std::span<const Value* const> inputs, std::span<const Tensor> buffers);
  Status place_outputs(const Active& a, std::span<const Value* const> inputs, std::span<const Tensor> buffers);
  Status check_guards(const Active& a, const plan::Sizes& sizes);
  Status check_stop() const;
  Status check_steps(const Active& a, const plan::Instance& instance);
  Status run_step(const Active& a, uint32_t s);
  Status run_kernel(const Active& a, uint32_t s);
  Status run_host(const Active& a, uint32_t s);
  Status run_control(const Active& a, uint32_t s);
  Status allocate_late(const Active& a, const plan::Step& step);
  Status learn_symbols(const Active& a, uint32_t s);
  Status store(const Active& a, const plan::Step& step, uint32_t result, Value value);
  Status store_all(const Active& a, const plan::Step& step, std::vector<Value> values);
  void release(const Active& a, uint32_t s);
  void leave(const Active& a);
  Result<std::vector<Value>> gather(const Active& a, std::span<const Tensor> buffers);
  // The value as host and control steps see it. Plain tensors are borrowed.
  Result<Value> read(const Active& a, plan::ValueId value);
  Result<std::vector<Value>> read_operands(const Active& a, const plan::Step& step);
  Result<Tensor> output_copy(const Tensor& tensor, const Tensor* buffer, std::string_view name);

  // Control steps. `operands` are the step's.
  Result<std::vector<Value>> run_branch(const Active& a, const plan::Step& step, std::span<const Value> operands);
  Result<std::vector<Value>> run_loop(const Active& a, const plan::Step& step, std::span<const Value> operands);
  Result<std::vector<Value>> run_scan(const Active& a, const plan::Step& step, std::span<const Value> operands);
  Status keep_own(const Active& a, plan::ValueId operand, Value& value);
  Result<Value> stack(const Active& a, const plan::Step& step, uint32_t result, std::span<const Value> slices);

  const Shared& shared_;
  const plan::Plan& plan_;
  Frames& frames_;
  const std::atomic<bool>* stop_;
  LiveBytes live_;
  RunReport report_;
};

struct Executor::Active {
  uint32_t index;
  const plan::Routine& routine;
  const plan::PreparedRoutine& prepared;
  Frame& frame;
};

}  // namespace tessera::runtime
