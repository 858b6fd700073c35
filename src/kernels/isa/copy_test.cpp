#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/dispatch.h"

namespace tessera::kernels {
namespace {

struct Case {
  std::vector<int64_t> shape, stride;
  int64_t base = 0;  // where element [0, ...] lies
};

// Row-major positions of the case's elements, by the definition.
std::vector<int64_t> positions(const Case& c) {
  std::vector<int64_t> result;
  std::vector<int64_t> index(c.shape.size(), 0);
  int64_t count = 1;
  for (int64_t size : c.shape) count *= size;
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = c.base, rest = i;
    for (size_t a = c.shape.size(); a-- > 0;) {
      at += rest % c.shape[a] * c.stride[a];
      rest /= c.shape[a];
    }
    result.push_back(at);
  }
  return result;
}

View view_of(void* data, Type type, const std::vector<int64_t>& shape, const std::vector<int64_t>& stride) {
  View v = {};
  v.data = data;
  v.type = type;
  v.rank = static_cast<uint8_t>(shape.size());
  v.present = 1;
  std::copy(shape.begin(), shape.end(), v.shape);
  std::copy(stride.begin(), stride.end(), v.stride);
  return v;
}

template <class T>
void expect_copies(Type type, const Case& c) {
  const std::vector<int64_t> where = positions(c);
  int64_t extent = 1;
  for (int64_t at : where) extent = std::max(extent, at + 1);
  std::vector<T> in(static_cast<size_t>(extent));
  std::iota(in.begin(), in.end(), T{1});
  std::vector<T> out(where.size() + 1, T{77});
  std::vector<int64_t> dense(c.shape.size(), 1);
  for (size_t a = c.shape.size(); a-- > 1;) dense[a - 1] = dense[a] * c.shape[a];
  const View from = view_of(in.data() + c.base, type, c.shape, c.stride);
  const View to = view_of(out.data(), type, c.shape, dense);
  for (const KernelSet* set : runnable_sets()) {
    Args args = {};
    args.in = &from;
    args.n_in = 1;
    args.out = &to;
    args.n_out = 1;
    ASSERT_EQ(set->find("copy")->fn(args), kDone);
    for (size_t i = 0; i < where.size(); ++i)
      ASSERT_EQ(out[i], in[static_cast<size_t>(where[i])]) << "element " << i << " on " << set->isa();
    ASSERT_EQ(out[where.size()], T{77}) << "wrote past the end on " << set->isa();
  }
}

void expect_copies_all_sizes(const Case& c) {
  expect_copies<uint8_t>(kU8, c);
  expect_copies<uint16_t>(kBF16, c);
  expect_copies<uint32_t>(kF32, c);
  expect_copies<uint64_t>(kI64, c);
}

TEST(Copy, Scalar) { expect_copies_all_sizes({{}, {}}); }
TEST(Copy, Empty) { expect_copies_all_sizes({{3, 0, 2}, {0, 2, 1}}); }
TEST(Copy, Dense) { expect_copies_all_sizes({{3, 4, 5}, {20, 5, 1}}); }
TEST(Copy, Transposed) { expect_copies_all_sizes({{37, 53}, {1, 37}}); }
TEST(Copy, BatchTransposed) { expect_copies_all_sizes({{3, 33, 18}, {594, 1, 33}}); }
TEST(Copy, HeadsBeforeTokens) { expect_copies_all_sizes({{2, 4, 5, 8}, {160, 8, 32, 1}}); }
TEST(Copy, Broadcast) { expect_copies_all_sizes({{4, 3, 5}, {0, 1, 0}}); }
TEST(Copy, Reversed) { expect_copies_all_sizes({{4, 6}, {6, -1}, 5}); }
TEST(Copy, OverlappingWindows) { expect_copies_all_sizes({{7, 3}, {2, 1}}); }
TEST(Copy, LongRow) { expect_copies_all_sizes({{200000}, {2}}); }

TEST(Copy, AnotherShapeOfEqualCount) {
  const int32_t in[] = {0, 1, 2, 3, 4, 5};
  for (const KernelSet* set : runnable_sets()) {
    int32_t out[6] = {};
    const View from = view_of(const_cast<int32_t*>(in), kI32, {3, 2}, {1, 3});
    const View to = view_of(out, kI32, {6}, {1});
    Args args = {};
    args.in = &from;
    args.n_in = 1;
    args.out = &to;
    args.n_out = 1;
    ASSERT_EQ(set->find("copy")->fn(args), kDone);
    EXPECT_EQ(std::vector<int32_t>(out, out + 6), (std::vector<int32_t>{0, 3, 1, 4, 2, 5}));
  }
}

TEST(Dims, WritesTheSizes) {
  const int64_t sizes[] = {7, 0, -1};
  for (const KernelSet* set : runnable_sets()) {
    int64_t out[3] = {};
    const View to = view_of(out, kI64, {3}, {1});
    const Attr attr = {0, 0, sizes, 3};
    Args args = {};
    args.out = &to;
    args.n_out = 1;
    args.attrs = &attr;
    args.n_attrs = 1;
    ASSERT_EQ(set->find("dims")->fn(args), kDone);
    EXPECT_TRUE(std::equal(out, out + 3, sizes));
  }
}

TEST(Copy, RandomStrides) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Case c;
    const int rank = static_cast<int>(random() % 6);
    int64_t low = 0;
    for (int a = 0; a < rank; ++a) {
      c.shape.push_back(1 + random() % 6);
      c.stride.push_back(static_cast<int64_t>(random() % 25) - 8);
      if (c.stride.back() < 0) low += c.stride.back() * (c.shape.back() - 1);
    }
    c.base = -low;
    expect_copies<uint16_t>(kF16, c);
  }
}

}  // namespace
}  // namespace tessera::kernels
