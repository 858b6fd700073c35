// Tile programs: alone, behind a linear layer, behind a convolution; and rope.
#include <gtest/gtest.h>

#include <bit>

#include "check.h"
#include "kernels/program.h"
#include "ops/tile.h"

namespace tessera::kernel_test {
namespace {

using ops::TileStep;

int64_t op(const ir::OpDef& def) { return ops::tile_op(def); }
TileStep unary(const ir::OpDef& def, int64_t x) { return {op(def), {x, -1, -1}}; }
TileStep binary(const ir::OpDef& def, int64_t x, int64_t y) { return {op(def), {x, y, -1}}; }
TileStep literal(float number) { return {ops::kTileLiteral, {std::bit_cast<uint32_t>(number), -1, -1}}; }

struct Norm {
  int64_t kind = 0, gain = -1, shift = -1;
};
std::vector<ir::AttrValue> attrs_of(std::vector<TileStep> steps, int64_t keep = -1, Norm norm = {}) {
  return {ops::encode_tile(steps), keep, norm.kind, norm.gain, norm.shift, 1e-5};
}

TEST(Fused, OperatorsHaveTheSameNumbersOnBothSides) {
#define TESSERA_TILE_NAME(name, operands) #name,
  const char* names[] = {TESSERA_TILE_OPS(TESSERA_TILE_NAME)};
#undef TESSERA_TILE_NAME
  const auto ops = ops::tile_ops();
  ASSERT_EQ(ops.size(), std::size(names));
  for (size_t i = 1; i < ops.size(); ++i) EXPECT_EQ(ops[i]->name, names[i]);
  EXPECT_EQ(ops::kMaxTileSteps, kernels::kMaxTileSteps);
  EXPECT_EQ(ops::kMaxTileInputs, kernels::kMaxTileInputs);
}

TEST(Fused, EveryOperator) {
  for (const ir::OpDef* def : ops::tile_ops().subspan(1)) {
    const bool two = def->signature.starts_with("a[");
    const bool positive = def == &ops::log_op || def == &ops::sqrt_op || def == &ops::rsqrt_op || def == &ops::div_op;
    const Operand x = f32({3, 70}, positive ? 0.1 : -3, 3);
    const TileStep step = two ? binary(*def, 0, 1) : unary(*def, 0);
    check({"pointwise", two ? std::vector<Operand>{x, x} : std::vector<Operand>{x}, attrs_of({step}), 2e-6, 1e-6});
  }
}

TEST(Fused, Programs) {
  // gelu(x + b) * 0.5 + x, with x + b kept.
  const std::vector<TileStep> steps = {binary(ops::add_op, 0, 1), unary(ops::gelu_op, 2), literal(0.5f),
                                       binary(ops::mul_op, 3, 4), binary(ops::add_op, 5, 0)};
  for (int64_t n : {1, 7, 255, 256, 700}) {
    check({"pointwise", {f32({5, n}), f32({n})}, attrs_of(steps, 2), 1e-5, 1e-5});
    check({"pointwise", {f32({5, n}), f32({5, 1})}, attrs_of(steps), 1e-5, 1e-5});
    check({"pointwise", {f32({3, 2, n}), f32({2, 1})}, attrs_of(steps), 1e-5, 1e-5});
  }
  check({"pointwise", {f32({}), f32({40, 30})}, attrs_of(steps), 1e-5, 1e-5});
  check({"pointwise", {f32({0, 3}), f32({3})}, attrs_of(steps)});
  for (DType t : {DType::f16, DType::bf16})
    check({"pointwise", {{t, {9, 300}}, {t, {300}}}, attrs_of(steps, 2), 1e-2, 1e-2});
  // An operand as it is, kept or not, and a value that is its own operand.
  check({"pointwise", {f32({4, 9}), f32({4, 9})}, attrs_of({binary(ops::mul_op, 1, 1)}, 0), 1e-6});
}

TEST(Fused, NormsOfPrograms) {
  const std::vector<TileStep> sum = {binary(ops::add_op, 0, 1)};
  for (int64_t n : {1, 7, 300, 768}) {
    check({"pointwise", {f32({5, n}), f32({5, n}), f32({n}), f32({n})}, attrs_of(sum, 4, {1, 2, 3}), 2e-5, 2e-5});
    check({"pointwise", {f32({2, 3, n}), f32({n}), f32({n})}, attrs_of(sum, -1, {2, 2, -1}), 2e-5, 2e-5});
    check({"pointwise", {f32({5, n}), f32({5, n})}, attrs_of(sum, -1, {1, -1, -1}), 2e-5, 2e-5});
    check({"pointwise", {f32({5, n}), f32({5, n}), f32({n})}, attrs_of(sum, -1, {1, -1, 2}), 2e-5, 2e-5});
  }
}

TEST(Fused, Linear) {
  const auto attrs = [](int64_t parts, std::vector<ir::AttrValue> rest) {
    rest.insert(rest.begin(), parts);
    return rest;
  };
  const std::vector<TileStep> gelu = {unary(ops::gelu_op, 0)};
  const std::vector<TileStep> residual = {binary(ops::add_op, 0, 1)};
  const std::vector<TileStep> chain = {unary(ops::gelu_op, 0), binary(ops::add_op, 3, 1), binary(ops::mul_op, 4, 2)};
  const std::vector<TileStep> gate = {unary(ops::silu_op, 0), binary(ops::mul_op, 2, 1)};
  for (int64_t rows : {0, 1, 3, 4, 60}) {
    const Operand x = f32({rows, 70}), w = f32({36, 70}), b = f32({36}), r = f32({rows, 36});
    check({"fused_linear", {x, w, b}, attrs(1, attrs_of(gelu)), 1e-4, 3e-4});
    check({"fused_linear", {x, w, b, r}, attrs(1, attrs_of(residual)), 1e-4, 3e-4});
    check({"fused_linear", {x, w, absent(), r, b, b}, attrs(1, attrs_of(residual, 4, {1, 2, 3})), 1e-3, 1e-3});
    check({"fused_linear", {x, w, absent(), b}, attrs(1, attrs_of({}, -1, {2, 1, -1})), 1e-3, 1e-3});
    check({"fused_linear", {x, w, b}, attrs(2, attrs_of(gate)), 1e-3, 1e-3});
    check({"fused_linear", {x, w, b, r, f32({1})}, attrs(1, attrs_of(chain, 3)), 1e-4, 1e-3});
    for (DType t : {DType::f16, DType::bf16}) {
      const Operand half{t, {36, 70}};
      check({"fused_linear", {x, half, b, r, f32({1})}, attrs(1, attrs_of(chain, 3)), 1e-3, 1e-3});
      check({"fused_linear", {x, half, b, b}, attrs(1, attrs_of(residual, -1, {2, 1, -1})), 1e-3, 1e-3});
      check({"fused_linear", {x, half, b}, attrs(2, attrs_of(gate)), 1e-3, 1e-3});
    }
  }
  check({"fused_linear",
         {f32({2, 3, 300}), f32({600, 300}), absent(), f32({2, 1, 600})},
         attrs(1, attrs_of(residual)),
         1e-4,
         1e-3});
}

TEST(Fused, Conv) {
  using List = std::vector<int64_t>;
  const List one = {1, 1};
  const std::vector<TileStep> steps = {unary(ops::silu_op, 0), binary(ops::add_op, 2, 1)};
  for (int64_t groups : {1, 2})
    check({"fused_conv",
           {f32({2, 4, 9, 8}), f32({6, 4 / groups, 3, 3}), f32({6}), f32({2, 6, 9, 8})},
           {one, one, one, one, groups, ops::encode_tile(steps), int64_t{-1}, int64_t{0}},
           1e-4,
           1e-4});
  // Depthwise, in bands; operands of one element a channel, and a row too long for one task.
  for (const List& shape : {List{2, 3, 300, 60}, List{1, 3, 2, 30000}})
    check({"fused_conv",
           {f32(shape), f32({3, 1, 3, 3}), f32({3}), f32({1, 3, 1, 1})},
           {one, one, one, one, int64_t{3}, ops::encode_tile(steps), int64_t{-1}, int64_t{0}},
           1e-4,
           1e-4});
  for (int64_t n : {1, 15, 16, 50})
    check({"fused_conv",
           {f32({3, 20, 1, n}), f32({14, 10, 1, 1}), f32({14}), f32({14, 1, 1})},
           {one, one, List{0, 0}, List{0, 0}, int64_t{2}, ops::encode_tile(steps), int64_t{-1}, int64_t{0}},
           1e-4,
           1e-4});
}

TEST(Fused, Rotary) {
  for (int64_t style : {0, 1})
    for (int64_t d : {2, 6, 64, 80}) {
      check({"rotary", {f32({2, 3, 5, d}), f32({5, d}), f32({5, d})}, {style}, 1e-6, 1e-6});
      check({"rotary", {f32({2, 5, 3, d}), f32({2, 5, 1, d}), f32({2, 5, 1, d})}, {style}, 1e-6, 1e-6});
      check({"rotary", {f32({4, d + 6}), f32({4, d}), f32({4, d})}, {style}, 1e-6, 1e-6});
    }
  check({"rotary", {f32({0, 4}), f32({1, 4}), f32({1, 4})}, {int64_t{0}}});
}

}  // namespace
}  // namespace tessera::kernel_test
