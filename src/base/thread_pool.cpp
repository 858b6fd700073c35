#include "base/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <system_error>

#include "base/cpu.h"
#include "base/result.h"

namespace tessera {
namespace {

// Enough for dynamic balance on hundreds of cores, few enough that taking them stays cheap.
constexpr int64_t kMaxChunks = 4096;
// Longer than the serial work between two parallel steps of a model, shorter than a scheduler's time slice.
constexpr int64_t kSpinNs = 300'000;
// With more threads than CPUs a spinning thread keeps another from its work.
constexpr int64_t kCrowdedSpinNs = 2'000;

// True on a thread while it runs chunks of any pool.
thread_local bool inside_loop = false;

void futex_wait(std::atomic<int32_t>& word, int32_t expected) {
  ::syscall(SYS_futex, reinterpret_cast<int32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<int32_t>& word, int count) {
  ::syscall(SYS_futex, reinterpret_cast<int32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // `yield` is a no-op on most cores; this takes about as long as x86's pause
#endif
}

// Spins until done() or for about `ns` nanoseconds; tells whether done() held.
template <class F>
bool spin_until(int64_t ns, F done) {
  if (done()) return true;
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns);
  do {
    for (int i = 0; i < 32; ++i) {  // reading the clock costs about as much as these pauses
      pause_cpu();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void run_inline(const Chunks& chunks, ThreadPool::Body body, void* context) {
  for (int64_t i = 0; i < chunks.count; ++i) body(context, chunks.begin(i), chunks.end(i));
}

void pin_this_thread(int cpu) {
  cpu_set_t* set = CPU_ALLOC(cpu + 1);
  if (set == nullptr) return;
  const size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(cpu, bytes, set);
  ::pthread_setaffinity_np(::pthread_self(), bytes, set);  // a CPU gone offline leaves the thread free, and right
  CPU_FREE(set);
}

}  // namespace

Chunks Chunks::of(int64_t n, int64_t grain) {
  if (n <= 0) return {0, 1, 0};
  grain = std::clamp<int64_t>(grain, 1, n);
  const int64_t most = n / grain;
  const int64_t size = ((most - 1) / kMaxChunks + 1) * grain;
  return {n, size, n / size};
}

ThreadPool::ThreadPool(int threads) {
  TESSERA_CHECK(threads >= 1);
  // Best first for one thread a core. The caller is left where it runs now, so workers start from the CPUs behind it.
  std::vector<int> cpus = cpus_by_core(allowed_cpus());
  auto here = std::find(cpus.begin(), cpus.end(), ::sched_getcpu());
  if (here != cpus.end()) std::rotate(cpus.begin(), here, cpus.end());
  const bool pin = threads <= static_cast<int>(cpus.size());
  spin_ns_ = threads <= usable_cores() ? kSpinNs : kCrowdedSpinNs;
  workers_.reserve(static_cast<size_t>(threads) - 1);
  for (int i = 1; i < threads; ++i) {
    const int cpu = pin ? cpus[static_cast<size_t>(i)] : -1;
    try {
      workers_.emplace_back([this, cpu] { work(cpu); });
    } catch (const std::system_error&) {
      break;  // the limit on threads is reached
    }
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  wakes_.fetch_add(1);
  futex_wake(wakes_, INT_MAX);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(int64_t n, int64_t grain, Body body, void* context) {
  const Chunks chunks = Chunks::of(n, grain);
  if (chunks.count <= 1 || workers_.empty() || inside_loop || busy_.exchange(true, std::memory_order_acquire))
    return run_inline(chunks, body, context);
  job_.body = body;
  job_.context = context;
  job_.chunks = chunks;
  unfinished_.store(static_cast<int32_t>(chunks.count), std::memory_order_relaxed);
  // Sequentially consistent with wait_for_work: either this sees the sleeper, or the sleeper sees the work.
  job_.left.store(chunks.count, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst) > 0) wake_workers(chunks.count);
  run_chunks();
  join_chunks();
  busy_.store(false, std::memory_order_release);
}

// Runs chunks until none is left, then reports them all at once.
void ThreadPool::run_chunks() {
  inside_loop = true;
  int32_t done = 0;
  while (job_.left.load(std::memory_order_relaxed) > 0) {
    const int64_t left = job_.left.fetch_sub(1, std::memory_order_acq_rel);
    if (left <= 0) break;
    const Chunks chunks = job_.chunks;
    const int64_t chunk = chunks.count - left;
    job_.body(job_.context, chunks.begin(chunk), chunks.end(chunk));
    ++done;
  }
  inside_loop = false;
  if (done == 0) return;
  if (unfinished_.fetch_sub(done, std::memory_order_seq_cst) == done &&
      caller_sleeps_.load(std::memory_order_seq_cst) != 0)
    futex_wake(unfinished_, 1);
}

void ThreadPool::join_chunks() {
  auto done = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (spin_until(spin_ns_, done)) return;
  caller_sleeps_.store(1, std::memory_order_seq_cst);
  for (int32_t now; (now = unfinished_.load(std::memory_order_seq_cst)) != 0;) futex_wait(unfinished_, now);
  caller_sleeps_.store(0, std::memory_order_relaxed);
}

void ThreadPool::wake_workers(int64_t chunks) {
  wakes_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(wakes_, static_cast<int>(std::min<int64_t>(chunks - 1, INT_MAX)));  // the caller takes one itself
}

// Returns when there may be work; false when the pool ends.
bool ThreadPool::wait_for_work() {
  auto ready = [this] {
    return job_.left.load(std::memory_order_relaxed) > 0 || stop_.load(std::memory_order_relaxed);
  };
  if (!spin_until(spin_ns_, ready)) {
    const int32_t wakes = wakes_.load(std::memory_order_seq_cst);
    sleeping_.fetch_add(1, std::memory_order_seq_cst);
    if (job_.left.load(std::memory_order_seq_cst) <= 0 && !stop_.load(std::memory_order_seq_cst))
      futex_wait(wakes_, wakes);
    sleeping_.fetch_sub(1, std::memory_order_relaxed);
  }
  return !stop_.load(std::memory_order_relaxed);
}

void ThreadPool::work(int cpu) {
  if (cpu >= 0) pin_this_thread(cpu);
  while (wait_for_work()) run_chunks();
}

}  // namespace tessera
