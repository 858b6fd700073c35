// One session, many shapes: plans are made once a shape, fast, and memory is given back after a peak.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/memory.h"
#include "engine/compare.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ops/math.h"
#include "ops/ops.h"
#include "tessera/session.h"

namespace tessera {
namespace {

using ir::X;

constexpr int64_t kChannels = 16, kHeads = 2;

class Encoder {
 public:
  // x [batch, seq, C] -> y, as exports spell it.
  std::string text(int layers) {
    ir::Graph graph(std::make_shared<ir::Context>());
    ir::Builder b(graph);
    batch_ = graph.dims().symbol("batch");
    seq_ = graph.dims().symbol("seq");
    X x = b.input(b.context().tensor(DType::f32, {batch_, seq_, kChannels}), "x");
    for (int i = 0; i < layers; ++i) {
      x = norm(b, attention(b, x) + x);
      X h = linear(b, x, 2 * kChannels);
      h = h * (b.add1(ops::erf_op, {h / 1.41421356}) + 1.0) * 0.5;
      x = norm(b, linear(b, h, kChannels) + x);
    }
    EXPECT_TRUE(b.status()) << b.status().error().message;
    graph.outputs = {x.id};
    graph.output_names = {graph.context().name("y")};
    EXPECT_TRUE(graph.compact());
    return ir::print(graph, ir::PrintOptions());
  }

 private:
  X weight(ir::Builder& b, Dims shape) {
    Tensor tensor = *Tensor::make(DType::f32, std::move(shape));
    std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
    for (int64_t i = 0; i < tensor.count(); ++i) tensor.as<float>()[i] = uniform(generator_);
    return b.constant(std::move(tensor));
  }
  X linear(ir::Builder& b, X x, int64_t outputs) {
    const int64_t inputs = x.shape().back().value();
    return b.add1(ops::dot_op, {x, transpose(weight(b, {inputs, outputs}), {1, 0})}) + weight(b, {outputs});
  }
  X norm(ir::Builder& b, X x) {
    const X centred = x - mean(x, {-1});
    return centred / sqrt(mean(centred * centred, {-1}) + 1e-5) * weight(b, {kChannels}) + weight(b, {kChannels});
  }
  X attention(ir::Builder& b, X x) {
    const auto heads = [&](X y) {
      return transpose(reshape(y, {batch_, seq_, kHeads, kChannels / kHeads}), {0, 2, 1, 3});
    };
    const X q = heads(linear(b, x, kChannels)), k = heads(linear(b, x, kChannels)), v = heads(linear(b, x, kChannels));
    const X scores = b.add1(ops::dot_op, {q, k}) * 0.35355339;
    const X weights = b.add1(ops::softmax_op, {scores});
    const X y = b.add1(ops::dot_op, {weights, transpose(v, {0, 1, 3, 2})});
    return linear(b, reshape(transpose(y, {0, 2, 1, 3}), {batch_, seq_, kChannels}), kChannels);
  }

  Dim batch_, seq_;
  std::mt19937 generator_{5};
};

Model encoder(int layers, std::vector<DimRange> dims = {}) {
  const auto text = std::make_shared<const std::string>(Encoder().text(layers));
  auto model = Model::from_memory(std::as_bytes(std::span(*text)), "", {std::move(dims)}, text);
  EXPECT_TRUE(model) << model.error().to_string();
  return *model;
}

Tensor input(int64_t batch, int64_t seq, unsigned seed = 1) {
  Tensor tensor = *Tensor::make(DType::f32, {batch, seq, kChannels});
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < tensor.count(); ++i) tensor.as<float>()[i] = normal(generator);
  return tensor;
}

TEST(Shapes, AThousandRandomOnesAreRightAndPlannedOnce) {
  const Model model = encoder(1);
  const auto session = Session::create(model), reference = Session::create(model, {.reference = true});
  ASSERT_TRUE(session) << session.error().to_string();
  ASSERT_TRUE(reference);
  EXPECT_EQ(session->statistics().host_steps, 0);
  std::mt19937 generator(11);
  std::vector<double> plan_ms;
  std::vector<std::pair<int64_t, int64_t>> recent;  // the order in which sizes were used last, the latest at the end
  for (unsigned i = 0; i < 1000; ++i) {
    const int64_t batch = std::uniform_int_distribution<int64_t>(1, 4)(generator);
    const int64_t seq = std::uniform_int_distribution<int64_t>(1, 14)(generator);
    const NamedValue x[] = {{"x", input(batch, seq, i)}};
    const int64_t before = session->statistics().shapes_planned;
    const auto actual = session->run(x), expected = reference->run(x);
    ASSERT_TRUE(actual) << actual.error().to_string();
    ASSERT_TRUE(expected);
    EXPECT_LT(engine::distance(*(*actual)[0].value.tensor(), *(*expected)[0].value.tensor()).relative, 2e-5);
    // All 56 shapes have room.
    const bool seen = std::erase(recent, std::pair(batch, seq)) > 0;
    recent.emplace_back(batch, seq);
    EXPECT_EQ(session->statistics().shapes_planned - before, seen ? 0 : 1) << batch << " x " << seq;
    if (!seen) plan_ms.push_back(session->statistics().plan_ms);
  }
  EXPECT_EQ(recent.size(), 56u);
  EXPECT_EQ(session->statistics().specialised_plans, 0) << "one plan for all sizes";
  std::sort(plan_ms.begin(), plan_ms.end());
  EXPECT_LT(plan_ms[plan_ms.size() / 2], 1.0);  // the median: other programs run beside this test
}

TEST(Shapes, MemoryIsGivenBackAfterAPeak) {
  const Model model = encoder(1);
  const auto session = Session::create(model);
  ASSERT_TRUE(session);
  const auto run = [&](int64_t batch, int64_t seq) {
    const NamedValue x[] = {{"x", input(batch, seq)}};
    ASSERT_TRUE(session->run(x));
  };
  run(1, 16);
  const uint64_t before = resident_set().now;
  run(64, 4096);  // 16 MB a hidden value
  EXPECT_GT(session->statistics().arena_bytes, int64_t{16} << 20);
  for (int i = 0; i < 5; ++i) run(1, 16);
  EXPECT_LT(session->statistics().arena_bytes, int64_t{1} << 16);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep freed memory
  EXPECT_LT(resident_set().now, before + (uint64_t{8} << 20));
#else
  static_cast<void>(before);
#endif
}

TEST(Shapes, SizesOutsideOfWhatIsDeclaredAreErrors) {
  const auto fails = [](const Model& model, int64_t batch, int64_t seq, std::vector<std::string> says) {
    for (const bool reference : {false, true}) {
      const auto session = Session::create(model, {.reference = reference});
      ASSERT_TRUE(session) << session.error().to_string();
      const NamedValue x[] = {{"x", input(batch, seq)}};
      const auto outputs = session->run(x);
      ASSERT_EQ(outputs.has_value(), says.empty());
      if (says.empty()) continue;
      EXPECT_EQ(outputs.error().code, Code::dim_out_of_bounds);
      for (const std::string& part : says)
        EXPECT_NE(outputs.error().message.find(part), std::string::npos) << outputs.error().message;
    }
  };
  const Model range = encoder(1, {{"seq", 2, 8}});
  fails(range, 3, 8, {});
  fails(range, 3, 2, {});
  fails(range, 3, 9, {"'seq'", "9", "[2, 8]", "'x'"});
  fails(range, 3, 1, {"'seq'", "1", "[2, 8]", "'x'"});
  const Model bucket = encoder(1, {{"seq", 4, 8, {4, 8}}});
  fails(bucket, 1, 4, {});
  fails(bucket, 5, 8, {});
  fails(bucket, 5, 6, {"'seq'", "6", "one of 4, 8"});
  fails(bucket, 5, 16, {"'seq'", "16", "[4, 8]"});
  const Model fixed = encoder(1, {{"seq", 4, 4}, {"batch", 1, 1}});
  fails(fixed, 1, 4, {});
  fails(fixed, 1, 5, {"'seq'", "5", "[4, 4]"});
}

TEST(Shapes, UnknownNamesSayWhatThereIs) {
  const std::string text = Encoder().text(1);
  const auto model = Model::from_memory(std::as_bytes(std::span(text)), "", {{{"sequence", 1, 8}}});
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("'sequence'"), std::string::npos);
  EXPECT_NE(model.error().message.find("'seq'"), std::string::npos);
  EXPECT_NE(model.error().message.find("'batch'"), std::string::npos);
}

TEST(Shapes, WithoutReuseEveryIntermediateHasItsOwnMemory) {
  const Model model = encoder(2);
  int64_t arena[2];
  for (const bool reuse : {false, true}) {
    SessionOptions options;
    options.compile.reuse_memory = reuse;
    const auto session = Session::create(model, options);
    ASSERT_TRUE(session);
    const NamedValue x[] = {{"x", input(2, 8)}};
    ASSERT_TRUE(session->run(x));
    arena[reuse] = session->statistics().arena_bytes;
  }
  EXPECT_GT(arena[false], 2 * arena[true]);
}

}  // namespace
}  // namespace tessera
