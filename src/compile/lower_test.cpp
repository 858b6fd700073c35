#include "compile/lower.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/builder.h"
#include "ops/ops.h"
#include "plan/verify.h"

namespace tessera::compile {
namespace {

using ir::Builder;
using ir::Graph;
using ir::X;
using plan::StepKind;
using plan::Storage;

class Lower : public testing::Test {
 protected:
  std::shared_ptr<ir::Context> context = std::make_shared<ir::Context>();
  Graph graph{context};
  Builder b{graph};

  Dim n() { return b.dims().symbol("n"); }
  X input(Shape shape, DType dtype = DType::f32, std::string_view name = "x") {
    return b.input(context->tensor(dtype, std::move(shape)), name);
  }
  Lowered lowered(std::vector<X> outputs) {
    EXPECT_TRUE(b.ok()) << (b.ok() ? "" : b.status().error().to_string());
    for (X x : outputs) {
      graph.outputs.push_back(x.id);
      graph.output_names.push_back(0);
    }
    Result<Lowered> made = lower(graph);
    EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().to_string());
    if (!made) return {};
    const Status ok = plan::verify(made->plan);
    EXPECT_TRUE(ok.has_value()) << (ok ? "" : ok.error().to_string());
    return std::move(*made);
  }
  static int64_t count(const plan::Routine& r, StepKind kind) {
    return std::ranges::count_if(r.steps, [&](const plan::Step& step) { return step.kind == kind; });
  }
};

X transposed(Builder& b, X x) {
  const int permutation[] = {1, 0};
  return b.view(x, ir::transpose_view(x.shape(), permutation));
}

TEST_F(Lower, ViewsBecomeStridedOperandsOrCopies) {
  const X x = input({n(), 4});
  const Lowered made = lowered({transposed(b, x)});
  const plan::Routine& r = made.plan.main();
  ASSERT_EQ(r.steps.size(), 1u);
  EXPECT_EQ(made.plan.kernels[r.steps[0].op].kernel, "copy");
  const plan::Value& from = r.values[r.operands(r.steps[0])[0]];
  EXPECT_EQ(from.storage, Storage::view);
  EXPECT_EQ(from.base, r.inputs[0]);
}

TEST_F(Lower, ReshapesCostNothing) {
  const X x = input({n(), 4});
  const Dim rows = n() * 2;
  const Shape to = {rows, 2};
  const Lowered made = lowered({b.view(x, *ir::reshape_view(x.shape(), to))});
  EXPECT_TRUE(made.plan.main().steps.empty());
}

TEST_F(Lower, TransposedConstantsAreCopiedOnce) {
  Tensor w = Tensor::make(DType::f32, {2, 3}).value();
  for (int i = 0; i < 6; ++i) w.as<float>()[i] = static_cast<float>(i);
  const Lowered made = lowered({transposed(b, b.constant(w))});
  EXPECT_TRUE(made.plan.main().steps.empty());
  const plan::Value& out = made.plan.main().values[made.plan.main().outputs[0]];
  ASSERT_EQ(out.storage, Storage::constant);
  const Tensor& folded = made.plan.constants[out.index];
  EXPECT_EQ(folded.shape(), (Dims{3, 2}));
  EXPECT_EQ(std::vector<float>(folded.as<float>(), folded.as<float>() + 6), (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

TEST_F(Lower, OperatorsThatDecideTheirSizesAreHostSteps) {
  const X x = input({n()});
  const X where = b.add1(ops::non_zero_op, {x});
  const Lowered made = lowered({where});
  EXPECT_EQ(count(made.plan.main(), StepKind::host), 1);
  ASSERT_EQ(made.host_graphs.size(), 1u);
  EXPECT_EQ(made.plan.host_ops[0].op, "non_zero");
  EXPECT_EQ(made.host_graphs[0].inputs.size(), 1u);
  EXPECT_EQ(made.host_graphs[0].outputs.size(), 1u);
}

TEST_F(Lower, BodiesTakeSizesFromOutside) {
  const X x = input({n()});
  const X condition = input({}, DType::boolean, "condition");
  auto body = [&](bool longer) {
    Graph region(context);
    Builder inner(region);
    const X y = inner.input(context->tensor(DType::f32, {b.dims().symbol("m")}), "y");
    const X sizes = inner.size(longer ? n() + Dim(1) : n());
    region.outputs = {y.id, sizes.id};
    region.output_names = {0, 0};
    return region;
  };
  std::vector<Graph> regions;
  regions.push_back(body(true));
  regions.push_back(body(false));
  const X operands[] = {condition, x};
  const ir::Xs results = b.add(ops::branch_op, operands, {}, std::move(regions));
  const Lowered made = lowered({results[0], results[1]});
  ASSERT_EQ(made.plan.routines.size(), 3u);
  EXPECT_EQ(count(made.plan.main(), StepKind::branch), 1);
  EXPECT_TRUE(std::ranges::any_of(made.plan.routines[1].symbols, [](const plan::Symbol& s) {
    return s.source == plan::Symbol::Source::outer && s.name == "n";
  }));
}

TEST_F(Lower, GuardsComeAlong) {
  const X x = input({n()});
  graph.guards.push_back({ir::Guard::Kind::divisible, n(), 8});
  const Lowered made = lowered({x});
  ASSERT_EQ(made.plan.main().guards.size(), 1u);
  EXPECT_EQ(made.plan.main().guards[0].what, "n divisible by 8");
}

TEST_F(Lower, SizesThatNothingDecidesAreErrors) {
  const X sizes = b.size(b.dims().symbol("ghost"));
  graph.outputs.push_back(sizes.id);
  graph.output_names.push_back(0);
  const Result<Lowered> made = lower(graph);
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, Code::plan_invalid);
  EXPECT_NE(made.error().message.find("ghost"), std::string::npos);
}

}  // namespace
}  // namespace tessera::compile
