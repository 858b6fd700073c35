#include "base/cpu.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <thread>

#include "base/cgroup.h"
#include "base/file.h"
#include "base/result.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tessera {
namespace {

constexpr size_t kMaxCpuFile = 4 << 20;  // /proc/cpuinfo of hundreds of CPUs

// The first line of a small file, or "".
std::string line_of(const std::string& path) {
  std::string text = read_file(path, kMaxCpuFile).value_or("");
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

std::vector<int> affinity_mask() {
  std::vector<int> cpus;
  // The machine may have more CPUs than cpu_set_t: the call fails until the set is large enough.
  for (int most = 1024; most <= 1 << 20 && cpus.empty(); most *= 4) {
    cpu_set_t* set = CPU_ALLOC(most);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(most);
    CPU_ZERO_S(bytes, set);
    if (::sched_getaffinity(0, bytes, set) == 0)
      for (int cpu = 0; cpu < most; ++cpu)
        if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
    CPU_FREE(set);
  }
  if (cpus.empty())
    for (int cpu = 0; cpu < std::max(1, static_cast<int>(std::thread::hardware_concurrency())); ++cpu)
      cpus.push_back(cpu);
  return cpus;
}

#if defined(__x86_64__)
struct CpuidRegisters {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidRegisters cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  CpuidRegisters r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

bool bit(uint32_t word, int index) { return (word >> index & 1) != 0; }

// Which register states the operating system saves. The instruction exists only where OSXSAVE is set.
uint32_t xgetbv() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// Bits: Intel's Software Developer's Manual, volume 2, CPUID.
CpuFeatures read_features() {
  CpuFeatures f;
  const CpuidRegisters basic = cpuid(1), extended = cpuid(7, 0), more = cpuid(7, 1);
  const uint32_t saved = bit(basic.ecx, 27) ? xgetbv() : 0;
  const bool ymm = (saved & 0x06) == 0x06;  // xmm, ymm
  const bool zmm = (saved & 0xe6) == 0xe6;  // and masks, upper halves, the upper sixteen
  f.sse42 = bit(basic.ecx, 20);
  f.fma = ymm && bit(basic.ecx, 12);
  f.f16c = ymm && bit(basic.ecx, 29);
  f.avx2 = ymm && bit(basic.ecx, 28) && bit(extended.ebx, 5);
  f.bmi2 = bit(extended.ebx, 8);
  f.avx512f = zmm && bit(extended.ebx, 16);
  f.avx512dq = f.avx512f && bit(extended.ebx, 17);
  f.avx512cd = f.avx512f && bit(extended.ebx, 28);
  f.avx512bw = f.avx512f && bit(extended.ebx, 30);
  f.avx512vl = f.avx512f && bit(extended.ebx, 31);
  f.avx512_vnni = f.avx512f && bit(extended.ecx, 11);
  f.avx512_bf16 = f.avx512f && bit(more.eax, 5);
#ifdef TESSERA_EMULATE_AVX512
  // The kernels of this build are for any CPU with AVX2.
  f.avx512f = f.avx512dq = f.avx512cd = f.avx512bw = f.avx512vl = f.avx512_vnni = f.avx512_bf16 = f.avx2;
#endif
  return f;
}

std::string brand() {
  std::string text;
  if (cpuid(0x80000000).eax < 0x80000004) return text;
  for (uint32_t leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
    const CpuidRegisters r = cpuid(leaf);
    for (uint32_t word : {r.eax, r.ebx, r.ecx, r.edx})
      for (int byte = 0; byte < 4; ++byte) text += static_cast<char>(word >> 8 * byte & 0xff);
  }
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}
#elif defined(__aarch64__)
CpuFeatures read_features() {
  CpuFeatures f;
  const unsigned long caps = getauxval(AT_HWCAP), caps2 = getauxval(AT_HWCAP2);
  f.neon = (caps & HWCAP_ASIMD) != 0;
  f.dotprod = (caps & HWCAP_ASIMDDP) != 0;
  f.sve = (caps & HWCAP_SVE) != 0;
  f.i8mm = (caps2 & HWCAP2_I8MM) != 0;
  f.bf16 = (caps2 & HWCAP2_BF16) != 0;
  return f;
}

std::string brand() { return {}; }
#else
CpuFeatures read_features() { return {}; }
std::string brand() { return {}; }
#endif

// The value of the first line "key : value" of /proc/cpuinfo.
std::string cpuinfo_value(std::string_view key) {
  const std::string text = read_file("/proc/cpuinfo", kMaxCpuFile).value_or("");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const size_t colon = line.find(": ");
    if (line.starts_with(key) && colon != std::string_view::npos) return std::string(line.substr(colon + 2));
  }
  return {};
}

// "32K", "8192K", "36M"; 0 when it is none of these.
size_t parse_cache_size(std::string_view text) {
  size_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value > (size_t{1} << 40)) return 0;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  return unit == "K" ? value << 10 : unit == "M" ? value << 20 : unit.empty() ? value : 0;
}

}  // namespace

const std::vector<int>& allowed_cpus() {
  static const std::vector<int> cpus = affinity_mask();
  return cpus;
}

std::vector<int> cpus_by_core(std::vector<int> cpus) {
  std::map<std::string, int> seen;         // how many CPUs of a core came before
  std::vector<std::pair<int, int>> order;  // which hardware thread of its core; the CPU
  for (int cpu : cpus) {
    const std::string siblings =
        line_of(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    order.emplace_back(siblings.empty() ? 0 : seen[siblings]++, cpu);
  }
  std::stable_sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < cpus.size(); ++i) cpus[i] = order[i].second;
  return cpus;
}

int usable_cores() {
  static const int cores = [] {
    const int allowed = static_cast<int>(allowed_cpus().size());
    const double quota = cgroup_limits().cpus.value_or(allowed);
    return quota >= allowed ? allowed : std::max(1, static_cast<int>(std::ceil(quota)));
  }();
  return cores;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = read_features();
  return features;
}

CacheSizes cache_sizes(const std::string& folder) {
  CacheSizes sizes = {0, 0, 0};
  bool known = false;
  for (int i = 0; i < 16; ++i) {
    const std::string index = fmt::format("{}/index{}/", folder, i);
    const std::string level = line_of(index + "level");
    const size_t size = parse_cache_size(line_of(index + "size"));
    if (size == 0 || line_of(index + "type") == "Instruction") continue;
    known = true;
    if (level == "1") sizes.l1d = size;
    if (level == "2") sizes.l2 = size;
    if (level == "3") sizes.l3 = size;
  }
  // The smallest of present server cores, so that blocking computed from them fits.
  if (sizes.l1d == 0) sizes.l1d = 32 << 10;
  if (sizes.l2 == 0) sizes.l2 = 512 << 10;
  if (!known) sizes.l3 = 8 << 20;
  return sizes;
}

std::string cpu_model_name() {
  std::string name = brand();
  if (name.empty()) name = cpuinfo_value("model name");
  if (name.empty()) {
    const std::string maker = cpuinfo_value("CPU implementer"), part = cpuinfo_value("CPU part");
    if (!maker.empty()) name = fmt::format("CPU of implementer {}, part {}", maker, part);
  }
  const size_t first = name.find_first_not_of(' ');
  if (first == std::string::npos) return "unknown CPU";
  return name.substr(first, name.find_last_not_of(' ') - first + 1);
}

std::string_view name(Isa isa) {
  constexpr std::string_view names[kIsaCount] = {"baseline", "avx2", "avx512", "avx512_bf16", "neon"};
  return names[static_cast<int>(isa)];
}

bool runs(Isa isa, const CpuFeatures& f) {
  switch (isa) {
    case Isa::baseline:
      return true;
    case Isa::avx2:
      return f.avx2 && f.fma && f.f16c && f.bmi2;
    case Isa::avx512:
      return runs(Isa::avx2, f) && f.avx512f && f.avx512bw && f.avx512cd && f.avx512dq && f.avx512vl;
    case Isa::avx512_bf16:
      return runs(Isa::avx512, f) && f.avx512_vnni && f.avx512_bf16;
    case Isa::neon:
      return f.neon;
  }
  return false;
}

namespace {

std::vector<Isa> isas_of(const CpuFeatures& features) {
  std::vector<Isa> isas;
  for (int i = 0; i < kIsaCount; ++i)
    if (runs(static_cast<Isa>(i), features)) isas.push_back(static_cast<Isa>(i));
  return isas;
}

}  // namespace

std::vector<Isa> available_isas() { return isas_of(cpu_features()); }

Isa best_isa() { return available_isas().back(); }

Result<Isa> choose_isa(const char* wanted, const CpuFeatures& features) {
  const std::vector<Isa> isas = isas_of(features);
  if (wanted == nullptr || *wanted == '\0') return isas.back();
  std::string list;
  for (Isa isa : isas) {
    if (name(isa) == wanted) return isa;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", name(isa));
  }
  return fail(Code::isa_unavailable, "TESSERA_ISA is '{}', but this CPU has {}", wanted, list);
}

Result<Isa> chosen_isa() { return choose_isa(std::getenv("TESSERA_ISA"), cpu_features()); }

}  // namespace tessera
