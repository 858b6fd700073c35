#include <gtest/gtest.h>

#include "check.h"

namespace tessera::kernel_test {
namespace {

std::vector<DType> stored_types() {
  std::vector<DType> types = {DType::f16, DType::bf16};
  for (int t = kPlainTypeCount; t < kDTypeCount; ++t) types.push_back(static_cast<DType>(t));
  return types;
}

TEST(Quant, Dequantize) {
  for (DType t : stored_types()) {
    check({"dequantize", {{t, {3, 256}}}});
    check({"dequantize", {{t, {37, 512}}}});
    check({"dequantize", {{t, {0, 256}}}});
  }
}

const std::vector<ir::AttrValue> kOnce = {int64_t{0}};

TEST(Quant, RoundToInt8) {
  for (int64_t k : {1, 31, 32, 33, 256}) check({"round_to_int8", {{DType::f32, {5, k}}}, kOnce});
  check({"round_to_int8", {{DType::f32, {5, 256}, -3, 3, true}}, kOnce});
  check({"round_to_int8", {{DType::f32, {5, 256}, -1e-40, 1e-40}}, kOnce});
  check({"round_to_int8", {{DType::f32, {0, 32}}}, kOnce});
}

TEST(Quant, Embedding) {
  for (DType t : stored_types()) {
    check({"embedding", {{t, {7, 256}}, {DType::i64, {2, 5}, -7, 6}}});
    check({"embedding", {{t, {300, 256}}, {DType::i32, {40}, 0, 299}}});
  }
  check({.op = "embedding", .operands = {{DType::q8_0, {7, 32}}, {DType::i64, {1}, 7, 7}}, .failure = 1});
}

// K terms of up to 9, each rounded.
TEST(Quant, Linear) {
  for (DType t : stored_types()) {
    for (int64_t m : {0, 1, 2, 3, 4, 5, 8, 17, 70}) {
      for (const char* op : {"dequant_linear", "quant_linear"}) {
        if (!is_block(t) && (op[0] == 'q' || t == DType::f16)) continue;
        const auto attrs = op[0] == 'q' ? kOnce : std::vector<ir::AttrValue>{};
        check({op, {{DType::f32, {m, 256}}, {t, {37, 256}}, {DType::f32, {37}}}, attrs, 2e-5, 5e-4});
        if (m == 1 || m == 17) check({op, {{DType::f32, {2, m, 1280}}, {t, {130, 1280}}, absent()}, attrs, 2e-5, 2e-3});
      }
    }
  }
  for (int64_t k : {32, 64, 96, 224})
    for (DType t : {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::iq4_nl})
      for (int64_t m : {1, 6}) {
        check({"quant_linear", {{DType::f32, {m, k}}, {t, {65, k}}, absent()}, kOnce, 2e-5, 3e-4});
        check({"dequant_linear", {{DType::f32, {m, k}}, {t, {65, k}}, absent()}, {}, 2e-5, 3e-4});
      }
  check({"quant_linear", {{DType::f32, {512}}, {DType::q4_k, {16, 512}}, absent()}, kOnce, 2e-5, 1e-3});
  check({"quant_linear", {{DType::f32, {4, 0}}, {DType::q8_0, {16, 0}}, {DType::f32, {16}}}, kOnce});
}

TEST(Quant, LinearOfHalves) {
  for (int64_t k : {1, 70, 300})
    for (int64_t m : {1, 3, 20})
      check({"dequant_linear", {{DType::f32, {m, k}}, {DType::bf16, {37, k}}, {DType::f32, {37}}}, {}, 2e-5, 1e-3});
}

// Few rows are rounded twice: nearer to x, and by the very same steps as the operator says.
TEST(Quant, FineRows) {
  const std::vector<ir::AttrValue> fine = {int64_t{6}};
  for (int64_t m : {1, 2, 5, 6, 7}) {
    check({"round_to_int8", {{DType::f32, {m, 100}}}, fine});
    check({"round_to_int8", {{DType::f32, {m, 64}, -3, 3, true}}, fine});
    for (DType t : {DType::q8_0, DType::q4_0, DType::q5_1, DType::q4_k, DType::q6_k, DType::q2_k})
      check({"quant_linear", {{DType::f32, {m, 512}}, {t, {70, 512}}, {DType::f32, {70}}}, fine, 2e-5, 2e-3});
  }
  check({"quant_linear", {{DType::f32, {4, 0}}, {DType::q8_0, {16, 0}}, {DType::f32, {16}}}, fine});
  check({"quant_linear", {{DType::f32, {0, 32}}, {DType::q8_0, {16, 32}}, absent()}, fine});
}

}  // namespace
}  // namespace tessera::kernel_test
