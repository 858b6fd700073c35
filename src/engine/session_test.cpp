// The public interface, and what stands around it: comparing values, skip files, random inputs.
#include "tessera/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "engine/compare.h"
#include "engine/conformance.h"
#include "engine/random_inputs.h"

namespace tessera {
namespace {

constexpr std::string_view kDouble = R"(graph "double" {
  dim n in [1, 100]
  in %0 "x": f32[n, 2]
  in %1 "y": f32[n, 2]
  %2 "sum": f32[n, 2] = add(%0, %1)
  out %2 "sum"
  out %0 "same"
}
)";

Model double_model() {
  auto model = Model::from_memory(std::as_bytes(std::span(kDouble)));
  EXPECT_TRUE(model) << model.error().to_string();
  return *model;
}

Tensor floats(Dims shape, float value) {
  Tensor tensor = Tensor::make(DType::f32, std::move(shape)).value();
  std::fill_n(tensor.as<float>(), tensor.count(), value);
  return tensor;
}

TEST(Session, RunsInputsInAnyOrder) {
  const Model model = double_model();
  ASSERT_EQ(model.inputs().size(), 2u);
  EXPECT_EQ(model.inputs()[0].type, "f32[n, 2]");
  EXPECT_EQ(model.inputs()[0].sizes, (Dims{-1, 2}));
  for (const bool reference : {false, true}) {
    const auto session = Session::create(model, {.reference = reference});
    ASSERT_TRUE(session) << session.error().to_string();
    const NamedValue inputs[] = {{"y", floats({3, 2}, 2)}, {"x", floats({3, 2}, 1)}};
    const auto outputs = session->run(inputs);
    ASSERT_TRUE(outputs) << outputs.error().to_string();
    ASSERT_EQ(outputs->size(), 2u);
    EXPECT_EQ((*outputs)[0].name, "sum");
    EXPECT_EQ((*outputs)[0].value.tensor()->as<float>()[5], 3);
    EXPECT_EQ((*outputs)[1].value.tensor()->as<float>()[5], 1);
    EXPECT_EQ(session->statistics().runs, 1);
    EXPECT_EQ(session->statistics().isa == "reference", reference);
  }
}

TEST(Session, WritesIntoTheCallersMemory) {
  const auto session = Session::create(double_model());
  ASSERT_TRUE(session);
  const NamedValue inputs[] = {{"x", floats({1, 2}, 1)}, {"y", floats({1, 2}, 2)}};
  const NamedValue memory[] = {{"sum", floats({1, 2}, 0)}};
  const auto outputs = session->run(inputs, {.outputs = memory});
  ASSERT_TRUE(outputs) << outputs.error().to_string();
  EXPECT_EQ((*outputs)[0].value.tensor()->data(), memory[0].value.tensor()->data());
  EXPECT_EQ(memory[0].value.tensor()->as<float>()[1], 3);
}

TEST(Session, RunsOnSeveralThreadsAtOnce) {
  const auto session = Session::create(double_model());
  ASSERT_TRUE(session);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const int64_t n = 1 + (t * 7 + i) % 20;
        const NamedValue inputs[] = {{"x", floats({n, 2}, static_cast<float>(t))}, {"y", floats({n, 2}, 1)}};
        const auto outputs = session->run(inputs);
        wrong += !outputs || (*outputs)[0].value.tensor()->as<float>()[2 * n - 1] != static_cast<float>(t + 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(session->statistics().runs, 200);
}

TEST(Session, RefusesWrongInputs) {
  const auto session = Session::create(double_model());
  ASSERT_TRUE(session);
  const Value good = floats({3, 2}, 1);
  const Value doubles = Tensor::make(DType::f64, {3, 2}).value();
  const struct {
    std::vector<NamedValue> inputs;
    Code code;
    std::string_view says;
  } cases[] = {
      {{{"x", good}}, Code::input_missing, "'y' (f32[n, 2])"},
      {{{"x", good}, {"Y", good}}, Code::input_unknown, "'Y'"},
      {{{"x", good}, {"x", good}}, Code::duplicate_name, "'x'"},
      {{{"x", good}, {"y", doubles}}, Code::dtype_mismatch, "f64[3, 2]"},
      {{{"x", good}, {"y", Sequence{}}}, Code::dtype_mismatch, "sequence"},
      {{{"x", good}, {"y", floats({3}, 1)}}, Code::rank_mismatch, "f32[3]"},
      {{{"x", good}, {"y", floats({3, 1}, 1)}}, Code::shape_mismatch, "axis 1 is 1, not 2"},
      {{{"x", good}, {"y", floats({4, 2}, 1)}}, Code::shape_mismatch, "'n' is 3 in input 'x' but 4 in input 'y'"},
      {{{"x", floats({101, 2}, 1)}, {"y", floats({101, 2}, 1)}}, Code::dim_out_of_bounds, "101"},
  };
  for (const auto& c : cases) {
    const auto outputs = session->run(c.inputs);
    ASSERT_FALSE(outputs) << c.says;
    EXPECT_EQ(outputs.error().code, c.code) << outputs.error().to_string();
    EXPECT_NE(outputs.error().message.find(c.says), std::string::npos) << outputs.error().message;
  }
}

TEST(Session, StopsWhenAsked) {
  const auto session = Session::create(double_model());
  ASSERT_TRUE(session);
  const std::atomic<bool> stop = true;
  const NamedValue inputs[] = {{"x", floats({1, 2}, 1)}, {"y", floats({1, 2}, 2)}};
  const auto outputs = session->run(inputs, {.stop = &stop});
  ASSERT_FALSE(outputs);
  EXPECT_EQ(outputs.error().code, Code::interrupted);
}

TEST(Compare, AllowsRoundingAndNothingElse) {
  const Tensor one = floats({2}, 1);
  EXPECT_FALSE(engine::difference(floats({2}, 1.0005F), one));
  EXPECT_TRUE(engine::difference(floats({2}, 1.01F), one));
  EXPECT_TRUE(engine::difference(floats({2, 1}, 1), one));
  EXPECT_FALSE(engine::difference(floats({2}, NAN), floats({2}, NAN)));
  EXPECT_TRUE(engine::difference(floats({2}, NAN), one));
  EXPECT_TRUE(engine::difference(floats({2}, INFINITY), one));
  EXPECT_TRUE(engine::difference(one, floats({2}, INFINITY)));
  EXPECT_FALSE(engine::difference(floats({0}, 1), floats({0}, 1)));
  EXPECT_TRUE(engine::difference(one, Sequence{DType::f32, {one}}));
  EXPECT_FALSE(engine::difference(Sequence{DType::f32, {one}}, Sequence{DType::f32, {one}}));
  EXPECT_TRUE(engine::difference(Optional{}, Optional{std::make_shared<const Value>(one)}));
  EXPECT_FALSE(engine::difference_of_random(floats({2}, 1), one));
  EXPECT_TRUE(engine::difference_of_random(floats({2}, 2), one));

  const engine::Distance distance = engine::distance(floats({2}, 3), one);
  EXPECT_EQ(distance.max_abs, 2);
  EXPECT_EQ(distance.relative, 2);
  EXPECT_NEAR(distance.cosine, 1, 1e-12);
}

TEST(Conformance, ReadsSkipFiles) {
  const auto rules = engine::parse_skips("# comment\n\n a_*\tfor a reason \nb shape-only drawn at random");
  ASSERT_TRUE(rules) << rules.error().to_string();
  ASSERT_EQ(rules->size(), 2u);
  EXPECT_EQ((*rules)[0].glob, "a_*");
  EXPECT_EQ((*rules)[0].reason, "for a reason");
  EXPECT_FALSE((*rules)[0].shape_only);
  EXPECT_EQ((*rules)[1].reason, "drawn at random");
  EXPECT_TRUE((*rules)[1].shape_only);
  EXPECT_FALSE(engine::parse_skips("a_* shape-only"));
}

TEST(RandomInputs, FollowNamesAndTypes) {
  auto made = [](const char* name, DType dtype) {
    ValueInfo info;
    info.name = name;
    info.dtype = dtype;
    info.shape = {"2", "3"};
    info.sizes = {2, 3};
    return *engine::random_input(info, 1).value().tensor();
  };
  EXPECT_EQ(made("attention_mask", DType::i64).as<int64_t>()[5], 1);
  EXPECT_EQ(made("token_type_ids", DType::i64).as<int64_t>()[5], 0);
  EXPECT_EQ(made("position_ids", DType::i64).as<int64_t>()[5], 2);
  const Tensor ids = made("input_ids", DType::i64);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(ids.as<int64_t>()[i] > 0 && ids.as<int64_t>()[i] < 10);
  EXPECT_FALSE(engine::difference(made("x", DType::f32), made("x", DType::f32)));
  EXPECT_TRUE(engine::difference(made("x", DType::f32), made("y", DType::f32)));
  ValueInfo unknown;
  unknown.shape = {"n"};
  unknown.sizes = {-1};
  EXPECT_FALSE(engine::random_input(unknown, 1));
}

}  // namespace
}  // namespace tessera
