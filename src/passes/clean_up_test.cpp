// The clean-up passes and the driver: what becomes of small graphs, and that they still compute the same.
#include <gtest/gtest.h>

#include <functional>

#include "ir/interpreter.h"
#include "ops/math.h"
#include "passes/driver.h"
#include "passes/pipeline.h"

namespace tessera::passes {
namespace {

using ir::Builder;
using ir::X;

ir::Graph make(const std::function<X(Builder&)>& write) {
  ir::Graph graph(std::make_shared<ir::Context>());
  Builder builder(graph);
  const X y = write(builder);
  EXPECT_TRUE(builder.status()) << builder.status().error().message;
  graph.outputs = {y.id};
  graph.output_names = {graph.context().name("y")};
  return graph;
}

X float_input(Builder& b, Shape shape, const char* name = "x") {
  return b.input(b.context().tensor(DType::f32, std::move(shape)), name);
}

// "name name ..." of the nodes in order.
std::string ops_of(const ir::Graph& graph) {
  std::string text;
  for (ir::NodeId n = 0; n < graph.node_count(); ++n) text += (n ? " " : "") + std::string(graph.node(n).op->name);
  return text;
}

// The elements of the first output for x = 1, 2, ... in every input, symbols bound to 3.
std::vector<double> run(const ir::Graph& graph) {
  std::vector<ir::RefValue> inputs;
  for (ir::ValueId v : graph.inputs) {
    Dims shape;
    for (Dim d : graph.type(v)->shape) shape.push_back(d.is_const() ? d.value() : 3);
    ir::Array array = *ir::make_array(graph.type(v)->dtype, shape);
    for (size_t i = 0; i < array.of<double>().size(); ++i) array.of<double>()[i] = static_cast<double>(i) - 1.5;
    inputs.push_back({std::make_shared<const ir::Array>(std::move(array))});
  }
  auto results = ir::Interpreter().run(graph, inputs);
  EXPECT_TRUE(results) << results.error().message;
  if (!results) return {};
  const ir::Array& y = results->at(0).array();
  if (y.is_real()) return y.of<double>();
  return {y.of<ir::Int>().begin(), y.of<ir::Int>().end()};
}

struct Case {
  const char* name;
  std::function<X(Builder&)> write;
  const char* ops;  // what is left
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"constants fold", [](Builder& b) { return float_input(b, {2}) * sqrt(b.scalar(DType::f32, 4)); },
       "constant mul"},
      {"equal work merges",
       [](Builder& b) {
         X x = float_input(b, {2});
         return exp(x) + exp(x);
       },
       "exp add"},
      {"the order of a sum does not matter",
       [](Builder& b) {
         X x = float_input(b, {2}), y = float_input(b, {2}, "y");
         return (x + y) - (y + x);
       },
       "add sub"},
      {"the order of a difference does",
       [](Builder& b) {
         X x = float_input(b, {2}), y = float_input(b, {2}, "y");
         return (x - y) * (y - x);
       },
       "sub sub mul"},
      {"times one", [](Builder& b) { return exp(1.0 * (float_input(b, {2}) * 1.0) / 1.0); }, "exp"},
      {"times one that broadcasts stays",
       [](Builder& b) {
         return float_input(b, {2}) * broadcast(b.scalar(DType::f32, 1), {3, 2});
       },
       "constant mul"},
      {"plus zero changes the sign of a zero", [](Builder& b) { return float_input(b, {2}) + 0.0; }, "constant add"},
      {"minus zero does not", [](Builder& b) { return exp(float_input(b, {2}) - 0.0); }, "exp"},
      {"views compose",
       [](Builder& b) {
         X x = float_input(b, {2, 3});
         return exp(swap_axes(swap_axes(x, 0, 1), 0, 1));
       },
       "exp"},
      {"sizes are read from the shape",
       [](Builder& b) {
         Dim n = b.dims().symbol("n");
         X x = float_input(b, {n, 4});
         return x * cast(b.size(n) * b.integer(2), DType::f32);
       },
       "dims view cast mul"},
      {"known sizes are constants",
       [](Builder& b) {
         X x = float_input(b, {2, 4});
         return x * cast(b.size(x.dim(0)) * b.integer(2), DType::f32);
       },
       "constant mul"},
  };
  return all;
}

TEST(CleanUp, Table) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    ir::Graph graph = make(c.write);
    const std::vector<double> before = run(graph);
    Result<PassReport> report = run_pipeline(graph, {.level = 1});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(ops_of(graph), c.ops);
    EXPECT_EQ(run(graph), before);
  }
}

TEST(CleanUp, ImpureStays) {
  ir::OpDef noise = ops::exp_op;
  noise.pure = false;
  ir::Graph graph = make([&](Builder& b) {
    X x = float_input(b, {2});
    return b.add1(noise, {x}) + b.add1(noise, {x});
  });
  ASSERT_TRUE(run_pipeline(graph, {}));
  EXPECT_EQ(ops_of(graph), "exp exp add");
}

ir::Graph twice_four() {
  return make([](Builder& b) {
    X x = float_input(b, {2});
    const X two = sqrt(b.scalar(DType::f32, 4));
    return exp(x * 1.0) + exp(x) + two;
  });
}

TEST(Driver, CountsAndReports) {
  ir::Graph graph = twice_four();
  Result<PassReport> report = run_pipeline(graph, {.level = 1});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->rules.at("constant"), 1);
  EXPECT_EQ(report->rules.at("times_one"), 1);
  EXPECT_EQ(report->rules.at("cse"), 1);
  EXPECT_EQ(report->stages.size(), 9u);  // those of -O1
  EXPECT_FALSE(report->stopped);
}

TEST(Driver, StopsAfterEachCount) {
  const std::vector<double> expected = [] {
    ir::Graph graph = twice_four();
    return run(graph);
  }();
  for (int64_t n = 0; n < 4; ++n) {
    ir::Graph graph = twice_four();
    Result<PassReport> report = run_pipeline(graph, {.level = 1, .stop_after = n});
    ASSERT_TRUE(report);
    EXPECT_LE(static_cast<int64_t>(report->journal.size()), n);
    EXPECT_EQ(run(graph), expected);
  }
}

TEST(Driver, DisablesAndDumps) {
  ir::Graph graph = twice_four();
  std::string seen;
  PipelineOptions options{.level = 1, .disable = {"fold"}, .dump_after = "cse"};
  options.dump = [&](std::string_view pass, const ir::Graph& at) { seen = std::string(pass) + ": " + ops_of(at); };
  ASSERT_TRUE(run_pipeline(graph, options));
  EXPECT_EQ(seen, "cse: constant sqrt exp add add");
  options.disable = {"nothing"};
  EXPECT_EQ(run_pipeline(graph, options).error().code, Code::usage);
}

TEST(Rewrite, RefusesAnotherType) {
  ir::Graph graph = make([](Builder& b) { return exp(float_input(b, {2})); });
  ir::Rewrite rewrite(graph);
  const ir::ValueId scalar = rewrite.builder().scalar(DType::f32, 1).id;
  EXPECT_FALSE(rewrite.replace(graph.outputs[0], scalar, "wrong"));
  EXPECT_TRUE(rewrite.replace(graph.outputs[0], graph.inputs[0], "right"));
  ASSERT_TRUE(rewrite.finish());
  EXPECT_EQ(graph.outputs, graph.inputs);
}

}  // namespace
}  // namespace tessera::passes
