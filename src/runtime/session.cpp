#include "runtime/session.h"

#include <mutex>

#include "base/cpu.h"
#include "base/result.h"
#include "runtime/executor.h"

namespace tessera::runtime {
namespace {

void run_parallel(void* pool, int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
  static_cast<ThreadPool*>(pool)->parallel_for(n, grain, body, context);
}

}  // namespace

kernels::Parallel parallel_of(ThreadPool& pool) {
  static const CacheSizes sizes = cache_sizes();
  return {&pool, pool.threads(), run_parallel, {static_cast<int64_t>(sizes.l1d), static_cast<int64_t>(sizes.l2)}};
}

struct Session::Impl {
  Shared shared;
  // The memory of a finished run, for a later one.
  struct Idle {
    std::unique_ptr<Frames> frames;
    uint64_t since;  // how many runs had been then
  };
  std::mutex mutex;
  std::vector<Idle> idle;  // the one that is taken next at the end
  uint64_t runs = 0;

  explicit Impl(const SessionOptions& options) : shared(options.cached_shapes, options.cached_shape_bytes) {}

  std::unique_ptr<Frames> take_frames() {
    {
      const std::lock_guard lock(mutex);
      ++runs;
      if (!idle.empty()) {
        std::unique_ptr<Frames> frames = std::move(idle.back().frames);
        idle.pop_back();
        return frames;
      }
    }
    return std::make_unique<Frames>(shared.prepared.plan->routines.size());
  }
  // What a burst of runs side by side left behind goes once it has not been needed for a while.
  void give_back(std::unique_ptr<Frames> frames) {
    constexpr uint64_t kPatience = 64;
    std::unique_ptr<Frames> surplus;  // dies without the lock
    const std::lock_guard lock(mutex);
    if (!idle.empty() && runs - idle.front().since > kPatience) {
      surplus = std::move(idle.front().frames);
      idle.erase(idle.begin());
    }
    idle.push_back({std::move(frames), runs});
  }
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::make(std::shared_ptr<const plan::Plan> plan, SessionOptions options) {
  auto impl = std::make_unique<Impl>(options);
  Shared& shared = impl->shared;
  if (options.kernels == nullptr) {
    TESSERA_ASSIGN(options.kernels, kernels::chosen_set());
  }
  TESSERA_ASSIGN(shared.prepared, plan::prepare(plan, *options.kernels));
  for (const plan::HostOp& op : plan->host_ops) {
    if (!options.host)
      return fail(Code::internal, "the plan needs '{}', but nothing runs operators without a kernel", op.op);
    TESSERA_ASSIGN(std::unique_ptr<HostFunction> function, options.host(op));
    shared.hosts.push_back(std::move(function));
  }
  for (const Tensor& constant : plan->constants) {
    TESSERA_ASSIGN(Tensor usable, aligned(constant));
    if (usable.data() != constant.data() && options.release_source)
      options.release_source(constant.data(), constant.bytes());
    shared.constants.push_back(std::move(usable));
  }
  shared.prepared.reuse_memory = options.reuse_memory;
  shared.max_iterations = options.max_iterations;
  shared.check = std::move(options.check);
  shared.pool = std::move(options.pool);
  if (shared.pool == nullptr)
    shared.pool = std::make_shared<ThreadPool>(options.threads > 0 ? options.threads : usable_cores());
  shared.parallel = parallel_of(*shared.pool);
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Result<std::vector<Value>> Session::run(std::span<const Value> inputs, const RunOptions& options,
                                        RunReport* report) const {
  const plan::Routine& main = plan().main();
  if (inputs.size() != main.inputs.size())
    return fail(Code::arity, "expected {} inputs, got {}", main.inputs.size(), inputs.size());
  if (!options.outputs.empty() && options.outputs.size() != main.outputs.size())
    return fail(Code::arity, "expected memory for {} outputs, got {}", main.outputs.size(), options.outputs.size());
  std::vector<const Value*> pointers;
  for (const Value& input : inputs) pointers.push_back(&input);
  std::unique_ptr<Frames> frames = impl_->take_frames();
  Executor executor(impl_->shared, *frames, options.stop);
  Result<std::vector<Value>> results = executor.call(0, pointers, {}, options.outputs);
  if (report != nullptr) *report = executor.report();
  impl_->give_back(std::move(frames));
  return results;
}

const plan::Plan& Session::plan() const { return *impl_->shared.prepared.plan; }
std::string_view Session::isa() const { return impl_->shared.prepared.kernels->isa(); }
int Session::threads() const { return impl_->shared.pool->threads(); }
size_t Session::cached_shapes() const { return impl_->shared.instances.size(); }

}  // namespace tessera::runtime
