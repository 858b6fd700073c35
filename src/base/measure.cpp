#include "base/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "base/result.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// The measured loops stay as they are under the sanitizers, which would measure themselves.
#define TESSERA_UNINSTRUMENTED __attribute__((no_sanitize("address"), no_sanitize("thread")))

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// Keeps `value` from being removed as unused.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

// A loop of multiply-adds: runs `rounds` rounds, each of the number of floating-point operations that the table below
// gives.
using FmaLoop = void (*)(int64_t rounds);
struct FmaKernel {
  FmaLoop run;
  double flops_per_round;
};

// Independent chains of multiply-adds. Latency (4 to 5 cycles) times two units asks for 8 to 10; 12 leave some slack
// and fit in 16 registers with the two factors.
[[maybe_unused]] constexpr int kChains = 12;
// x = x * a + b stays at 1 with these, away from infinities and from slow denormals.
[[maybe_unused]] constexpr float kFactor = 0.5f, kTerm = 0.5f;

#if defined(__x86_64__)
TESSERA_UNINSTRUMENTED void fma_baseline(int64_t rounds) {
  __m128 x[kChains];
  for (__m128& v : x) v = _mm_set1_ps(1.0f);
  const __m128 a = _mm_set1_ps(kFactor), b = _mm_set1_ps(kTerm);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) x[j] = _mm_add_ps(_mm_mul_ps(x[j], a), b);
    asm volatile("");
  }
  keep(x);
}

TESSERA_UNINSTRUMENTED __attribute__((target("avx2,fma"))) void fma_avx2(int64_t rounds) {
  __m256 x[kChains];
  for (__m256& v : x) v = _mm256_set1_ps(1.0f);
  const __m256 a = _mm256_set1_ps(kFactor), b = _mm256_set1_ps(kTerm);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) x[j] = _mm256_fmadd_ps(x[j], a, b);
    asm volatile("");
  }
  keep(x);
}

TESSERA_UNINSTRUMENTED __attribute__((target("avx512f"))) void fma_avx512(int64_t rounds) {
  __m512 x[kChains];
  for (__m512& v : x) v = _mm512_set1_ps(1.0f);
  const __m512 a = _mm512_set1_ps(kFactor), b = _mm512_set1_ps(kTerm);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) x[j] = _mm512_fmadd_ps(x[j], a, b);
    asm volatile("");
  }
  keep(x);
}

FmaKernel fma_kernel(Isa isa) {
  switch (isa) {
    case Isa::avx2:
      return {fma_avx2, 2.0 * 8 * kChains};
    case Isa::avx512:
    case Isa::avx512_bf16:
      return {fma_avx512, 2.0 * 16 * kChains};
    default:
      return {fma_baseline, 2.0 * 4 * kChains};
  }
}
#elif defined(__aarch64__)
TESSERA_UNINSTRUMENTED void fma_neon(int64_t rounds) {
  // 16 chains: four units of four cycles, and 32 registers.
  float32x4_t x[16];
  for (float32x4_t& v : x) v = vdupq_n_f32(1.0f);
  // The accumulator is the addend here; so small a product leaves it at 1.
  const float32x4_t a = vdupq_n_f32(1e-20f), b = vdupq_n_f32(1e-20f);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) x[j] = vfmaq_f32(x[j], a, b);
    asm volatile("");
  }
  keep(x);
}

FmaKernel fma_kernel(Isa) { return {fma_neon, 2.0 * 4 * 16}; }
#else
TESSERA_UNINSTRUMENTED void fma_scalar(int64_t rounds) {
  float x[kChains];
  for (float& v : x) v = 1.0f;
  for (int64_t i = 0; i < rounds; ++i) {
    for (int j = 0; j < kChains; ++j) x[j] = x[j] * kFactor + kTerm;
    asm volatile("");
  }
  keep(x);
}

FmaKernel fma_kernel(Isa) { return {fma_scalar, 2.0 * kChains}; }
#endif

#if defined(__x86_64__)
TESSERA_UNINSTRUMENTED __attribute__((target("avx2"))) void int8_avx2(int64_t rounds) {
  __m256i x[kChains] = {};
  const __m256i a = _mm256_set1_epi16(1), b = _mm256_set1_epi16(2);
  for (int64_t i = 0; i < rounds; ++i) {
    __m256i factor = a;
    asm volatile("" : "+x"(factor));  // else the products would be one
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) {
      __m256i pairs = _mm256_madd_epi16(factor, b);
      asm volatile("" : "+x"(pairs));
      x[j] = _mm256_add_epi32(x[j], pairs);
    }
  }
  keep(x);
}
TESSERA_UNINSTRUMENTED __attribute__((target("avx512f,avx512bw"))) void int8_avx512(int64_t rounds) {
  __m512i x[kChains] = {};
  const __m512i a = _mm512_set1_epi16(1), b = _mm512_set1_epi16(2);
  for (int64_t i = 0; i < rounds; ++i) {
    __m512i factor = a;
    asm volatile("" : "+v"(factor));
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) {
      __m512i pairs = _mm512_madd_epi16(factor, b);
      asm volatile("" : "+v"(pairs));
      x[j] = _mm512_add_epi32(x[j], pairs);
    }
  }
  keep(x);
}
// vdpbf16ps takes six cycles on some CPUs: 24 chains.
TESSERA_UNINSTRUMENTED __attribute__((target("avx512f,avx512vnni"))) void int8_vnni(int64_t rounds) {
  __m512i x[24] = {};
  const __m512i a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(2);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (int j = 0; j < 24; ++j) x[j] = _mm512_dpbusd_epi32(x[j], a, b);
    asm volatile("");
  }
  keep(x);
}
TESSERA_UNINSTRUMENTED __attribute__((target("avx512f,avx512bf16"))) void bf16_dot(int64_t rounds) {
  __m512 x[24] = {};
  const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1), _mm512_set1_ps(1));
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (int j = 0; j < 24; ++j) x[j] = _mm512_dpbf16_ps(x[j], a, a);
    asm volatile("");
  }
  keep(x);
}
#endif

FmaKernel kernel_for(Isa isa, Arithmetic arithmetic) {
#if defined(__x86_64__)
  if (arithmetic == Arithmetic::bf16 && isa == Isa::avx512_bf16) return {bf16_dot, 2.0 * 32 * 24};
  if (arithmetic == Arithmetic::int8) {
    if (isa == Isa::avx512_bf16) return {int8_vnni, 2.0 * 64 * 24};
    if (isa == Isa::avx512) return {int8_avx512, 2.0 * 32 * kChains};
    if (isa == Isa::avx2) return {int8_avx2, 2.0 * 16 * kChains};
  }
#endif
  static_cast<void>(arithmetic);
  return fma_kernel(isa);
}

// Sums the bytes' 8-byte words with enough independent 16-byte adds to keep the memory busy.
TESSERA_UNINSTRUMENTED void read_words(const std::byte* data, size_t bytes) {
  typedef uint64_t Words __attribute__((vector_size(16)));
  const auto* words = reinterpret_cast<const Words*>(data);
  Words sums[8] = {};
  for (size_t i = 0; i + 8 <= bytes / sizeof(Words); i += 8) {
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  keep(sums);
}

// The same at four places at once.
TESSERA_UNINSTRUMENTED void read_four(const std::byte* data, size_t bytes) {
  typedef uint64_t Words __attribute__((vector_size(16)));
  const size_t quarter = bytes / sizeof(Words) / 4;
  const Words* words[4];
  for (size_t s = 0; s < 4; ++s) words[s] = reinterpret_cast<const Words*>(data) + s * quarter;
  Words sums[8] = {};
  for (size_t i = 0; i + 4 <= quarter; i += 4) {
#pragma GCC unroll 4
    for (size_t s = 0; s < 4; ++s)
#pragma GCC unroll 4
      for (size_t j = 0; j < 4; ++j) sums[s * 2 + j % 2] += words[s][i + j];
  }
  keep(sums);
}

// Seconds that `threads` threads take when each runs work(thread) once, all beginning together. Negative when a thread
// cannot be had.
template <class F>
double time_together(int threads, F work) {
  std::atomic<int> waiting{0};
  std::atomic<int> go{0};  // 1 runs, -1 gives up
  std::vector<std::thread> others;
  auto begin_together = [&] {
    waiting.fetch_add(1);
    while (go.load(std::memory_order_acquire) == 0) std::this_thread::yield();
    return go.load(std::memory_order_relaxed) > 0;
  };
  bool complete = true;
  for (int t = 1; t < threads && complete; ++t) {
    try {
      others.emplace_back([&, t] {
        if (begin_together()) work(t);
      });
    } catch (const std::system_error&) {
      complete = false;
    }
  }
  while (waiting.load() < static_cast<int>(others.size())) std::this_thread::yield();
  const auto begin = Clock::now();
  go.store(complete ? 1 : -1, std::memory_order_release);
  if (complete) work(0);
  for (std::thread& other : others) other.join();
  return complete ? std::chrono::duration<double>(Clock::now() - begin).count() : -1;
}

// A high quantile of the rates, not the best: one lucky reading of the clock says little.
double high_quantile(std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  return rates[(rates.size() - 1) * 9 / 10];
}

tl::unexpected<Error> no_threads(int threads) {
  return fail(Code::out_of_memory, "{} threads asked for, but the machine refuses some of them", threads);
}

constexpr double kSeconds = 0.010;  // one timing: far longer than starting the threads
constexpr int kRepeats = 9;

}  // namespace

Result<double> measure_peak_gflops(Isa isa, int threads) { return measure_peak_gops(isa, Arithmetic::f32, threads); }

Result<double> measure_peak_gops(Isa isa, Arithmetic arithmetic, int threads) {
  TESSERA_CHECK(threads >= 1 && runs(isa, cpu_features()));
  const FmaKernel kernel = kernel_for(isa, arithmetic);
  int64_t rounds = 10'000;
  for (;;) {  // also raises the clock from idle
    const auto begin = Clock::now();
    kernel.run(rounds);
    if (std::chrono::duration<double>(Clock::now() - begin).count() >= kSeconds) break;
    rounds *= 2;
  }
  std::vector<double> rates;
  for (int i = 0; i < kRepeats; ++i) {
    const double seconds = time_together(threads, [&](int) { kernel.run(rounds); });
    if (seconds < 0) return no_threads(threads);
    rates.push_back(kernel.flops_per_round * static_cast<double>(rounds) * threads / seconds * 1e-9);
  }
  return high_quantile(rates);
}

namespace {

// GB/s of work(thread's part of the memory, its bytes), which reads or writes all of it.
template <class F>
Result<double> memory_bandwidth(int threads, F work) {
  TESSERA_CHECK(threads >= 1);
  const uint64_t wanted = std::max<uint64_t>(4 * cache_sizes().l3, 128 << 20);
  const uint64_t least = uint64_t{1} << 20;  // a machine too small for more gives its cache's figure
  const size_t bytes = static_cast<size_t>(std::max(least, std::min(wanted, machine_memory().available / 4)));
  TESSERA_ASSIGN(AlignedBuffer buffer, AlignedBuffer::make(bytes, Pages::huge));
  const size_t share = bytes / static_cast<size_t>(threads) / kBufferAlignment * kBufferAlignment;
  auto part = [&](int thread) { return buffer.data() + static_cast<size_t>(thread) * share; };
  // Written first: untouched pages all stand for the same page of zeros, which the cache would hold.
  if (time_together(threads, [&](int t) { std::fill_n(part(t), share, std::byte{1}); }) < 0) return no_threads(threads);
  std::vector<double> rates;
  for (int i = 0; i < kRepeats; ++i) {
    const double seconds = time_together(threads, [&](int t) { work(part(t), share); });
    if (seconds < 0) return no_threads(threads);
    rates.push_back(static_cast<double>(share) * threads / seconds * 1e-9);
  }
  return high_quantile(rates);
}

}  // namespace

Result<double> measure_read_bandwidth(int threads, int streams) {
  TESSERA_CHECK(streams == 1 || streams == 4);
  return memory_bandwidth(threads, streams == 4 ? read_four : read_words);
}

Result<double> measure_copy_bandwidth(int threads) {
  return memory_bandwidth(threads, [](std::byte* data, size_t bytes) {
    std::memcpy(data, data + bytes / 2, bytes / 2);
    keep(data);
  });
}

}  // namespace tessera
