#include "kernels/dispatch.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tessera::kernels
