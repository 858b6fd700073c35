#include "engine/compiled.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ir/builder.h"
#include "ir/core_ops.h"
#include "ir/interpreter.h"
#include "kernels/dispatch.h"
#include "ops/ops.h"
#include "tensor/scalar.h"

namespace tessera::engine {
namespace {

using ir::Builder;
using ir::Graph;
using ir::X;

Tensor numbers(DType dtype, Dims dims, double start = -1, double step = 0.5) {
  Tensor t = Tensor::make(dtype, std::move(dims)).value();
  for (int64_t i = 0; i < t.count(); ++i) encode(dtype, t.mutable_data(), i, start + step * static_cast<double>(i));
  return t;
}

void expect_equal(const Value& got, const Value& want, const std::string& what) {
  if (const Sequence* list = want.sequence()) {
    ASSERT_NE(got.sequence(), nullptr) << what;
    ASSERT_EQ(got.sequence()->items.size(), list->items.size()) << what;
    for (size_t i = 0; i < list->items.size(); ++i) expect_equal(got.sequence()->items[i], list->items[i], what);
    return;
  }
  ASSERT_NE(got.tensor(), nullptr) << what;
  const Tensor &a = *got.tensor(), &b = *want.tensor();
  ASSERT_EQ(a.dtype(), b.dtype()) << what;
  ASSERT_EQ(a.shape(), b.shape()) << what;
  for (int64_t i = 0; i < a.count(); ++i) {
    const double x = decode(a.dtype(), a.data(), i), y = decode(b.dtype(), b.data(), i);
    ASSERT_NEAR(x, y, 1e-5 * std::abs(y) + 1e-7) << what << ", element " << i;
  }
}

// The same graph on the reference interpreter and as a plan must give the same.
class CompiledGraph : public testing::Test {
 protected:
  std::shared_ptr<ir::Context> context = std::make_shared<ir::Context>();
  Graph graph{context};
  Builder b{graph};

  Dim symbol(std::string_view name) { return b.dims().symbol(name); }
  X input(Shape shape, DType dtype = DType::f32) {
    return b.input(context->tensor(dtype, std::move(shape)), fmt::format("x{}", graph.inputs.size()));
  }
  void outputs(std::vector<X> results) {
    ASSERT_TRUE(b.ok()) << b.status().error().to_string();
    for (X x : results) {
      graph.outputs.push_back(x.id);
      graph.output_names.push_back(context->name(fmt::format("y{}", graph.outputs.size())));
    }
  }
  void check(const std::vector<std::vector<Value>>& runs) {
    auto compiled = compile(graph.clone(), {.pool = std::make_shared<ThreadPool>(2)});
    ASSERT_TRUE(compiled.has_value()) << compiled.error().to_string();
    for (const std::vector<Value>& inputs : runs) {
      std::vector<ir::RefValue> refs;
      for (const Value& input : inputs) refs.push_back(ir::to_ref(input).value());
      auto want = ir::Interpreter().run(graph, refs);
      ASSERT_TRUE(want.has_value()) << want.error().to_string();
      ExecuteReport report;
      auto got = (*compiled)->run(inputs, {}, report);
      ASSERT_TRUE(got.has_value()) << got.error().to_string();
      ASSERT_EQ(report.failed_assumption, std::nullopt);
      ASSERT_EQ(got->size(), want->size());
      for (size_t i = 0; i < want->size(); ++i)
        expect_equal((*got)[i], ir::from_ref((*want)[i]).value(), fmt::format("output {}", i));
    }
  }
};

TEST_F(CompiledGraph, ViewsOfAllKinds) {
  const Dim n = symbol("n");
  const X x = input({n, 6});
  const int swap[] = {1, 0};
  const X t = b.view(x, ir::transpose_view(x.shape(), swap));
  const X rows = b.view(t, ir::slice_view(t.shape(), 0, 4, -2, 3));
  const Shape split = {n, 2, 3};
  const X heads = b.view(x, *ir::reshape_view(x.shape(), split));
  const int turn[] = {2, 0, 1};
  const X turned = b.view(heads, ir::transpose_view(heads.shape(), turn));
  const Shape flat = {n * 6};
  const X copied = b.add1(ir::core::copy, {turned}, {flat});
  const X windows = b.view(x, ir::window_view(x.shape(), 1, 3, 2, 2, 1));
  const Shape wide = {4, n, 6};
  const X spread = b.view(x, ir::broadcast_view(x.shape(), wide));
  outputs({t, rows, turned, copied, windows, spread, b.add1(ops::add_op, {rows, rows})});
  check({{numbers(DType::f32, {5, 6})}, {numbers(DType::f32, {1, 6})}, {numbers(DType::f32, {0, 6})}});
}

TEST_F(CompiledGraph, NarrowAndPackedTypes) {
  std::vector<X> results;
  std::vector<Value> inputs;
  for (DType dtype :
       {DType::boolean, DType::i8, DType::bf16, DType::i64, DType::f64, DType::i4, DType::u2, DType::f8e4m3fn}) {
    const X x = input({3, 4}, dtype);
    const int swap[] = {1, 0};
    const Shape flat = {12};
    results.push_back(b.view(x, ir::transpose_view(x.shape(), swap)));
    results.push_back(b.view(x, *ir::reshape_view(x.shape(), flat)));
    inputs.push_back(numbers(dtype, {3, 4}, 0, 0.25));
  }
  outputs(results);
  check({inputs});
}

TEST_F(CompiledGraph, ConstantsAndSizes) {
  const Dim n = symbol("n");
  const X x = input({n, 3});
  const X w = b.constant(numbers(DType::f32, {4, 3}));
  const int swap[] = {1, 0};
  const X wt = b.view(w, ir::transpose_view(w.shape(), swap));
  const Dim sizes[] = {n, n * n + Dim(1), floordiv(n + Dim(3), Dim(4)), max(n, Dim(2))};
  outputs({wt, b.add1(ops::dot_op, {x, w}), b.sizes(sizes), b.size(n), w, x});
  check({{numbers(DType::f32, {2, 3})}, {numbers(DType::f32, {7, 3})}});
}

TEST_F(CompiledGraph, SizesThatValuesDecide) {
  const X x = input({symbol("n")});
  const X where = b.add1(ops::non_zero_op, {x});
  const int swap[] = {1, 0};
  const X turned = b.view(where, ir::transpose_view(where.shape(), swap));
  const X doubled = b.add1(ops::add_op, {where, where});
  outputs({where, turned, doubled, b.size(where.dim(1))});
  Tensor some = numbers(DType::f32, {6});
  some.as<float>()[3] = 0;
  check({{some}, {numbers(DType::f32, {3}, 0, 0)}, {numbers(DType::f32, {0})}});
}

TEST_F(CompiledGraph, Branches) {
  const Dim n = symbol("n");
  const X condition = input({}, DType::boolean);
  const X x = input({n});
  std::vector<Graph> regions;
  for (bool first : {true, false}) {
    Graph region(context);
    Builder inner(region);
    const X y = inner.input(x.type(), "y");
    const X z = first ? inner.add1(ops::add_op, {y, y}) : y;
    const X size = inner.size(first ? n : n * 2);
    region.outputs = {z.id, size.id};
    region.output_names = {0, 0};
    regions.push_back(std::move(region));
  }
  const X operands[] = {condition, x};
  const ir::Xs results = b.add(ops::branch_op, operands, {}, std::move(regions));
  outputs({results[0], results[1]});
  for (bool taken : {true, false}) check({{numbers(DType::boolean, {}, taken, 0), numbers(DType::f32, {4})}});
}

TEST_F(CompiledGraph, LoopsWhoseValuesGrow) {
  const X trips = input({}, DType::i64);
  const X x = input({symbol("n")});
  Graph body(context);
  Builder inner(body);
  const X i = inner.input(context->scalar(DType::i64), "i");
  const X go = inner.input(context->scalar(DType::boolean), "go");
  const X carried = inner.input(context->tensor(DType::f32, {inner.dims().fresh("m")}), "carried");
  const X captured = inner.input(x.type(), "captured");
  const X halves[] = {carried, captured};
  const X longer = inner.add(ops::concat_op, halves, {int64_t{0}})[0];
  body.outputs = {go.id, longer.id, inner.add1(ops::add_op, {i, i}).id};
  body.output_names = {0, 0, 0};
  ASSERT_TRUE(inner.ok()) << inner.status().error().to_string();
  std::vector<Graph> regions;
  regions.push_back(std::move(body));
  const X operands[] = {trips, X{&b, ir::kNoValue}, x, x};
  const ir::Xs results = b.add(ops::loop_op, operands, {int64_t{1}}, std::move(regions));
  outputs({results[0], results[1], b.size(results[0].dim(0))});
  check({{numbers(DType::i64, {}, 3, 0), numbers(DType::f32, {2})},
         {numbers(DType::i64, {}, 0, 0), numbers(DType::f32, {2})}});
}

TEST_F(CompiledGraph, Scans) {
  const Dim n = symbol("n");
  const X start = input({2});
  const X x = input({n, 2});
  Graph body(context);
  Builder inner(body);
  const X carried = inner.input(start.type(), "carried");
  const X slice = inner.input(start.type(), "slice");
  const X sum = inner.add1(ops::add_op, {carried, slice});
  body.outputs = {sum.id, sum.id};
  body.output_names = {0, 0};
  std::vector<Graph> regions;
  regions.push_back(std::move(body));
  const X operands[] = {start, x};
  const ir::Xs results = b.add(ops::scan_op, operands, {int64_t{1}, int64_t{1}}, std::move(regions));
  outputs({results[0], results[1]});
  check({{numbers(DType::f32, {2}), numbers(DType::f32, {4, 2})},
         {numbers(DType::f32, {2}), numbers(DType::f32, {0, 2})}});
}

TEST_F(CompiledGraph, Lists) {
  const X x = input({symbol("n"), 2});
  const X y = input({symbol("m"), 2});
  const X items[] = {x, y};
  const X list = b.add(ops::seq_make_op, items, {static_cast<int64_t>(DType::f32)})[0];
  outputs({list, b.add1(ops::seq_length_op, {list}), b.add1(ops::seq_at_op, {list, b.integer(1)})});
  check({{numbers(DType::f32, {2, 2}), numbers(DType::f32, {3, 2})}});
}

TEST_F(CompiledGraph, BrokenAssumptionsAreTold) {
  const X x = input({symbol("n")});
  graph.guards.push_back({ir::Guard::Kind::at_most, symbol("n"), 4});
  outputs({b.add1(ops::add_op, {x, x})});
  auto compiled = compile(graph.clone(), {});
  ASSERT_TRUE(compiled.has_value()) << compiled.error().to_string();
  ExecuteReport report;
  auto got = (*compiled)->run(std::vector<Value>{numbers(DType::f32, {5})}, {}, report);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(report.failed_assumption, "the plan assumes n <= 4");
}

TEST_F(CompiledGraph, WeightsArePackedOnceAndTheirSourceIsReleased) {
  const X x = input({symbol("n"), 8});
  const Tensor weights = numbers(DType::f32, {8, 20}, -2, 0.03);  // [K, N], as MatMul has them
  const X w = b.constant(weights);
  const int swap[] = {1, 0};
  const X transposed = b.view(w, ir::transpose_view(w.shape(), swap));
  // Twice the same product, and one of half of the weights: two packed forms of one constant.
  const X half = b.view(transposed, ir::slice_view(transposed.shape(), 0, 10, 1, 10));
  outputs({b.add1(ops::linear_op, {x, transposed}), b.add1(ops::linear_op, {x, half}),
           b.add1(ops::linear_op, {b.add1(ops::neg_op, {x}), transposed})});
  std::vector<const void*> released;
  CompileOptions options;
  options.pipeline.level = 0;  // views of constants stay views
  options.release_source = [&](const void* data, size_t) { released.push_back(data); };
  auto plan = compile_plan(graph, options);
  ASSERT_TRUE(plan.has_value()) << plan.error().to_string();
  EXPECT_EQ(released, std::vector<const void*>{weights.data()});
  EXPECT_EQ(plan->isa, kernels::chosen_set().value()->isa());
  size_t packed = 0;
  for (const plan::Value& value : plan->main().values)
    packed += value.packed && plan->constants[value.index].bytes() > 0;
  EXPECT_EQ(packed, 3u);                  // operands
  EXPECT_EQ(plan->constants.size(), 3u);  // nothing, and the two forms
  check({{numbers(DType::f32, {3, 8})}, {numbers(DType::f32, {1, 8})}, {numbers(DType::f32, {50, 8})}});

  // Kernels of another instruction set, or constants of other sizes, must not read them.
  plan::Plan other = *plan;
  other.isa = "other";
  const auto refused = run_plan(std::make_shared<const plan::Plan>(other), {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::artifact_isa);
  other = *plan;
  other.constants.back() = Tensor::make(DType::u8, {8}).value();
  const auto corrupt = run_plan(std::make_shared<const plan::Plan>(other), {});
  ASSERT_FALSE(corrupt.has_value());
  EXPECT_EQ(corrupt.error().code, Code::plan_invalid);
}

}  // namespace
}  // namespace tessera::engine
