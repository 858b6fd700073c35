#include <gtest/gtest.h>

#include "check.h"

namespace tessera::kernel_test {
namespace {

// K terms, each rounded: sqrt(K) units in the last place of terms up to 9.
Case dot(DType t, Dims a, Dims b) {
  const bool exact = !is_float(t);
  return {"dot",
          {{t, std::move(a), exact ? 0. : -3., 3}, {t, std::move(b), exact ? 0. : -3., 3}},
          {},
          1e-5,
          t == DType::f64   ? 1e-12
          : t == DType::f32 ? 3e-4
                            : 0.5};
}

TEST(Matmul, DotOverSizes) {
  for (int64_t m : {1, 2, 3, 4, 5, 7, 12, 50})
    for (int64_t n : {1, 15, 16, 33, 70})
      for (int64_t k : {1, 7, 64, 259}) check(dot(DType::f32, {m, k}, {n, k}));
  check(dot(DType::f32, {100, 300}, {530, 300}));
  check(dot(DType::f32, {6, 0}, {16, 0}));
  check(dot(DType::f32, {1, 0}, {3, 0}));
  check(dot(DType::f32, {0, 4}, {3, 4}));
  check(dot(DType::f32, {9, 4}, {0, 4}));
  check(dot(DType::f32, {5, 4000}, {400, 4000}));  // more than is packed at once
}

TEST(Matmul, DotOverBatches) {
  check(dot(DType::f32, {2, 3, 20, 9}, {2, 3, 17, 9}));
  check(dot(DType::f32, {2, 3, 20, 9}, {17, 9}));
  check(dot(DType::f32, {20, 9}, {2, 3, 17, 9}));
  check(dot(DType::f32, {2, 1, 20, 9}, {3, 17, 9}));
  check(dot(DType::f32, {4, 1, 1, 33}, {1, 5, 40, 33}));
  check(dot(DType::f32, {40, 65, 40}, {40, 700, 40}));  // batches in several rounds
  check(dot(DType::f32, {0, 6, 5}, {0, 4, 5}));
}

TEST(Matmul, DotOverTypes) {
  for (DType t : {DType::f64, DType::f16, DType::bf16, DType::i64, DType::i32, DType::i16, DType::i8, DType::u64,
                  DType::u32, DType::u16, DType::u8}) {
    check(dot(t, {2, 5, 70}, {66, 70}));
    check(dot(t, {1, 5}, {3, 5}));
  }
}

TEST(Matmul, Linear) {
  for (int64_t rows : {0, 1, 4, 13, 60}) {
    check({"linear", {{DType::f32, {rows, 70}}, {DType::f32, {37, 70}}, {DType::f32, {37}}}, {}, 1e-5, 1e-4});
    check({"linear", {{DType::f32, {2, rows, 300}}, {DType::f32, {64, 300}}, absent()}, {}, 1e-5, 3e-4});
  }
  check({"linear", {{DType::f32, {70}}, {DType::f32, {37, 70}}, {DType::f32, {37}}}, {}, 1e-5, 1e-4});
}

}  // namespace
}  // namespace tessera::kernel_test
