#include <gtest/gtest.h>

#include <cmath>

#include "check.h"

namespace tessera::kernel_test {
namespace {

Operand bytes(DType type, Dims shape) {
  const bool is_signed = type == DType::i8;
  return {type, std::move(shape), is_signed ? -128.0 : 0.0, is_signed ? 127.0 : 255.0};
}

TEST(Quantized, ToBytes) {
  for (int64_t n : {1, 7, 64, 1030}) {
    check({"quantize_dynamic", {f32({3, n})}});
    check({"quantize_dynamic", {f32({3, n}, 0.5, 9)}});
    check({"quantize_dynamic", {f32({3, n}, -9, -0.5)}});
    check({"quantize_rows", {f32({3, n})}});
  }
  check({"quantize_dynamic", {f32({40, 1030})}});
  check({"quantize_dynamic", {f32({2, 3}, 0, 0)}});
  check({"quantize_dynamic", {f32({0, 3})}});
  check({"quantize_dynamic", {f32({})}});
  check({"quantize_dynamic", {{DType::f32, {9, 40}, -3, 3, true}}});
  // Halves of a step, which go to the even neighbour.
  check({"quantize_dynamic", {{DType::f32, {8}, 0, 0, false, {0, 255, 0.5, 1.5, 2.5, 3.5, 100.5, 101.5}}}});
  check({"quantize_rows", {f32({2, 3, 50}, 0, 0)}});
  check({"quantize_rows", {f32({0, 3})}});
  check({"quantize_rows", {{DType::f32, {3, 3}, 0, 0, false, {1, 2, -3, NAN, 1, 2, 1, -INFINITY, 0}}}});
}

TEST(Quantized, Products) {
  struct Size {
    int64_t m, n, k;
  };
  for (DType a : {DType::u8, DType::i8})
    for (DType b : {DType::u8, DType::i8})
      for (const Size& s : {Size{1, 1, 1},
                            {1, 33, 70},
                            {2, 40, 9},
                            {3, 5, 64},
                            {5, 7, 33},
                            {6, 64, 256},
                            {7, 16, 31},
                            {13, 70, 129},
                            {130, 35, 65},
                            {4, 3, 0}}) {
        const Dims x = {s.m, s.k}, w = {s.n, s.k};
        check({"linear_integer", {bytes(a, x), bytes(b, w), absent(), absent()}});
        check({"linear_integer", {bytes(a, x), bytes(b, w), bytes(a, {}), bytes(b, {})}});
        check({"linear_integer", {bytes(a, x), bytes(b, w), bytes(a, {s.m, 1}), bytes(b, {s.n})}});
        check({"linear_quantized",
               {bytes(a, x), bytes(b, w), f32({}), f32({s.n}), bytes(a, {}), bytes(b, {}), f32({s.n})},
               {0.5},
               1e-6,
               1e-4 * static_cast<double>(s.k + 1)});
        check({"linear_quantized",
               {bytes(a, x), bytes(b, w), f32({s.m, 1}), f32({}), bytes(a, {s.m, 1}), bytes(b, {s.n}), absent()},
               {1.0},
               1e-6,
               1e-4 * static_cast<double>(s.k + 1)});
      }
  check({"linear_integer", {bytes(DType::u8, {2, 3, 20}), bytes(DType::i8, {9, 20}), bytes(DType::u8, {}), absent()}});
  check({"linear_quantized",
         {bytes(DType::u8, {2, 3, 20}), bytes(DType::i8, {9, 20}), absent(), absent(), absent(), absent(), absent()},
         {1.0},
         1e-6});
  check({"linear_integer", {bytes(DType::u8, {0, 8}), bytes(DType::i8, {9, 8}), absent(), absent()}});
}

TEST(Quantized, Blocks) {
  for (int64_t bits : {2, 4, 8})
    for (int64_t block : {16, 32, 128, 512})
      for (int64_t k : {16, 40, 640})
        for (int64_t m : {1, 3, 9}) {
          const int64_t groups = (k + block - 1) / block, n = 19;
          const Operand w = bytes(DType::u8, {n, groups, block * bits / 8});
          const std::vector<ir::AttrValue> attrs = {bits, block};
          const double atol = 1e-5 * static_cast<double>(k) * static_cast<double>(1 << bits);
          check({"linear_blocks", {f32({m, k}), w, f32({n, groups}, 0.1, 0.3), absent(), absent()}, attrs, 1e-5, atol});
          check({"linear_blocks",
                 {f32({m, k}), w, f32({n, groups}, 0.1, 0.3), bytes(DType::u8, {n, (groups * bits + 7) / 8}), f32({n})},
                 attrs,
                 1e-5,
                 atol});
          check({"linear_blocks",
                 {f32({m, k}), w, f32({n, groups}, 0.1, 0.3), f32({n, groups}), absent()},
                 attrs,
                 1e-5,
                 atol});
        }
}

}  // namespace
}  // namespace tessera::kernel_test
