#include <gtest/gtest.h>

#include "check.h"
#include "kernels/abi.h"

namespace tessera::kernel_test {
namespace {

constexpr DType kSizes[] = {DType::u8, DType::f16, DType::f32, DType::i64};
constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64, DType::i32,    DType::i16,
                            DType::i8,  DType::u64, DType::u32, DType::u16,  DType::u8,  DType::boolean};

TEST(Move, Concat) {
  for (DType t : kSizes) {
    check({"concat", {{t, {2, 3, 5}, 0}, {t, {2, 1, 5}, 0}, {t, {2, 0, 5}, 0}}, {int64_t{1}}});
    check({"concat", {{t, {2, 3}, 0}, {t, {2, 700}, 0}}, {int64_t{-1}}});
    check({"concat", {{t, {40000}, 0}, {t, {3}, 0}}, {int64_t{0}}});
  }
}

TEST(Move, Pad) {
  for (DType t : kSizes) {
    check({"pad", {{t, {2, 3, 5}, 0}, {t, {}, 1}}, {Shape{0, 1, 2}, Shape{3, 0, 1}}});
    check({"pad", {{t, {2, 3}, 0}, absent()}, {Shape{1, 1}, Shape{0, 0}}});
    check({"pad", {{t, {0, 3}, 0}, absent()}, {Shape{1, 1}, Shape{0, 0}}});
  }
}

TEST(Move, Gather) {
  for (DType t : kSizes)
    for (DType index : {DType::i64, DType::i32}) {
      for (int64_t axis : {0, 1, -1}) check({"gather", {{t, {4, 4, 6}, 0}, {index, {2, 7}, -4, 3}}, {axis}});
      check({"gather", {{t, {4}, 0}, {index, {}, -4, 3}}, {int64_t{0}}});
      check({"gather_elements", {{t, {4, 5}, 0}, {index, {3, 5}, -4, 3}}, {int64_t{0}}});
      check({"gather_elements", {{t, {4, 5, 2}, 0}, {index, {4, 9, 1}, -5, 4}}, {int64_t{1}}});
      check({"gather_nd", {{t, {4, 4, 3}, 0}, {index, {7, 2}, -4, 3}}, {int64_t{0}}});
      check({"gather_nd", {{t, {2, 4, 3}, 0}, {index, {2, 5, 1}, -4, 3}}, {int64_t{1}}});
      check({"gather_nd", {{t, {2, 4}, 0}, {index, {3, 2}, -2, 1}}, {int64_t{0}}});
    }
  check({"gather", {{DType::f32, {4, 0}}, {DType::i64, {2}, 0, 3}}, {int64_t{0}}});
  check({.op = "gather",
         .operands = {{DType::f32, {3}}, {DType::i64, {3}, 3, 3}},
         .attrs = {int64_t{0}},
         .failure = kernels::kIndexOutOfRange});
  check({.op = "gather",
         .operands = {{DType::f32, {3}}, {DType::i64, {3}, -4, -4}},
         .attrs = {int64_t{0}},
         .failure = kernels::kIndexOutOfRange});
  check({.op = "gather_elements",
         .operands = {{DType::f32, {3}}, {DType::i64, {3}, 3, 3}},
         .attrs = {int64_t{0}},
         .failure = kernels::kIndexOutOfRange});
  check({.op = "gather_nd",
         .operands = {{DType::f32, {3}}, {DType::i64, {3, 1}, 3, 3}},
         .attrs = {int64_t{0}},
         .failure = kernels::kIndexOutOfRange});
}

TEST(Move, Scatter) {
  for (DType t : kTypes)
    for (int64_t reduction : {0, 1, 2, 3, 4}) {
      const double atol = t == DType::f32 ? 1e-6 : t == DType::f16 ? 0.02 : t == DType::bf16 ? 0.2 : 1e-12;
      check({"scatter_elements",
             {{t, {4, 5}, 0}, {DType::i64, {6, 5}, -4, 3}, {t, {6, 5}, 0}},
             {int64_t{0}, reduction},
             1e-6,
             atol});
      check({"scatter_nd", {{t, {4, 5, 2}, 0}, {DType::i32, {6, 2}, -4, 3}, {t, {6, 2}, 0}}, {reduction}, 1e-6, atol});
      check({"scatter_nd", {{t, {4, 5}, 0}, {DType::i64, {3, 1}, 0, 3}, {t, {3, 5}, 0}}, {reduction}, 1e-6, atol});
    }
  check({.op = "scatter_elements",
         .operands = {{DType::f32, {3}}, {DType::i64, {3}, 3, 3}, {DType::f32, {3}}},
         .attrs = {int64_t{0}, int64_t{0}},
         .failure = kernels::kIndexOutOfRange});
  check({.op = "scatter_nd",
         .operands = {{DType::f32, {3}}, {DType::i64, {3, 1}, 3, 3}, {DType::f32, {3}}},
         .attrs = {int64_t{0}},
         .failure = kernels::kIndexOutOfRange});
}

TEST(Move, Iota) {
  for (DType t : kTypes) {
    if (t == DType::boolean) continue;
    check({"iota", {}, {Shape{3, 200, 2}, int64_t{1}, static_cast<int64_t>(t)}});
  }
  check({"iota", {}, {Shape{0}, int64_t{0}, static_cast<int64_t>(DType::i64)}});
}

TEST(Move, TopK) {
  for (DType t : kTypes) {
    for (int64_t largest : {0, 1}) {
      check({"top_k", {{t, {3, 40}, 0}, {DType::i64, {}, 7, 7}}, {int64_t{1}, largest}});
      check({"top_k", {{t, {3, 9, 4}, 0}, {DType::i64, {}, 9, 9}}, {int64_t{1}, largest}});
      check({"top_k", {{t, {9}, 0}, {DType::i64, {}, 0, 0}}, {int64_t{-1}, largest}});
    }
  }
  check({"top_k", {{DType::f32, {3, 40}, -3, 3, true}, {DType::i64, {}, 20, 20}}, {int64_t{1}, int64_t{1}}});
}

}  // namespace
}  // namespace tessera::kernel_test
