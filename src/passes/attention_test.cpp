// Spellings of attention that exports use become one operator with its masks in the right place; near misses do not;
// what comes out computes the same.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "ir/core_ops.h"
#include "ir/interpreter.h"
#include "ops/math.h"
#include "passes/driver.h"

namespace tessera::passes {
namespace {

using ir::Builder;
using ir::X;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

X input(Builder& b, Shape shape, const char* name) {
  return b.input(b.context().tensor(DType::f32, std::move(shape)), name);
}
X softmax(X x, int64_t axis = -1) { return x.builder->add1(ops::softmax_op, {x}, {axis}); }

struct Operands {
  X q, k, v;
};
// q [2, heads, 5, 4], k [2, groups, 7, 4], v [2, groups, 7, 6]
Operands operands(Builder& b, int64_t heads = 3, int64_t groups = 3) {
  return {input(b, {2, heads, 5, 4}, "q"), input(b, {2, groups, 7, 4}, "k"), input(b, {2, groups, 7, 6}, "v")};
}
X row(Builder& b) { return iota(b, {5, 1}, 0, DType::i64); }
X column(Builder& b) { return iota(b, {1, 7}, 1, DType::i64); }
X triangle(Builder& b, int64_t offset, int64_t size) {
  Tensor tensor = *Tensor::make(DType::f32, {1, 1, size, size});
  for (int64_t i = 0; i < size * size; ++i) tensor.as<float>()[i] = i % size <= i / size + offset ? 1 : 0;
  return b.constant(std::move(tensor));
}

struct Case {
  const char* name;
  std::function<X(Builder&)> write;
  const char* attention;  // "causal window mask bias groups" of the operator; empty: there is none
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"scores over a root",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         return matmul(softmax(dot(q, k) / 2.0), v);
       },
       "- - - - 3"},
      {"the root of a scale on both sides",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         return matmul(softmax(dot(q * std::sqrt(0.5), k * std::sqrt(0.5))), v);
       },
       "- - - - 3"},
      {"causal by a range compare and -inf",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X s = dot(q, k) * 0.5;
         return matmul(softmax(select(less(row(b), column(b)), like(s, -kInfinity), s)), v);
       },
       "0 - - - 3"},
      {"causal with an offset, added",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X s = dot(q, k) * 0.5;
         X mask = select(less_equal(column(b), row(b) + b.integer(2)), like(s, 0), like(s, -3.4e38));
         return matmul(softmax(s + mask), v);
       },
       "2 - - - 3"},
      {"a window of keys",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X s = dot(q, k);
         X seen = logical_and(less_equal(column(b), row(b) + b.integer(1)), less(row(b) - b.integer(2), column(b)));
         return matmul(softmax(select(seen, s, like(s, -kInfinity))), v);
       },
       "1 -1 - - 3"},
      {"a triangular buffer's slice, as GPT-2 has it",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X s = dot(q, k) * 0.5, m = slice(slice(triangle(b, 0, 16), 2, 2, 5), 3, 0, 7);
         return matmul(softmax(s * m - (1.0 - m) * 1e4), v);
       },
       "2 - - - 3"},
      {"a padding mask of numbers and a bias",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X pad = (1.0 - input(b, {2, 1, 1, 7}, "m")) * -10.0;
         return matmul(softmax(dot(q, k) + input(b, {1, 3, 5, 7}, "bias") + pad), v);
       },
       "- - f32 f32 3"},
      {"a padding mask of truth values under a causal one",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X s = dot(q, k), there = less(input(b, {2, 1, 1, 7}, "m"), input(b, {2, 1, 1, 7}, "n"));
         X seen = logical_and(less_equal(column(b), row(b)), there);
         return matmul(softmax(select(seen, s, like(s, -1e4))), v);
       },
       "0 - bool - 3"},
      {"capped scores",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         return matmul(softmax(tanh(dot(q, k) / 4.0) * 3.0), v);
       },
       "- - - - 3"},
      {"keys repeated for the heads of a group",
       [](Builder& b) {
         auto [q, k, v] = operands(b, 6, 2);
         const auto repeat = [](X x) {
           Shape shape = {2, 2, 3, 7, x.dim(3)}, flat = {2, 6, 7, x.dim(3)};
           return reshape(broadcast(unsqueeze(x, {2}), shape), flat);
         };
         return matmul(softmax(dot(q, repeat(k)) * 0.5), repeat(v));
       },
       "- - - - 2"},
      {"three axes, heads within the batch",
       [](Builder& b) {
         const auto heads = [&](const char* name, int64_t n) {
           return reshape(transpose(reshape(input(b, {2, n, 12}, name), {2, n, 3, 4}), {0, 2, 1, 3}), {6, n, 4});
         };
         X p = softmax(dot(heads("q", 5) * 0.5, heads("k", 7)));
         return transpose(reshape(matmul(p, heads("v", 7)), {2, 3, 5, 4}), {0, 2, 1, 3});
       },
       "- - - - 3"},
      {"a softmax of flattened rows",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X p = softmax(reshape(dot(q, k) * 0.5, {30, 7}), 1);
         return matmul(reshape(p, {2, 3, 5, 7}), v);
       },
       "- - - - 3"},
      {"a mask after the softmax",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         return matmul(softmax(dot(q, k)) * input(b, {5, 7}, "m"), v);
       },
       ""},
      {"weights that are used again",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X p = softmax(dot(q, k));
         return matmul(p, v) + sum(p, {-1});
       },
       ""},
      {"a softmax over queries",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         return matmul(softmax(dot(q, k), 2), v);
       },
       ""},
      {"two fills",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X s = dot(q, k), seen = less_equal(column(b), row(b));
         s = select(seen, s, like(s, -5));
         return matmul(softmax(select(less(row(b) - b.integer(3), column(b)), s, like(s, -kInfinity))), v);
       },
       "0 - f32 - 3"},
      {"two fills that both show",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X s = dot(q, k), seen = less_equal(column(b), row(b));
         s = select(seen, s, like(s, -5));
         return matmul(softmax(select(less(row(b) - b.integer(3), column(b)), s, like(s, -4))), v);
       },
       ""},
      {"a window of distances",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X s = dot(q, k), far = b.add1(ops::abs_op, {row(b) - column(b)});
         return matmul(softmax(select(less(b.integer(2), far), like(s, -kInfinity), s)), v);
       },
       "2 -2 - - 3"},
      {"a sink's column",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X sink = broadcast(reshape(input(b, {3}, "sink"), {1, 3, 1, 1}), {2, 3, 5, 1});
         X all = ir::concat({dot(q, k) * 0.5, sink}, -1);
         return matmul(slice(softmax(all - reduce_max(all, {-1})), -1, 0, 7), v);
       },
       "- - - - 3"},
      {"a column that differs from row to row",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X all = ir::concat({dot(q, k) * 0.5, input(b, {2, 3, 5, 1}, "sink")}, -1);
         return matmul(slice(softmax(all), -1, 0, 7), v);
       },
       ""},
      {"a sink's column that is kept",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X sink = broadcast(reshape(input(b, {3}, "sink"), {1, 3, 1, 1}), {2, 3, 5, 1});
         return matmul(slice(softmax(ir::concat({dot(q, k), sink}, -1)), -1, 1, 7), v);
       },
       ""},
      {"numbers in place of infinite weights",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X p = softmax(dot(q, k) * 0.5);
         p = select(b.add1(ops::is_nan_op, {p}), like(p, 0), p);
         p = select(logical_and(b.add1(ops::is_inf_op, {p}), less(like(p, 0), p)), like(p, 3.4e38), p);
         return matmul(p, v);
       },
       "- - - - 3"},
      {"numbers in place of some weights",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X p = softmax(dot(q, k) * 0.5);
         return matmul(select(less(like(p, 0.2), p), like(p, 1), p), v);
       },
       ""},
      {"a temperature for each head",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         return matmul(softmax(dot(q, k) * input(b, {3, 1, 1}, "t")), v);
       },
       "- - - - 3"},
      {"a factor of keys and a mask",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X m = input(b, {2, 1, 1, 7}, "m");
         return matmul(softmax(dot(q, k) * 0.5 * m - (1.0 - m) * 10.0), v);
       },
       "- - f32 - 3"},
      {"a factor of keys that differs from head to head",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         return matmul(softmax(dot(q, k) * input(b, {2, 3, 1, 7}, "m")), v);
       },
       ""},
      {"a factor for each score",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         return matmul(softmax(dot(q, k) * input(b, {5, 7}, "t")), v);
       },
       ""},
      {"a factor of masked scores",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         return matmul(softmax((dot(q, k) + input(b, {5, 7}, "m")) * input(b, {5, 1}, "t")), v);
       },
       ""},
      {"a truth value's factor and its other side",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X m = cast(less(input(b, {2, 1, 1, 7}, "m"), input(b, {2, 1, 1, 7}, "n")), DType::f32);
         return matmul(softmax(dot(q, k) * m - (1.0 - m) * 10.0), v);
       },
       "- - bool - 3"},
      {"less each row's largest",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X s = dot(q, k) + input(b, {2, 1, 1, 7}, "m");
         return matmul(softmax(s - reduce_max(s, {-1})), v);
       },
       "- - f32 - 3"},
      {"less another row's largest",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X s = dot(q, k);
         return matmul(softmax(s - reduce_max(s, {-2})), v);
       },
       "- - f32 - 3"},
      {"0 where a weight is no number",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X there = less(input(b, {2, 1, 5, 7}, "m"), input(b, {2, 1, 5, 7}, "n")), s = dot(q, k);
         X p = softmax(select(there, s, like(s, -kInfinity)));
         return matmul(select(p.builder->add1(ops::is_nan_op, {p}), like(p, 0), p), v);
       },
       "- - bool - 3"},
      {"masks that go no lower than the least number",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X causal = select(less_equal(column(b), row(b)), b.scalar(DType::f32, 0), b.scalar(DType::f32, -3.4e38));
         return matmul(softmax(max(dot(q, k) + (causal + input(b, {2, 1, 1, 7}, "m")), b.scalar(DType::f32, -3.4e38))),
                       v);
       },
       "- - f32 - 3"},
      {"scores that go no lower than 0",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X s = dot(q, k) + input(b, {2, 1, 1, 7}, "m");
         return matmul(softmax(max(s, like(s, 0))), v);
       },
       ""},
      {"masks by heads of products without heads",
       [](Builder& b) {
         const auto flat = [](X x) { return reshape(x, {6, x.dim(2), x.dim(3)}); };
         auto [q, k, v] = operands(b);
         X s = reshape(dot(flat(q), flat(k)), {2, 3, 5, 7}) + input(b, {2, 1, 1, 7}, "m");
         return reshape(matmul(softmax(flat(s)), flat(v)), {2, 3, 5, 6});
       },
       "- - f32 - 3"},
      {"windows within the batch",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         X s = reshape(dot(q, k), {1, 2, 3, 5, 7}) + input(b, {1, 2, 1, 5, 7}, "m");
         return matmul(softmax(reshape(s, {2, 3, 5, 7})), v);
       },
       "- - f32 - 3"},
      {"groups on an axis of their own",
       [](Builder& b) {
         X q = input(b, {2, 2, 3, 5, 4}, "q"), k = input(b, {2, 2, 1, 7, 4}, "k"), v = input(b, {2, 2, 1, 7, 6}, "v");
         return matmul(softmax(dot(q, k) + input(b, {2, 1, 1, 1, 7}, "m")), v);
       },
       "- - f32 - 2"},
      {"rows of a group in one product",
       [](Builder& b) {
         X q = input(b, {2, 2, 15, 4}, "q"), k = input(b, {2, 2, 7, 4}, "k"), v = input(b, {2, 2, 7, 6}, "v");
         X s = reshape(dot(q, k), {2, 2, 3, 5, 7});
         s = select(less_equal(column(b), row(b)), s, like(s, -kInfinity));
         return matmul(reshape(softmax(s), {2, 2, 15, 7}), v);
       },
       "0 - - - 2"},
      {"no batch",
       [](Builder& b) {
         X q = input(b, {5, 4}, "q"), k = input(b, {7, 4}, "k"), v = input(b, {7, 6}, "v");
         return matmul(softmax(dot(q, k)), v);
       },
       "- - - - 1"},
      {"queries that all batches share",
       [](Builder& b) {
         X q = input(b, {1, 3, 5, 4}, "q"), k = input(b, {2, 3, 7, 4}, "k"), v = input(b, {2, 3, 7, 6}, "v");
         return matmul(softmax(dot(q, k)), v);
       },
       "- - - - 3"},
      {"keys first",
       [](Builder& b) {
         auto [q, k, v] = operands(b);
         return matmul(softmax(swap_axes(dot(k, q), -1, -2)), v);
       },
       "- - - - 3"},
  };
  return all;
}

std::vector<double> run(const ir::Graph& graph, std::span<const ir::RefValue> inputs) {
  auto results = ir::Interpreter().run(graph, inputs);
  EXPECT_TRUE(results) << results.error().message;
  return results ? results->at(0).array().of<double>() : std::vector<double>();
}

std::string attention_of(const ir::Graph& graph) {
  for (ir::NodeId n = 0; n < graph.node_count(); ++n) {
    const ir::Node& node = graph.node(n);
    if (node.op != &ops::attention_op) continue;
    const ir::A attrs(*node.op, *node.attrs);
    const auto operands = graph.operands(n);
    const auto size = [](const Shape& s) { return s.empty() ? std::string("-") : to_string(s[0]); };
    const auto type = [&](size_t i) {
      return i < operands.size() && operands[i] != ir::kNoValue ? std::string(name(graph.type(operands[i])->dtype))
                                                                : "-";
    };
    return size(attrs.dims("causal")) + " " + size(attrs.dims("window")) + " " + type(3) + " " + type(4) + " " +
           to_string(graph.type(operands[1])->shape[1]);
  }
  return "";
}

// Masks of a left-padded batch: its first row sees no key at all, its second only the last three.
X padding(Builder& b) { return input(b, {2, 1, 1, 7}, "padding"); }

struct Ragged {
  const char* name;
  std::function<X(Builder&, X s, double fill)> mask;
  const char* attention[3];  // for two fills and the least number
};

const std::vector<Ragged>& ragged() {
  const auto seen = [](Builder& b) { return less_equal(column(b), row(b) + b.integer(1)); };
  static const std::vector<Ragged> all = {
      {"causal fill, padding added",
       [=](Builder& b, X s, double fill) { return select(seen(b), s, like(s, fill)) + (1.0 - padding(b)) * fill; },
       {"1 - f32 - 3", "1 - f32 - 3", "1 - f32 - 3"}},
      {"padding added, causal fill",
       [=](Builder& b, X s, double fill) { return select(seen(b), s + (1.0 - padding(b)) * fill, like(s, fill)); },
       {"1 - - f32 3", "1 - - f32 3", "1 - - f32 3"}},
      {"both added",
       [=](Builder& b, X s, double fill) {
         return s + select(seen(b), like(s, 0), like(s, fill)) + (1.0 - padding(b)) * fill;
       },
       {"- - f32 f32 3", "- - f32 f32 3", "1 - f32 - 3"}},
      {"causal added, padding filled",
       [=](Builder& b, X s, double fill) {
         s = s + select(seen(b), like(s, 0), like(s, fill));
         return select(less(like(s, 0), padding(b)), s, like(s, fill));
       },
       {"- - bool f32 3", "- - bool f32 3", "- - bool f32 3"}},
      {"padding filled, causal added",
       [=](Builder& b, X s, double fill) {
         s = select(less(like(s, 0), padding(b)), s, like(s, fill));
         return s + select(seen(b), like(s, 0), like(s, fill));
       },
       {"", "", "- - f32 - 3"}},
      {"both in one fill",
       [=](Builder& b, X s, double fill) {
         return select(logical_and(seen(b), less(like(s, 0), padding(b))), s, like(s, fill));
       },
       {"1 - bool - 3", "1 - bool - 3", "1 - bool - 3"}},
      {"a fill in a lower one",
       [=](Builder& b, X s, double fill) {
         s = select(seen(b), s, like(s, fill));
         return select(less(like(s, 0), padding(b)), s, like(s, -3.3e38));
       },
       {"1 - f32 - 3", "1 - f32 - 3", "- - bool f32 3"}},
      {"a fill between two sums",
       [=](Builder& b, X s, double fill) {
         s = s + input(b, {3, 5, 7}, "bias");
         return select(seen(b), s, like(s, fill)) + (1.0 - padding(b)) * fill;
       },
       {"1 - f32 f32 3", "1 - f32 f32 3", "1 - f32 f32 3"}},
      {"truth values times numbers",
       [=](Builder& b, X s, double fill) {
         const X hidden = cast(logical_not(seen(b)), DType::f32);
         return s + hidden * fill + (1.0 - padding(b)) * fill;
       },
       {"- - f32 f32 3", "- - f32 f32 3", "1 - f32 - 3"}},
  };
  return all;
}

TEST(RaiseAttention, FillsOfRowsThatSeeNoKey) {
  // Sums with larger numbers would round scores away, which the meaning of attention does not.
  const double fills[] = {-100, -1000, -std::numeric_limits<float>::max()};
  for (const Ragged& c : ragged())
    for (size_t f = 0; f < 3; ++f) {
      SCOPED_TRACE(std::string(c.name) + " " + std::to_string(fills[f]));
      ir::Graph graph(std::make_shared<ir::Context>());
      Builder builder(graph);
      const auto [q, k, v] = operands(builder);
      const X y = matmul(softmax(c.mask(builder, dot(q, k) * 0.5, fills[f])), v);
      ASSERT_TRUE(builder.status()) << builder.status().error().message;
      graph.outputs = {y.id};
      graph.output_names = {graph.context().name("y")};
      ASSERT_TRUE(graph.compact());
      std::vector<ir::RefValue> inputs;
      for (ir::ValueId v : graph.inputs) {
        Dims shape;
        for (Dim d : graph.type(v)->shape) shape.push_back(d.value());
        Tensor tensor = *Tensor::make(DType::f32, shape);
        const bool pads = graph.value_name(v) == "padding";
        for (int64_t i = 0; i < tensor.count(); ++i)
          tensor.as<float>()[i] = pads ? static_cast<float>(i >= 7 + 4) : static_cast<float>(std::sin(i * 1.7 + v));
        inputs.push_back(*ir::to_ref(tensor));
      }
      const std::vector<double> before = run(graph, inputs);
      const Result<PassReport> report = run_pipeline(graph, {});
      ASSERT_TRUE(report) << report.error().message;
      EXPECT_EQ(attention_of(graph), c.attention[f]);
      const std::vector<double> after = run(graph, inputs);
      ASSERT_EQ(before.size(), after.size());
      for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i], after[i], 1e-4) << i;
    }
}

TEST(RaiseAttention, Spellings) {
  std::mt19937 generator(7);
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    ir::Graph graph(std::make_shared<ir::Context>());
    Builder builder(graph);
    const X y = c.write(builder);
    ASSERT_TRUE(builder.status()) << builder.status().error().message;
    graph.outputs = {y.id};
    graph.output_names = {graph.context().name("y")};
    ASSERT_TRUE(graph.compact());
    std::vector<ir::RefValue> inputs;
    std::uniform_real_distribution<float> uniform(-1.5f, 1.5f);
    for (ir::ValueId v : graph.inputs) {
      Dims shape;
      for (Dim d : graph.type(v)->shape) shape.push_back(d.value());
      Tensor tensor = *Tensor::make(DType::f32, shape);
      for (int64_t i = 0; i < tensor.count(); ++i) tensor.as<float>()[i] = uniform(generator);
      inputs.push_back(*ir::to_ref(tensor));
    }
    const std::vector<double> before = run(graph, inputs);
    const Result<PassReport> report = run_pipeline(graph, {});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(attention_of(graph), c.attention);
    const std::vector<double> after = run(graph, inputs);
    ASSERT_EQ(before.size(), after.size());
    for (size_t i = 0; i < before.size(); ++i) {
      if (std::isnan(before[i])) continue;  // a row that sees nothing
      EXPECT_NEAR(before[i], after[i], 2e-6 * std::max(1.0, std::fabs(before[i]))) << i;
    }
  }
}

}  // namespace
}  // namespace tessera::passes
