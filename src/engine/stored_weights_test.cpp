// Weights in blocks and halves: the operators that graphs get for them, and what compiled graphs compute.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/compiled.h"
#include "ir/interpreter.h"
#include "ops/math.h"
#include "passes/driver.h"
#include "tensor/block.h"

namespace tessera::engine {
namespace {

using ir::X;

Tensor weights(DType dtype, Dims shape) {
  Tensor t = Tensor::make(DType::f32, std::move(shape)).value();
  for (int64_t i = 0; i < t.count(); ++i) t.as<float>()[i] = std::sin(0.7f * static_cast<float>(i * i % 1009));
  return convert_weights(t, dtype).value();
}

// y = table[ids] w^T + b
ir::Graph model(DType dtype) {
  ir::Graph graph(std::make_shared<ir::Context>());
  ir::Builder b(graph);
  const X ids = b.input(graph.context().tensor(DType::i64, {b.dims().symbol("tokens")}), "ids");
  const X table = decoded(b.constant(weights(dtype, {19, 512})));
  const X w = decoded(b.constant(weights(dtype, {33, 512})));
  const X bias = b.constant(weights(DType::f32, {33}));
  const X y = b.add1(ops::linear_op, {gather(table, ids, 0), w, bias});
  EXPECT_TRUE(b.ok()) << b.status().error().to_string();
  graph.outputs = {y.id};
  graph.output_names = {graph.context().name("y")};
  return graph;
}

std::string ops_of(const ir::Graph& graph) {
  std::string text;
  for (ir::NodeId n = 0; n < graph.node_count(); ++n)
    if (graph.node(n).n_operands > 0) text += (text.empty() ? "" : " ") + std::string(graph.node(n).op->name);
  return text;
}

double distance(const Tensor& a, const Tensor& b) {
  double off = 0, all = 0;
  for (int64_t i = 0; i < a.count(); ++i) {
    const auto x = static_cast<double>(a.as<float>()[i]), y = static_cast<double>(b.as<float>()[i]);
    off += (x - y) * (x - y);
    all += y * y;
  }
  return std::sqrt(off / all);
}

TEST(StoredWeights, MeetTheirOperators) {
  struct Case {
    DType dtype;
    const char *rounded, *exact;
  };
  for (const Case& c : {Case{DType::q4_k, "embedding quant_linear", "embedding dequant_linear"},
                        Case{DType::q8_0, "embedding quant_linear", "embedding dequant_linear"},
                        Case{DType::bf16, "embedding linear", "embedding dequant_linear"},
                        Case{DType::f16, "embedding linear", "embedding linear"}}) {
    for (bool exact : {false, true}) {
      ir::Graph graph = model(c.dtype);
      passes::PipelineOptions options;
      options.exact_activations = exact;
      ASSERT_TRUE(passes::run_pipeline(graph, options));
      EXPECT_EQ(ops_of(graph), exact ? c.exact : c.rounded) << name(c.dtype);
    }
  }
}

TEST(StoredWeights, ComputeWhatTheyMean) {
  std::vector<DType> types = {DType::f16, DType::bf16};
  for (int t = kPlainTypeCount; t < kDTypeCount; ++t) types.push_back(static_cast<DType>(t));
  for (DType dtype : types) {
    const ir::Graph graph = model(dtype);
    for (int64_t tokens : {1, 6}) {
      Tensor ids = Tensor::make(DType::i64, {tokens}).value();
      for (int64_t i = 0; i < tokens; ++i) ids.as<int64_t>()[i] = (5 * i + 3) % 19;
      const std::vector<ir::RefValue> inputs = {ir::to_ref(Value(ids)).value()};
      const auto want = ir::Interpreter().run(graph, inputs);
      ASSERT_TRUE(want) << want.error().to_string();
      for (int level : {0, 2})
        for (bool exact : {false, true}) {
          CompileOptions options;
          options.pool = std::make_shared<ThreadPool>(2);
          options.pipeline.level = level;
          options.pipeline.exact_activations = exact;
          const auto compiled = compile(graph.clone(), options);
          ASSERT_TRUE(compiled) << compiled.error().to_string();
          ExecuteReport report;
          const auto got = (*compiled)->run(std::vector<Value>{Value(ids)}, {}, report);
          ASSERT_TRUE(got) << got.error().to_string();
          const double off = distance(*(*got)[0].tensor(), *ir::from_ref((*want)[0]).value().tensor());
          EXPECT_LT(off, exact || level == 0 ? 1e-5 : 2e-2) << name(dtype) << " at -O" << level;
        }
    }
  }
}

}  // namespace
}  // namespace tessera::engine
