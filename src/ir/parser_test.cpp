#include "ir/parser.h"

#include <gtest/gtest.h>

#include "ir/op_def.h"
#include "ir/printer.h"
#include "ir/text_test_ops.h"

namespace tessera::ir {
namespace {

using test_ops::has;

Result<Graph> parse(std::string_view text, const ParseOptions& options = {}) {
  return parse_graph(text, test_ops::find, options);
}

TEST(Parser, ReadsWhatPeopleWrite) {
  Result<Graph> graph = parse(R"(
    // Labels are free, blanks do not matter, sizes may be written in any form.
    graph "hand written" { dim n  dim m in [ 2 , inf ]
      guard n <= 512 // a size ends with its line
      guard n % 8 == 0 guard 2*(n+m) == 4 * m
      in %x "x" : f32 [ n, ceildiv(m + m, 2) ]
      %w: f32[1]
         = constant [ 0x3f800000 ]
      %y "y": f32[n, m] = add(%x, %w) {} @ "Add_0" #3
      %z: f32[n, m] = attrs(%y) { eps = 1, perm = [], mode = reflect, to = f32, shape = [2*n-n, m] }
      out %z "z" out %z
    } // done)");
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_EQ(print(*graph), R"(graph "hand written" {
  dim n
  dim m in [2, inf]
  guard n <= 512
  guard n % 8 == 0
  guard 2*m + 2*n == 4*m
  in %0 "x": f32[n, m]
  %1: f32[1] = constant [1]
  %2 "y": f32[n, m] = add(%0, %1) @ "Add_0" #3
  %3: f32[n, m] = attrs(%2) {to = f32, mode = reflect, eps = 1, perm = [], shape = [n, m]}
  out %3 "z"
  out %3
}
)");
}

struct Wrong {
  std::string text;
  Code code;
  std::string message;
};

void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.text; }

class ParserRefuses : public ::testing::TestWithParam<Wrong> {};

TEST_P(ParserRefuses, WithPlaceAndReason) {
  Result<Graph> graph = parse(GetParam().text);
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().code, GetParam().code) << graph.error().to_string();
  EXPECT_TRUE(has(graph.error().to_string(), GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Grammar, ParserRefuses,
    ::testing::Values(
        Wrong{"", Code::text_syntax, "line 1, column 1: expected 'graph', found the end of the text"},
        Wrong{"graph", Code::text_syntax, "line 1, column 6: expected '{', found the end of the text"},
        Wrong{"graph {\n  in %0: f32[2\n}", Code::text_syntax, "line 3, column 1: expected ',' or ']', found '}'"},
        Wrong{"graph {\n  hello\n}", Code::text_syntax,
              "line 2, column 3: expected 'dim', 'guard', 'in', 'out', a value or '}', found 'hello'"},
        Wrong{"graph {} graph {}", Code::text_syntax, "column 10: expected the end of the text, found 'graph'"},
        Wrong{"graph { in %0: f33[] }", Code::text_syntax, "column 16: expected a type, found 'f33'"},
        Wrong{"graph { in %0: f32 }", Code::text_syntax, "column 20: expected '[' and the sizes of f32, found '}'"},
        Wrong{"graph { in %0: f32[n] }", Code::unknown_name, "column 20: 'n' is not declared by a 'dim' line"},
        Wrong{"graph { in %0: f32[,] }", Code::text_syntax, "column 20: expected a size, found ','"},
        Wrong{"graph { in %0: f32[1 +] }", Code::text_syntax, "line 1, column 20: "},
        Wrong{"graph { in %0: f32[99999999999999999999] }", Code::text_syntax, "line 1, column 20: "},
        Wrong{"graph { in %0 \"x: f32[]\n }", Code::text_syntax,
              "column 15: expected ':', found a string that does not end"},
        Wrong{"graph { in %0 \"\\q\": f32[] }", Code::text_syntax, "column 15: a string holds an escape"},
        Wrong{"graph { in %0 \"\\x4\": f32[] }", Code::text_syntax, "a string holds an escape"},
        Wrong{"graph { dim n dim n }", Code::duplicate_name, "column 19: the size 'n' is declared twice"},
        Wrong{"graph { dim n in [3, 2] }", Code::shape_invalid, "'n' has no value in [3, 2]"},
        Wrong{"graph { dim \"\" }", Code::text_syntax, "a size has an empty name"},
        Wrong{"graph { in %0: f32[] dim n }", Code::text_syntax, "sizes are declared at the start"},
        Wrong{"graph { dim n guard n < 3 }", Code::text_syntax,
              "column 23: expected '==', '!=', '<=' or '%', found '<'"},
        Wrong{"graph { dim n guard n % 3 == 1 }", Code::text_syntax, "expected '0', as in 'a % b == 0', found '1'"},
        Wrong{"graph { in %0: f32[] in %0: f32[] }", Code::duplicate_name, "column 25: %0 is defined twice"},
        Wrong{"graph { in %0: f32[] %1: f32[] = relu(%0) in %2: f32[] }", Code::text_syntax,
              "the inputs stand before the nodes"},
        Wrong{"graph { out %3 }", Code::unknown_name, "column 13: %3 is not defined before its use"},
        Wrong{"graph { %1: f32[] = relu(%1) }", Code::unknown_name, "column 26: %1 is not defined before its use"},
        Wrong{"graph { in %0: f32[] %1: f32[] = rellu(%0) }", Code::unsupported_op,
              "column 34: there is no operator 'rellu'"},
        Wrong{"graph { in %0: f32[] %1: f32[] = relu(%0 %0) }", Code::text_syntax, "expected ',' or ')', found '%0'"},
        Wrong{"graph { in %0: f32[] _ = relu(%0) @ \"x\" Relu #-1 }", Code::text_syntax, "the position of a node"},
        Wrong{"graph { \x01 }", Code::text_syntax, "found byte 0x01"}));

INSTANTIATE_TEST_SUITE_P(
    Attributes, ParserRefuses,
    ::testing::Values(Wrong{"graph { in %0: f32[] %1: f32[] = relu(%0) {alpha = 1} }", Code::attribute_invalid,
                            "column 44: relu has no attribute 'alpha'"},
                      Wrong{"graph { in %0: f32[] %1: f32[] = attrs(%0) }", Code::attribute_invalid,
                            "column 34: attrs needs the attribute 'to'"},
                      Wrong{"graph { in %0: f32[] %1: f32[] = attrs(%0) {to = f32, to = f32} }", Code::text_syntax,
                            "the attribute 'to' is given twice"},
                      Wrong{"graph { in %0: f32[] %1: f32[] = attrs(%0) {to = 1} }", Code::text_syntax,
                            "expected an element type, found '1'"},
                      Wrong{"graph { in %0: f32[] %1: f32[] = attrs(%0) {mode = wrap} }", Code::text_syntax,
                            "expected one of constant|reflect|edge, found 'wrap'"},
                      Wrong{"graph { in %0: f32[] %1: f32[] = attrs(%0) {keep = 1} }", Code::text_syntax,
                            "expected 'true' or 'false', found '1'"},
                      Wrong{"graph { in %0: f32[] %1: f32[] = attrs(%0) {eps = 1e999} }", Code::text_syntax,
                            "expected a number, found '1e999'"},
                      Wrong{"graph { in %0: f32[] %1: f32[] = attrs(%0) {axis = 1.5} }", Code::text_syntax,
                            "expected an integer of 64 bits, found '1.5'"},
                      Wrong{"graph { in %0: f32[] %1: f32[] = view(%0) {view = [1:0] from} }", Code::text_syntax,
                            "column 51: expected a view"},
                      Wrong{"graph { in %0: f32[] %1: f32[1] = view(%0) {view = [1:5] from []} }", Code::graph_invalid,
                            "column 52"},
                      Wrong{"graph { in %0: f32[4] %1: f32[n] = view(%0) {view = [n:0] from [0]} }", Code::unknown_name,
                            "'n' is not declared"}));

INSTANTIATE_TEST_SUITE_P(
    Constants, ParserRefuses,
    ::testing::Values(
        Wrong{"graph { %0: f32[2] = constant [1] }", Code::text_syntax, "column 31: expected 2 elements, found 1"},
        Wrong{"graph { %0: f32[2] = constant [1, 2, 3] }", Code::text_syntax, "expected 2 elements, found 3"},
        Wrong{"graph { %0: i8[1] = constant [128] }", Code::text_syntax,
              "column 31: expected an element of i8, found '128'"},
        Wrong{"graph { %0: u8[1] = constant [-1] }", Code::text_syntax, "expected an element of u8, found '-1'"},
        Wrong{"graph { %0: i4[1] = constant [8] }", Code::text_syntax, "expected an element of i4, found '8'"},
        Wrong{"graph { %0: i64[1] = constant [1.0] }", Code::text_syntax, "expected an element of i64, found '1.0'"},
        Wrong{"graph { %0: bool[1] = constant [1] }", Code::text_syntax, "expected an element of bool, found '1'"},
        Wrong{"graph { %0: bool[1] = constant [maybe] }", Code::text_syntax,
              "expected an element of bool, found 'maybe'"},
        Wrong{"graph { %0: f32[1] = constant [1e39] }", Code::text_syntax, "expected an element of f32, found '1e39'"},
        Wrong{"graph { %0: f16[1] = constant [0x10000] }", Code::text_syntax,
              "expected an element of f16, found '0x10000'"},
        Wrong{"graph { %0: string[1] = constant [1] }", Code::text_syntax, "expected a string in quotes, found '1'"},
        Wrong{"graph { %0: string[2] = constant all \"a\" }", Code::text_syntax, "expected an element of string"},
        Wrong{"graph { %0: f32[*] = constant [1] }", Code::text_syntax,
              "a constant has one result, a tensor of known shape"},
        Wrong{"graph { dim n %0: f32[n] = constant [1] }", Code::text_syntax, "the size n of a constant is no number"},
        Wrong{"graph { %0: f32[-1] = constant [1] }", Code::shape_invalid, "-1 is negative"},
        Wrong{"graph { %0: f32[4611686018427387904, 16] = constant [1] }", Code::shape_invalid,
              "more than 2^62 elements"},
        Wrong{"graph { %0: f32[1000000000000] = constant [1] }", Code::text_syntax,
              "do not fit in the rest of the text"},
        Wrong{"graph { %0: f32[1000000000000] = constant all 1 }", Code::out_of_memory, "take more than"},
        Wrong{"graph { %0: f32[2] = constant file \"w\" offset -1 length 8 }", Code::text_syntax, "are not negative"},
        Wrong{"graph { %0: f32[2] = constant file \"w\" offset 0 length 9 }", Code::text_syntax,
              "2 elements of f32 do not take 9 bytes"},
        Wrong{"graph { %0: f32[2] = constant file \"w\" offset 0 length 8 }", Code::text_syntax,
              "cannot be read here"}));

TEST(Parser, TakesNoMemoryForWhatIsNotThere) {
  // Every constant is small; together they pass the limit.
  std::string text = "graph {\n";
  for (int i = 0; i < 100; ++i) text += fmt::format("%{}: f32[1000] = constant all 1\n", i);
  text += "}";
  ParseOptions options;
  options.max_uniform_bytes = 399'999;
  Result<Graph> graph = parse(text, options);
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().code, Code::out_of_memory);
  options.max_uniform_bytes = 400'000;
  EXPECT_TRUE(parse(text, options));
}

TEST(Parser, BoundsNesting) {
  std::string text = "graph {";
  for (int i = 0; i < 100'000; ++i) text += "_ = branch { graph {";
  Result<Graph> graph = parse(text);
  ASSERT_FALSE(graph);
  EXPECT_TRUE(has(graph.error().message, "graphs are nested more than 64 deep"));

  text = "graph { in %0: ";
  for (int i = 0; i < 100'000; ++i) text += "seq<";
  graph = parse(text);
  ASSERT_FALSE(graph);
  EXPECT_TRUE(has(graph.error().message, "types are nested more than 64 deep"));

  text = "graph { in %0: f32[" + std::string(100'000, '(');
  EXPECT_FALSE(parse(text));
}

TEST(Parser, BoundsLists) {
  std::string text = "graph { in %0: f32[] %1: f32[] = add(%0";
  for (int i = 0; i < 70'000; ++i) text += ", %0";
  Result<Graph> graph = parse(text + ") }");
  ASSERT_FALSE(graph);
  EXPECT_TRUE(has(graph.error().message, "a node has more than 65535 results, operands or graphs"));
  text = "graph {";
  for (int i = 0; i < 70'000; ++i) text += fmt::format("in %{}: f32[]\n", i);
  graph = parse(text + "}");
  ASSERT_FALSE(graph);
  EXPECT_TRUE(has(graph.error().message, "a graph has more than 65535 inputs"));
}

TEST(Parser, NamesTheLineOfANodeThatDoesNotVerify) {
  Result<Graph> graph =
      parse("graph {\n  in %0: f32[2, 3]\n  in %1: f32[2, 4]\n  %2: f32[2, 3] = add(%0, %1) @ \"sum\" Add\n}");
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().code, Code::shape_mismatch);
  EXPECT_TRUE(has(graph.error().to_string(), "while checking node 'sum' (Add)\n  while reading line 4, column 3"));
  ParseOptions lenient;
  lenient.verify = false;
  EXPECT_TRUE(parse("graph {\n  in %0: f32[2, 3]\n  in %1: f32[2, 4]\n  %2: f32[2, 3] = add(%0, %1)\n}", lenient));
}

TEST(Parser, ReadsLargeGraphsQuickly) {
  std::string text = "graph {\n  dim n\n  in %0: f32[n, 768]\n";
  for (int i = 1; i <= 20'000; ++i)
    text += fmt::format("  %{}: f32[n, 768] = add(%{}, %{}) @ \"layer/{}\" Add #{}\n", i, i - 1, i / 2, i, i);
  text += "  out %20000 \"y\"\n}\n";
  Result<Graph> graph = parse(text);
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_EQ(print(*graph), text);
}

}  // namespace
}  // namespace tessera::ir
