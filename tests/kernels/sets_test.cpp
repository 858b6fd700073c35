#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/dispatch.h"

namespace tessera::kernel_test {
namespace {

// The other tests of this program compare what this CPU runs; this one says what it does not.
TEST(Sets, ThisCpuRunsAllThatWereCompiled) {
  const auto runnable = kernels::runnable_sets();
  std::string missing;
  for (const kernels::KernelSet& set : kernels::compiled_sets())
    if (std::find(runnable.begin(), runnable.end(), &set) == runnable.end()) missing += " " + std::string(set.isa());
  if (!missing.empty()) GTEST_SKIP() << "compiled, but not compared with the reference on this CPU:" << missing;
}

}  // namespace
}  // namespace tessera::kernel_test
