#include "plan/colour.h"

#include <gtest/gtest.h>

#include <random>

namespace tessera::plan {
namespace {

void expect_valid(const std::vector<Interval>& intervals, const Colouring& c, size_t alignment) {
  ASSERT_EQ(c.offsets.size(), intervals.size());
  for (size_t i = 0; i < intervals.size(); ++i) {
    EXPECT_EQ(c.offsets[i] % alignment, 0u);
    EXPECT_LE(c.offsets[i] + intervals[i].bytes, c.total);
    for (size_t k = 0; k < i; ++k) {
      if (intervals[i].first > intervals[k].last || intervals[k].first > intervals[i].last) continue;
      const bool apart =
          c.offsets[i] + intervals[i].bytes <= c.offsets[k] || c.offsets[k] + intervals[k].bytes <= c.offsets[i];
      EXPECT_TRUE(apart || intervals[i].bytes == 0 || intervals[k].bytes == 0) << i << " and " << k << " overlap";
    }
  }
}

TEST(Colour, Nothing) {
  EXPECT_EQ(colour({}, 64).total, 0u);
  EXPECT_EQ(live_set_bound({}), 0u);
}

TEST(Colour, AChainNeedsTwoBuffers) {
  std::vector<Interval> chain;
  for (uint32_t s = 0; s < 50; ++s) chain.push_back({s, s + 1, 1024});
  const Colouring c = colour(chain, 64);
  expect_valid(chain, c, 64);
  EXPECT_EQ(c.total, 2048u);
  EXPECT_EQ(live_set_bound(chain), 2048u);
}

TEST(Colour, EmptyBuffersTakeNothing) {
  const std::vector<Interval> intervals = {{0, 3, 0}, {1, 2, 0}};
  EXPECT_EQ(colour(intervals, 64).total, 0u);
}

TEST(Colour, LivesToTheLastStep) {
  const std::vector<Interval> intervals = {{0, UINT32_MAX, 64}, {1, 1, 64}};
  EXPECT_EQ(colour(intervals, 64).total, 128u);
  EXPECT_EQ(live_set_bound(intervals), 128u);
}

// A block with rotary tables: in each of the simple orders one interval finds no room.
TEST(Colour, WhatFindsNoRoomGoesFirst) {
  const std::vector<Interval> intervals = {{0, 1, 128},   {1, 2, 512},   {2, 7, 960},   {3, 7, 960},
                                           {5, 6, 3840},  {6, 8, 7680},  {7, 8, 5760},  {8, 9, 3840},
                                           {9, 10, 3840}, {9, 11, 3840}, {10, 11, 7680}};
  const Colouring c = colour(intervals, 64);
  expect_valid(intervals, c, 64);
  EXPECT_EQ(c.total, live_set_bound(intervals));
}

// A transformer layer's shape: a residual that lives long beside short and large intermediates.
TEST(Colour, ResidualAndWideIntermediatesReachTheBound) {
  std::vector<Interval> intervals;
  for (uint32_t layer = 0; layer < 12; ++layer) {
    const uint32_t s = layer * 6;
    intervals.push_back({s, s + 6, 768 * 64});
    intervals.push_back({s + 1, s + 2, 3 * 768 * 64});
    intervals.push_back({s + 2, s + 3, 768 * 64});
    intervals.push_back({s + 4, s + 5, 4 * 768 * 64});
  }
  const Colouring c = colour(intervals, 64);
  expect_valid(intervals, c, 64);
  EXPECT_EQ(c.total, live_set_bound(intervals));
}

TEST(Colour, RandomIntervalsNeverOverlapAndStayNearTheBound) {
  std::mt19937 random(11);
  double worst = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<Interval> intervals;
    const uint32_t n = 1 + random() % 200;
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t first = random() % n;
      const uint32_t length = random() % 8 == 0 ? random() % n : random() % 4;
      intervals.push_back({first, first + length, (random() % 40) * 64});
    }
    const Colouring c = colour(intervals, 64);
    expect_valid(intervals, c, 64);
    if (live_set_bound(intervals) > 0)
      worst = std::max(worst, static_cast<double>(c.total) / static_cast<double>(live_set_bound(intervals)));
  }
  EXPECT_LE(worst, 1.25);
}

TEST(Colour, ManyBuffersTakeLinearTime) {
  std::mt19937 random(3);
  std::vector<Interval> intervals;
  for (uint32_t i = 0; i < 200000; ++i)
    intervals.push_back({i, i + 1 + static_cast<uint32_t>(random() % 20), 64 + random() % 4096});
  const Colouring c = colour(intervals, 64);
  EXPECT_GE(c.total, live_set_bound(intervals));
  EXPECT_LE(c.total, 2 * live_set_bound(intervals));
}

}  // namespace
}  // namespace tessera::plan
