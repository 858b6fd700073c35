#include "base/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/result.h"
#include "base/test_folder.h"

namespace tessera {
namespace {

TEST(Cpu, Cores) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), static_cast<int>(allowed_cpus().size()));
  EXPECT_TRUE(std::is_sorted(allowed_cpus().begin(), allowed_cpus().end()));
  std::vector<int> by_core = cpus_by_core(allowed_cpus());
  std::sort(by_core.begin(), by_core.end());
  EXPECT_EQ(by_core, allowed_cpus());
}

TEST(Cpu, FeaturesAreConsistent) {
  const CpuFeatures& f = cpu_features();
  EXPECT_TRUE(!f.avx512bw || f.avx512f);
  EXPECT_TRUE(!f.avx512_bf16 || f.avx512f);
#if defined(__x86_64__)
  // The compiler's own run-time detection is a second opinion.
  EXPECT_EQ(f.sse42, __builtin_cpu_supports("sse4.2") != 0);
  EXPECT_EQ(f.avx2, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(f.fma, __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(f.bmi2, __builtin_cpu_supports("bmi2") != 0);
  EXPECT_EQ(f.avx512f, __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(f.avx512bw, __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(f.avx512cd, __builtin_cpu_supports("avx512cd") != 0);
  EXPECT_EQ(f.avx512dq, __builtin_cpu_supports("avx512dq") != 0);
  EXPECT_EQ(f.avx512vl, __builtin_cpu_supports("avx512vl") != 0);
  EXPECT_EQ(f.avx512_vnni, __builtin_cpu_supports("avx512vnni") != 0);
#elif defined(__aarch64__)
  EXPECT_TRUE(f.neon);
#endif
}

TEST(Cpu, CacheSizesOfThisMachine) {
  const CacheSizes sizes = cache_sizes();
  EXPECT_GE(sizes.l1d, size_t{8} << 10);
  EXPECT_LE(sizes.l1d, sizes.l2);
}

TEST(Cpu, CacheSizesFromFiles) {
  TestFolder folder;
  auto put = [&](int index, const char* level, const char* type, const char* size) {
    const std::string at = fmt::format("index{}/", index);
    folder.put(at + "level", std::string(level) + "\n");
    folder.put(at + "type", std::string(type) + "\n");
    folder.put(at + "size", std::string(size) + "\n");
  };
  put(0, "1", "Data", "48K");
  put(1, "1", "Instruction", "64K");
  put(2, "2", "Unified", "2048K");
  CacheSizes sizes = cache_sizes(folder.path());
  EXPECT_EQ(sizes.l1d, 48u << 10);
  EXPECT_EQ(sizes.l2, 2048u << 10);
  EXPECT_EQ(sizes.l3, 0u);
  put(3, "3", "Unified", "36M");
  EXPECT_EQ(cache_sizes(folder.path()).l3, 36u << 20);
  put(2, "2", "Unified", "junk");
  EXPECT_EQ(cache_sizes(folder.path()).l2, 512u << 10);
  sizes = cache_sizes(folder / "none");
  EXPECT_EQ(sizes.l1d, 32u << 10);
  EXPECT_GT(sizes.l3, 0u);
}

TEST(Cpu, ModelName) { EXPECT_FALSE(cpu_model_name().empty()); }

CpuFeatures avx2_machine() {
  CpuFeatures f;
  f.sse42 = f.avx2 = f.fma = f.f16c = f.bmi2 = true;
  return f;
}

TEST(Isa, NeedsAllOfItsFeatures) {
  CpuFeatures f = avx2_machine();
  EXPECT_TRUE(runs(Isa::avx2, f));
  EXPECT_FALSE(runs(Isa::avx512, f));
  EXPECT_FALSE(runs(Isa::neon, f));
  f.avx512f = f.avx512bw = f.avx512cd = f.avx512dq = true;
  EXPECT_FALSE(runs(Isa::avx512, f));
  f.avx512vl = true;
  EXPECT_TRUE(runs(Isa::avx512, f));
  f.avx512_vnni = true;
  EXPECT_FALSE(runs(Isa::avx512_bf16, f));
  f.avx512_bf16 = true;
  EXPECT_TRUE(runs(Isa::avx512_bf16, f));
  f.f16c = false;
  EXPECT_FALSE(runs(Isa::avx512_bf16, f));
}

TEST(Isa, Choice) {
  const CpuFeatures f = avx2_machine();
  EXPECT_EQ(choose_isa(nullptr, f).value(), Isa::avx2);
  EXPECT_EQ(choose_isa("", f).value(), Isa::avx2);
  EXPECT_EQ(choose_isa("baseline", f).value(), Isa::baseline);
  EXPECT_EQ(choose_isa("avx2", f).value(), Isa::avx2);
  for (const char* wanted : {"avx512", "neon", "AVX2", "sse9"}) {
    auto isa = choose_isa(wanted, f);
    ASSERT_FALSE(isa) << wanted;
    EXPECT_EQ(isa.error().code, Code::isa_unavailable);
    EXPECT_EQ(isa.error().message, fmt::format("TESSERA_ISA is '{}', but this CPU has baseline, avx2", wanted));
  }
  EXPECT_EQ(choose_isa(nullptr, CpuFeatures{}).value(), Isa::baseline);
}

TEST(Isa, TheEnvironmentForcesOne) {
  const char* before = std::getenv("TESSERA_ISA");
  const std::string saved = before == nullptr ? "" : before;
  ::setenv("TESSERA_ISA", "baseline", 1);
  EXPECT_EQ(chosen_isa().value(), Isa::baseline);
  ::setenv("TESSERA_ISA", "mmx", 1);
  EXPECT_FALSE(chosen_isa());
  ::unsetenv("TESSERA_ISA");
  EXPECT_EQ(chosen_isa().value(), best_isa());
  if (before != nullptr) ::setenv("TESSERA_ISA", saved.c_str(), 1);
}

}  // namespace
}  // namespace tessera
