#include "base/measure.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Measure, PeakOfEachInstructionSet) {
  for (Isa isa : available_isas()) {
    const double gflops = measure_peak_gflops(isa, 1).value();
    EXPECT_GT(gflops, 0.01) << name(isa);
    EXPECT_LT(gflops, 1000) << name(isa);
    std::printf("%s: %.1f GFLOP/s on one thread\n", std::string(name(isa)).c_str(), gflops);
  }
  std::printf("%s: %.1f GFLOP/s on two threads\n", std::string(name(best_isa())).c_str(),
              measure_peak_gflops(best_isa(), 2).value());
}

TEST(Measure, ReadBandwidth) {
  for (int threads : {1, 2}) {
    const double rate = measure_read_bandwidth(threads).value();
    EXPECT_GT(rate, 0.01);
    EXPECT_LT(rate, 10'000);
    std::printf("%.1f GB/s on %d threads\n", rate, threads);
  }
}

}  // namespace
}  // namespace tessera
