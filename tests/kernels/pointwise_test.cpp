#include <gtest/gtest.h>

#include "check.h"
#include "kernels/abi.h"

namespace tessera::kernel_test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::f16, DType::bf16};
constexpr DType kInts[] = {DType::i64, DType::i32, DType::i16, DType::i8,
                           DType::u64, DType::u32, DType::u16, DType::u8};

TEST(Pointwise, UnaryOverEveryFloat) {
  for (const char* op :
       {"neg",  "abs",  "sign", "exp",  "log",   "sqrt",  "rsqrt", "sin", "cos",   "tan",  "asin", "acos",
        "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "floor", "ceil", "round"})
    for (DType t : kFloats) check({op, {{t, {3, 5, 7}, -4, 4, true}}});
}

TEST(Pointwise, WideRanges) {
  check({"exp", {{DType::f32, {4001}, -110, 92}}});
  check({"log", {{DType::f32, {4001}, 0, 1e-37}}});
  check({"log", {{DType::f32, {4001}, 0.5, 2}}});
  check({"log", {{DType::f32, {4001}, 0, 3e38}}});
  check({"tanh", {{DType::f32, {4001}, -12, 12}}});
  check({"tanh", {{DType::f32, {4001}, -1, 1}}});
  check({"erf", {{DType::f32, {4001}, -5, 5}}});
  for (const char* op : {"relu", "sigmoid", "silu", "softplus", "hard_swish"})
    check({op, {{DType::f32, {4001}, -30, 30}}, {}, 1e-6, 1e-15});
  check({"gelu", {{DType::f32, {4001}, -6, 6}}, {}, 4e-6});
  check({"gelu_tanh", {{DType::f32, {4001}, -6, 6}}, {}, 8e-6});  // u rounds, and e^u multiplies that by u
}

TEST(Pointwise, Activations) {
  // The reference rounds the formulas' constants to the operand's type, the kernels to f32.
  for (DType t : {DType::f32, DType::f16, DType::bf16}) {
    const double rtol = t == DType::f32 ? 2e-5 : t == DType::f16 ? 4e-3 : 3e-2;
    for (const char* op : {"relu", "sigmoid", "silu", "gelu", "gelu_tanh", "softplus", "hard_swish"})
      check({op, {{t, {5, 70}, -8, 8, true}}, {}, rtol, 1e-3 * rtol});
    check({"hard_sigmoid", {{t, {5, 70}, -8, 8, true}}, {0.3, 0.4}, rtol, rtol});
  }
}

TEST(Pointwise, BinaryOverEveryType) {
  for (const char* op : {"add", "sub", "mul", "div", "mod", "fmod", "pow", "min", "max"}) {
    for (DType t : kFloats) check({op, {{t, {3, 5, 7}, -4, 4, true}, {t, {3, 5, 7}, -4, 4, true}}});
    for (DType t : kInts) {
      const double lo = is_signed_int(t) ? -100 : 0;
      check({op, {{t, {3, 5, 7}, lo, 100}, {t, {3, 5, 7}, 1, 9}}});
      if (is_signed_int(t)) check({op, {{t, {3, 5, 7}, lo, 100}, {t, {3, 5, 7}, -9, -1}}});
    }
  }
}

TEST(Pointwise, DivisionByZeroIsRefusedAndTheSmallestWraps) {
  for (const char* op : {"div", "mod", "fmod"})
    for (DType t : kInts) {
      check({.op = op, .operands = {{t, {70}, 1, 9}, {t, {70}, 0, 1}}, .failure = kernels::kValueInvalid});
      if (is_signed_int(t)) check({op, {{t, {2}, 0, 0, false, {-0x1p63, -128}}, {t, {2}, 0, 0, false, {-1, -1}}}});
    }
}

TEST(Pointwise, Broadcasting) {
  const Dims shapes[][2] = {{{2, 3, 70}, {70}},     {{2, 3, 70}, {2, 3, 1}},
                            {{2, 3, 70}, {}},       {{4, 1, 6}, {3, 1}},
                            {{3, 1000}, {3, 1000}}, {{0, 4}, {4}},
                            {{1}, {5, 1}},          {{2, 9, 3}, {2, 1, 3}},
                            {{40, 600}, {600}},     {{}, {}},
                            {{3, 2, 65}, {1, 65}}};
  for (const auto& s : shapes) {
    check({"add", {{DType::f32, s[0]}, {DType::f32, s[1]}}});
    check({"sub", {{DType::f32, s[1]}, {DType::f32, s[0]}}});
    check({"mul", {{DType::i64, s[0]}, {DType::i64, s[1]}}});
    check({"less", {{DType::bf16, s[0]}, {DType::bf16, s[1]}}});
    check({"select", {{DType::boolean, s[1]}, {DType::f32, s[0]}, {DType::f32, {}}}});
  }
}

TEST(Pointwise, LargeEnoughForThreads) {
  check({"add", {{DType::f32, {130, 513}}, {DType::f32, {513}}}});
  check({"gelu", {{DType::f16, {50001}}}, {}, 4e-3, 4e-6});
}

TEST(Pointwise, Comparisons) {
  for (const char* op : {"equal", "less", "less_equal"}) {
    for (DType t : kFloats) check({op, {{t, {5, 20}, -1, 1, true}, {t, {5, 20}, -1, 1, true}}});
    for (DType t : kInts) check({op, {{t, {5, 20}, 0, 3}, {t, {5, 20}, 0, 3}}});
    check({op, {{DType::boolean, {50}}, {DType::boolean, {50}}}});
  }
}

TEST(Pointwise, BitsAndBooleans) {
  for (DType t : kInts) {
    const double lo = is_signed_int(t) ? -100 : 0;
    for (const char* op : {"bit_and", "bit_or", "bit_xor"}) check({op, {{t, {99}, lo, 100}, {t, {99}, lo, 100}}});
    for (const char* op : {"shift_left", "shift_right"}) check({op, {{t, {99}, lo, 100}, {t, {99}, 0, 70}}});
    check({"bit_not", {{t, {99}, lo, 100}}});
    for (const char* op : {"neg", "abs", "sign"}) check({op, {{t, {99}, lo, 100}}});
  }
  for (const char* op : {"logical_and", "logical_or", "logical_xor", "min", "max"})
    check({op, {{DType::boolean, {99}}, {DType::boolean, {99}}}});
  check({"logical_not", {{DType::boolean, {99}}}});
  check({"is_nan", {{DType::f32, {99}, -1, 1, true}}});
  for (int64_t positive : {0, 1})
    for (DType t : kFloats) check({"is_inf", {{t, {99}, -1, 1, true}}, {positive, int64_t{1}}});
}

TEST(Pointwise, CastsBetweenAllTypes) {
  std::vector<DType> all(std::begin(kFloats), std::end(kFloats));
  all.insert(all.end(), std::begin(kInts), std::end(kInts));
  all.push_back(DType::boolean);
  for (DType from : all)
    for (DType to : all) {
      const std::vector<ir::AttrValue> attrs = {static_cast<int64_t>(to), int64_t{1}, int64_t{0}};
      check({.op = "cast",
             .operands = {{from, {77}, is_signed_int(from) || is_float(from) ? -120.0 : 0, 120, true}},
             .attrs = attrs});
      // Ties and near-ties of f16, bf16 and f32; what wraps.
      check({.op = "cast",
             .operands = {{from,
                           {12},
                           0,
                           0,
                           false,
                           {2049, 257, 65519, 65520, 16777217, 33554433, 0x1p31, -0x1p31 - 1, 0x1p63 + 4096, 0x1p40 + 1,
                            0x1.01p62 + 1024, 0x1.01p30 + 1}}},
             .attrs = attrs});
    }
  check({"bitcast", {{DType::f32, {5, 6}}}, {static_cast<int64_t>(DType::i32)}});
}

}  // namespace
}  // namespace tessera::kernel_test
