#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

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

std::vector<ir::AttrValue> attrs(double softcap, int64_t left, int64_t right) { return {0.3, softcap, left, right}; }

TEST(Decoder, RaggedAttentionOverItsOwnRows) {
  for (const auto& starts : {std::vector<double>{0, 7}, {0, 3, 3, 90}, {0, 1, 66, 70}}) {
    const auto n = static_cast<int64_t>(starts.back());
    for (int64_t left : {-1, 0, 5})
      for (int64_t right : {-1, 0, 2})
        check({"ragged_attention",
               {f32({n, 4, 16}), f32({n, 2, 1, 16}), f32({n, 2, 1, 24}), i64(starts), absent(), absent(), absent()},
               attrs(right == 0 ? 2 : 0, left, right),
               2e-5,
               2e-5});
    check({"ragged_attention",
           {f32({n, 2, 9}), f32({n, 2, 1, 9}), f32({n, 2, 1, 9}), i64(starts), absent(), absent(), f32({2, 21})},
           attrs(0, -1, -1),
           2e-5,
           2e-5});
  }
}

// Sequences of `lengths` tokens, of which the last `asked` are asked for, over pages that lie in any order.
struct Paged {
  std::vector<double> lengths, asked;
  int64_t page, groups, repeat, depth, width;
  int64_t left = -1, right = 0;
  double softcap = 0;
};
void check_paged(const Paged& p, DType type) {
  SCOPED_TRACE(fmt::format("{} page {} groups {} repeat {} depth {} left {}", name(type), p.page, p.groups, p.repeat,
                           p.depth, p.left));
  const auto sequences = static_cast<int64_t>(p.lengths.size());
  const double most = *std::max_element(p.lengths.begin(), p.lengths.end());
  const int64_t each = (static_cast<int64_t>(most) + p.page - 1) / p.page, pages = sequences * each;
  std::vector<double> table, starts = {0};
  for (int64_t i = 0; i < pages; ++i) table.push_back(static_cast<double>(i));
  std::shuffle(table.begin(), table.end(), std::minstd_rand(5));
  for (double n : p.asked) starts.push_back(starts.back() + n);
  const double range = type == DType::i8 ? 127 : 3;
  const auto kept = [&](int64_t width) { return Operand{type, {pages, p.groups, p.page, width}, -range, range}; };
  Operand pages_of = i64(table);
  pages_of.shape = {sequences, each};
  const Dims q = {static_cast<int64_t>(starts.back()), p.groups * p.repeat, p.depth};
  std::vector<Operand> operands = {f32(q),   kept(p.depth),  kept(p.width), i64(starts),
                                   pages_of, i64(p.lengths), absent()};
  const Operand scales{DType::f32, {pages, p.groups, p.page, 1}, 0, 0.02};
  if (type == DType::i8) operands.insert(operands.end(), 2, scales);
  // Queries meet keys that are codes in 16 bits.
  const double tolerance = type == DType::i8 ? 5e-4 : 2e-5;
  check({"ragged_attention", std::move(operands), attrs(p.softcap, p.left, p.right), tolerance, tolerance});
}

TEST(Decoder, RaggedAttentionOverPages) {
  for (DType type : {DType::f32, DType::f16, DType::bf16, DType::i8}) {
    // Pages larger and smaller than the kernel's blocks, and filled in part.
    for (int64_t page : {128, 64, 16, 5})
      for (int64_t left : {-1, 70}) check_paged({{130, 3}, {3, 1}, page, 2, 3, 16, 16, left}, type);
    // Heads that share a group, sizes in and out of whole vectors, and windows that begin inside of spans.
    for (int64_t repeat : {1, 2, 4, 7, 8})
      for (int64_t depth : {32, 20}) check_paged({{127, 65, 1}, {1, 2, 1}, 64, 2, repeat, depth, depth + 4}, type);
    check_paged({{600, 1030, 700}, {1, 1, 1}, 64, 1, 4, 16, 16}, type);
    check_paged({{513, 1025}, {1, 40}, 64, 2, 2, 8, 16, 530, 0, 3}, type);
    // Rows of one step that see different keys.
    check_paged({{530, 90}, {70, 90}, 64, 1, 1, 16, 16, -1, 3}, type);
  }
}

TEST(Decoder, RaggedAttentionRefusesWhatItWouldReadOutside) {
  const auto run = [](std::vector<double> starts, std::vector<double> table, double length, int failure) {
    Operand pages = i64(std::move(table));
    pages.shape = {1, pages.shape[0]};
    check({.op = "ragged_attention",
           .operands = {f32({2, 1, 8}), f32({2, 1, 4, 8}), f32({2, 1, 4, 8}), i64(std::move(starts)), pages,
                        i64({length}), absent()},
           .attrs = attrs(0, -1, 0),
           .rtol = 2e-5,
           .atol = 2e-5,
           .failure = failure});
  };
  run({0, 2}, {1, 0}, 7, 0);
  run({0, 2}, {0, 2}, 7, kernels::kIndexOutOfRange);
}

}  // namespace
}  // namespace tessera::kernel_test
