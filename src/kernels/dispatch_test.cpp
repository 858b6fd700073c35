#include "kernels/dispatch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "kernels/table.h"

namespace tessera::kernels {
namespace {

TEST(Dispatch, EverySetHasEveryKernelOfTheTable) {
  ASSERT_FALSE(compiled_sets().empty());
  for (const KernelSet& set : compiled_sets())
    for (const KernelDesc& desc : kernel_table())
      EXPECT_NE(set.find(desc.kernel), nullptr) << desc.kernel << " is not in " << set.isa();
}

TEST(Dispatch, EveryKernelIsInTheTableAndNoNameStandsTwice) {
  std::set<std::string> listed;
  for (const KernelDesc& desc : kernel_table()) listed.insert(desc.kernel);
  for (const KernelSet& set : compiled_sets()) {
    std::set<std::string> seen;
    for (const KernelEntry* kernel : set.kernels()) {
      EXPECT_TRUE(listed.contains(kernel->name)) << kernel->name;
      EXPECT_TRUE(seen.insert(kernel->name).second) << kernel->name << " stands twice in " << set.isa();
    }
  }
}

TEST(Dispatch, FindsNothingUnderAnUnknownName) {
  EXPECT_EQ(compiled_sets().front().find("no_such_kernel"), nullptr);
  EXPECT_EQ(compiled_sets().front().find(""), nullptr);
}

TEST(Dispatch, SetsAreFoundByTheirName) {
  ASSERT_FALSE(runnable_sets().empty());
  for (const KernelSet* set : runnable_sets()) EXPECT_EQ(set_for(set->isa()), set);
  EXPECT_EQ(set_for("avx1024"), nullptr);
}

TEST(Dispatch, TheForcedSetIsTheOneThatRuns) {
  const char* before = std::getenv("TESSERA_ISA");
  const std::string kept = before == nullptr ? "" : before;
  for (const KernelSet* set : runnable_sets()) {
    ASSERT_EQ(setenv("TESSERA_ISA", std::string(set->isa()).c_str(), 1), 0);
    auto chosen = chosen_set();
    ASSERT_TRUE(chosen.has_value()) << chosen.error().to_string();
    EXPECT_EQ((*chosen)->isa(), set->isa());
  }
  setenv("TESSERA_ISA", "avx1024", 1);
  ASSERT_FALSE(chosen_set().has_value());
  EXPECT_EQ(chosen_set().error().code, Code::isa_unavailable);
  setenv("TESSERA_ISA", kept.c_str(), 1);
  EXPECT_TRUE(chosen_set().has_value());
}

}  // namespace
}  // namespace tessera::kernels
