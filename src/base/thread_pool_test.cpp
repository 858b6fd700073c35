#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/cpu.h"

namespace tessera {
namespace {

using Range = std::pair<int64_t, int64_t>;

std::vector<Range> ranges_of(ThreadPool& pool, int64_t n, int64_t grain) {
  std::mutex mutex;
  std::vector<Range> ranges;
  pool.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    std::lock_guard lock(mutex);
    ranges.emplace_back(begin, end);
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

TEST(Chunks, CoverTheRange) {
  for (int64_t n : {-1, 0, 1, 2, 7, 64, 100, 1023, 1024, 1025, 100'003})
    for (int64_t grain : {-3, 0, 1, 2, 7, 64, 100, 1000, 200'000}) {
      const Chunks chunks = Chunks::of(n, grain);
      int64_t at = 0;
      for (int64_t i = 0; i < chunks.count; ++i) {
        EXPECT_EQ(chunks.begin(i), at);
        EXPECT_GE(chunks.end(i) - at, std::min(std::max<int64_t>(grain, 1), n));
        EXPECT_EQ(at % std::max<int64_t>(grain, 1), 0);
        at = chunks.end(i);
      }
      EXPECT_EQ(at, std::max<int64_t>(n, 0));
      if (n > 0 && n <= grain) {
        EXPECT_EQ(chunks.count, 1);
      }
    }
}

TEST(Chunks, HugeRangesHaveFewChunks) {
  for (int64_t n : {int64_t{1} << 40, INT64_MAX})
    for (int64_t grain : {int64_t{1}, int64_t{1000}, INT64_MAX}) {
      const Chunks chunks = Chunks::of(n, grain);
      EXPECT_LE(chunks.count, 4096);
      EXPECT_EQ(chunks.end(chunks.count - 1), n);
    }
}

TEST(ThreadPool, ChunksDoNotDependOnThreads) {
  ThreadPool one(1), two(2), five(5);
  EXPECT_EQ(one.threads(), 1);
  EXPECT_EQ(two.threads(), 2);
  EXPECT_EQ(five.threads(), 5);
  for (int64_t n : {0, 1, 10, 1000, 12345})
    for (int64_t grain : {1, 3, 100, 5000}) {
      const std::vector<Range> expected = ranges_of(one, n, grain);
      EXPECT_EQ(ranges_of(two, n, grain), expected);
      EXPECT_EQ(ranges_of(five, n, grain), expected);
    }
}

TEST(ThreadPool, EveryElementOnceAndVisibleToTheCaller) {
  ThreadPool pool(4);
  std::vector<int> count(10'000);
  for (int round = 1; round <= 300; ++round) {
    pool.parallel_for(static_cast<int64_t>(count.size()), 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++count[static_cast<size_t>(i)];  // plain: a race would be reported
    });
    ASSERT_TRUE(std::all_of(count.begin(), count.end(), [&](int c) { return c == round; }));
  }
}

TEST(ThreadPool, WorkersTakePart) {
  ThreadPool pool(3);
  // Each body waits until three threads are inside at once, so this ends only if the workers come.
  std::atomic<int> inside{0};
  pool.parallel_for(3, 1, [&](int64_t, int64_t) {
    inside.fetch_add(1);
    while (inside.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 3);
}

TEST(ThreadPool, WorkersWakeFromSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 30; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 3));  // around and beyond the time they spin
    std::atomic<int> inside{0};
    pool.parallel_for(3, 1, [&](int64_t, int64_t) {
      inside.fetch_add(1);
      while (inside.load() < 3) std::this_thread::yield();
    });
  }
}

TEST(ThreadPool, TheCallerSleepsThroughLongChunks) {
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  for (int round = 0; round < 5; ++round) {
    std::atomic<bool> worker_in{false};
    pool.parallel_for(2, 1, [&](int64_t, int64_t) {
      if (std::this_thread::get_id() == caller) {
        while (!worker_in.load()) std::this_thread::yield();
      } else {
        worker_in = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
      }
    });
  }
}

TEST(ThreadPool, NestedLoopsRunInlineInOrder) {
  ThreadPool pool(3), other(2);
  std::atomic<int64_t> total{0};
  pool.parallel_for(20, 1, [&](int64_t, int64_t) {
    const std::thread::id self = std::this_thread::get_id();
    for (ThreadPool* inner : {&pool, &other}) {
      int64_t next = 0;
      inner->parallel_for(100, 7, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(std::this_thread::get_id(), self);
        EXPECT_EQ(begin, next);
        next = end;
        total += end - begin;
      });
    }
  });
  EXPECT_EQ(total.load(), 20 * 100 * 2);
  // Nested loops must leave the caller able to use the workers again.
  std::atomic<int> inside{0};
  pool.parallel_for(3, 1, [&](int64_t, int64_t) {
    inside.fetch_add(1);
    while (inside.load() < 3) std::this_thread::yield();
  });
}

TEST(ThreadPool, SeveralCallersAtOnce) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::array<int64_t, 4> sums = {};
  for (size_t c = 0; c < sums.size(); ++c)
    callers.emplace_back([&, c] {
      for (int round = 0; round < 300; ++round) {
        std::array<int64_t, 64> parts = {};
        pool.parallel_for(64, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) parts[static_cast<size_t>(i)] = i + round;
        });
        for (int64_t part : parts) sums[c] += part;
      }
    });
  for (std::thread& caller : callers) caller.join();
  for (int64_t sum : sums) EXPECT_EQ(sum, int64_t{300} * (63 * 64 / 2) + int64_t{64} * (299 * 300 / 2));
}

TEST(ThreadPool, BuildsAndEndsWithoutWork) {
  for (int i = 0; i < 20; ++i) {
    ThreadPool pool(4);
    if (i % 2 == 0) pool.parallel_for(4, 1, [](int64_t, int64_t) {});
  }
}

TEST(ThreadPool, PlainFunction) {
  ThreadPool pool(2);
  std::array<int, 10> data = {};
  pool.parallel_for(
      10, 2,
      [](void* context, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) static_cast<int*>(context)[i] = static_cast<int>(i);
      },
      data.data());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(data[static_cast<size_t>(i)], i);
}

TEST(ThreadPool, WorkersArePinnedToDistinctCpusAndTheCallerIsNot) {
  const int threads = static_cast<int>(allowed_cpus().size());
  if (threads < 2) GTEST_SKIP() << "one CPU";
  ThreadPool pool(threads);
  std::mutex mutex;
  std::set<int> cpus;
  std::atomic<int> inside{0};
  const std::thread::id caller = std::this_thread::get_id();
  pool.parallel_for(threads, 1, [&](int64_t, int64_t) {
    inside.fetch_add(1);
    while (inside.load() < threads) std::this_thread::yield();
    cpu_set_t set;
    ASSERT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
    std::lock_guard lock(mutex);
    if (std::this_thread::get_id() == caller) {
      EXPECT_EQ(CPU_COUNT(&set), threads);
    } else {
      EXPECT_EQ(CPU_COUNT(&set), 1);
      for (int cpu : allowed_cpus())
        if (CPU_ISSET(cpu, &set)) cpus.insert(cpu);
    }
  });
  EXPECT_EQ(static_cast<int>(cpus.size()), threads - 1);
  EXPECT_EQ(static_cast<int>(allowed_cpus().size()), threads);
}

// Not a limit, which a loaded machine would break: the figure is printed for whoever looks.
TEST(ThreadPool, ForkJoinTime) {
  ThreadPool pool(2);
  auto median_ns = [&](auto body) {
    std::vector<double> times;
    for (int i = 0; i < 2000; ++i) {
      std::atomic<int> inside{0};
      const auto begin = std::chrono::steady_clock::now();
      pool.parallel_for(2, 1, [&](int64_t, int64_t) { body(inside); });
      times.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count());
    }
    std::nth_element(times.begin(), times.begin() + 1000, times.end());
    return times[1000];
  };
  const double empty = median_ns([](std::atomic<int>&) {});
  const double meeting = median_ns([](std::atomic<int>& inside) {
    inside.fetch_add(1);
    while (inside.load(std::memory_order_relaxed) < 2) {
    }
  });
  RecordProperty("empty_ns", static_cast<int>(empty));
  RecordProperty("meeting_ns", static_cast<int>(meeting));
  std::printf("two threads, median: empty body %.0f ns, bodies that wait for each other %.0f ns\n", empty, meeting);
}

}  // namespace
}  // namespace tessera
