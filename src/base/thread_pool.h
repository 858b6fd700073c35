// A persistent pool of threads for short parallel loops: fork-join costs about a microsecond while the pool is warm.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace tessera {

// How [0, n) is split: `count` chunks, each `size` long and beginning at a multiple of `size`, except that the last one
// takes the rest too. Every chunk has at least `grain` elements unless n itself is smaller; sizes are multiples of
// `grain`. Depends on n and grain alone, so that a kernel that keeps a partial sum for each chunk gives the same bits
// for any number of threads.
struct Chunks {
  int64_t n;
  int64_t size;
  int64_t count;

  static Chunks of(int64_t n, int64_t grain);
  int64_t begin(int64_t chunk) const { return chunk * size; }
  int64_t end(int64_t chunk) const { return chunk + 1 == count ? n : (chunk + 1) * size; }
};

// `threads` counts the caller: a pool of one has no workers and runs everything inline.
//
// Workers are pinned to distinct CPUs of those that the process may use (the caller is not pinned); a pool with more
// threads than CPUs is not pinned. Two pools share the same CPUs: a process does best with one. Idle workers spin for a
// moment and then sleep.
//
// Thread rules: parallel_for may be called from any thread. While one caller has the workers, another caller's loop,
// and a loop nested in a loop of any pool, runs inline on its own thread, over the same chunks in ascending order. The
// pool must outlive its callers' loops.
class ThreadPool {
 public:
  using Body = void (*)(void* context, int64_t begin, int64_t end);

  // When the machine refuses some of the threads, the pool has fewer: threads() tells. CHECKs threads >= 1.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(context, begin, end) once for each chunk of Chunks::of(n, grain), in any order and on any thread of the
  // pool, and returns when all are done; what they wrote is then visible to the caller. Does not allocate. `body` must
  // not throw. n <= 0 calls nothing; grain < 1 counts as 1.
  void parallel_for(int64_t n, int64_t grain, Body body, void* context);

  // The same for a callable f(begin, end), which is called from several threads at once.
  template <class F>
  requires std::is_invocable_v<F&, int64_t, int64_t>
  void parallel_for(int64_t n, int64_t grain, F&& f) {
    parallel_for(
        n, grain,
        [](void* context, int64_t begin, int64_t end) {
          (*static_cast<std::remove_reference_t<F>*>(context))(begin, end);
        },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  // One loop. A worker that takes a chunk from `left` knows that the caller waits for that chunk, so the fields hold
  // still until the chunk is reported in `unfinished_`. They share the cache line of `left`: a worker that sees the
  // loop has all of it.
  struct alignas(64) Job {
    std::atomic<int64_t> left{0};  // chunks not yet taken; below zero when workers came late
    Body body = nullptr;
    void* context = nullptr;
    Chunks chunks = {};
  };

  void work(int cpu);
  void run_chunks();
  bool wait_for_work();
  void wake_workers(int64_t chunks);
  void join_chunks();

  Job job_;
  alignas(64) std::atomic<int32_t> unfinished_{0};  // chunks whose body has not returned; a futex
  std::atomic<int32_t> caller_sleeps_{0};
  alignas(64) std::atomic<int32_t> sleeping_{0};  // workers that sleep or are about to
  std::atomic<int32_t> wakes_{0};                 // counts wake-ups; a futex
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<bool> busy_{false};  // a caller has the workers
  int64_t spin_ns_ = 0;
  std::vector<std::thread> workers_;
};

}  // namespace tessera
