#include "ir/verifier.h"

#include <gtest/gtest.h>

#include "ir/op_def.h"
#include "ir/parser.h"
#include "ir/text_test_ops.h"

namespace tessera::ir {
namespace {

using test_ops::has;

// Read without a check.
Graph unchecked(std::string_view text) {
  ParseOptions options;
  options.verify = false;
  Result<Graph> graph = parse_graph(text, test_ops::find, options);
  EXPECT_TRUE(graph) << graph.error().to_string();
  return graph ? std::move(*graph) : Graph(std::make_shared<Context>());
}

void expect_valid(std::string_view text) {
  Status status = verify(unchecked(text));
  EXPECT_TRUE(status) << status.error().to_string() << "\n" << text;
}

void expect_error(const Graph& graph, Code code, std::string_view part) {
  Status status = verify(graph);
  ASSERT_FALSE(status) << "expected: " << part;
  EXPECT_EQ(status.error().code, code) << status.error().to_string();
  EXPECT_TRUE(has(status.error().to_string(), part));
}
void expect_error(std::string_view text, Code code, std::string_view part) {
  SCOPED_TRACE(text);
  expect_error(unchecked(text), code, part);
}

TEST(Verifier, AcceptsSoundGraphs) {
  expect_valid("graph {}");
  expect_valid(R"(graph { dim b dim s  in %x: f32[b, s, 64]  in %w: f32[32, 64]
    %y: f32[b, s, 32] = matmul(%x, %w)
    %z: f32[b, s, 32], %m: f32[b, s] = norm(%y)  %only: f32[b, s, 32] = norm(%y)  out %z "z" out %m "m" })");
}

TEST(Verifier, ComparesTypesWithInference) {
  expect_error("graph { in %x: f32[2] %y: f32[3] = relu(%x) @ \"act\" Relu }", Code::shape_mismatch,
               "relu: result 0 is f32[2] by inference, but here f32[3]\n  while checking node 'act' (Relu)");
  expect_error("graph { in %x: f32[2] %y: f16[2] = relu(%x) }", Code::shape_mismatch, "is f32[2] by inference");
  expect_error("graph { dim n dim m in %x: f32[n] %y: f32[m] = relu(%x) }", Code::shape_mismatch,
               "is f32[n] by inference, but here f32[m]");
  // A size that no input has is what the result tells; within its bounds.
  expect_valid("graph { dim n in %x: f32[5] %y: f32[n] = relu(%x) }");
  expect_error("graph { dim n in [1, 4] in %x: f32[5] %y: f32[n] = relu(%x) }", Code::shape_mismatch,
               "but here f32[n]");
  expect_error("graph { dim n in %x: f32[5] in %z: f32[n] %y: f32[n] = relu(%x) }", Code::shape_mismatch,
               "is f32[5] by inference, but here f32[n]");
  expect_error("graph { in %x: f32[2] %y: f32[*] = relu(%x) }", Code::shape_mismatch, "but here f32[*]");
  expect_error("graph { in %x: f32[2] %y: seq<f32[2]> = relu(%x) }", Code::shape_mismatch, "but here seq<f32[2]>");
  expect_error("graph { in %x: f32[2] %y: f32[2], %z: f32[2] = relu(%x) }", Code::arity,
               "relu has 1 results, but here 2");
  expect_error("graph { in %x: f32[2] _ = relu(%x) }", Code::arity, "relu has 1 results, but here 0");
  expect_error("graph { in %x: f32[2, 3] in %w: f32[4, 5] %y: f32[2, 4] = matmul(%x, %w) @ \"fc\" Gemm }",
               Code::shape_mismatch, "while checking node 'fc' (Gemm)");
}

TEST(Verifier, EqualSizesMayBeWrittenDifferently) {
  expect_valid("graph { dim n in [4, 4] in %x: f32[n] %y: f32[4] = relu(%x) }");
  expect_valid("graph { dim n dim m guard m == n in %x: f32[n] %y: f32[m] = relu(%x) }");
  expect_valid("graph { dim n in %x: f32[*] %y: f32[n, 2] = relu(%x) }");
}

TEST(Verifier, WantsWhatInferenceAssumesAmongTheGuards) {
  std::string_view text = "in %x: f32[3, n] in %w: f32[4, m] %y: f32[3, 4] = matmul(%x, %w) }";
  expect_error(fmt::format("graph {{ dim n dim m {}", text), Code::graph_invalid,
               "which is not among the graph's guards");
  expect_valid(fmt::format("graph {{ dim n dim m guard n == m {}", text));
  expect_valid(fmt::format("graph {{ dim n dim m guard m == n {}", text));
}

TEST(Verifier, LetsTheNodeNameSizesOfTheRun) {
  expect_valid("graph { dim k in %x: f32[2, 3] %at: i64[2, k], %more: i64[2*k + 1] = where_true(%x) }");
  expect_valid("graph { dim k in %x: f32[2, 3] %at: i64[2, 7], %more: i64[15] = where_true(%x) }");
  expect_error("graph { dim k in %x: f32[2, 3] %at: i64[2, k], %more: i64[2*k] = where_true(%x) }",
               Code::shape_mismatch, "result 1 is");
  expect_error("graph { dim k in %x: f32[2, 3] %at: i64[3, k], %more: i64[2*k + 1] = where_true(%x) }",
               Code::shape_mismatch, "result 0 is");
}

TEST(Verifier, ChecksTypesOnTheirOwn) {
  expect_error("graph { in %x: f32[-2] }", Code::shape_invalid, "the size -2 in f32[-2] is negative");
  expect_error("graph { dim n in [0, 3] in %x: f32[n - 4] }", Code::shape_invalid, "is negative");
  expect_error("graph { in %x: f32[4611686018427387904, 4611686018427387904] }", Code::shape_invalid, "2^62");
  expect_error("graph { in %x: seq<state f32[2]> }", Code::graph_invalid, "a sequence or an optional holds tensors");
  expect_error("graph { in %x: state f32[*] }", Code::graph_invalid, "a state has a known rank");
}

TEST(Verifier, ChecksViews) {
  auto view = [](std::string_view result, std::string_view text) {
    return fmt::format(
        "graph {{ dim n in [1, 8] dim m in [1, inf] in %x: f32[n, m, 6] %y: f32[{}] = view(%x) {{view = {}}} }}",
        result, text);
  };
  expect_valid(view("m, n, 6", "[m:1, n:0, 6:2] from [0, 0, 0]"));
  expect_valid(view("3", "[3:2] from [0, 0, 3]"));
  expect_error(view("3", "[3:2] from [0, 0, 4]"), Code::index_out_of_range, "reads 4 to 6 along axis 2 of x[n, m, 6]");
  expect_error(view("3", "[3:2] from [0, 0, -1]"), Code::index_out_of_range, "reads -1 to 1 along axis 2");
  expect_error(view("3", "[3:2] from [n, 0, 0]"), Code::index_out_of_range, "along axis 0");
  expect_valid(view("3", "[3:2] from [0, m - 1, 0]"));
  expect_error(view("3", "[3:1] from [0, 0]"), Code::rank_mismatch, "needs a base of 2 axes");
}

TEST(Verifier, ChecksPlacesAndIds) {
  Graph graph = unchecked("graph { in %x: f32[2] %y: f32[2] = relu(%x) %z: f32[2] = relu(%y) out %z \"z\" }");
  auto damaged = [&](auto&& damage) {
    Graph copy = graph.clone();
    damage(copy);
    return copy;
  };
  expect_error(damaged([](Graph& g) { g.mutable_operands(0)[0] = 2; }), Code::graph_invalid,
               "it reads result 0 of node 1 (relu) f32[2] before that is defined\n  while checking node 0 (relu)");
  expect_error(damaged([](Graph& g) { g.mutable_operands(0)[0] = 1; }), Code::graph_invalid, "before that is defined");
  expect_error(damaged([](Graph& g) { g.mutable_operands(0)[0] = 9; }), Code::graph_invalid, "reads value 9");
  expect_error(damaged([](Graph& g) { g.outputs[0] = 9; }), Code::graph_invalid,
               "output 0 is value 9, but there are only 3");
  expect_error(damaged([](Graph& g) { g.outputs[0] = kNoValue; }), Code::graph_invalid, "output 0 is value");
  expect_error(damaged([](Graph& g) { g.output_names.clear(); }), Code::graph_invalid, "1 outputs but names for 0");
  expect_error(damaged([](Graph& g) { g.inputs[0] = 1; }), Code::graph_invalid, "input 0 is value 1, which is none");
  expect_error(damaged([](Graph& g) { g.set_type(1, nullptr); }), Code::graph_invalid, "value 1 has no type");
  expect_error(damaged([](Graph& g) { g.contents[9] = {}; }), Code::graph_invalid, "contents are known of value 9");
  expect_error("graph { in %x \"same\": f32[] in %y \"same\": f32[] }", Code::duplicate_name,
               "two inputs are named 'same'");
}

TEST(Verifier, ChecksArityAndTypesOfOperands) {
  expect_error("graph { %y: f32[] = relu }", Code::arity, "relu");
  expect_error("graph { in %x: f32[] %y: f32[] = relu(%x, %x) }", Code::arity, "relu");
  expect_error("graph { in %x: f32[] %y: f32[] = relu(_) }", Code::arity, "relu");
  expect_error("graph { in %x: bool[] %y: bool[] = relu(%x) }", Code::dtype_mismatch, "relu");
}

TEST(Verifier, ChecksAttributes) {
  Graph graph = unchecked("graph { in %x: f32[2] %y: f32[2] = attrs(%x) {to = f32, perm = [], shape = []} }");
  TypeRef type = graph.type(0);
  auto with = [&](size_t index, AttrValue value) {
    Attrs attrs = *graph.node(0).attrs;
    attrs.values[index] = std::move(value);
    Graph copy(graph.shared_context());
    const ValueId x = copy.add_input(type, "x");
    copy.add_node(*test_ops::find("attrs"), std::span(&x, 1), graph.context().attrs(std::move(attrs)),
                  std::span(&type, 1), 0);
    return copy;
  };
  expect_error(with(0, 1.5), Code::attribute_invalid, "attrs: the attribute 'axis' is not an integer");
  expect_error(with(1, int64_t{2}), Code::attribute_invalid, "the attribute 'keep' is not true or false");
  expect_error(with(2, int64_t{99}), Code::attribute_invalid, "the attribute 'to' is not an element type");
  expect_error(with(3, int64_t{3}), Code::attribute_invalid, "is not one of constant|reflect|edge");
  expect_error(with(4, int64_t{1}), Code::attribute_invalid, "the attribute 'eps' is not a number");
  expect_error(with(5, 0.5), Code::attribute_invalid, "the attribute 'perm' is not a list of integers");
  expect_error(with(6, 0.5), Code::attribute_invalid, "the attribute 'shape' is not a list of sizes");

  Graph none(graph.shared_context());
  const ValueId x = none.add_input(type, "x");
  none.add_node(*test_ops::find("attrs"), std::span(&x, 1), nullptr, std::span(&type, 1), 0);
  expect_error(none, Code::attribute_invalid, "attrs has 8 attributes, but here 0");

  Graph constant(graph.shared_context());
  constant.add_node(*test_ops::find("constant"), {}, graph.context().attrs({{int64_t{5}}}), std::span(&type, 1), 0);
  expect_error(constant, Code::graph_invalid, "there is no constant 5 among 0");
}

TEST(Verifier, StatesAreUsedOnce) {
  std::string_view start = "graph { in %kv: state f32[2] in %k: f32[2] ";
  auto with = [&](std::string_view rest) { return fmt::format("{}{} }}", start, rest); };
  expect_valid(with(
      "%r: f32[2] = peek(%kv) %s: state f32[2] = append(%kv, %k) %t: state f32[2] = append(%s, %r) out %t \"kv\""));
  expect_error(with("%s: state f32[2] = append(%kv, %k) %r: f32[2] = peek(%kv) @ \"late\" Read"), Code::graph_invalid,
               "node 'late' (Read) uses the state input 0 state f32[2], which node 0 (append) has consumed");
  expect_error(with("%s: state f32[2] = append(%kv, %k) %t: state f32[2] = append(%kv, %k)"), Code::graph_invalid,
               "node 1 (append) uses the state");
  expect_error(with("%s: state f32[2] = append(%kv, %k) out %kv"), Code::graph_invalid,
               "is given out, but node 0 (append)");
  expect_valid(with("%r: f32[2] = peek(%kv) out %kv"));
}

TEST(Verifier, NestedGraphsConsumeStatesToo) {
  auto text = [](std::string_view inside, std::string_view after) {
    return fmt::format(
        "graph {{ in %p: bool[] in %kv: state f32[2] in %k: f32[2]\n"
        "%y: f32[2] = branch(%p, %kv, %k) {{ graph \"then\" {{ in %kv: state f32[2] in %k: f32[2] {} out %r }}\n"
        "graph \"else\" {{ in %kv: state f32[2] in %k: f32[2] out %k }} }} {} }}",
        inside, after);
  };
  expect_valid(text("%r: f32[2] = peek(%kv)", "out %kv"));
  expect_valid(text("%s: state f32[2] = append(%kv, %k) %r: f32[2] = peek(%s)", ""));
  expect_error(text("%s: state f32[2] = append(%kv, %k) %r: f32[2] = peek(%s)", "out %kv"), Code::graph_invalid,
               "is given out, but node 0 (branch)");
  expect_error(text("%s: state f32[2] = append(%kv, %k) %r: f32[2] = peek(%kv)", ""), Code::graph_invalid,
               "while checking the nested graph 'then' of node 0 (branch)");
}

TEST(Verifier, ChecksNestedGraphs) {
  expect_error("graph { in %p: bool[] %y: f32[] = branch(%p) }", Code::arity, "branch has 2 nested graphs, but here 0");
  expect_error("graph { in %p: bool[] %y: bool[] = branch(%p, %p) { graph { in %x: bool[] out %x } graph { } } }",
               Code::arity, "branch captures 1 values but its graph takes 0");
  expect_error(
      "graph { in %p: bool[] %y: f32[3] = branch(%p) { graph { %c: f32[2] = constant all 0 out %c } graph { "
      "%c: f32[2] = constant all 0 out %c } } }",
      Code::shape_mismatch, "branch: result 0 is f32[2] by inference, but here f32[3]");
  expect_error(
      "graph { in %p: bool[] in %x: f32[2] %y: f32[2] = branch(%p, %x) { graph \"a\" { in %x: f32[2] %y: f32[3] = "
      "relu(%x) "
      "@ \"in\" Relu out %x } graph { in %x: f32[2] out %x } } @ \"out\" If }",
      Code::shape_mismatch,
      "while checking node 'in' (Relu)\n  while checking its nested graph 'a'\n  while checking node 'out' (If)");
  // Guards of the graphs around hold inside.
  expect_valid(
      "graph { dim n dim m guard n == m in %p: bool[] in %x: f32[n] %y: f32[n] = branch(%p, %x) { graph { in %x: "
      "f32[n] "
      "%y: f32[m] = relu(%x) out %x } graph { in %x: f32[n] out %x } } }");
}

TEST(Verifier, ChecksContents) {
  expect_valid("graph { dim n in %x: i64[2] is [n, 4] in %s: i32[] is [n] in %e: i64[0] is [] }");
  expect_error("graph { in %x \"s\": i64[2] is [1] }", Code::graph_invalid, "1 contents are known of 's' i64[2]");
  expect_error("graph { dim n in %x: i64[n] is [1] }", Code::graph_invalid, "1 contents are known of");
  expect_error("graph { in %x: f32[1] is [1] }", Code::graph_invalid, "no tensor of integers of known shape");
}

TEST(Verifier, ChecksOnlyTheNodesAskedFor) {
  Graph graph = unchecked("graph { in %x: f32[2] %y: f32[3] = relu(%x) %z: f32[3] = relu(%y) }");
  const NodeId good[] = {1}, bad[] = {1, 0}, none[] = {2};
  VerifyOptions options;
  options.nodes = good;
  EXPECT_TRUE(verify(graph, options));
  options.nodes = bad;
  EXPECT_FALSE(verify(graph, options));
  options.nodes = none;
  EXPECT_FALSE(verify(graph, options));
}

}  // namespace
}  // namespace tessera::ir
