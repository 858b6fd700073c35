// Spellings that exports use are recognised, near misses are not, and what comes out computes the same.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "ir/core_ops.h"
#include "ir/interpreter.h"
#include "ops/math.h"
#include "passes/driver.h"
#include "passes/rules.h"

namespace tessera::passes {
namespace {

using ir::Builder;
using ir::X;

std::mt19937 generator(7);

Tensor random_tensor(Dims shape) {
  Tensor tensor = *Tensor::make(DType::f32, std::move(shape));
  std::uniform_real_distribution<float> uniform(-1.5f, 1.5f);
  for (int64_t i = 0; i < tensor.count(); ++i) tensor.as<float>()[i] = uniform(generator);
  return tensor;
}

X input(Builder& b, Shape shape, const char* name = "x") {
  return b.input(b.context().tensor(DType::f32, std::move(shape)), name);
}
X weight(Builder& b, Dims shape) { return b.constant(random_tensor(std::move(shape))); }

ir::Graph make(const std::function<X(Builder&)>& write) {
  ir::Graph graph(std::make_shared<ir::Context>());
  Builder builder(graph);
  const X y = write(builder);
  EXPECT_TRUE(builder.status()) << builder.status().error().message;
  graph.outputs = {y.id};
  graph.output_names = {graph.context().name("y")};
  EXPECT_TRUE(graph.compact());
  return graph;
}

// Operators in order, without constants and views.
std::string ops_of(const ir::Graph& graph) {
  std::string text;
  for (ir::NodeId n = 0; n < graph.node_count(); ++n) {
    const ir::OpDef* op = graph.node(n).op;
    if (op == &ir::core::constant || op == &ir::core::view) continue;
    text += (text.empty() ? "" : " ") + std::string(op->name);
  }
  return text;
}

std::vector<double> run(const ir::Graph& graph, std::span<const ir::RefValue> inputs) {
  auto results = ir::Interpreter().run(graph, inputs);
  EXPECT_TRUE(results) << results.error().message;
  return results ? results->at(0).array().of<double>() : std::vector<double>();
}

// The recogniser alone.
PipelineOptions recogniser() { return {.approximate = true, .disable = {"regions", "siblings", "scales"}}; }

// Optimises the graph, compares what it computes, and returns its operators.
std::string optimised(const std::function<X(Builder&)>& write, const PipelineOptions& options = recogniser()) {
  generator.seed(7);  // so that each test is the same alone and among others
  ir::Graph graph = make(write);
  std::vector<ir::RefValue> inputs;
  for (ir::ValueId v : graph.inputs) {
    Dims shape;
    for (Dim d : graph.type(v)->shape) shape.push_back(d.is_const() ? d.value() : 3);
    inputs.push_back(*ir::to_ref(random_tensor(shape)));
  }
  const std::vector<double> before = run(graph, inputs);
  Result<PassReport> report = run_pipeline(graph, options);
  EXPECT_TRUE(report) << report.error().message;
  const std::vector<double> after = run(graph, inputs);
  EXPECT_EQ(before.size(), after.size());
  for (size_t i = 0; i < std::min(before.size(), after.size()); ++i)
    EXPECT_NEAR(before[i], after[i], 2e-6 * std::max(1.0, std::fabs(before[i])));
  return ops_of(graph);
}

// Operands of a rule about parts of a row.
std::vector<Shape> shapes_of(const Rule& rule) {
  const std::vector<Shape> shapes = rule.shapes({2, 3, 4, 40});
  return shapes.empty() ? rule.shapes({2, 3, 4, 2}) : shapes;
}

TEST(Fusion, EveryRuleMatchesItself) {
  for (const Rule& rule : rules()) {
    SCOPED_TRACE(rule.name);
    const std::string ops = optimised([&](Builder& b) {
      std::vector<X> operands;
      const std::vector<Shape> shapes = rule.shapes == nullptr ? std::vector<Shape>() : shapes_of(rule);
      for (const RuleOperand& operand : rule.operands) {
        const Shape& wanted = shapes.empty() ? operand.shape : shapes[operands.size()];
        Dims shape;
        for (Dim d : wanted) shape.push_back(d.value());
        if (!operand.present) {
          operands.push_back({&b, ir::kNoValue});
        } else {
          const std::string name = "x" + std::to_string(operands.size());
          operands.push_back(operand.guard ? weight(b, shape) : input(b, wanted, name.c_str()));
        }
      }
      ir::Attrs attrs{rule.attrs};
      double number = 0.125;
      for (ir::AttrValue& value : attrs.values)
        if (double* real = std::get_if<double>(&value); real && std::isnan(*real)) *real = number += 0.125;
      return rule.left(operands, ir::A(*rule.op, attrs))[0];
    });
    EXPECT_TRUE(ops == rule.op->name || (rule.right && ops.ends_with(rule.op->name))) << ops;
  }
}

struct Case {
  const char* name;
  std::function<X(Builder&)> write;
  const char* ops;
};

// As torch exports it up to opset 16: pow and sqrt, then a division.
X norm_by_pow(X x, double eps) {
  X d = x - mean(x, {-1});
  return d / sqrt(mean(pow(d, like(x, 2)), {-1}) + eps);
}
X split_heads(X x, Dim heads, Dim size) { return reshape(x, {x.dim(0), x.dim(1), heads, size}); }
X softmax(X x) { return x.builder->add1(ops::softmax_op, {x}, {int64_t{-1}}); }

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"layer norm",
       [](Builder& b) {
         return norm_by_pow(input(b, {2, 3, 8}), 1e-5) * weight(b, {8}) + weight(b, {8});
       },
       "layer_norm"},
      {"layer norm over a symbolic batch",
       [](Builder& b) {
         Dim n = b.dims().symbol("n");
         return weight(b, {8}) + weight(b, {8}) * norm_by_pow(input(b, {n, 3, 8}), 1e-5);
       },
       "layer_norm"},
      {"layer norm over a symbolic size",
       [](Builder& b) {
         return norm_by_pow(input(b, {2, b.dims().symbol("n")}), 1e-5);
       },
       "layer_norm"},
      {"layer norm with 1/sqrt and a residual",
       [](Builder& b) {
         X x = input(b, {2, 3, 8}), r = input(b, {2, 3, 8}, "r");
         X d = x - mean(x, {-1});
         return r + (d * (1.0 / sqrt(mean(d * d, {-1}) + 1e-5)) * weight(b, {8}) + weight(b, {8}));
       },
       "layer_norm add"},
      {"partial rotary embedding with slices of flat tables",
       [](Builder& b) {
         X x = transpose(input(b, {2, 5, 4, 16}), {0, 2, 1, 3});
         X c = slice(input(b, {9, 8}, "c"), 0, 0, 5), s = slice(input(b, {9, 8}, "s"), 0, 0, 5);
         X r = slice(x, -1, 0, 8);
         X turned = ir::concat({-slice(r, -1, 4, 4), slice(r, -1, 0, 4)}, -1);
         return ir::concat({r * c + turned * s, slice(x, -1, 8, 8)}, -1);
       },
       "rotary"},
      {"eps outside the root",
       [](Builder& b) {
         X x = input(b, {2, 8}), d = x - mean(x, {-1});
         return d / (sqrt(mean(d * d, {-1})) + 1e-5);
       },
       "reduce_sum div sub mul reduce_sum div sqrt add div"},
      {"rms norm, weight first",
       [](Builder& b) {
         X x = input(b, {2, 8});
         return weight(b, {8}) * (x * rsqrt(mean(pow(x, like(x, 2)), {-1}) + 1e-6));
       },
       "rms_norm"},
      {"rms norm by a division",
       [](Builder& b) {
         X x = input(b, {2, 8});
         return x / pow(mean(square(x), {-1}) + 1e-6, like(x, 0.5)) * (1.0 + weight(b, {8}));
       },
       "rms_norm"},
      {"a gate is no weight",
       [](Builder& b) {
         X x = input(b, {2, 8}), g = input(b, {2, 8}, "g");
         return x * rsqrt(mean(square(x), {-1}) + 1e-6) * g;
       },
       "rms_norm mul"},
      {"gelu, halved last",
       [](Builder& b) {
         X x = input(b, {2, 8});
         return x * (erf(x / std::sqrt(2.0)) + 1.0) * 0.5;
       },
       "gelu"},
      {"gelu, halved inside",
       [](Builder& b) {
         X x = input(b, {2, 8});
         return x * (0.5 + 0.5 * erf(x * std::sqrt(0.5)));
       },
       "gelu"},
      {"gelu of another width",
       [](Builder& b) {
         X x = input(b, {2, 8});
         return x * (erf(x * 0.7) + 1.0) * 0.5;
       },
       "mul erf add mul mul"},
      {"gelu by tanh and pow",
       [](Builder& b) {
         X x = input(b, {2, 8});
         return x * 0.5 * (1.0 + tanh((x + 0.044715 * pow(x, like(x, 3))) * std::sqrt(2 / M_PI)));
       },
       "gelu_tanh"},
      {"gelu by tanh, factored",
       [](Builder& b) {
         X x = input(b, {2, 8});
         return 0.5 * x * (1.0 + tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)));
       },
       "gelu_tanh"},
      {"silu by a division",
       [](Builder& b) {
         X x = input(b, {2, 8});
         return x / (1.0 + exp(-x));
       },
       "silu"},
      {"silu times up",
       [](Builder& b) {
         X x = input(b, {2, 8}), up = input(b, {2, 8}, "up");
         return x * (up * (1.0 / (1.0 + exp(-x))));
       },
       "silu mul"},
      {"sigmoid of something else",
       [](Builder& b) {
         X x = input(b, {2, 8}), y = input(b, {2, 8}, "y");
         return x / (1.0 + exp(-y));
       },
       "sigmoid mul"},
      {"softmax whose exponentials are used again",
       [](Builder& b) {
         X x = input(b, {2, 8}), e = exp(x - reduce_max(x, {-1}));
         return e / sum(e, {-1}) + e;
       },
       "reduce_max sub exp reduce_sum div add"},
      {"linear with a bias and a residual",
       [](Builder& b) {
         X x = input(b, {2, 3, 8}), r = input(b, {2, 3, 5}, "r");
         return r + (matmul(x, weight(b, {8, 5})) + weight(b, {5}));
       },
       "linear add"},
      {"a product of two inputs is no layer",
       [](Builder& b) {
         return dot(input(b, {3, 8}), input(b, {5, 8}, "w"));
       },
       "dot"},
      {"attention as BERT has it",
       [](Builder& b) {
         Dim n = b.dims().symbol("n");
         X q = input(b, {2, n, 12}, "q"), k = input(b, {2, n, 12}, "k"), v = input(b, {2, n, 12}, "v");
         X mask = (1.0 - cast(cast(input(b, {2, 1, 1, n}, "m"), DType::i64), DType::f32)) * -10.0;
         X heads = transpose(split_heads(q, 3, 4), {0, 2, 1, 3});
         X keys = transpose(split_heads(k, 3, 4), {0, 2, 3, 1});
         X p = softmax(matmul(heads, keys) / 2.0 + mask);
         return matmul(p, transpose(split_heads(v, 3, 4), {0, 2, 1, 3}));
       },
       "cast cast sub mul attention"},
      {"attention with a scale on both sides",
       [](Builder& b) {
         X q = input(b, {2, 3, 5, 4}, "q"), k = input(b, {2, 3, 7, 4}, "k"), v = input(b, {2, 3, 7, 6}, "v");
         const double root = std::sqrt(0.5);
         return matmul(softmax(matmul(q * root, swap_axes(k, 2, 3) * root)), v);
       },
       "attention"},
  };
  return all;
}

TEST(Fusion, Spellings) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(optimised(c.write), c.ops);
  }
}

TEST(Fusion, NumbersOfHalfPrecision) {
  const auto gelu = [](double root) {
    return make([&](Builder& b) {
      X x = b.input(b.context().tensor(DType::f16, {2, 8}), "x");
      return x * (erf(x / root) + 1.0) * 0.5;
    });
  };
  ir::Graph graph = gelu(1.41421356);
  ASSERT_TRUE(run_pipeline(graph, recogniser()));
  EXPECT_EQ(ops_of(graph), "gelu");
  graph = gelu(1.4179);
  ASSERT_TRUE(run_pipeline(graph, recogniser()));
  EXPECT_EQ(ops_of(graph), "div erf add mul mul");
}

TEST(Fusion, RulesCanBeTurnedOff) {
  ir::Graph graph = make([](Builder& b) {
    X x = input(b, {2, 8});
    return x / (1.0 + exp(-x));
  });
  Result<PassReport> report = run_pipeline(graph, {.disable = {"silu", "regions"}});
  ASSERT_TRUE(report);
  EXPECT_EQ(ops_of(graph), "sigmoid mul");
  EXPECT_EQ(report->rules.at("sigmoid"), 1);
  graph = make([](Builder& b) {
    X x = input(b, {2, 8});
    return x / (1.0 + exp(-x));
  });
  ASSERT_TRUE(run_pipeline(graph, {.strict = true, .disable = {"regions"}}));
  EXPECT_EQ(ops_of(graph), "neg exp add div");
}

}  // namespace
}  // namespace tessera::passes
