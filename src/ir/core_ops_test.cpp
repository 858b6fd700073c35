#include "ir/core_ops.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ir/builder.h"
#include "ir/interpreter.h"

namespace tessera::ir {
namespace {

class ViewOpTest : public testing::Test {
 protected:
  Graph graph{std::make_shared<Context>()};
  Builder builder{graph};
  Dim s = builder.dims().symbol("s"), n = builder.dims().symbol("n");

  X input(Shape shape) { return builder.input(builder.context().tensor(DType::i64, std::move(shape)), "x"); }
  std::string error_of(const Shape& base, View view) {
    builder.add1(core::view, {input(base)}, {std::move(view)});
    const Status status = builder.take_status();
    return status ? "" : code_name(status.error().code) + " " + status.error().message;
  }
};

TEST_F(ViewOpTest, RunsADiagonalOfAWindowedAxis) {
  X x = input({4, 4});
  X windows = builder.view(x, window_view(x.shape(), 0, 2, 1, 3, 1));  // [2, 4, 3]
  X y = builder.view(windows, slice_view(windows.shape(), 1, 3, -1, 3));
  y = builder.view(y, diagonal_view(y.shape(), 1, 2));  // y[i, j] = x[i + j, 3 - j]
  ASSERT_TRUE(builder.ok()) << builder.status().error().message;
  graph.outputs = {y.id};

  Array array = *make_array(DType::i64, {4, 4});
  std::iota(array.of<Int>().begin(), array.of<Int>().end(), Int(0));
  const RefValue value{std::make_shared<const Array>(std::move(array))};
  const auto results = Interpreter().run(graph, std::span(&value, 1));
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ((*results)[0].array().shape, (Dims{2, 3}));
  EXPECT_EQ((*results)[0].array().of<Int>(), (std::vector<Int>{3, 6, 9, 7, 10, 13}));
}

TEST_F(ViewOpTest, RefusesToReadOutsideItsBase) {
  EXPECT_EQ(error_of({4}, slice_view(Shape{4}, 0, 2, 1, 3)), "E0315 view: reads 2 to 4 along axis 0 of x[4]");
  EXPECT_EQ(error_of({4}, slice_view(Shape{4}, 0, 1, -1, 3)), "E0315 view: reads -1 to 1 along axis 0 of x[4]");
  EXPECT_EQ(error_of({s}, slice_view(Shape{s}, 0, 1, 1, s + 1)), "E0315 view: reads 1 to s + 1 along axis 0 of x[s]");
  EXPECT_EQ(error_of({4}, slice_view(Shape{4}, 0, 0, INT64_MAX, 4)).substr(0, 5), "E0315");
  EXPECT_EQ(error_of({4}, View{{{{0, 1, -1}}}, {0}}), "E0313 view: an axis of -1 elements");
  EXPECT_EQ(error_of({4}, View{{}, {0, 0}}), "E0303 view: its base has 2 axes but x is i64[4]");
  EXPECT_EQ(error_of({4}, slice_view(Shape{4}, 0, 9, 1, 0)), "");
}

TEST_F(ViewOpTest, GuardsWhatTheSizesDoNotTell) {
  EXPECT_EQ(error_of({s}, slice_view(Shape{s}, 0, s - 1, -1, s)), "");
  EXPECT_EQ(error_of({s}, slice_view(Shape{s}, 0, 0, 1, min(s, 5))), "");
  EXPECT_EQ(error_of({s + 2}, slice_view(Shape{s + 2}, 0, 1, 1, s)), "");
  EXPECT_TRUE(graph.guards.empty());
  EXPECT_EQ(error_of({s}, slice_view(Shape{s}, 0, 2, 1, n)), "");
  ASSERT_EQ(graph.guards.size(), 1u);
  // Holds for every s when n is 0, and is 2 + n <= s otherwise.
  const Guard& guard = graph.guards[0];
  EXPECT_EQ(guard.kind, Guard::Kind::at_most);
  for (int64_t size : {0, 3, 5})
    for (int64_t count : {0, 1, 3, 4}) {
      const DimBindings bindings = {size, count};
      const int64_t a = *builder.dims().evaluate(guard.a, bindings), b = *builder.dims().evaluate(guard.b, bindings);
      EXPECT_EQ(a <= b, count == 0 || 2 + count <= size);
    }
}

}  // namespace
}  // namespace tessera::ir
