#include "plan/instantiate.h"

#include <gtest/gtest.h>

#include "plan/plan_maker.h"

namespace tessera::plan {
namespace {

class Instantiate : public testing::Test {
 protected:
  PlanMaker m;

  Result<Instance> make(const std::vector<Tensor>& inputs) {
    auto prepared = prepare(m.done(), kernels::compiled_sets().front());
    if (!prepared) return tl::unexpected(prepared.error());
    std::vector<tessera::Value> values(inputs.begin(), inputs.end());
    std::vector<const tessera::Value*> pointers;
    for (const tessera::Value& v : values) pointers.push_back(&v);
    const Routine& r = prepared->plan->main();
    auto symbols = bind_inputs(r, prepared->routines[0], pointers, {});
    if (!symbols) return tl::unexpected(symbols.error());
    Sizes sizes(r, *symbols);
    if (auto ok = check_inputs(r, sizes, pointers); !ok) return tl::unexpected(ok.error());
    guard_ = failed_guard(r, sizes);
    return instantiate(*prepared, 0, *symbols, sizes);
  }
  static Tensor zeros(DType dtype, Dims dims) { return Tensor::make(dtype, std::move(dims)).value(); }

  void expect_error(const std::vector<Tensor>& inputs, Code code, std::string_view part) {
    auto made = make(inputs);
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, code) << made.error().to_string();
    EXPECT_NE(made.error().message.find(part), std::string::npos) << made.error().message;
  }

  std::optional<uint32_t> guard_;
};

TEST_F(Instantiate, ChainOfCopiesReusesMemory) {
  ValueId v = m.input("x", DType::f32, {-1, 64});
  for (int i = 0; i < 6; ++i) v = m.copy(v);
  m.output(v, "y");
  auto instance = make({zeros(DType::f32, {4, 64})});
  ASSERT_TRUE(instance.has_value()) << instance.error().to_string();
  EXPECT_EQ(instance->arena_bytes, 2u * 4 * 64 * 4);
  EXPECT_EQ(instance->output_bytes, 4u * 64 * 4);
  EXPECT_EQ(instance->live_set_bound_bytes, 2u * 4 * 64 * 4);
  EXPECT_EQ(instance->places[v].in, Place::In::output);
}

TEST_F(Instantiate, ViewsKeepTheirBaseAlive) {
  const ValueId x = m.input("x", DType::f32, {16});
  const ValueId a = m.copy(x);
  const ValueId head = m.view(a, {m.c(8)}, {m.c(1)}, m.c(8));
  const ValueId b = m.copy(x);
  const ValueId c = m.copy(head);
  m.output(b);
  m.output(c);
  auto instance = make({zeros(DType::f32, {16})});
  ASSERT_TRUE(instance.has_value()) << instance.error().to_string();
  EXPECT_EQ(instance->places[a].in, Place::In::arena);
  EXPECT_EQ(instance->places[a].bytes, 64u);
  EXPECT_EQ(instance->live_set_bound_bytes, 64u + 64 + 32);
}

TEST_F(Instantiate, WrongInputsSayWhatWasExpectedAndGot) {
  const ValueId x = m.input("ids", DType::i64, {-1, 4});
  const ValueId y = m.value(Storage::input, DType::i64, {m.r().shape(x)[0]}, "mask");
  m.r().values[y].index = 1;
  m.r().inputs.push_back(y);
  m.r().symbols[0].lo = 1;
  m.r().symbols[0].hi = 8;
  m.output(m.copy(x));
  EXPECT_TRUE(make({zeros(DType::i64, {2, 4}), zeros(DType::i64, {2})}).has_value());
  expect_error({zeros(DType::i32, {2, 4}), zeros(DType::i64, {2})}, Code::dtype_mismatch,
               "input 'ids': expected i64[ids0, 4], got i32[2, 4]");
  expect_error({zeros(DType::i64, {2}), zeros(DType::i64, {2})}, Code::rank_mismatch, "input 'ids': expected 2 axes");
  expect_error({zeros(DType::i64, {2, 5}), zeros(DType::i64, {2})}, Code::shape_mismatch,
               "input 'ids': expected [ids0, 4], got [2, 5]: axis 1 is 5");
  expect_error({zeros(DType::i64, {2, 4}), zeros(DType::i64, {3})}, Code::shape_mismatch,
               "input 'mask': expected [ids0] with ids0 = 2, got [3]");
  expect_error({zeros(DType::i64, {9, 4}), zeros(DType::i64, {9})}, Code::dim_out_of_bounds,
               "input 'ids': expected 'ids0' (axis 0) to be 1 to 8, got 9");
}

TEST_F(Instantiate, GuardsAreChecked) {
  const ValueId x = m.input("x", DType::f32, {-1});
  m.r().guards.push_back({Guard::Kind::divisible, m.r().shape(x)[0], m.c(4), "x0 divisible by 4"});
  m.output(m.copy(x));
  ASSERT_TRUE(make({zeros(DType::f32, {8})}).has_value());
  EXPECT_EQ(guard_, std::nullopt);
  ASSERT_TRUE(make({zeros(DType::f32, {6})}).has_value());
  EXPECT_EQ(guard_, 0u);
}

TEST_F(Instantiate, ImpossibleSizesAreErrors) {
  const ValueId x = m.input("x", DType::f32, {-1});
  const ExprId n = m.r().shape(x)[0];
  ExprId power = n;
  for (int i = 0; i < 7; ++i) power = m.mul(power, power);
  const ValueId v = m.view(x, {power}, {m.c(0)}, m.c(0));
  m.output(m.copy(v));
  EXPECT_TRUE(make({zeros(DType::f32, {1})}).has_value());
  expect_error({zeros(DType::f32, {2})}, Code::shape_invalid, "overflows");
}

TEST_F(Instantiate, NegativeAndHugeSizesAreErrors) {
  const ValueId x = m.input("x", DType::f32, {-1});
  const ExprId n = m.r().shape(x)[0];
  const ValueId v = m.view(x, {m.add(n, m.c(-4)), m.c(int64_t{1} << 45)}, {m.c(0), m.c(0)}, m.c(0));
  m.output(m.copy(v));
  expect_error({zeros(DType::f32, {3})}, Code::shape_invalid, "is -1");
  EXPECT_TRUE(make({zeros(DType::f32, {4})}).has_value());
  expect_error({zeros(DType::f32, {9})}, Code::out_of_memory, "2^46");
}

TEST_F(Instantiate, ViewsMayNotLeaveTheirBase) {
  const ValueId x = m.input("x", DType::f32, {-1});
  m.output(m.copy(m.view(x, {m.c(4)}, {m.c(2)}, m.c(1))));
  EXPECT_TRUE(make({zeros(DType::f32, {8})}).has_value());
  expect_error({zeros(DType::f32, {7})}, Code::index_out_of_range, "elements 1 to 7");
}

TEST_F(Instantiate, SizesOfLaterStepsAreLeftOpen) {
  const ValueId x = m.input("x", DType::f32, {4});
  const auto made = static_cast<ValueId>(m.r().values.size());
  const ExprId n = m.dim("n", made, 0);
  const ValueId picked = m.host("nonzero", {x}, DType::f32, {n});
  const ValueId y = m.copy(picked);
  m.output(y);
  auto instance = make({zeros(DType::f32, {4})});
  ASSERT_TRUE(instance.has_value()) << instance.error().to_string();
  EXPECT_EQ(instance->places[y].in, Place::In::late);
  EXPECT_FALSE(instance->sizes.complete());
  EXPECT_FALSE(instance->checked[1]);
}

}  // namespace
}  // namespace tessera::plan
