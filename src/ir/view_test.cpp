#include "ir/view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace tessera::ir {
namespace {

using Random = std::mt19937;

int pick(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

int64_t count_of(const Shape& shape) { return product(shape).value(); }

// Calls fn(index) for every index of a concrete shape, in row-major order.
template <class Fn>
void for_each_index(const Shape& shape, Fn fn) {
  const int64_t count = count_of(shape);
  std::vector<int64_t> index(shape.size());
  for (int64_t n = 0; n < count; ++n) {
    int64_t rest = n;
    for (size_t j = shape.size(); j-- > 0; rest /= shape[j].value()) index[j] = rest % shape[j].value();
    fn(index);
  }
}

// Base coordinates of one element, straight from the definition of View.
std::vector<int64_t> coordinates(const View& view, const std::vector<int64_t>& index) {
  std::vector<int64_t> at;
  for (Dim offset : view.offsets) at.push_back(offset.value());
  for (size_t j = 0; j < view.axes.size(); ++j) {
    int64_t rest = index[j], digit = 0;
    const auto& atoms = view.axes[j];
    for (size_t i = atoms.size(); i-- > 0;) {
      // Tied atoms stand behind the atom whose digit they repeat.
      if (i + 1 == atoms.size() || !atoms[i + 1].tied) {
        digit = rest % atoms[i].size.value();
        rest /= atoms[i].size.value();
      }
      if (atoms[i].axis >= 0) at[static_cast<size_t>(atoms[i].axis)] += digit * atoms[i].stride.value();
    }
  }
  return at;
}

// Row-major element numbers of the base for all elements of the view. Fails the test when one is outside.
std::vector<int64_t> addresses(const View& view, const Shape& base) {
  std::vector<int64_t> all;
  for_each_index(view.shape(), [&](const std::vector<int64_t>& index) {
    const std::vector<int64_t> at = coordinates(view, index);
    int64_t address = 0;
    for (size_t a = 0; a < base.size(); ++a) {
      EXPECT_GE(at[a], 0) << to_string(view);
      EXPECT_LT(at[a], base[a].value()) << to_string(view);
      address = address * base[a].value() + at[a];
    }
    all.push_back(address);
  });
  return all;
}

std::vector<int64_t> addresses(const LinearView& view) {
  std::vector<int64_t> all = {view.offset.value()};
  for (const auto& axis : view.axes) {
    for (const LinearDigit& digit : axis) {
      std::vector<int64_t> next;
      for (int64_t address : all)
        for (int64_t d = 0; d < digit.size.value(); ++d) next.push_back(address + d * digit.stride.value());
      all = std::move(next);
    }
  }
  return all;
}

Shape random_shape(Random& random) {
  constexpr int64_t kSizes[] = {1, 2, 3, 4, 6, 2, 3, 4, 0};
  Shape shape;
  for (int rank = pick(random, 0, 4); rank > 0; --rank) shape.push_back(kSizes[random() % (random() % 8 ? 8 : 9)]);
  return shape;
}

// A shape of as many elements.
Shape random_reshape(const Shape& shape, Random& random) {
  Shape to;
  for (Dim size : shape) {
    int64_t n = size.value();
    for (int64_t f : {2, 3}) {
      if (n > 0 && n % f == 0 && random() % 2) {
        to.push_back(f);
        n /= f;
      }
    }
    to.push_back(n);
  }
  for (int tries = pick(random, 0, 3); tries > 0 && to.size() > 1; --tries) {
    const size_t i = random() % (to.size() - 1);
    to[i] = to[i] * to[i + 1];
    to.erase(to.begin() + static_cast<ptrdiff_t>(i) + 1);
  }
  if (random() % 4 == 0) to.insert(to.begin() + static_cast<ptrdiff_t>(random() % (to.size() + 1)), Dim(1));
  return to;
}

View random_slice(const Shape& shape, int axis, Random& random) {
  const auto n = static_cast<int>(shape[static_cast<size_t>(axis)].value());
  if (n == 0) return slice_view(shape, axis, 0, 1, 0);
  const int first = pick(random, 0, n - 1), last = pick(random, 0, n - 1);
  const int step = pick(random, 1, 3) * (first <= last ? 1 : -1);
  return slice_view(shape, axis, first, step, (last - first) / step + 1);
}

// Some view of an array of this shape; nullopt now and then, when a reshape would have to copy.
std::optional<View> random_view(const Shape& shape, Random& random) {
  const int rank = static_cast<int>(shape.size());
  const int axis = rank ? pick(random, 0, rank - 1) : 0;
  const auto size = rank ? shape[static_cast<size_t>(axis)].value() : 0;
  switch (pick(random, 0, 9)) {
    case 0: {
      std::vector<int> permutation(shape.size());
      std::iota(permutation.begin(), permutation.end(), 0);
      std::shuffle(permutation.begin(), permutation.end(), random);
      return transpose_view(shape, permutation);
    }
    case 1:
      if (rank) return random_slice(shape, axis, random);
      break;
    case 2:
      if (size > 0) return slice_view(shape, axis, size - 1, -1, size);  // flip
      break;
    case 3: {
      const int at[] = {pick(random, 0, rank)};
      return unsqueeze_view(shape, at);
    }
    case 4:
      if (size == 1) return squeeze_view(shape, std::vector<int>{axis});
      break;
    case 5: {
      Shape to = shape;
      for (Dim& d : to)
        if (d.is(1)) d = pick(random, 0, 3) ? 3 : 1;
      if (random() % 4 == 0) to.insert(to.begin(), Dim(2));
      return broadcast_view(shape, to);
    }
    case 6:
      if (size >= 3) return window_view(shape, axis, size - 2, 1, random() % 2 ? 3 : 2, 1);
      if (size >= 2) return window_view(shape, axis, 1, 1, 2, 1);
      break;
    case 7:
      for (int b = 0; b < rank; ++b)
        if (b != axis && shape[static_cast<size_t>(b)] == shape[static_cast<size_t>(axis)])
          return diagonal_view(shape, axis, b);
      break;
    default:
      break;
  }
  return reshape_view(shape, random_reshape(shape, random));
}

// Whether steps f[0], f[1], ... (vectors of coordinates) are those of mixed-radix digits.
bool is_mixed_radix(const std::vector<std::vector<int64_t>>& f) {
  const size_t n = f.size();
  const auto difference = [&](size_t i, size_t j) {
    std::vector<int64_t> d(f[0].size());
    for (size_t a = 0; a < d.size(); ++a) d[a] = f[i][a] - f[j][a];
    return d;
  };
  if (n <= 1) return true;
  for (size_t low = 2; low <= n; ++low) {
    if (n % low) continue;
    bool fits = true;
    for (size_t i = 0; i < n && fits; ++i) fits = i % low == 0 || difference(i, i - 1) == difference(1, 0);
    std::vector<std::vector<int64_t>> high;
    for (size_t i = 0; i < n; i += low) high.push_back(f[i]);
    if (fits && is_mixed_radix(high)) return true;
  }
  return false;
}

// Whether the elements `at` (base element numbers, row-major over `shape`) can be written as a View at all.
bool is_view(const std::vector<int64_t>& at, const Shape& shape, const Shape& base) {
  if (at.empty()) return true;
  std::vector<std::vector<int64_t>> where;
  for (int64_t address : at) {
    std::vector<int64_t> c(base.size());
    for (size_t a = base.size(); a-- > 0; address /= base[a].value()) c[a] = address % base[a].value();
    where.push_back(c);
  }
  std::vector<std::vector<std::vector<int64_t>>> along;  // [axis][index][base axis]
  size_t stride = at.size();
  for (Dim size : shape) {
    stride /= static_cast<size_t>(size.value());
    auto& f = along.emplace_back();
    for (size_t i = 0; i < static_cast<size_t>(size.value()); ++i) f.push_back(where[i * stride]);
    if (!is_mixed_radix(f)) return false;
  }
  size_t n = 0;
  bool separable = true;
  for_each_index(shape, [&](const std::vector<int64_t>& index) {
    for (size_t a = 0; a < base.size(); ++a) {
      int64_t sum = where[0][a];
      for (size_t j = 0; j < index.size(); ++j) sum += along[j][static_cast<size_t>(index[j])][a] - where[0][a];
      separable = separable && sum == where[n][a];
    }
    ++n;
  });
  return separable;
}

TEST(View, RandomChainsAddressWhatTheirStepsAddress) {
  Random random(1);
  DimTable dims;
  int composed = 0, missed = 0, impossible = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const Shape base = random_shape(random);
    View view = identity_view(base);
    std::vector<int64_t> expected = addresses(view, base);
    for (int step = 0; step < 6; ++step) {
      const Shape shape = view.shape();
      const std::optional<View> outer = random_view(shape, random);
      if (!outer) continue;
      if (count_of(outer->shape()) > 2000) break;
      std::vector<int64_t> next;
      for (int64_t i : addresses(*outer, shape)) next.push_back(expected[static_cast<size_t>(i)]);
      const std::optional<View> both = compose(view, *outer);
      if (!both) {
        (is_view(next, outer->shape(), base) ? missed : impossible)++;
        continue;
      }
      ++composed;
      const std::string text = to_string(*both);
      ASSERT_EQ(both->shape(), outer->shape()) << text;
      ASSERT_EQ(addresses(*both, base), next) << text;
      ASSERT_EQ(addresses(linear(*both, base)), next) << text;
      ASSERT_EQ(normalised(*both), *both) << text;
      const Result<View> parsed = parse_view(dims, to_string(*both));
      ASSERT_TRUE(parsed) << parsed.error().message;
      ASSERT_EQ(*parsed, *both) << text;
      const auto reaches = reach(*both);
      ASSERT_TRUE(reaches);
      for (size_t a = 0; a < base.size() && !next.empty(); ++a) {
        EXPECT_GE((*reaches)[a].low.value(), 0) << text;
        EXPECT_LT((*reaches)[a].high.value(), base[a].value()) << text;
      }
      view = *both;
      expected = std::move(next);
    }
  }
  EXPECT_GT(composed, 20000);
  EXPECT_GT(impossible, 300);
  EXPECT_LT(missed, composed / 500);  // slices across rows that happen to touch few elements
}

// Symbols and the chains that exports write with them.
class SymbolicView : public testing::Test {
 protected:
  DimTable table;
  Dim b = table.symbol("b"), s = table.symbol("s"), h = table.symbol("h"), d = table.symbol("d");

  // The chain of steps so far: a view of `base`, or a failure of the test.
  View view;
  void start(Shape base) { view = identity_view(base); }
  void then(const std::optional<View>& outer) {
    ASSERT_TRUE(outer);
    const std::optional<View> both = compose(view, *outer);
    ASSERT_TRUE(both) << to_string(view) << " then " << to_string(*outer);
    view = *both;
  }
  void reshape(Shape to) { then(reshape_view(view.shape(), to)); }
  void transpose(std::vector<int> permutation) { then(transpose_view(view.shape(), permutation)); }
  void slice(int axis, Dim start, Dim size, Dim step = 1) { then(slice_view(view.shape(), axis, start, step, size)); }
  void squeeze(int axis) { then(squeeze_view(view.shape(), std::vector<int>{axis})); }
  void unsqueeze(int axis) { then(unsqueeze_view(view.shape(), std::vector<int>{axis})); }
  void expand(Shape to) { then(broadcast_view(view.shape(), to)); }
};

TEST_F(SymbolicView, SplitAndMergedHeadsAreTheIdentity) {
  start({b, s, 768});
  reshape({b, s, 12, 64});
  transpose({0, 2, 1, 3});
  EXPECT_EQ(to_string(view), "[b:0, 12:2*64, s:1, 64:2] from [0, 0, 0]");
  reshape({b * 12, s, 64});
  EXPECT_EQ(to_string(view), "[b:0 12:2*64, s:1, 64:2] from [0, 0, 0]");
  reshape({b, 12, s, 64});
  transpose({0, 2, 1, 3});
  reshape({b, s, 768});
  EXPECT_TRUE(view.is_identity(Shape{b, s, 768})) << to_string(view);
}

TEST_F(SymbolicView, SymbolicHeadsToo) {
  start({b, s, h * d});
  reshape({b, s, h, d});
  transpose({0, 2, 3, 1});
  EXPECT_EQ(to_string(view), "[b:0, h:2*d, d:2, s:1] from [0, 0, 0]");
  transpose({0, 3, 1, 2});
  reshape({b * s, h * d});
  reshape({b, s, h * d});
  EXPECT_TRUE(view.is_identity(Shape{b, s, h * d})) << to_string(view);
}

TEST_F(SymbolicView, FusedQkvBySliceAndByReshapeAreOneView) {
  start({b, s, 2304});
  slice(2, 768, 768);
  reshape({b, s, 12, 64});
  transpose({0, 2, 1, 3});
  const View sliced = view;
  EXPECT_EQ(to_string(sliced), "[b:0, 12:2*64, s:1, 64:2] from [0, 0, 768]");

  start({b, s, 2304});
  reshape({b, s, 3, 12, 64});
  transpose({2, 0, 3, 1, 4});
  slice(0, 1, 1);
  squeeze(0);
  EXPECT_EQ(view, sliced);
}

TEST_F(SymbolicView, RepeatedKeyHeads) {
  start({b, 8, s, 64});
  unsqueeze(2);
  expand({b, 8, 4, s, 64});
  reshape({b, 32, s, 64});
  EXPECT_EQ(to_string(view), "[b:0, 8:1 4, s:2, 64:3] from [0, 0, 0, 0]");
  slice(1, 13, 1);
  EXPECT_EQ(to_string(view), "[b:0, 1, s:2, 64:3] from [0, 3, 0, 0]");
}

TEST_F(SymbolicView, SliceOfAMergedAxisAtADigit) {
  start({b, h, d});
  reshape({b, h * d});
  slice(1, d * 5, d);
  EXPECT_EQ(to_string(view), "[b:0, d:2] from [0, 5, 0]");

  start({b, 4, 6});
  reshape({b, 24});
  slice(1, 12, 12);
  EXPECT_EQ(to_string(view), "[b:0, 2:1 6:2] from [0, 2, 0]");
  slice(1, 7, 4);
  EXPECT_EQ(to_string(view), "[b:0, 4:2] from [0, 3, 1]");
}

TEST_F(SymbolicView, FlipOfAMergedAxis) {
  start({h, d});
  reshape({h * d});
  slice(0, h * d - 1, h * d, -1);
  EXPECT_EQ(to_string(view), "[h:0*(-1) d:1*(-1)] from [h - 1, d - 1]");
  slice(0, h * d - 1, h * d, -1);
  reshape({h, d});
  EXPECT_TRUE(view.is_identity(Shape{h, d})) << to_string(view);
}

TEST_F(SymbolicView, WhatCrossesDigitsIsACopy) {
  EXPECT_FALSE(reshape_view(Shape{s, b}, Shape{b, s}));
  const View swapped = transpose_view(Shape{b, s}, std::vector<int>{1, 0});
  EXPECT_FALSE(compose(swapped, *reshape_view(Shape{s, b}, Shape{s * b}))->is_identity(Shape{b * s}));
  const View merged = *reshape_view(Shape{h, d}, Shape{h * d});
  EXPECT_FALSE(compose(merged, slice_view(Shape{h * d}, 0, 1, 1, h * d - 1)));
  EXPECT_FALSE(compose(merged, slice_view(Shape{h * d}, 0, s, 1, d)));      // from anywhere
  EXPECT_FALSE(compose(merged, slice_view(Shape{h * d}, 0, 0, s - b, h)));  // up or down
}

TEST_F(SymbolicView, WindowsAndDiagonals) {
  const View windows = window_view(Shape{b, s}, 1, s - 2, 1, 3, 1);
  EXPECT_EQ(to_string(windows), "[b:0, (s - 2):1, 3:1] from [0, 0]");
  const View diagonal = diagonal_view(Shape{b, s, d, s}, 3, 1);
  EXPECT_EQ(to_string(diagonal), "[b:0, d:2, s:1+3] from [0, 0, 0, 0]");
  EXPECT_EQ(diagonal.shape(), (Shape{b, d, s}));
  EXPECT_EQ(linear(diagonal, Shape{b, s, d, s}).axes[2][0].stride, s * d + 1);
  // Along a broadcast axis and another, a diagonal is a walk along the other.
  EXPECT_EQ(*compose(broadcast_view(Shape{s}, Shape{s, s}), diagonal_view(Shape{s, s}, 0, 1)), identity_view(Shape{s}));
}

TEST_F(SymbolicView, ScalarsAndEmptyArrays) {
  const View scalar = identity_view(Shape{});
  EXPECT_TRUE(scalar.is_identity(Shape{}));
  EXPECT_EQ(to_string(scalar), "[] from []");
  EXPECT_EQ(to_string(*compose(scalar, *reshape_view(Shape{}, Shape{1, 1}))), "[1, 1] from []");
  EXPECT_EQ(to_string(*reshape_view(Shape{1}, Shape{})), "[] from [0]");
  EXPECT_EQ(to_string(broadcast_view(Shape{}, Shape{b, 3})), "[b, 3] from []");
  EXPECT_EQ(to_string(*reshape_view(Shape{0, 3}, Shape{5, 0})), "[5, 0] from [0, 0]");
  EXPECT_EQ(slice_view(Shape{4}, 0, 4, 1, 0).shape(), Shape{0});
  EXPECT_FALSE(identity_view(Shape{2, 3}).is_identity(Shape{2, 4}));
}

TEST_F(SymbolicView, ReachFollowsSigns) {
  const auto up = reach(slice_view(Shape{s}, 0, 2, 3, d));
  ASSERT_TRUE(up);
  EXPECT_EQ((*up)[0].low, Dim(2));
  EXPECT_EQ((*up)[0].high, d * 3 - 1);
  const auto down = reach(slice_view(Shape{s}, 0, s - 1, -1, s));
  ASSERT_TRUE(down);
  EXPECT_EQ((*down)[0].low, Dim(0));
  EXPECT_EQ((*down)[0].high, s - 1);
  EXPECT_FALSE(reach(slice_view(Shape{s}, 0, 0, s - b, d)));
  EXPECT_FALSE(reach(slice_view(Shape{8}, 0, 0, INT64_MAX / 2, 4)));
}

TEST_F(SymbolicView, TextRoundTrips) {
  table.symbol("odd name, (1): \"x\"");
  const Dim odd = *table.find("odd name, (1): \"x\"");
  const View views[] = {
      slice_view(Shape{odd, s * 2 + 1}, 1, s, -1, s + 1),
      diagonal_view(Shape{s, s, 3}, 0, 1),
      *reshape_view(Shape{b, odd, 4}, Shape{b * odd, 2, 2}),
      broadcast_view(Shape{1, 3}, Shape{odd, 5, 3}),
  };
  for (const View& v : views) {
    const Result<View> parsed = parse_view(table, to_string(v));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(*parsed, v) << to_string(v);
  }
}

TEST_F(SymbolicView, TextThatIsNoView) {
  for (const char* text :
       {"", "[", "[]", "[] from", "[] from [", "[b:0] from []", "[b:1] from [0]", "[b:0*] from [0]", "[b:-1] from [0]",
        "[b:s] from [0]", "[-3:0] from [0]", "[b::0] from [0]", "[,] from [0]", "[b:0+] from [0]", "[b:0] from [0] x",
        "[(b:0] from [0]", "[\"b:0] from [0]", "[b:99999999999] from [0]", "[b:0] from [0,]"})
    EXPECT_FALSE(parse_view(table, text)) << text;
}

}  // namespace
}  // namespace tessera::ir
