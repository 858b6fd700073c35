#include "tensor/dim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tessera {
namespace {

class DimTest : public ::testing::Test {
 protected:
  Dim at_least(std::string_view name, int64_t lo, int64_t hi = INT64_MAX) {
    const Dim d = t.symbol(name);
    EXPECT_TRUE(t.narrow(d, {lo, hi}));
    return d;
  }
  void expect_bounds(Dim d, int64_t lo, int64_t hi) {
    EXPECT_EQ(t.bounds(d).lo, lo) << to_string(d);
    EXPECT_EQ(t.bounds(d).hi, hi) << to_string(d);
  }
  DimTable t;
  Dim a = t.symbol("a"), b = t.symbol("b"), h = t.symbol("h"), s = t.symbol("s");
  Dim batch = at_least("batch", 1), seq = at_least("seq", 1);
};

TEST_F(DimTest, ConstantsNeedNoTable) {
  EXPECT_EQ(Dim(2) * 3 + 4 - 1, Dim(9));
  EXPECT_EQ(floordiv(-7, 2), Dim(-4));
  EXPECT_EQ(floordiv(7, -2), Dim(-4));
  EXPECT_EQ(floordiv(7, 0), Dim(0));
  EXPECT_EQ(ceildiv(7, 2), Dim(4));
  EXPECT_EQ(mod(-7, 4), Dim(1));
  EXPECT_EQ(Dim(INT64_MAX) + 1, Dim(INT64_MIN));
  EXPECT_EQ(Dim(INT64_MIN) * -1, Dim(INT64_MIN));
  EXPECT_EQ(floordiv(INT64_MIN, -1), Dim(INT64_MIN));
  EXPECT_TRUE((a - a).is(0));
  EXPECT_TRUE((a * 0).is(0));
}

TEST_F(DimTest, EqualPolynomialsAreOneId) {
  EXPECT_EQ((a + b) * (a - b), a * a - b * b);
  EXPECT_EQ((a + 1) * (a + 1), a * a + 2 * a + 1);
  EXPECT_EQ(a + b - a, b);
  EXPECT_NE(a, b);
  EXPECT_EQ(product(std::vector<Dim>{batch, 12, seq}), 12 * (seq * batch));
}

TEST_F(DimTest, FloordivNormalForms) {
  EXPECT_EQ(floordiv(a, 1), a);
  EXPECT_EQ(floordiv(4 * a + 8, 4), a + 2);
  EXPECT_EQ(floordiv(4 * a + b, 4), a + floordiv(b, 4));
  EXPECT_EQ(floordiv(6 * a + 3, 4), a + floordiv(a + 1, 2));
  EXPECT_EQ(floordiv(floordiv(a, 3), 5), floordiv(a, 15));
  EXPECT_EQ(floordiv(floordiv(a - 1, 2) - 1, 2), floordiv(a - 3, 4));
  EXPECT_EQ(floordiv(a, -4), floordiv(-a, 4));
  EXPECT_EQ(floordiv(mod(a, 4), 4), Dim(0));
  EXPECT_EQ(mod(mod(a, 8), 4), mod(a, 4));
  EXPECT_EQ(mod(4 * a + 3, 4), Dim(3));
  EXPECT_EQ(floordiv(seq, seq), Dim(1));
  EXPECT_NE(floordiv(a, a), Dim(1)) << "a may be 0";
  EXPECT_EQ(floordiv(batch * seq + a, seq), batch + floordiv(a, seq));
  EXPECT_EQ(floordiv(768 * batch * seq, 64 * seq), 12 * batch);
  EXPECT_EQ(floordiv(a * seq, batch * seq), floordiv(a, batch));
  EXPECT_EQ(floordiv((batch + seq) * a, batch + seq), a);
  EXPECT_EQ(floordiv(floordiv(a, batch), seq), floordiv(a, batch * seq));
  EXPECT_EQ(mod(a * batch, batch), Dim(0));
  EXPECT_EQ(floordiv(at_least("small", 0, 7), 8), Dim(0));
}

TEST_F(DimTest, ConvolutionSizes) {
  const auto out = [](Dim size, int64_t pad, int64_t kernel, int64_t stride) {
    return floordiv(size + 2 * pad - kernel, stride) + 1;
  };
  EXPECT_EQ(out(h, 1, 3, 1), h);
  EXPECT_EQ(out(h, 1, 3, 2), floordiv(h + 1, 2));
  EXPECT_EQ(out(out(h, 1, 3, 2), 1, 3, 2), floordiv(h + 3, 4));
  EXPECT_EQ(out(32 * h, 1, 3, 2), 16 * h);
  EXPECT_EQ(out(out(out(32 * h, 1, 3, 2), 0, 2, 2), 0, 2, 2), 4 * h);
  EXPECT_EQ(out(224, 3, 7, 2), Dim(112));
}

TEST_F(DimTest, ExtremaNormalForms) {
  EXPECT_EQ(min(a, a), a);
  EXPECT_EQ(max(a, b), max(b, a));
  EXPECT_EQ(max(a, max(b, h)), max(max(h, a), b));
  EXPECT_EQ(max(a, max(a, b)), max(a, b));
  EXPECT_EQ(max(a, a + 3), a + 3);
  EXPECT_EQ(min(a, a + b), a);
  EXPECT_EQ(max(a, 0), a);
  EXPECT_EQ(max(a + 5, b + 3), 3 + max(a + 2, b));
  EXPECT_EQ(max(1 + max(a, 2), b), max(max(a + 1, b), 3));
  EXPECT_EQ(max(2 * a, 2 * b), 2 * max(a, b));
  EXPECT_EQ(max(-min(a, b), h - 1), max(max(-a, -b), h - 1));
  EXPECT_EQ(max(seq, 1), seq);
  EXPECT_EQ(min(max(a, b), a), a);
  EXPECT_EQ(max(min(a, b), a), a);
  const Dim halves = min(-4 * floordiv(a, 4), -2 * floordiv(a, 2));
  EXPECT_EQ(halves, 2 * min(-2 * floordiv(a, 4), -floordiv(a, 2))) << "what is shared leaves before operands compare";
}

TEST_F(DimTest, Bounds) {
  expect_bounds(seq, 1, INT64_MAX);
  expect_bounds(4 * at_least("n", 2, 10) - 3, 5, 37);
  const Dim n = *t.find("n");
  expect_bounds(mod(a, 8), 0, 7);
  expect_bounds(mod(-a, 8), 0, 7);
  expect_bounds(a - 3 * floordiv(a, 3), 0, 2);
  expect_bounds(n * n - n, 2, 90);
  expect_bounds(floordiv(n, 3), 0, 3);
  expect_bounds(floordiv(30, n), 3, 15);
  expect_bounds(min(n, 5), 2, 5);
  expect_bounds(max(n, a) - a, 0, 10);
  expect_bounds(t.fresh("any", {INT64_MIN, INT64_MAX}), INT64_MIN, INT64_MAX);
  expect_bounds(a * INT64_MAX, 0, INT64_MAX);
}

TEST_F(DimTest, NarrowingReachesWhatIsBuiltOnTheSymbol) {
  const Dim x = t.symbol("x");
  const Dim y = floordiv(x, 4);
  expect_bounds(y, 0, INT64_MAX);
  ASSERT_TRUE(t.narrow(x, {8, 16}));
  expect_bounds(y, 2, 4);
  const Status contradiction = t.narrow(x, {17, 20});
  ASSERT_FALSE(contradiction);
  EXPECT_EQ(contradiction.error().code, Code::shape_invalid);
  expect_bounds(x, 8, 16);
}

TEST_F(DimTest, ProvesWhatShapesNeed) {
  EXPECT_TRUE(t.proves_le(a, max(a, b)));
  EXPECT_TRUE(t.proves_le(b, max(a, b)));
  EXPECT_TRUE(t.proves_le(min(a, b), a));
  EXPECT_TRUE(t.proves_le(min(a, b), max(a, b)));
  EXPECT_TRUE(t.proves_le(floordiv(a, 4) * 4, a));
  EXPECT_TRUE(t.proves_le(a, ceildiv(a, 4) * 4));
  EXPECT_TRUE(t.proves_lt(a, floordiv(a, 4) * 4 + 4));
  EXPECT_TRUE(t.proves_le(floordiv(a, 2), a));
  EXPECT_TRUE(t.proves_le(floordiv(a, seq) * seq, a));
  EXPECT_TRUE(t.proves_lt(mod(a, seq), seq));
  EXPECT_TRUE(t.proves_le(floordiv(a, seq), a));
  EXPECT_TRUE(t.proves_le(a, a * seq));
  EXPECT_TRUE(t.proves_le(batch + seq, batch * seq + 1));
  EXPECT_TRUE(t.proves_lt(a, a + 1));
  EXPECT_TRUE(t.proves_le(a, a + b));
  EXPECT_TRUE(t.proves_ne(seq, 0));
  EXPECT_TRUE(t.proves_ne(2 * a + 1, 2 * b));
  EXPECT_TRUE(t.proves_ne(a + 1, a));
  EXPECT_TRUE(t.proves_eq(a + b, b + a));
  EXPECT_TRUE(t.proves_eq(at_least("four", 4, 4), 4));
  EXPECT_TRUE(t.proves_le(max(a - b, 0), a));
  EXPECT_TRUE(t.proves_le(max(seq - 1, 0), seq - 1));
  EXPECT_TRUE(t.proves_divisible(12 * a * b, 4 * a));
  EXPECT_TRUE(t.proves_divisible(a - mod(a, 4), 4));
  EXPECT_TRUE(t.proves_divisible(4 * floordiv(a, 4) + 8 * b, 4));
  EXPECT_FALSE(t.proves_divisible(a, 2));
  EXPECT_FALSE(t.proves_divisible(a, 0));
  EXPECT_FALSE(t.proves_ne(a, 0));
  EXPECT_FALSE(t.proves_eq(a, b));
  EXPECT_FALSE(t.proves_lt(a, a));
  EXPECT_FALSE(t.proves_le(a, b));
}

TEST_F(DimTest, ExactDivision) {
  EXPECT_EQ(t.exact_div(batch * seq * 768, 64 * seq), 12 * batch);
  EXPECT_EQ(t.exact_div(batch * seq, seq), batch);
  EXPECT_EQ(t.exact_div(a * s, s), a) << "a*s is a times s where s is 0, too";
  EXPECT_EQ(t.exact_div(a * a - b * b, a + b), a - b);
  EXPECT_EQ(t.exact_div(a * a * a - b * b * b, a - b), a * a + a * b + b * b);
  EXPECT_EQ(t.exact_div((a + b + h) * (a * s - 3), a * s - 3), a + b + h);
  EXPECT_EQ(t.exact_div(6 * a + 9, 3), 2 * a + 3);
  EXPECT_EQ(t.exact_div(6 * a, -3), -2 * a);
  EXPECT_EQ(t.exact_div(12, 4), Dim(3));
  EXPECT_EQ(t.exact_div(0, a), Dim(0));
  EXPECT_EQ(t.exact_div(a * floordiv(b, 2), floordiv(b, 2)), a);
  EXPECT_EQ(t.exact_div(a, 2), std::nullopt);
  EXPECT_EQ(t.exact_div(a, b), std::nullopt);
  EXPECT_EQ(t.exact_div(12, 5), std::nullopt);
  EXPECT_EQ(t.exact_div(a, 0), std::nullopt);
  EXPECT_EQ(t.exact_div(a * a + 1, a), std::nullopt);
}

TEST_F(DimTest, Evaluate) {
  DimBindings bindings(static_cast<size_t>(t.symbol_count()));
  const auto bind = [&](Dim d, int64_t v) { bindings[static_cast<size_t>(*t.symbol_index(d))] = v; };
  bind(a, 7);
  bind(b, 3);
  bind(s, 0);
  EXPECT_EQ(*t.evaluate(5, {}), 5);
  EXPECT_EQ(*t.evaluate(a * b - 1, bindings), 20);
  EXPECT_EQ(*t.evaluate(floordiv(-a, b), bindings), -3);
  EXPECT_EQ(*t.evaluate(max(a - 9, -b), bindings), -2);
  const auto unbound = t.evaluate(h + 1, bindings);
  ASSERT_FALSE(unbound);
  EXPECT_EQ(unbound.error().code, Code::shape_invalid);
  EXPECT_NE(unbound.error().message.find("'h'"), std::string::npos);
  EXPECT_FALSE(t.evaluate(floordiv(a, s), bindings));
  bind(a, INT64_MAX);
  EXPECT_FALSE(t.evaluate(a + 1, bindings));
  EXPECT_EQ(*t.evaluate(a * 4 - a * b, bindings), INT64_MAX) << "only the value has to fit";
}

TEST_F(DimTest, Symbols) {
  EXPECT_EQ(t.symbol("a"), a);
  EXPECT_EQ(t.find("a"), a);
  EXPECT_EQ(t.find("zzz"), std::nullopt);
  EXPECT_EQ(to_string(t.fresh("n")), "n");
  EXPECT_EQ(to_string(t.fresh("n")), "n.1");
  t.symbol("n.2");
  EXPECT_EQ(to_string(t.fresh("n")), "n.3");
  EXPECT_EQ(t.symbols_of(floordiv(s + max(b, h), 3) * a), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(t.symbol_index(a + 1), std::nullopt);
  EXPECT_EQ(t.symbol_index(4), std::nullopt);
}

TEST_F(DimTest, Text) {
  EXPECT_EQ(to_string(1 + seq * batch * 4), "4*batch*seq + 1");
  EXPECT_EQ(to_string(-a), "-a");
  EXPECT_EQ(to_string(b - 3 * a * a), "-3*a*a + b");
  EXPECT_EQ(to_string(floordiv(s + 3, 4)), "floordiv(s + 3, 4)");
  EXPECT_EQ(to_string(max(max(h, a), 4)), "max(a, h, 4)");
  EXPECT_EQ(to_string(t.symbol("past len")), "\"past len\"");
  EXPECT_EQ(to_string(t.symbol("max")), "\"max\"");
  EXPECT_EQ(to_string(std::vector<Dim>{batch, 4, 2 * seq}), "[batch, 4, 2*seq]");
  EXPECT_EQ(*t.parse(" 2 * (a + b) - mod(a,4) "), 2 * (a + b) - mod(a, 4));
  EXPECT_EQ(*t.parse("-9223372036854775808*a"), Dim(INT64_MIN) * a);
  for (const char* name : {"", "a b", "q\"uote\\", "new\nline\x01", "7", "max", "ü", "a]b,"}) {
    const Dim d = 3 * t.symbol(name) + 1;
    EXPECT_EQ(*t.parse(to_string(d)), d) << to_string(d);
  }
  std::string deep(100000, '(');
  deep.append("a").append(100000, ')');
  for (const std::string& bad : std::initializer_list<std::string>{
           "", "a +", "a b", "(a", "9223372036854775808", "99999999999999999999", "foo(a)", "floordiv(a)",
           "mod(a, b, a)", "max(", "\"open", "\"\\x4", "a $", "2 a", deep}) {
    const auto d = t.parse(bad);
    ASSERT_FALSE(d) << bad;
    EXPECT_EQ(d.error().code, Code::text_syntax);
  }
}

TEST_F(DimTest, TextDoesNotDependOnTheOrderOfSymbols) {
  const Dim d = max(3 * b + a * a, h) * s + floordiv(b + a, 7) - min(min(s, h), a * b);
  DimTable other;
  for (const char* name : {"s", "h", "b", "a"}) other.symbol(name);
  const auto read = other.parse(to_string(d));
  ASSERT_TRUE(read);
  EXPECT_EQ(to_string(*read), to_string(d));
}

TEST_F(DimTest, HostileOperandsGiveBoundedResults) {
  const Dim big = Dim(INT64_MAX) * a;
  const Dim over = big * 2;
  ASSERT_TRUE(t.symbol_index(over));
  EXPECT_EQ(big * 2, over) << "one operation, one symbol";
  EXPECT_TRUE(t.symbol_index(big + big));
  EXPECT_TRUE(t.symbol_index(Dim(INT64_MIN) * a * -1));
  EXPECT_FALSE(floordiv(a, INT64_MIN).is_const());
  EXPECT_FALSE(floordiv(a, 0).is_const());
  EXPECT_FALSE(floordiv(Dim(INT64_MIN) * a, -1).is_const());
  (void)max(Dim(INT64_MIN) * a, Dim(INT64_MIN) * b);
  (void)t.exact_div(Dim(INT64_MIN) * a, -1);
  (void)t.exact_div(Dim(INT64_MIN) * a, -a);
  (void)mod(INT64_MAX, a - 5);

  Dim wide = 1, nested = a, doubled = a, powers = a;
  for (int i = 0; i < 300; ++i) wide = wide + t.symbol(fmt::format("w{}", i)) * (i % 7 + 1);
  EXPECT_LE(t.terms(wide).size(), static_cast<size_t>(DimTable::kMaxTerms));
  for (int i = 0; i < 500; ++i) nested = max(floordiv(nested * nested + b, 3), h + i);
  for (int i = 0; i < 200; ++i) doubled = floordiv(doubled * b + doubled, 5) + min(doubled, h * h);
  for (int i = 0; i < 100; ++i) powers = powers * powers;
  for (Dim d : {wide, nested, doubled, powers}) {
    EXPECT_LT(to_string(d).size(), 100000u);
    EXPECT_EQ(*t.parse(to_string(d)), d);
    (void)t.bounds(d);
  }
}

TEST_F(DimTest, EqualDimsOfALargeGraphStayFewAndFast) {
  const Dim first = floordiv(batch * seq + 3, 4) * 64;
  for (int i = 0; i < 200000; ++i) ASSERT_EQ(floordiv(batch * seq + 3, 4) * 64, first);
}

// Random expressions, kept beside a direct evaluation of what they mean.
struct Expression {
  char op;  // 's' symbol, 'c' constant, or + - * / % m M
  int64_t value = 0;
  std::vector<Expression> operands = {};

  Dim build(const std::vector<Dim>& symbols) const {
    if (op == 's') return symbols[static_cast<size_t>(value)];
    if (op == 'c') return value;
    const Dim x = operands[0].build(symbols), y = operands[1].build(symbols);
    switch (op) {
      case '+':
        return x + y;
      case '-':
        return x - y;
      case '*':
        return x * y;
      case '/':
        return floordiv(x, y);
      case '%':
        return mod(x, y);
      case 'm':
        return min(x, y);
      default:
        return max(x, y);
    }
  }

  // Nothing where a divisor is 0.
  std::optional<int64_t> value_at(const std::vector<int64_t>& symbols) const {
    if (op == 's') return symbols[static_cast<size_t>(value)];
    if (op == 'c') return value;
    const auto px = operands[0].value_at(symbols), py = operands[1].value_at(symbols);
    if (!px || !py) return std::nullopt;
    const int64_t x = *px, y = *py;
    const auto quotient = [&] { return x / y - (x % y != 0 && (x < 0) != (y < 0)); };
    switch (op) {
      case '+':
        return x + y;
      case '-':
        return x - y;
      case '*':
        return x * y;
      case '/':
        return y == 0 ? std::nullopt : std::optional(quotient());
      case '%':
        return y == 0 ? std::nullopt : std::optional(x - y * quotient());
      case 'm':
        return std::min(x, y);
      default:
        return std::max(x, y);
    }
  }
};

class RandomExpressions {
 public:
  explicit RandomExpressions(uint32_t seed) : random_(seed) {}
  int64_t number(int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(random_); }

  Expression make(int depth) {
    if (depth == 0 || number(0, 5) == 0) {
      if (number(0, 2) == 0) return {'c', number(-6, 9)};
      return {'s', number(0, 3)};
    }
    const char op = "++--**//%mM"[number(0, 10)];
    Expression e{op, 0, {}};
    e.operands.push_back(make(depth - 1));
    const bool by_constant = (op == '/' || op == '%') && number(0, 2) != 0;
    e.operands.push_back(by_constant ? Expression{'c', number(0, 9) == 0 ? -3 : number(1, 8)} : make(depth - 1));
    return e;
  }

 private:
  std::mt19937 random_;
};

// Four symbols of several bounds: [0, 12], [1, 9], [-5, 6], [2, 40].
struct RandomTable {
  static constexpr DimBounds kBounds[4] = {{0, 12}, {1, 9}, {-5, 6}, {2, 40}};
  DimTable table;
  std::vector<Dim> symbols;
  RandomTable() {
    for (int i = 0; i < 4; ++i) symbols.push_back(table.fresh(fmt::format("v{}", i), kBounds[i]));
  }
  static std::vector<int64_t> values(RandomExpressions& random) {
    std::vector<int64_t> out;
    for (const DimBounds& b : kBounds) out.push_back(random.number(b.lo, b.hi));
    return out;
  }
  static DimBindings bindings(const std::vector<int64_t>& values) { return {values.begin(), values.end()}; }
};

TEST(DimProperty, ExpressionsMeanWhatDirectEvaluationGives) {
  RandomExpressions random(1);
  for (int round = 0; round < 3000; ++round) {
    RandomTable r;
    const Expression e = random.make(static_cast<int>(random.number(1, 4)));
    const Dim d = e.build(r.symbols);
    const std::string text = to_string(d);
    ASSERT_EQ(*r.table.parse(text), d) << text;

    // The same under other names in another table, whose symbols have no bounds to simplify by.
    DimTable other;
    std::vector<std::optional<Dim>> to;
    for (int i = 0; i < r.table.symbol_count(); ++i) to.emplace_back(other.fresh("u", {INT64_MIN, INT64_MAX}));
    const Dim moved = r.table.substitute(d, to);

    for (int sample = 0; sample < 12; ++sample) {
      const auto values = RandomTable::values(random);
      const auto expected = e.value_at(values);
      if (!expected) continue;
      if (r.table.symbol_count() > 4) break;  // an opaque symbol has no value here
      const auto got = r.table.evaluate(d, RandomTable::bindings(values));
      // An atom that simplification left inside may divide by 0 only where the expression did.
      ASSERT_TRUE(got) << text << ": " << got.error().message;
      ASSERT_EQ(*got, *expected) << text;
      const DimBounds bounds = r.table.bounds(d);
      ASSERT_TRUE(bounds.lo <= *got && *got <= bounds.hi) << text << " = " << *got;
      if (other.symbol_count() == 4) {
        const auto there = other.evaluate(moved, RandomTable::bindings(values));
        ASSERT_TRUE(there) << to_string(moved);
        ASSERT_EQ(*there, *expected) << to_string(moved);
      }
      std::vector<std::optional<Dim>> constants;
      for (int64_t v : values) constants.emplace_back(v);
      ASSERT_EQ(r.table.substitute(d, constants), Dim(*expected)) << text;
    }
  }
}

TEST(DimProperty, ProofsAreNeverWrong) {
  RandomExpressions random(2);
  int proved = 0;
  for (int round = 0; round < 4000; ++round) {
    RandomTable r;
    const Expression x = random.make(static_cast<int>(random.number(1, 3)));
    Expression y = random.make(static_cast<int>(random.number(0, 3)));
    if (random.number(0, 1) == 0) y = {"+-*/mM" [random.number(0, 5)], 0, { x, y }};  // related expressions
    const Dim a = x.build(r.symbols), b = y.build(r.symbols);
    const bool eq = r.table.proves_eq(a, b), ne = r.table.proves_ne(a, b), le = r.table.proves_le(a, b),
               lt = r.table.proves_lt(a, b), divisible = r.table.proves_divisible(a, b);
    const auto quotient = r.table.exact_div(a, b);
    proved += eq + ne + le + lt + divisible;
    for (int sample = 0; sample < 40; ++sample) {
      const auto values = RandomTable::values(random);
      const auto va = x.value_at(values), vb = y.value_at(values);
      if (!va || !vb) continue;
      const std::string text = to_string(a) + " and " + to_string(b);
      ASSERT_TRUE(!eq || *va == *vb) << text;
      ASSERT_TRUE(!ne || *va != *vb) << text;
      ASSERT_TRUE(!le || *va <= *vb) << text;
      ASSERT_TRUE(!lt || *va < *vb) << text;
      ASSERT_TRUE(!divisible || (*vb == 0 ? *va == 0 : *va % *vb == 0)) << text;
      if (quotient && r.table.symbol_count() == 4) {
        const auto q = r.table.evaluate(*quotient, RandomTable::bindings(values));
        ASSERT_TRUE(q) << text;
        ASSERT_EQ(*q * *vb, *va) << text;
      }
    }
  }
  EXPECT_GT(proved, 2000) << "the sample must contain provable facts";
}

}  // namespace
}  // namespace tessera
