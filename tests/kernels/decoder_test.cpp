#include <gtest/gtest.h>

#include "check.h"
#include "kernels/abi.h"

namespace tessera::kernel_test {
namespace {

Operand i64(std::vector<double> values) {
  return {DType::i64, {static_cast<int64_t>(values.size())}, 0, 0, false, std::move(values)};
}

TEST(Decoder, Rope) {
  for (int64_t interleaved : {0, 1}) {
    check({"rope", {f32({5, 3, 16}), f32({5, 8}), f32({5, 8})}, {interleaved}, 1e-6, 1e-6});
    check({"rope", {f32({2, 1, 10}), f32({2, 3}), f32({2, 3})}, {interleaved}, 1e-6, 1e-6});
    check({"rope", {f32({0, 2, 4}), f32({0, 2}), f32({0, 2})}, {interleaved}});
  }
}

std::vector<ir::AttrValue> attrs(double softcap, int64_t left, int64_t right, int64_t page) {
  return {0.3, softcap, left, right, page};
}

TEST(Decoder, RaggedAttentionOverItsOwnRows) {
  for (const auto& starts : {std::vector<double>{0, 7}, {0, 3, 3, 90}, {0, 1, 66, 70}}) {
    const auto n = static_cast<int64_t>(starts.back());
    for (int64_t left : {-1, 0, 5})
      for (int64_t right : {-1, 0, 2})
        check({"ragged_attention",
               {f32({n, 4, 16}), f32({n, 2, 16}), f32({n, 2, 24}), i64(starts), absent(), absent(), absent()},
               attrs(right == 0 ? 2 : 0, left, right, 1),
               2e-5,
               2e-5});
    check({"ragged_attention",
           {f32({n, 2, 9}), f32({n, 2, 9}), f32({n, 2, 9}), i64(starts), absent(), absent(), f32({2, 21})},
           attrs(0, -1, -1, 1),
           2e-5,
           2e-5});
  }
}

TEST(Decoder, RaggedAttentionOverPages) {
  // Two sequences of 130 and 3 tokens, of which the last 3 and 1 are asked, in pages of 64 and 16.
  for (int64_t page : {64, 16}) {
    const int64_t pages = 192 / page, rows = 2 * pages * page;
    std::vector<double> table;
    for (int64_t i = 0; i < 2 * pages; ++i) table.push_back(static_cast<double>((i * 5 + 1) % (2 * pages)));
    for (DType type : {DType::f32, DType::f16, DType::bf16})
      for (int64_t left : {-1, 70}) {
        const Operand k{type, {rows, 2, 16}}, v{type, {rows, 2, 16}};
        Operand pages_of = i64(table);
        pages_of.shape = {2, pages};
        check({"ragged_attention",
               {f32({4, 6, 16}), k, v, i64({0, 3, 4}), pages_of, i64({130, 3}), absent()},
               attrs(0, left, 0, page),
               2e-5,
               2e-5});
      }
    Operand pages_of = i64(table);
    pages_of.shape = {2, pages};
    const Operand codes{DType::i8, {rows, 2, 16}, -127, 127}, scales{DType::f32, {rows, 2, 1}, 0, 0.02};
    check({"ragged_attention",
           {f32({4, 6, 16}), codes, codes, i64({0, 3, 4}), pages_of, i64({130, 3}), absent(), scales, scales},
           attrs(0, -1, 0, page),
           2e-5,
           2e-5});
  }
}

TEST(Decoder, RaggedAttentionRefusesWhatItWouldReadOutside) {
  const auto run = [](std::vector<double> starts, std::vector<double> table, double length, int failure) {
    Operand pages = i64(std::move(table));
    pages.shape = {1, pages.shape[0]};
    check({.op = "ragged_attention",
           .operands = {f32({2, 1, 8}), f32({8, 1, 8}), f32({8, 1, 8}), i64(std::move(starts)), pages, i64({length}),
                        absent()},
           .attrs = attrs(0, -1, 0, 4),
           .rtol = 2e-5,
           .atol = 2e-5,
           .failure = failure});
  };
  run({0, 2}, {1, 0}, 7, 0);
  run({0, 2}, {0, 2}, 7, kernels::kIndexOutOfRange);
}

}  // namespace
}  // namespace tessera::kernel_test
