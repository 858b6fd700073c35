#include "tensor/reshape.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Groups = std::vector<ReshapeGroup>;

class ReshapeTest : public ::testing::Test {
 protected:
  static std::optional<Groups> factor(const Shape& from, const Shape& to) { return factor_reshape(from, to); }
  static Shape infer(const Shape& from, const Shape& to, bool allow_zero = false) {
    const auto shape = infer_minus_one(from, to, allow_zero);
    EXPECT_TRUE(shape) << (shape ? "" : shape.error().message);
    return shape ? *shape : Shape{};
  }
  static void refuses(const Shape& from, const Shape& to, bool allow_zero = false) {
    const auto shape = infer_minus_one(from, to, allow_zero);
    ASSERT_FALSE(shape) << to_string(*shape);
    EXPECT_EQ(shape.error().code, Code::shape_invalid);
  }
  DimTable t;
  Dim batch = t.symbol("batch"), seq = t.symbol("seq"), past = t.symbol("past");
};

TEST_F(ReshapeTest, GroupsOfAttentionShapes) {
  EXPECT_EQ(factor({batch, seq, 768}, {batch, seq, 12, 64}), (Groups{{0, 1, 0, 1}, {1, 2, 1, 2}, {2, 3, 2, 4}}));
  EXPECT_EQ(factor({batch, seq, 12, 64}, {batch, seq, 768}), (Groups{{0, 1, 0, 1}, {1, 2, 1, 2}, {2, 4, 2, 3}}));
  EXPECT_EQ(factor({batch * 12, seq, 64}, {batch, 12, seq, 64}), (Groups{{0, 1, 0, 2}, {1, 2, 2, 3}, {2, 3, 3, 4}}));
  EXPECT_EQ(factor({batch, 12, seq, 64}, {12 * batch, seq, 64}), (Groups{{0, 2, 0, 1}, {2, 3, 1, 2}, {3, 4, 2, 3}}));
  EXPECT_EQ(factor({batch, seq, 768}, {batch * seq, 768}), (Groups{{0, 2, 0, 1}, {2, 3, 1, 2}}));
  EXPECT_EQ(factor({batch, seq * past}, {batch * seq, past}), (Groups{{0, 2, 0, 2}}));
  EXPECT_EQ(factor({batch, seq + past, 8}, {batch, past + seq, 2, 4}),
            (Groups{{0, 1, 0, 1}, {1, 2, 1, 2}, {2, 3, 2, 4}}));
  EXPECT_EQ(factor({6, 4}, {3, 8}), (Groups{{0, 2, 0, 2}}));
  EXPECT_EQ(factor({2, 3, 4}, {6, 4}), (Groups{{0, 2, 0, 1}, {2, 3, 1, 2}}));
}

TEST_F(ReshapeTest, OnesAttach) {
  EXPECT_EQ(factor({1, batch, 1, seq}, {batch, seq, 1}), (Groups{{0, 3, 0, 1}, {3, 4, 1, 3}}));
  EXPECT_EQ(factor({}, {1, 1}), (Groups{{0, 0, 0, 2}}));
  EXPECT_EQ(factor({1}, {}), (Groups{{0, 1, 0, 0}}));
  EXPECT_EQ(factor({}, {}), Groups{});
  const Dim one = t.symbol("one");
  ASSERT_TRUE(t.narrow(one, {1, 1}));
  EXPECT_EQ(factor({batch, one}, {batch}), (Groups{{0, 2, 0, 1}}));
}

TEST_F(ReshapeTest, EmptyShapes) {
  EXPECT_EQ(factor({0, 3}, {0, 3}), (Groups{{0, 1, 0, 1}, {1, 2, 1, 2}}));
  EXPECT_EQ(factor({2, 0}, {0, 5}), (Groups{{0, 2, 0, 2}}));
  EXPECT_EQ(factor({0, 3}, {3}), std::nullopt);
}

TEST_F(ReshapeTest, UnprovedIsRefused) {
  EXPECT_EQ(factor({batch, seq}, {batch, past}), std::nullopt);
  EXPECT_EQ(factor({batch}, {2, t.symbol("half")}), std::nullopt);
  EXPECT_EQ(factor({6}, {4}), std::nullopt);
  EXPECT_EQ(factor({batch, 2}, {batch}), std::nullopt);
  EXPECT_EQ(factor({int64_t{1} << 32, int64_t{1} << 32}, {0}), std::nullopt) << "2^64 is not 0";
}

TEST_F(ReshapeTest, GroupsHaveEqualProducts) {
  const Shape from = {1, batch, seq * 4, 1, 6, past + 1}, to = {batch * seq, 2, 1, 2, 3, 2, past + 1, 1};
  const auto groups = factor(from, to);
  ASSERT_TRUE(groups);
  EXPECT_EQ(groups->size(), 3u);
  int i = 0, j = 0;
  for (const auto& g : *groups) {
    EXPECT_EQ(g.from_begin, i);
    EXPECT_EQ(g.to_begin, j);
    EXPECT_EQ(product(std::span(from).subspan(g.from_begin, g.from_end - g.from_begin)),
              product(std::span(to).subspan(g.to_begin, g.to_end - g.to_begin)));
    i = g.from_end;
    j = g.to_end;
  }
  EXPECT_EQ(i, static_cast<int>(from.size()));
  EXPECT_EQ(j, static_cast<int>(to.size()));
}

TEST_F(ReshapeTest, MinusOne) {
  EXPECT_EQ(infer({2, 3, 4}, {4, -1}), (Shape{4, 6}));
  EXPECT_EQ(infer({2, 3, 4}, {-1}), (Shape{24}));
  EXPECT_EQ(infer({}, {-1}), (Shape{1}));
  EXPECT_EQ(infer({}, {}), Shape{});
  EXPECT_EQ(infer({batch, seq, 768}, {0, 0, 12, -1}), (Shape{batch, seq, 12, 64}));
  EXPECT_EQ(infer({batch, seq, 768}, {batch, -1, 12, 64}), (Shape{batch, seq, 12, 64}));
  EXPECT_EQ(infer({batch, 12, seq, 64}, {-1, seq, 64}), (Shape{12 * batch, seq, 64}));
  EXPECT_EQ(infer({batch * 12, seq, 64}, {-1, 12, seq, 64}), (Shape{batch, 12, seq, 64}));
  EXPECT_EQ(infer({batch * seq, 64}, {batch, -1, 64}), (Shape{batch, seq, 64}));
  EXPECT_EQ(infer({batch, 6}, {4, -1}), (Shape{4, floordiv(3 * batch, 2)}));
  EXPECT_EQ(infer({0, 3}, {0, -1}), (Shape{0, 3}));
  EXPECT_EQ(infer({0, 3}, {3, 0}, true), (Shape{3, 0}));
  EXPECT_EQ(infer({0, 4}, {2, -1}), (Shape{2, 0}));
  EXPECT_EQ(infer({batch, seq}, {past, 3}), (Shape{past, 3})) << "left to a guard";
}

TEST_F(ReshapeTest, Contradictions) {
  refuses({2, 3}, {4, -1});
  refuses({2, 3}, {-1, -1});
  refuses({2, 3}, {7});
  refuses({2, 3}, {-2, 3});
  refuses({2}, {2, 0});
  refuses({5, 0}, {2, 0, -1});
  refuses({0, 6}, {3, 0, -1}, true);
  refuses({2 * batch + 1}, {2, seq});
  refuses({int64_t{1} << 40, int64_t{1} << 40}, {-1});
}

}  // namespace
}  // namespace tessera
