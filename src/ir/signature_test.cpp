#include "ir/signature.h"

#include <gtest/gtest.h>

#include <thread>

namespace tessera::ir {
namespace {

constinit const OpDef kLinear = {
    .name = "linear", .signature = "x[*B, M, K], w[N, K], b?[N] -> y[*B, M, N]", .types = "x, w, b, y: float"};
constinit const OpDef kSoftmax = {.name = "softmax", .signature = "x[*S] -> y[*S]", .types = "x, y: float"};
constinit const OpDef kAdd = {.name = "add", .signature = "a[*S|1], b[*S|1] -> y[*S]", .types = "a, b, y: number"};
constinit const OpDef kDot = {
    .name = "dot", .signature = "a[*B|1, M, K], b[*B|1, N, K] -> y[*B, M, N]", .types = "a, b, y: number"};
constinit const OpDef kNorm = {.name = "layer_norm",
                               .signature = "x[*B, *C], g?[*C], b?[*C] -> y[*B, *C], mean[*B]",
                               .types = "x, g, b, y: float; mean: f32"};
constinit const OpDef kSplit = {
    .name = "split_heads", .signature = "x[B, T, H*D], like?[H] -> y[B, H, T, D]", .types = "x, y: float; like: i64"};
constinit const OpDef kRope = {.name = "rope",
                               .signature = "x[*B, T, D], cos[T, D/2] -> y[*B, T, D], half[D/2]",
                               .types = "x, cos, y, half: float"};
constinit const OpDef kConcat = {.name = "join", .signature = "xs...[*S] -> y[*S]", .types = "xs, y: any"};
constinit const OpDef kCast = {
    .name = "cast", .signature = "x[*S] -> y[*S]", .types = "x: any; y: -> to", .attrs = {dtype_attr("to")}};
constinit const OpDef kScale = {
    .name = "scale", .signature = "x[*B, C], s[C|1] -> y[*B, C]", .types = "each x, s: float; y: f32"};
constinit const OpDef kBoxes = {
    .name = "boxes", .signature = "x[N, 4], k[] -> y[2*N, 1]", .types = "x, y: f32; k: index"};

Status anything(Infer&) { return {}; }
constinit const OpDef kStack = {
    .name = "stack", .signature = "xs?...[*S] -> y[*R]", .types = "each xs: any; y: any", .infer = anything};

class SignatureTest : public testing::Test {
 protected:
  Context context;
  DimTable& dims = context.dims();
  Dim b = dims.symbol("b"), s = dims.symbol("s"), n = dims.symbol("n");
  std::vector<Guard> guards;

  TypeRef f32(Shape shape) { return context.tensor(DType::f32, std::move(shape)); }
  TypeRef i64(Shape shape) { return context.tensor(DType::i64, std::move(shape)); }

  // The result types as text, or the error.
  std::string apply(const OpDef& op, std::vector<TypeRef> operands, Attrs attrs = {}) {
    Infer infer{op, A(op, attrs), context, operands, {}};
    const Status status = apply_signature(infer);
    guards = infer.guards;
    if (!status) return code_name(status.error().code) + " " + status.error().message;
    std::string text;
    for (TypeRef type : infer.results) text.append(text.empty() ? "" : ", ").append(to_string(*type));
    return text;
  }
};

TEST_F(SignatureTest, Linear) {
  EXPECT_EQ(apply(kLinear, {f32({2, 5, 64}), f32({128, 64}), f32({128})}), "f32[2, 5, 128]");
  EXPECT_EQ(apply(kLinear, {f32({5, 64}), f32({128, 64})}), "f32[5, 128]");
  EXPECT_EQ(apply(kLinear, {f32({b, s, 768}), f32({n, 768}), nullptr}), "f32[b, s, n]");
  EXPECT_TRUE(guards.empty());
}

TEST_F(SignatureTest, MessagesCarryBothFacts) {
  EXPECT_EQ(apply(kLinear, {f32({2, 5, 64}), f32({128, 32})}),
            "E0312 linear: K is 64 in x[2, 5, 64] (axis 2) but 32 in w[128, 32] (axis 1)");
  EXPECT_EQ(apply(kSoftmax, {i64({3})}), "E0302 softmax: x is i64 but must be f32|f16|bf16|f64");
  EXPECT_EQ(apply(kLinear, {f32({5, 64}), context.tensor(DType::f16, {128, 64})}),
            "E0302 linear: x is f32 but w is f16");
  EXPECT_EQ(apply(kLinear, {f32({64}), f32({128, 64})}),
            "E0303 linear: x[64] has 1 axis but its form [*B, M, K] takes at least 2");
  EXPECT_EQ(apply(kLinear, {f32({5, 64}), f32({1, 128, 64})}),
            "E0303 linear: w[1, 128, 64] has 3 axes but its form [N, K] takes 2");
  EXPECT_EQ(apply(kLinear, {f32({5, 64})}),
            "E0301 linear: operand w is missing, the form is x[*B, M, K], w[N, K], b?[N] -> y[*B, M, N]");
  EXPECT_EQ(apply(kSoftmax, {f32({3}), f32({3})}), "E0301 softmax: takes 1 operand but is given 2");
  EXPECT_EQ(apply(kSoftmax, {context.sequence(f32({3}))}), "E0302 softmax: x is seq<f32[3]> but must be a tensor");
  EXPECT_EQ(apply(kBoxes, {f32({2, 3}), i64({})}), "E0312 boxes: the size is 3 in x[2, 3] (axis 1) but must be 4");
  EXPECT_EQ(apply(kBoxes, {f32({2, 4}), i64({1})}), "E0303 boxes: k[1] has 1 axis but its form [] takes 0");
}

TEST_F(SignatureTest, Broadcasting) {
  EXPECT_EQ(apply(kAdd, {f32({2, 1, 4}), f32({3, 1})}), "f32[2, 3, 4]");
  EXPECT_EQ(apply(kAdd, {f32({}), f32({b, s})}), "f32[b, s]");
  EXPECT_EQ(apply(kAdd, {f32({}), f32({})}), "f32[]");
  EXPECT_EQ(apply(kAdd, {f32({1}), f32({0})}), "f32[0]");
  EXPECT_EQ(apply(kAdd, {f32({b, 1, s}), f32({n, 1})}), "f32[b, n, s]");
  EXPECT_TRUE(guards.empty());
  EXPECT_EQ(apply(kAdd, {f32({2, 3}), f32({2, 4})}),
            "E0312 add: *S is 3 in a[2, 3] (axis 1) but 4 in b[2, 4] (axis 1), and neither is 1");
  EXPECT_EQ(apply(kAdd, {f32({s}), f32({3})}), "f32[3]");
  ASSERT_EQ(guards.size(), 1u);
  EXPECT_EQ(guards[0], (Guard{Guard::Kind::equal, s, 3}));
  EXPECT_EQ(apply(kAdd, {f32({s}), f32({s + 1})}), "f32[s]");  // only if s + 1 is 1
  EXPECT_EQ(guards[0], (Guard{Guard::Kind::equal, s + 1, 1}));

  EXPECT_EQ(apply(kDot, {f32({7, 1, 2, 3}), f32({5, 4, 3})}), "f32[7, 5, 2, 4]");
  EXPECT_EQ(apply(kScale, {f32({2, 8}), f32({1})}), "f32[2, 8]");
  EXPECT_EQ(apply(kScale, {f32({2, 8}), f32({4})}), "E0312 scale: C is 8 in x[2, 8] (axis 1) but 4 in s[4] (axis 0)");
}

TEST_F(SignatureTest, GuardsWhereNeitherProvedNorRefuted) {
  EXPECT_EQ(apply(kLinear, {f32({b, s}), f32({n, 64})}), "f32[b, n]");
  ASSERT_EQ(guards.size(), 1u);
  EXPECT_EQ(guards[0], (Guard{Guard::Kind::equal, s, 64}));
  EXPECT_EQ(apply(kLinear, {f32({b, s + 1}), f32({n, s})}),
            "E0312 linear: K is s + 1 in x[b, s + 1] (axis 1) but s in w[n, s] (axis 1)");
}

TEST_F(SignatureTest, SeveralRunsInOneOperand) {
  EXPECT_EQ(apply(kNorm, {f32({2, 3, 4, 5}), f32({4, 5}), nullptr}), "f32[2, 3, 4, 5], f32[2, 3]");
  EXPECT_EQ(apply(kNorm, {f32({2, 3}), nullptr, f32({2, 3})}), "f32[2, 3], f32[]");
  EXPECT_EQ(apply(kNorm, {f32({2, 3})}), "f32[2, 3], f32[2, 3]");
  EXPECT_EQ(apply(kNorm, {f32({5}), f32({4, 5})}),
            "E0303 layer_norm: x[5] has 1 axis but its form [*B, *C] takes at least 2, as *C is 2 axes in g[4, 5]");
  EXPECT_EQ(apply(kNorm, {f32({4, 5}), f32({4, 5}), f32({5})}),
            "E0303 layer_norm: b[5] has 1 axis but its form [*C] takes 2, as *C is 2 axes in g[4, 5]");
  EXPECT_EQ(apply(kNorm, {f32({4, 6}), f32({5})}),
            "E0312 layer_norm: *C is 6 in x[4, 6] (axis 1) but 5 in g[5] (axis 0)");
}

TEST_F(SignatureTest, LettersInsideProducts) {
  EXPECT_EQ(apply(kSplit, {f32({b, s, 768}), i64({12})}), "f32[b, 12, s, 64]");
  EXPECT_EQ(apply(kSplit, {f32({b, s, n * 64}), i64({n})}), "f32[b, n, s, 64]");
  EXPECT_EQ(apply(kSplit, {f32({2, 3, 10}), i64({3})}),
            "E0312 split_heads: H*D is 10 in x[2, 3, 10] (axis 2), but H is 3 in like[3] (axis 0)");
  EXPECT_EQ(apply(kSplit, {f32({2, 3, s}), i64({4})}), "f32[2, 4, 3, floordiv(s, 4)]");
  ASSERT_EQ(guards.size(), 1u);
  EXPECT_EQ(guards[0], (Guard{Guard::Kind::divisible, s, 4}));
  EXPECT_EQ(apply(kSplit, {f32({2, 3, 0}), i64({0})}), "f32[*]");  // any D

  EXPECT_EQ(apply(kRope, {f32({2, 5, 64}), f32({5, 32})}), "f32[2, 5, 64], f32[32]");
  EXPECT_EQ(apply(kRope, {f32({2, 5, n * 2}), f32({5, n})}), "f32[2, 5, 2*n], f32[n]");
  EXPECT_EQ(apply(kRope, {f32({2, 5, 64}), f32({5, 31})}),
            "E0312 rope: D/2 is 31 in cos[5, 31] (axis 1) but D is 64 in x[2, 5, 64] (axis 2)");
  EXPECT_EQ(apply(kRope, {f32({5, 7}), f32({5, 3})}),
            "E0312 rope: D/2 is 3 in cos[5, 3] (axis 1) but D is 7 in x[5, 7] (axis 1)");
  EXPECT_EQ(apply(kBoxes, {f32({n, 4}), context.scalar(DType::i32)}), "f32[2*n, 1]");
}

TEST_F(SignatureTest, RepeatedOperands) {
  EXPECT_EQ(apply(kConcat, {f32({2, s}), f32({2, s}), f32({2, s})}), "f32[2, s]");
  EXPECT_EQ(apply(kConcat, {f32({2, 3}), f32({2, 4})}),
            "E0312 join: *S is 3 in xs.0[2, 3] (axis 1) but 4 in xs.1[2, 4] (axis 1)");
  EXPECT_EQ(apply(kConcat, {f32({2, 3}), i64({2, 3})}), "E0302 join: xs.0 is f32 but xs.1 is i64");
  EXPECT_EQ(apply(kConcat, {}), "E0301 join: operand xs.0 is missing, the form is xs...[*S] -> y[*S]");
  EXPECT_EQ(apply(kConcat, {f32({1}), nullptr, f32({1})}),
            "E0301 join: operand xs.1 is missing, the form is xs...[*S] -> y[*S]");
  EXPECT_EQ(apply(kStack, {f32({2, 3}), i64({4})}), "");
  EXPECT_EQ(apply(kStack, {}), "");
}

TEST_F(SignatureTest, UnknownRank) {
  const TypeRef unknown = context.unranked(DType::f32);
  EXPECT_EQ(apply(kSoftmax, {unknown}), "f32[*]");
  EXPECT_EQ(apply(kLinear, {unknown, f32({3, 4})}), "f32[*]");
  EXPECT_EQ(apply(kLinear, {f32({2, 4}), unknown}), "f32[*]");
  EXPECT_EQ(apply(kLinear, {f32({2, 4}), unknown, f32({3})}), "f32[2, 3]");
  EXPECT_EQ(apply(kAdd, {f32({2, 4}), unknown}), "f32[*]");
  EXPECT_EQ(apply(kNorm, {f32({2, 4}), unknown, f32({4})}), "f32[2, 4], f32[2]");
  EXPECT_EQ(apply(kNorm, {f32({2, 4}), unknown}), "f32[2, 4], f32[*]");
  EXPECT_EQ(apply(kScale, {f32({2, 4}), unknown}), "f32[2, 4]");
}

TEST_F(SignatureTest, TypesFromAttributesAndClauses) {
  EXPECT_EQ(apply(kCast, {f32({b})}, Attrs{{static_cast<int64_t>(DType::i32)}}), "i32[b]");
  EXPECT_EQ(apply(kScale, {context.tensor(DType::f16, {2, 3}), f32({3})}), "f32[2, 3]");
  EXPECT_EQ(apply(kSoftmax, {context.tensor(DType::bf16, {})}), "bf16[]");
  EXPECT_EQ(apply(kConcat, {context.tensor(DType::f8e4m3fn, {1})}), "f8e4m3fn[1]");
  EXPECT_EQ(apply(kConcat, {context.tensor(DType::string, {1})}).substr(0, 28), "E0302 join: xs.0 is string b");
}

TEST_F(SignatureTest, ParsesEveryForm) {
  const OpDef op = {.name = "op",
                    .signature = "a?[2*D, *B|1, H*D/4], bs?...[] -> y[], z?[*B]",
                    .types = "a, z: i8|bool; bs: any; y: f64"};
  const Result<Signature> parsed = parse_signature(op);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->form(parsed->operands[0]), "[2*D, *B|1, H*D/4]");
  EXPECT_TRUE(parsed->operands[0].optional);
  EXPECT_TRUE(parsed->repeated());
  EXPECT_EQ(parsed->min_operands(), 0);
  EXPECT_TRUE(parsed->results[1].optional);
  EXPECT_EQ(parsed->operands[0].type_group, parsed->results[1].type_group);
  EXPECT_EQ(parsed->letters, (std::vector<std::string>{"D", "B", "H"}));
}

TEST_F(SignatureTest, RefusesWhatDoesNotParse) {
  const struct {
    const char *signature, *types;
  } cases[] = {
      {"x[*S]", "x: f32"},
      {"x[*S] -> ", "x: f32; y: f32"},
      {"x[*S -> y[]", "x, y: f32"},
      {"x -> y[]", "x, y: f32"},
      {"x[], x[] -> y[]", "x, y: f32"},
      {"xs...[], x[] -> y[]", "xs, x, y: f32"},
      {"x[*S, S] -> y[]", "x, y: f32"},
      {"x[*S, *S] -> y[]", "x, y: f32"},
      {"x[S|2] -> y[]", "x, y: f32"},
      {"x[S/0] -> y[]", "x, y: f32"},
      {"x[] -> y[]", "x: f32"},
      {"x[] -> y[]", "x, y: f33"},
      {"x[] -> y[]", "x, y: -> to"},
      {"x[] -> y[]", "x, y, z: f32"},
      {"x[] -> y[]", "x, y: f32; x: f32"},
      {"x[] -> y[] z", "x, y: f32"},
      {"x[99999999] -> y[]", "x, y: f32"},
  };
  for (const auto& c : cases) {
    const OpDef op = {.name = "op", .signature = c.signature, .types = c.types};
    const Result<Signature> parsed = parse_signature(op);
    ASSERT_FALSE(parsed) << c.signature << " " << c.types;
    EXPECT_EQ(parsed.error().code, Code::internal);
  }
}

TEST_F(SignatureTest, CacheIsSharedByThreads) {
  std::vector<const Signature*> seen(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < seen.size(); ++i) threads.emplace_back([&, i] { seen[i] = &signature_of(kLinear); });
  for (std::thread& t : threads) t.join();
  for (const Signature* signature : seen) EXPECT_EQ(signature, seen[0]);
}

TEST_F(SignatureTest, RandomShapesSatisfyTheirSignature) {
  for (const OpDef* op : {&kLinear, &kSoftmax, &kAdd, &kDot, &kNorm, &kRope, &kConcat, &kScale, &kBoxes, &kStack}) {
    const Signature& signature = signature_of(*op);
    bool varies = false;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const auto shapes = random_shapes(signature, seed);
      EXPECT_EQ(shapes, random_shapes(signature, seed));
      varies = varies || shapes != random_shapes(signature, 0);
      std::vector<TypeRef> operands;
      for (size_t i = 0; i < shapes.size(); ++i) {
        if (shapes[i].empty() && !signature.operands[i].repeated) operands.push_back(nullptr);
        for (const Dims& shape : shapes[i])
          operands.push_back(context.tensor(signature.operands[i].name == "k" ? DType::i64 : DType::f32,
                                            Shape(shape.begin(), shape.end())));
      }
      const std::string result = apply(*op, operands);
      EXPECT_NE(result.substr(0, 1), "E") << result;
      EXPECT_TRUE(guards.empty());
    }
    EXPECT_TRUE(varies) << op->name;
  }
}

constinit const OpDef kPool = {.name = "pool",
                               .signature = "",
                               .types = "",
                               .attrs = {int_attr("axis", -1), word_attr("mode", "max|mean"), bool_attr("keep", true),
                                         real_attr("eps", 0.5), ints_attr("sizes"), dims_attr("to"), dtype_attr("as")}};

TEST(InferTest, ReadsAttributesByName) {
  const Attrs attrs{{int64_t{2}, int64_t{1}, int64_t{0}, 0.25, std::vector<int64_t>{3, 4}, Shape{5},
                     static_cast<int64_t>(DType::f16)}};
  const A a(kPool, attrs);
  EXPECT_EQ(a.integer("axis"), 2);
  EXPECT_EQ(a.word("mode"), "mean");
  EXPECT_FALSE(a.flag("keep"));
  EXPECT_EQ(a.real("eps"), 0.25);
  EXPECT_EQ(a.integers("sizes"), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(a.dims("to"), Shape{5});
  EXPECT_EQ(static_cast<DType>(a["as"]), DType::f16);
  EXPECT_DEATH(a["none"], "");
}

TEST(InferTest, AxesAndEquations) {
  Context context;
  const Attrs attrs;
  Infer infer{kPool, A(kPool, attrs), context, {}, {}};
  EXPECT_EQ(*infer.axis(-1, 3), 2);
  EXPECT_EQ(*infer.axis(0, 3), 0);
  EXPECT_EQ(infer.axis(3, 3).error().message, "pool: axis 3 is not in [-3, 3)");
  EXPECT_EQ(infer.axis(INT64_MIN, 3).error().code, Code::axis_out_of_range);
  EXPECT_FALSE(infer.axis(0, 0));

  const Dim s = context.dims().symbol("s");
  EXPECT_TRUE(infer.require_equal(s + 1, s + 1, "the sizes"));
  EXPECT_TRUE(infer.guards.empty());
  EXPECT_EQ(infer.require_equal(2, 3, "the sizes").error().message, "pool: the sizes must agree, but are 2 and 3");
  EXPECT_TRUE(infer.require_equal(s, 3, "the sizes"));
  EXPECT_EQ(infer.guards.size(), 1u);
}

TEST(InferTest, BroadcastsShapes) {
  Context context;
  const Attrs attrs;
  Infer infer{kPool, A(kPool, attrs), context, {}, {}};
  const Dim s = context.dims().symbol("s");
  EXPECT_EQ(*broadcast_shapes(infer, {2, 1, s}, {3, 1}), (Shape{2, 3, s}));
  EXPECT_EQ(*broadcast_shapes(infer, {}, {s}), (Shape{s}));
  EXPECT_TRUE(infer.guards.empty());
  EXPECT_EQ(broadcast_shapes(infer, {2, 3}, {2}).error().message,
            "pool: [2, 3] and [2] do not broadcast: axis -1 is 3 and 2");
}

}  // namespace
}  // namespace tessera::ir
