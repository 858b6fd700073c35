// Printing, and that reading gives the same graph back: everything a graph holds is compared.
#include "ir/printer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "ir/op_def.h"
#include "ir/parser.h"
#include "ir/text_test_ops.h"
#include "tensor/scalar.h"

namespace tessera::ir {
namespace {

using test_ops::has;

const OpDef& op(std::string_view name) { return *test_ops::find(name); }

// The text of a Dim stands for it: the two graphs have tables of their own.
std::vector<std::string> texts(const Shape& shape) {
  std::vector<std::string> out;
  for (Dim d : shape) out.push_back(to_string(d));
  return out;
}

void expect_same_attribute(const AttrValue& a, const AttrValue& b) {
  ASSERT_EQ(a.index(), b.index());
  if (const auto* view = std::get_if<View>(&a)) {
    EXPECT_EQ(to_string(*view), to_string(std::get<View>(b)));
  } else if (const auto* shape = std::get_if<Shape>(&a)) {
    EXPECT_EQ(texts(*shape), texts(std::get<Shape>(b)));
  } else if (const auto* real = std::get_if<double>(&a)) {
    EXPECT_EQ(std::memcmp(real, &std::get<double>(b), sizeof(double)), 0);
  } else {
    EXPECT_EQ(a, b);
  }
}

void expect_same_tensor(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(a.shape(), b.shape());
  if (a.dtype() == DType::string) {
    EXPECT_EQ(a.strings(), b.strings());
  } else if (a.bytes() > 0) {
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.bytes()), 0);
  }
}

void expect_same_location(const Context& ca, LocId a, const Context& cb, LocId b) {
  EXPECT_EQ(ca.text(ca.location(a).node), cb.text(cb.location(b).node));
  EXPECT_EQ(ca.text(ca.location(a).op_type), cb.text(cb.location(b).op_type));
  EXPECT_EQ(ca.location(a).index, cb.location(b).index);
}

void expect_same(const Graph& a, const Graph& b) {
  const Context &ca = a.context(), &cb = b.context();
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.outputs, b.outputs);
  ASSERT_EQ(a.value_count(), b.value_count());
  ASSERT_EQ(a.node_count(), b.node_count());
  ASSERT_EQ(a.output_names.size(), b.output_names.size());
  for (size_t i = 0; i < a.output_names.size(); ++i) EXPECT_EQ(ca.text(a.output_names[i]), cb.text(b.output_names[i]));
  ASSERT_EQ(a.guards.size(), b.guards.size());
  for (size_t i = 0; i < a.guards.size(); ++i) {
    EXPECT_EQ(a.guards[i].kind, b.guards[i].kind);
    EXPECT_EQ(to_string(a.guards[i].a), to_string(b.guards[i].a));
    EXPECT_EQ(to_string(a.guards[i].b), to_string(b.guards[i].b));
    expect_same_location(ca, a.guards[i].location, cb, b.guards[i].location);
  }
  ASSERT_EQ(a.contents.size(), b.contents.size());
  for (const auto& [v, elements] : a.contents) {
    ASSERT_TRUE(b.contents.contains(v));
    EXPECT_EQ(texts(elements), texts(b.contents.at(v)));
  }
  for (ValueId v = 0; v < a.value_count(); ++v) {
    EXPECT_EQ(a.value_name(v), b.value_name(v));
    EXPECT_EQ(a.value(v).def, b.value(v).def);
    EXPECT_EQ(a.value(v).result, b.value(v).result);
    EXPECT_EQ(to_string(*a.type(v)), to_string(*b.type(v)));
  }
  for (NodeId n = 0; n < a.node_count(); ++n) {
    EXPECT_EQ(a.node(n).op, b.node(n).op);
    expect_same_location(ca, a.node(n).location, cb, b.node(n).location);
    EXPECT_TRUE(std::ranges::equal(a.operands(n), b.operands(n)));
    ASSERT_EQ(a.regions(n).size(), b.regions(n).size());
    for (size_t i = 0; i < a.regions(n).size(); ++i) expect_same(a.regions(n)[i], b.regions(n)[i]);
    ASSERT_EQ(a.node(n).attrs->values.size(), b.node(n).attrs->values.size());
    if (a.node(n).op->name == "constant") {
      auto id = [](const Graph& g, NodeId node) {
        return static_cast<uint32_t>(std::get<int64_t>(g.node(node).attrs->values[0]));
      };
      expect_same_tensor(ca.constant(id(a, n)), cb.constant(id(b, n)));
      continue;
    }
    for (size_t i = 0; i < a.node(n).attrs->values.size(); ++i)
      expect_same_attribute(a.node(n).attrs->values[i], b.node(n).attrs->values[i]);
  }
  // Symbols with their bounds: those that the text mentions.
  for (int i = 0; i < cb.dims().symbol_count(); ++i) {
    std::optional<Dim> symbol = ca.dims().find(cb.dims().symbol_name(i));
    ASSERT_TRUE(symbol.has_value());
    int j = *ca.dims().symbol_index(*symbol);
    EXPECT_EQ(ca.dims().symbol_bounds(j).lo, cb.dims().symbol_bounds(i).lo);
    EXPECT_EQ(ca.dims().symbol_bounds(j).hi, cb.dims().symbol_bounds(i).hi);
  }
}

void expect_round_trip(const Graph& graph) {
  std::string text = print(graph);
  Result<Graph> read = parse_graph(text, test_ops::find);
  ASSERT_TRUE(read) << read.error().to_string() << "\n" << text;
  EXPECT_EQ(print(*read), text);
  expect_same(graph, *read);
}

// A graph under construction, without the checks of a builder.
struct Writer {
  Graph graph{std::make_shared<Context>()};
  Context& context() { return graph.context(); }
  DimTable& dims() { return graph.dims(); }

  ValueId add(std::string_view name, std::vector<ValueId> operands, std::vector<TypeRef> types,
              std::vector<AttrValue> attrs = {}, std::vector<Graph> regions = {}, Location location = {}) {
    LocId where = location == Location() ? 0 : context().location(location);
    NodeId node =
        graph.add_node(op(name), operands, context().attrs({std::move(attrs)}), types, where, std::move(regions));
    return graph.node(node).results;
  }
  ValueId constant(Tensor tensor) {
    TypeRef type = context().tensor(tensor.dtype(), Shape(tensor.shape().begin(), tensor.shape().end()));
    return add("constant", {}, {type}, {static_cast<int64_t>(context().constant(std::move(tensor)))});
  }
  void output(ValueId v, std::string_view name = "") {
    graph.outputs.push_back(v);
    graph.output_names.push_back(context().name(name));
  }
};

TEST(Printer, WritesWhatTheManualSays) {
  Writer w;
  Dim batch = w.dims().fresh("batch", {1, 64}), seq = w.dims().symbol("seq");
  w.graph.name = "tiny";
  w.graph.guards.push_back({Guard::Kind::at_most, seq, 512});
  w.graph.guards.push_back({Guard::Kind::divisible, seq, 8});
  TypeRef type = w.context().tensor(DType::f32, {batch, seq, 3});
  ValueId x = w.graph.add_input(type, "x");
  Tensor c = *Tensor::make(DType::f32, {3});
  for (int i = 0; i < 3; ++i) c.as<float>()[i] = std::array{1.f, 2.5f, -0.1f}[static_cast<size_t>(i)];
  ValueId bias = w.constant(std::move(c));
  ValueId y = w.add("add", {x, bias}, {type}, {}, {}, {w.context().name("block/Add"), w.context().name("Add"), 12});
  w.graph.set_name(y, "h");
  w.output(y, "logits");
  EXPECT_EQ(print(w.graph), R"(graph "tiny" {
  dim batch in [1, 64]
  dim seq
  guard seq <= 512
  guard seq % 8 == 0
  in %0 "x": f32[batch, seq, 3]
  %1: f32[3] = constant [1, 2.5, -0.1]
  %2 "h": f32[batch, seq, 3] = add(%0, %1) @ "block/Add" Add #12
  out %2 "logits"
}
)");
  EXPECT_EQ(print_node(w.graph, 1), "%2 \"h\": f32[batch, seq, 3] = add(%0, %1)");
  expect_round_trip(w.graph);
}

TEST(Printer, RoundTripsAttributesOfEveryKind) {
  Writer w;
  Dim n = w.dims().symbol("n"), odd = w.dims().symbol("odd name \"[x]\"\n, ] 1");
  TypeRef type = w.context().tensor(DType::f32, {n, odd * 2 + n * n - 1, floordiv(odd + 3, 4)});
  ValueId x = w.graph.add_input(type, "");
  auto attrs = [](int64_t axis, double eps, Shape shape, std::vector<int64_t> pads) {
    return std::vector<AttrValue>{axis,
                                  int64_t{1},
                                  static_cast<int64_t>(DType::bf16),
                                  int64_t{2},
                                  eps,
                                  std::vector<int64_t>{2, 0, 1},
                                  std::move(shape),
                                  std::move(pads)};
  };
  const double inf = std::numeric_limits<double>::infinity();
  w.add("attrs", {x}, {type}, attrs(3, 1e-12, {n, odd, 4, min(n, odd)}, {}));
  w.add("attrs", {x}, {type}, attrs(-1, 1e-5, {}, {INT64_MIN, INT64_MAX}));
  w.add("attrs", {x}, {type}, attrs(INT64_MIN, -inf, {Dim(-3)}, {}));
  w.add("attrs", {x}, {type}, attrs(0, std::nan(""), {}, {0}));
  w.add("attrs", {x}, {type}, attrs(0, -0.0, {}, {}));
  ValueId y = w.add("attrs", {x}, {type}, attrs(0, 0.1 + 0.2, {}, {}));
  w.output(y, "y");
  expect_round_trip(w.graph);
  EXPECT_TRUE(has(print(w.graph),
                  "{axis = 3, keep = true, to = bf16, mode = edge, eps = 1e-12, perm = [2, 0, 1], "
                  "shape = [n, \"odd name \\\"[x]\\\"\\x0a, ] 1\", 4, "));
}

TEST(Printer, RoundTripsViews) {
  Writer w;
  Dim b = w.dims().symbol("b"), s = w.dims().fresh("s", {1, 64});
  Shape base = {b, s, 12 * 64};
  ValueId x = w.graph.add_input(w.context().tensor(DType::f16, base), "x");
  View heads = *reshape_view(base, Shape{b, s, 12, 64});
  const int order[] = {0, 2, 1, 3};
  for (const View& view : {heads, *compose(heads, transpose_view(Shape{b, s, 12, 64}, order)),
                           slice_view(base, 1, s - 1, -1, s), broadcast_view(Shape{b, s, 768}, Shape{5, b, s, 768})}) {
    View normal = normalised(view);
    Shape shape = normal.shape();
    w.add("view", {x}, {w.context().tensor(DType::f16, shape)}, {std::move(normal)});
  }
  w.output(x, "same");
  expect_round_trip(w.graph);
}

TEST(Printer, RoundTripsEveryElementTypeBitForBit) {
  for (int t = 0; t < kDTypeCount; ++t) {
    DType dtype = static_cast<DType>(t);
    if (dtype == DType::string) continue;
    SCOPED_TRACE(std::string(name(dtype)));
    Writer w;
    if (is_block(dtype)) {
      Tensor tensor = *Tensor::make(dtype, {3, 512});
      for (size_t i = 0; i < tensor.bytes(); ++i) tensor.as<unsigned char>()[i] = static_cast<unsigned char>(i * i);
      w.output(w.constant(std::move(tensor)), "c");
      expect_round_trip(w.graph);
      continue;
    }
    // All codes of the small types; for the wide ones, patterns that meet NaNs, denormals and the ends of the range.
    int64_t count = bits(dtype) <= 16 ? int64_t{1} << bits(dtype) : 4096;
    if (dtype == DType::boolean) count = 2;
    Tensor tensor = *Tensor::make(dtype, {count});
    uint64_t seed = 1;
    for (int64_t i = 0; i < count; ++i) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      uint64_t pattern = bits(dtype) <= 16 ? static_cast<uint64_t>(i) : seed;
      if (bits(dtype) == 32 && i % 4 == 0) pattern |= 0x7f800000;
      if (bits(dtype) == 32 && i % 4 == 1) pattern &= 0x807fffff;
      if (bits(dtype) == 64 && i % 4 == 0) pattern |= 0x7ff0000000000000;
      if (bits(dtype) == 64 && i % 4 == 1) pattern &= 0x800fffffffffffff;
      if (i < 4)
        pattern = std::array<uint64_t, 4>{0, ~uint64_t{0}, uint64_t{1} << (bits(dtype) - 1), 1}[static_cast<size_t>(i)];
      if (dtype == DType::boolean) pattern = static_cast<uint64_t>(i);
      auto* bytes = tensor.as<unsigned char>();
      if (int width = bits(dtype); width >= 8) {
        std::memcpy(bytes + i * (width / 8), &pattern, static_cast<size_t>(width / 8));
      } else {
        pattern &= (1u << width) - 1;
        bytes[i * width / 8] = static_cast<unsigned char>(bytes[i * width / 8] | (pattern << (i * width % 8)));
      }
    }
    w.output(w.constant(std::move(tensor)), "c");
    expect_round_trip(w.graph);
  }
}

TEST(Printer, WritesElementsAsPeopleDo) {
  auto shown = [](DType dtype, std::vector<double> values) {
    Writer w;
    Tensor tensor = *Tensor::make(dtype, {static_cast<int64_t>(values.size())});
    encode_all(dtype, tensor.mutable_data(), values);
    w.output(w.constant(std::move(tensor)), "c");
    std::string text = print(w.graph);
    size_t at = text.find("constant");
    return text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(shown(DType::f32, {0.1, 1e30, -0.0, HUGE_VAL, NAN}), "constant [0.1, 1e+30, -0, inf, nan]");
  EXPECT_EQ(shown(DType::f64, {0.1, 1.0 / 3}), "constant [0.1, 0.3333333333333333]");
  EXPECT_EQ(shown(DType::bf16, {1, 2.5}), "constant [1, 2.5]");
  EXPECT_EQ(shown(DType::i4, {-8, 7, 0}), "constant [-8, 7, 0]");
  EXPECT_EQ(shown(DType::boolean, {1, 0}), "constant [true, false]");
  EXPECT_EQ(shown(DType::u8, {7, 7, 7}), "constant all 7");
  EXPECT_EQ(shown(DType::u8, {}), "constant []");
}

TEST(Printer, RoundTripsScalarsEmptyTensorsAndStrings) {
  Writer w;
  Tensor scalar = *Tensor::make(DType::i64, {});
  scalar.as<int64_t>()[0] = INT64_MIN;
  w.constant(std::move(scalar));
  w.constant(*Tensor::make(DType::f32, {3, 0, 5}));
  w.constant(*Tensor::make(DType::u64, {2, 3}));
  w.constant(
      Tensor::of_strings({2, 2}, {"", "a \"quoted\" \\ text", "lines\n\tand\r\x01", "ünï \xff\xc0\xaf code 汉字"}));
  w.output(w.constant(Tensor::of_strings({}, {"one"})), "last");
  expect_round_trip(w.graph);
}

TEST(Printer, RoundTripsNamesOfAnyBytes) {
  Writer w;
  w.graph.name = "a \"graph\"\n}";
  TypeRef type = w.context().scalar(DType::f32);
  ValueId x = w.graph.add_input(type, "in put\t\"%0\" = 汉字");
  Context& c = w.context();
  ValueId y = w.add("relu", {x}, {type}, {}, {}, {c.name("// no comment"), c.name("out"), UINT32_MAX});
  w.graph.set_name(y, std::string_view("zero \0 byte", 11));
  ValueId z = w.add("relu", {y}, {type}, {}, {}, {0, c.name("ai.onnx::Relu"), 3});
  ValueId u = w.add("relu", {z}, {type}, {}, {}, {c.name("only a name"), 0, 0});
  w.output(u, "\xff");
  w.output(u, "the same again");
  w.output(x);
  expect_round_trip(w.graph);
}

TEST(Printer, RoundTripsTypesOfEveryKind) {
  Writer w;
  Context& c = w.context();
  Dim n = w.dims().symbol("n");
  for (TypeRef type : {c.unranked(DType::i4), c.scalar(DType::string), c.tensor(DType::f8e4m3fnuz, {0, n}),
                       c.sequence(c.unranked(DType::f32)), c.optional(c.sequence(c.tensor(DType::i64, {n * n, 2}))),
                       c.type({Kind::state, DType::f32, true, {n, 12, 64}})})
    w.output(w.graph.add_input(type, ""));
  expect_round_trip(w.graph);
}

TEST(Printer, RoundTripsSymbolsGuardsAndContents) {
  Writer w;
  DimTable& d = w.dims();
  d.symbol("never used");
  Dim a = d.fresh("a", {-5, 5}), b = d.fresh("b", {INT64_MIN, INT64_MAX}), c = d.fresh("min", {3, INT64_MAX});
  LocId where = w.context().location({w.context().name("node"), w.context().name("Reshape"), 4});
  w.graph.guards = {{Guard::Kind::equal, a * b, c + 1, where},
                    {Guard::Kind::not_equal, a, 0},
                    {Guard::Kind::at_most, max(a, b), 5},
                    {Guard::Kind::divisible, a * c + b, c}};
  TypeRef type = w.context().tensor(DType::i64, {3});
  ValueId x = w.graph.add_input(type, "x");
  ValueId n = w.graph.add_input(w.context().scalar(DType::i32), "n");
  ValueId s = w.add("dims", {}, {type}, {Shape{a, b, c}});
  w.graph.contents[x] = {a, -1, floordiv(b, c)};
  w.graph.contents[n] = {c};
  w.graph.contents[s] = {a, b, c};
  w.output(s, "s");
  expect_round_trip(w.graph);
  EXPECT_TRUE(has(print(w.graph), "in %1 \"n\": i32[] is [\"min\"]"));
  EXPECT_TRUE(has(print(w.graph), "dim b in [-inf, inf]"));
  EXPECT_FALSE(has(print(w.graph), "never used"));
}

TEST(Printer, RoundTripsNestedGraphsSeveralResultsAndAbsentOperands) {
  Writer w;
  Context& c = w.context();
  Dim n = w.dims().symbol("n");
  TypeRef flag = c.scalar(DType::boolean), type = c.tensor(DType::f32, {n, 4}), row = c.tensor(DType::f32, {n});
  ValueId p = w.graph.add_input(flag, "p"), x = w.graph.add_input(type, "x");
  std::vector<Graph> regions;
  for (std::string_view name : {"then", "else"}) {
    Graph region(w.graph.shared_context());
    region.name = name;
    ValueId in = region.add_input(type, "x");
    std::vector<Graph> deeper;
    for (int i = 0; i < 2; ++i) {
      Graph inner(w.graph.shared_context());
      inner.outputs = {inner.add_input(type, "")};
      inner.output_names = {0};
      deeper.push_back(std::move(inner));
    }
    const ValueId flag_in = region.add_input(flag, "p"), operands[] = {flag_in, in};
    NodeId node = region.add_node(op("branch"), operands, c.attrs({}), std::span(&type, 1), 0, std::move(deeper));
    region.outputs = {region.result(node, 0)};
    region.output_names = {c.name("y")};
    regions.push_back(std::move(region));
  }
  ValueId y = w.add("branch", {p, x, p}, {type}, {}, std::move(regions), {c.name("If_0"), c.name("If"), 7});
  ValueId normed = w.add("norm", {y}, {type, row});
  w.graph.set_name(normed + 1, "mean");
  w.add("matmul", {x, normed, kNoValue}, {c.tensor(DType::f32, {n, n})});
  w.output(normed + 1, "mean");
  expect_round_trip(w.graph);
  EXPECT_TRUE(has(print(w.graph), "%3: f32[n, 4], %4 \"mean\": f32[n] = norm(%2)\n"));
  EXPECT_TRUE(has(print(w.graph), "= matmul(%1, %3, _)\n"));
}

TEST(Printer, RefersToLargeConstantsOrElidesThem) {
  Writer w;
  Tensor tensor = *Tensor::make(DType::f32, {2, 50});
  for (int i = 0; i < 100; ++i) tensor.as<float>()[i] = static_cast<float>(i);
  w.output(w.constant(tensor), "w");
  PrintOptions options = PrintOptions::display();
  EXPECT_TRUE(has(print(w.graph, options), "%0: f32[2, 50] = constant elided 400 bytes\n"));
  Result<Graph> elided = parse_graph(print(w.graph, options), test_ops::find);
  ASSERT_FALSE(elided);
  EXPECT_TRUE(has(elided.error().message, "line 2, column 29: this text is for reading only"));

  options.external = [](const Tensor& t) { return ExternalData{"w.bin", 64, static_cast<int64_t>(t.bytes())}; };
  std::string text = print(w.graph, options);
  EXPECT_TRUE(has(text, "constant file \"w.bin\" offset 64 length 400\n"));
  ParseOptions loading;
  loading.load = [&](const ExternalData& data, DType, const Dims&) -> Result<Tensor> {
    EXPECT_EQ(data, (ExternalData{"w.bin", 64, 400}));
    return tensor;
  };
  Result<Graph> read = parse_graph(text, test_ops::find, loading);
  ASSERT_TRUE(read) << read.error().to_string();
  expect_same(w.graph, *read);
  EXPECT_EQ(print(*read, options), text);
}

TEST(Printer, ShowsIdsThatDoNotExist) {
  Writer w;
  TypeRef type = w.context().scalar(DType::f32);
  w.add("relu", {77}, {type});
  w.output(99);
  EXPECT_TRUE(has(print(w.graph), "relu(%?)\n  out %?\n"));
}

}  // namespace
}  // namespace tessera::ir
