#include "runtime/session.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "kernels/dispatch.h"
#include "plan/plan_maker.h"
#include "runtime/frame.h"

namespace tessera::runtime {
namespace {

using plan::kNone;
using plan::PlanMaker;
using plan::Step;
using plan::StepKind;
using plan::Storage;
using plan::ValueId;

Tensor floats(Dims dims, std::vector<float> values) {
  Tensor t = Tensor::make(DType::f32, std::move(dims)).value();
  EXPECT_EQ(t.count(), static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), t.as<float>());
  return t;
}
Tensor integer(int64_t value) {
  Tensor t = Tensor::make(DType::i64, {}).value();
  *t.as<int64_t>() = value;
  return t;
}
Tensor boolean(bool value) {
  Tensor t = Tensor::make(DType::boolean, {}).value();
  *t.as<uint8_t>() = value;
  return t;
}
std::vector<float> list(const Value& value) {
  const Tensor& t = *value.tensor();
  return {t.as<float>(), t.as<float>() + t.count()};
}

// Host operators of the tests: "twice" and "plus_one" are pointwise, "positive" keeps the elements above 0, "less"
// compares an i64 with 5, "fails" fails.
class Fake : public HostFunction {
 public:
  explicit Fake(std::string op) : op_(std::move(op)) {}
  Result<std::vector<Value>> run(const HostCall& call) const override {
    const Tensor& x = *call.operands[0]->tensor();
    if (op_ == "less") return std::vector<Value>{boolean(*x.as<int64_t>() < 5)};
    if (op_ == "fails") return tl::unexpected(Error{Code::value_invalid, "it fails"});
    std::vector<float> values;
    for (int64_t i = 0; i < x.count(); ++i) {
      const float v = x.as<float>()[i];
      if (op_ == "twice") values.push_back(2 * v);
      if (op_ == "plus_one") values.push_back(v + 1);
      if (op_ == "positive" && v > 0) values.push_back(v);
    }
    Dims dims = op_ == "positive" ? Dims{static_cast<int64_t>(values.size())} : x.shape();
    return std::vector<Value>{floats(std::move(dims), std::move(values))};
  }

 private:
  std::string op_;
};

std::unique_ptr<Session> session_of(const PlanMaker& m, SessionOptions options = {}) {
  options.host = [](const plan::HostOp& op) -> Result<std::unique_ptr<HostFunction>> {
    return std::make_unique<Fake>(op.op);
  };
  if (options.threads == 0) options.threads = 2;
  auto session = Session::make(m.done(), std::move(options));
  EXPECT_TRUE(session.has_value()) << session.error().to_string();
  return session ? std::move(*session) : nullptr;
}

// x [n, 3] -> transposed copy [3, n]
PlanMaker transposing() {
  PlanMaker m;
  const ValueId x = m.input("x", DType::f32, {-1, 3});
  const plan::ExprId n = m.r().shape(x)[0];
  const ValueId dense = m.copy(m.copy(x));
  m.output(m.copy(m.view(dense, {m.c(3), n}, {m.c(1), m.c(3)}, m.c(0))), "y");
  return m;
}

TEST(Session, RunsKernelsForSeveralShapes) {
  auto session = session_of(transposing());
  for (int64_t n : {0, 1, 2, 7, 2}) {
    std::vector<float> values(static_cast<size_t>(3 * n));
    std::iota(values.begin(), values.end(), 0.f);
    auto results = session->run(std::vector<Value>{floats({n, 3}, values)});
    ASSERT_TRUE(results.has_value()) << results.error().to_string();
    const std::vector<float> y = list(results->at(0));
    ASSERT_EQ(results->at(0).tensor()->shape(), (Dims{3, n}));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k < 3; ++k)
        EXPECT_EQ(y[static_cast<size_t>(k * n + i)], values[static_cast<size_t>(i * 3 + k)]);
  }
  EXPECT_EQ(session->cached_shapes(), 4u);
}

TEST(Session, KeepsABoundedNumberOfShapes) {
  SessionOptions options;
  options.cached_shapes = 3;
  auto session = session_of(transposing(), options);
  for (int64_t n = 1; n < 20; ++n)
    ASSERT_TRUE(
        session->run(std::vector<Value>{floats({n, 3}, std::vector<float>(static_cast<size_t>(3 * n)))}).has_value());
  EXPECT_EQ(session->cached_shapes(), 3u);
  options.cached_shapes = 100;
  options.cached_shape_bytes = 1;  // less than one takes: the last one stays
  session = session_of(transposing(), options);
  for (int64_t n = 1; n < 20; ++n)
    ASSERT_TRUE(
        session->run(std::vector<Value>{floats({n, 3}, std::vector<float>(static_cast<size_t>(3 * n)))}).has_value());
  EXPECT_EQ(session->cached_shapes(), 1u);
}

TEST(Session, ReportsItsMemory) {
  auto session = session_of(transposing());
  RunReport report;
  ASSERT_TRUE(session->run(std::vector<Value>{floats({64, 3}, std::vector<float>(192))}, {}, &report).has_value());
  EXPECT_EQ(report.live_set_bound_bytes, 2u * 768);
  EXPECT_EQ(report.arena_bytes, 2u * 768);
  EXPECT_EQ(report.peak_activation_bytes, 3u * 768);
}

TEST(Workspace, FollowsALastingFallInNeed) {
  constexpr size_t kLarge = size_t{64} << 20, kSmall = 4096;
  Workspace memory;
  for (int i = 0; i < 8; ++i) {  // alternating needs keep it
    ASSERT_TRUE(memory.begin(kLarge));
    ASSERT_TRUE(memory.begin(kSmall));
    EXPECT_EQ(memory.size(), kLarge);
  }
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(memory.begin(kSmall));
  EXPECT_EQ(memory.size(), kSmall);
  // What steps ask for on the way counts too.
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(memory.begin(kSmall));
    ASSERT_TRUE(memory.grow(kLarge));
    EXPECT_EQ(memory.size(), kLarge);
  }
}

TEST(Session, WritesIntoTheCallersMemory) {
  auto session = session_of(transposing());
  std::vector<float> memory(6, -1);
  const Tensor buffer = Tensor::borrow(DType::f32, {3, 2}, memory.data());
  RunOptions options;
  options.outputs = {&buffer, 1};
  const std::vector<Value> x = {floats({2, 3}, {1, 2, 3, 4, 5, 6})};
  auto results = session->run(x, options);
  ASSERT_TRUE(results.has_value()) << results.error().to_string();
  EXPECT_EQ(results->at(0).tensor()->data(), memory.data());
  EXPECT_EQ(memory, (std::vector<float>{1, 4, 2, 5, 3, 6}));
  const Tensor wrong = Tensor::borrow(DType::f32, {2, 3}, memory.data());
  options.outputs = {&wrong, 1};
  EXPECT_EQ(session->run(x, options).error().code, Code::shape_mismatch);
  options.outputs = {x[0].tensor(), 1};
  EXPECT_EQ(session->run(x, options).error().code, Code::value_invalid);
}

TEST(Session, CopesWithUnalignedMemory) {
  PlanMaker m;
  const ValueId x = m.input("x", DType::f32, {2});
  std::vector<char> bytes(2 * sizeof(float) + 1);
  const float values[] = {3, 4};
  std::memcpy(bytes.data() + 1, values, sizeof(values));
  const Tensor unaligned = Tensor::borrow(DType::f32, {2}, bytes.data() + 1);
  m.output(m.copy(x));
  m.output(m.copy(m.constant(unaligned)));
  SessionOptions options;
  size_t released = 0;
  options.release_source = [&](const void* data, size_t n) {
    EXPECT_EQ(data, unaligned.data());
    released += n;
  };
  auto session = session_of(m, options);
  EXPECT_EQ(released, sizeof(values));
  auto results = session->run(std::vector<Value>{unaligned});
  ASSERT_TRUE(results.has_value()) << results.error().to_string();
  EXPECT_EQ(list(results->at(0)), (std::vector<float>{3, 4}));
  EXPECT_EQ(list(results->at(1)), (std::vector<float>{3, 4}));
}

TEST(Session, OutputsThatNothingComputesAreCopies) {
  PlanMaker m;
  const ValueId x = m.input("x", DType::f32, {2});
  m.output(x);
  m.output(m.constant(floats({1}, {9})));
  const ValueId y = m.copy(x);
  m.output(y);
  m.output(y);
  auto session = session_of(m);
  const std::vector<Value> inputs = {floats({2}, {1, 2})};
  auto results = session->run(inputs);
  ASSERT_TRUE(results.has_value()) << results.error().to_string();
  EXPECT_EQ(list(results->at(0)), (std::vector<float>{1, 2}));
  EXPECT_NE(results->at(0).tensor()->data(), inputs[0].tensor()->data());
  EXPECT_EQ(list(results->at(1)), (std::vector<float>{9}));
  EXPECT_EQ(list(results->at(2)), (std::vector<float>{1, 2}));
  EXPECT_EQ(list(results->at(3)), (std::vector<float>{1, 2}));
  EXPECT_NE(results->at(2).tensor()->data(), results->at(3).tensor()->data());
}

TEST(Session, ABufferUnderAnotherShapeIsNotCopied) {
  PlanMaker m;
  const ValueId x = m.input("x", DType::f32, {-1, 2});
  const plan::ExprId n = m.r().shape(x)[0];
  const ValueId y = m.copy(m.copy(x));
  m.output(m.view(y, {m.c(2), n}, {n, m.c(1)}, m.c(0)));
  m.output(m.view(y, {n}, {m.c(1)}, n));
  auto session = session_of(m);
  RunReport report;
  auto results = session->run(std::vector<Value>{floats({3, 2}, {1, 2, 3, 4, 5, 6})}, {}, &report);
  ASSERT_TRUE(results.has_value()) << results.error().to_string();
  EXPECT_EQ(report.arena_bytes, 64u);
  EXPECT_EQ(results->at(0).tensor()->shape(), (Dims{2, 3}));
  EXPECT_EQ(list(results->at(0)), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(list(results->at(1)), (std::vector<float>{4, 5, 6}));
}

TEST(Session, HostStepsDecideLaterSizes) {
  PlanMaker m;
  const ValueId x = m.input("x", DType::f32, {-1});
  const plan::ExprId n = m.dim("n", static_cast<ValueId>(m.r().values.size()), 0);
  const ValueId picked = m.host("positive", {m.copy(x)}, DType::f32, {n});
  // The symbol was made for the value before the copy: correct it.
  m.r().symbols.back().value = picked;
  const ValueId late = m.copy(picked);
  m.output(late, "y");
  m.output(m.host("twice", {late}, DType::f32, {n}));
  auto session = session_of(m);
  auto results = session->run(std::vector<Value>{floats({5}, {1, -2, 3, -4, 5})});
  ASSERT_TRUE(results.has_value()) << results.error().to_string();
  EXPECT_EQ(list(results->at(0)), (std::vector<float>{1, 3, 5}));
  EXPECT_EQ(list(results->at(1)), (std::vector<float>{2, 6, 10}));
  results = session->run(std::vector<Value>{floats({2}, {-1, -2})});
  ASSERT_TRUE(results.has_value()) << results.error().to_string();
  EXPECT_EQ(results->at(0).tensor()->shape(), Dims{0});
}

TEST(Session, HostErrorsNameTheStep) {
  PlanMaker m;
  const ValueId x = m.input("x", DType::f32, {1});
  m.output(m.host("fails", {x}, DType::f32, {m.c(1)}));
  m.plan.sources.push_back("node 'bad' (Fails)");
  m.r().steps[0].source = 0;
  auto results = session_of(m)->run(std::vector<Value>{floats({1}, {1})});
  ASSERT_FALSE(results.has_value());
  EXPECT_TRUE(results.error().to_string().starts_with("E0505 it fails\n  while running node 'bad' (Fails)"));
}

TEST(Session, BranchesRunOneRoutine) {
  PlanMaker m;
  const ValueId condition = m.input("condition", DType::boolean, {});
  const ValueId x = m.input("x", DType::f32, {-1});
  const ValueId y = m.value(Storage::boxed, DType::f32, m.shape_of(x));
  Step& step = m.step(StepKind::branch, {condition, x}, {y});
  step.routines[0] = 1;
  step.routines[1] = 2;
  m.output(y);
  for (const char* op : {"twice", "fails"}) {
    m.routine();
    const ValueId inner = m.input("x", DType::f32, {-1});
    m.output(m.host(op, {m.copy(inner)}, DType::f32, m.shape_of(inner)));
  }
  auto session = session_of(m);
  auto results = session->run(std::vector<Value>{boolean(true), floats({2}, {1, 2})});
  ASSERT_TRUE(results.has_value()) << results.error().to_string();
  EXPECT_EQ(list(results->at(0)), (std::vector<float>{2, 4}));
  EXPECT_FALSE(session->run(std::vector<Value>{boolean(false), floats({2}, {1, 2})}).has_value());
}

// for i in range(trips), while i < 5: x = x + 1, stacking the copies of x before
PlanMaker looping() {
  PlanMaker m;
  const ValueId trips = m.input("trips", DType::i64, {});
  const ValueId x = m.input("x", DType::f32, {-1});
  const plan::ExprId n = m.r().shape(x)[0];
  const ValueId last = m.value(Storage::boxed, DType::f32, {n});
  const ValueId all = m.value(Storage::boxed, DType::f32, {m.dim("trip", last + 1, 0), n});
  Step& step = m.step(StepKind::loop, {trips, kNone, m.copy(x)}, {last, all});
  step.carried = 1;
  step.routines[0] = 1;
  m.output(last);
  m.output(all);
  m.routine();
  const ValueId i = m.input("i", DType::i64, {});
  m.input("go", DType::boolean, {});
  const ValueId c = m.input("c", DType::f32, {-1});
  m.output(m.host("less", {i}, DType::boolean, {}));
  m.output(m.host("plus_one", {m.copy(c)}, DType::f32, m.shape_of(c)));
  m.output(m.copy(c));
  return m;
}

TEST(Session, LoopsCarryAndStack) {
  auto session = session_of(looping());
  for (int64_t trips : {0, 1, 3, 100}) {
    const int64_t ran = std::min<int64_t>(trips, 6);  // the condition ends it after i == 5
    auto results = session->run(std::vector<Value>{integer(trips), floats({2}, {10, 20})});
    ASSERT_TRUE(results.has_value()) << results.error().to_string();
    EXPECT_EQ(list(results->at(0)),
              (std::vector<float>{10.f + static_cast<float>(ran), 20.f + static_cast<float>(ran)}));
    ASSERT_EQ(results->at(1).tensor()->shape(), (Dims{ran, 2}));
    for (int64_t i = 0; i < ran; ++i)
      EXPECT_EQ(list(results->at(1))[static_cast<size_t>(2 * i)], 10.f + static_cast<float>(i));
  }
}

TEST(Session, LoopsEndAtTheLimit) {
  SessionOptions options;
  options.max_iterations = 4;
  auto session = session_of(looping(), options);
  EXPECT_TRUE(session->run(std::vector<Value>{integer(4), floats({1}, {0})}).has_value());
  EXPECT_EQ(session->run(std::vector<Value>{integer(5), floats({1}, {0})}).error().code, Code::iteration_limit);
}

TEST(Session, ScansWalkSlices) {
  PlanMaker m;
  const ValueId start = m.input("start", DType::f32, {2});
  const ValueId x = m.input("x", DType::f32, {-1, 2});
  const ValueId last = m.value(Storage::boxed, DType::f32, {m.c(2)});
  const ValueId all = m.value(Storage::boxed, DType::f32, {m.r().shape(x)[0], m.c(2)});
  Step& step = m.step(StepKind::scan, {start, x}, {last, all});
  step.carried = step.scanned = 1;
  step.routines[0] = 1;
  m.output(last);
  m.output(all);
  m.routine();
  m.input("carried", DType::f32, {2});
  const ValueId slice = m.input("slice", DType::f32, {2});
  m.output(m.copy(slice));
  m.output(m.host("twice", {slice}, DType::f32, {m.c(2)}));
  auto session = session_of(m);
  auto results = session->run(std::vector<Value>{floats({2}, {7, 8}), floats({3, 2}, {1, 2, 3, 4, 5, 6})});
  ASSERT_TRUE(results.has_value()) << results.error().to_string();
  EXPECT_EQ(list(results->at(0)), (std::vector<float>{5, 6}));
  EXPECT_EQ(list(results->at(1)), (std::vector<float>{2, 4, 6, 8, 10, 12}));
  results = session->run(std::vector<Value>{floats({2}, {7, 8}), floats({0, 2}, {})});
  ASSERT_TRUE(results.has_value()) << results.error().to_string();
  EXPECT_EQ(list(results->at(0)), (std::vector<float>{7, 8}));
  EXPECT_EQ(results->at(1).tensor()->shape(), (Dims{0, 2}));
}

TEST(Session, FailedGuardsAreTold) {
  PlanMaker m = transposing();
  m.r().guards.push_back({plan::Guard::Kind::at_most, m.r().shape(0)[0], m.c(4), "x0 <= 4"});
  auto session = session_of(m);
  RunReport report;
  EXPECT_TRUE(session->run(std::vector<Value>{floats({4, 3}, std::vector<float>(12))}, {}, &report).has_value());
  EXPECT_EQ(report.failed_guard, std::nullopt);
  auto results = session->run(std::vector<Value>{floats({5, 3}, std::vector<float>(15))}, {}, &report);
  ASSERT_FALSE(results.has_value());
  EXPECT_EQ(report.failed_guard, 0u);
  EXPECT_EQ(results.error().message, "these sizes do not fulfil x0 <= 4: x0 is 5 and 4 is 4");
}

TEST(Session, StopsWhenTold) {
  auto session = session_of(transposing());
  const std::atomic<bool> stop = true;
  RunOptions options;
  options.stop = &stop;
  EXPECT_EQ(session->run(std::vector<Value>{floats({1, 3}, {1, 2, 3})}, options).error().code, Code::interrupted);
}

TEST(Session, WrongCallsAreErrors) {
  auto session = session_of(transposing());
  EXPECT_EQ(session->run({}).error().code, Code::arity);
  EXPECT_EQ(session->run(std::vector<Value>{Value(Sequence{})}).error().code, Code::dtype_mismatch);
  EXPECT_EQ(session->run(std::vector<Value>{integer(3)}).error().code, Code::dtype_mismatch);
}

TEST(Session, EachInstructionSetRuns) {
  for (const kernels::KernelSet* set : kernels::runnable_sets()) {
    SessionOptions options;
    options.kernels = set;
    auto session = session_of(transposing(), options);
    EXPECT_EQ(session->isa(), set->isa());
    EXPECT_TRUE(session->run(std::vector<Value>{floats({1, 3}, {1, 2, 3})}).has_value());
  }
}

TEST(Session, ThreadsShareIt) {
  auto session = session_of(looping());
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 25; ++round) {
        const auto n = static_cast<size_t>(1 + (t + round) % 5);
        const float base = static_cast<float>(100 * t + round);
        auto results = session->run(
            std::vector<Value>{integer(3), floats({static_cast<int64_t>(n)}, std::vector<float>(n, base))});
        right += results && list(results->at(0)) == std::vector<float>(n, base + 3);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 100);
}

}  // namespace
}  // namespace tessera::runtime
