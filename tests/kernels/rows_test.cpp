#include <gtest/gtest.h>

#include <cmath>

#include "check.h"
#include "kernels/abi.h"

namespace tessera::kernel_test {
namespace {

using List = std::vector<int64_t>;
constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64, DType::i32,
                            DType::i16, DType::i8,  DType::u64, DType::u32,  DType::u16, DType::u8};

double low(DType t) { return is_float(t) || is_signed_int(t) ? -3 : 0; }

TEST(Rows, Softmax) {
  for (const char* op : {"softmax", "log_softmax"}) {
    const double atol = 2e-6;
    check({op, {{DType::f32, {3, 1}}}, {int64_t{-1}}, 2e-6, atol});
    check({op, {{DType::f32, {7, 129}, -30, 30}}, {int64_t{-1}}, 2e-6, atol});
    check({op, {{DType::f32, {300, 70}}}, {int64_t{1}}, 2e-6, atol});
    check({op, {{DType::f32, {4, 5, 19}}}, {int64_t{1}}, 2e-6, atol});
    check({op, {{DType::f32, {4, 5, 19}}}, {int64_t{0}}, 2e-6, atol});
    check({op, {{DType::f32, {4, 5, 0}}}, {int64_t{1}}});
    check({op, {{DType::f32, {9, 40}, -3, 3, true}}, {int64_t{1}}, 2e-6, atol});
    check({op, {{DType::f32, {40, 9}, -3, 3, true}}, {int64_t{0}}, 2e-6, atol});
    check({op,
           {{DType::f32, {2, 3}, 0, 0, false, {-HUGE_VAL, -HUGE_VAL, -HUGE_VAL, -HUGE_VAL, 1, 2}}},
           {int64_t{1}},
           2e-6,
           atol});
  }
}

TEST(Rows, Norms) {
  const auto f32 = [](Dims shape) { return Operand{DType::f32, std::move(shape)}; };
  for (int64_t n : {1, 7, 64, 1030}) {
    check({"layer_norm", {f32({5, n}), f32({n}), f32({n})}, {int64_t{1}, 1e-5}, 2e-5, 2e-5});
    check({"layer_norm", {f32({2, 3, n}), f32({n}), absent()}, {int64_t{2}, 1e-5}, 2e-5, 2e-5});
    check({"layer_norm", {f32({40, n}), absent(), absent()}, {int64_t{1}, 1e-5}, 2e-5, 2e-5});
    check({"rms_norm", {f32({5, n}), f32({n})}, {int64_t{1}, 1e-6}, 2e-5, 2e-5});
    check({"rms_norm", {f32({2, 3, n}), absent()}, {int64_t{1}, 1e-6}, 2e-5, 2e-5});
  }
  check({"layer_norm", {f32({4, 3, 6}), f32({4, 1, 6}), f32({})}, {int64_t{1}, 1e-5}, 2e-5, 2e-5});
  check({"layer_norm", {f32({0, 6}), f32({6}), f32({6})}, {int64_t{1}, 1e-5}});
}

TEST(Rows, Reductions) {
  for (DType t : kTypes) {
    const double rtol = t == DType::f32 ? 2e-6 : 0, atol = t == DType::f32 ? 1e-5 : 1e-40;
    for (const char* op : {"reduce_sum", "reduce_max", "reduce_min"}) {
      for (const List& axes : {List{1}, List{0}, List{2}, List{0, 2}, List{0, 1, 2}, List{1, 2}, List{}, List{-1, -2}})
        check({op, {{t, {3, 17, 21}, low(t), 3}}, {axes}, rtol, atol});
      check({op, {{t, {3, 0, 2}, low(t), 3}}, {List{1}}});
    }
    check({"reduce_prod", {{t, {5, 4}, 1, 2}}, {List{1}}});
    check({"reduce_prod", {{t, {5, 4}, 1, 2}}, {List{0}}});
    check({"cumsum", {{t, {3, 9, 4}, low(t), 3}}, {int64_t{1}, int64_t{0}, int64_t{0}}, rtol, atol});
    check({"cumsum", {{t, {3, 9}, low(t), 3}}, {int64_t{-1}, int64_t{1}, int64_t{1}}, rtol, atol});
    check({"cumprod", {{t, {3, 5}, 1, 2}}, {int64_t{1}, int64_t{0}, int64_t{1}}});
    for (const char* op : {"argmax", "argmin"})
      for (int64_t last : {0, 1}) {
        check({op, {{t, {3, 30, 4}, low(t), 3}}, {int64_t{1}, last}});
        check({op, {{t, {5, 30}, low(t), 3}}, {int64_t{-1}, last}});
      }
  }
  for (const char* op : {"reduce_max", "reduce_min"}) {
    check({op, {{DType::boolean, {3, 5}}}, {List{1}}});
    check({op, {{DType::boolean, {3, 0}}}, {List{1}}});
    check({op, {{DType::f32, {9, 40}, -3, 3, true}}, {List{1}}});
    check({op, {{DType::f32, {40, 9}, -3, 3, true}}, {List{0}}});
  }
  for (const char* op : {"argmax", "argmin"})
    check({op, {{DType::f32, {9, 40}, -3, 3, true}}, {int64_t{1}, int64_t{0}}});
  check({"reduce_sum", {{DType::f32, {3, 40000}}}, {List{1}}, 2e-6, 1e-4});
  check({"reduce_sum", {{DType::f32, {4000, 30}}}, {List{0}}, 2e-6, 1e-4});
}

}  // namespace
}  // namespace tessera::kernel_test
