// What the machine gives this process: cores, instruction sets, caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"

namespace tessera {

// The CPUs of the affinity mask, ascending, as it was when first asked for: a thread that is pinned later does not
// narrow it. Never empty.
const std::vector<int>& allowed_cpus();

// `cpus` reordered so that one CPU of each physical core comes before any core's second hardware thread.
std::vector<int> cpus_by_core(std::vector<int> cpus);

// How many threads can run at once: the affinity mask, cut by the container's CPU quota (rounded up). At least 1.
int usable_cores();

struct CpuFeatures {
  // x86-64. Each says that the CPU has it and that the operating system saves the registers.
  bool sse42 = false, avx2 = false, fma = false, f16c = false, bmi2 = false;
  bool avx512f = false, avx512bw = false, avx512cd = false, avx512dq = false, avx512vl = false;
  bool avx512_vnni = false, avx512_bf16 = false;
  // AArch64.
  bool neon = false, dotprod = false, i8mm = false, bf16 = false, sve = false;
};
const CpuFeatures& cpu_features();

// Bytes of one instance of each cache; `l3` is what the cores that share it have together, 0 when there is none.
struct CacheSizes {
  size_t l1d;
  size_t l2;
  size_t l3;
};
// Measured from sysfs, which lists caches under `folder`; what it does not tell is set to a common size.
CacheSizes cache_sizes(const std::string& folder = "/sys/devices/system/cpu/cpu0/cache");

// As the maker calls it, e.g. "AMD EPYC 7763 64-Core Processor"; never empty.
std::string cpu_model_name();

// The instruction sets that kernels are compiled for, each including those before it on the same architecture:
//   baseline     what every CPU of the architecture has (SSE2 or NEON)
//   avx2         AVX2, FMA, F16C, BMI2
//   avx512       AVX-512 F, BW, CD, DQ, VL
//   avx512_bf16  and VNNI, BF16
//   neon         AArch64
enum class Isa : uint8_t { baseline, avx2, avx512, avx512_bf16, neon };
constexpr int kIsaCount = 5;

// "avx512_bf16"
std::string_view name(Isa isa);
// Whether a CPU with these features runs code for `isa`.
bool runs(Isa isa, const CpuFeatures& features);
// Those that this CPU runs, worst first.
std::vector<Isa> available_isas();
// The last of available_isas().
Isa best_isa();
// The one that `wanted` names; the best when it is null or empty. E0802, naming those that there are, otherwise.
Result<Isa> choose_isa(const char* wanted, const CpuFeatures& features);
// choose_isa with the environment variable TESSERA_ISA, read anew each time.
Result<Isa> chosen_isa();

}  // namespace tessera
