// attention against its meaning: heads, masks, bands, lengths, segments, sinks and element types.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "check.h"

namespace tessera::kernel_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What an attention call has, besides its sizes, that differs from the simplest one.
struct Options {
  Operand mask = absent(), bias = absent(), lengths = absent();
  Operand q_segments = absent(), k_segments = absent(), sinks = absent();
  Shape causal = {}, window = {};
  double softcap = 0, fill = -kInfinity;
  bool joined = false;
  DType type = DType::f32, cache = DType::f32;
  double scale = 0.3;
};

// q [B, H, T, D], k [B, G, S, D], v [B, G, S, E]
void attention(Dims q, Dims k, Dims v, const Options& o = {}) {
  const double tolerance = o.type == DType::f32 ? 2e-5 : o.type == DType::f16 ? 2e-3 : 1e-2;
  check({"attention",
         {{o.type, std::move(q)},
          {o.cache, std::move(k)},
          {o.cache, std::move(v)},
          o.mask,
          o.bias,
          o.lengths,
          o.q_segments,
          o.k_segments,
          o.sinks},
         {o.scale, o.causal, o.softcap, o.window, o.fill, int64_t{o.joined}},
         tolerance,
         tolerance});
}

Operand hides(Dims shape) { return {DType::boolean, std::move(shape)}; }
Operand adds(Dims shape, DType type = DType::f32) { return {type, std::move(shape)}; }
Operand numbers(Dims shape, std::vector<double> values, DType type = DType::i64) {
  return {type, std::move(shape), 0, 0, false, std::move(values)};
}

TEST(Attention, HeadsMasksAndCaps) {
  attention({2, 3, 5, 8}, {2, 3, 7, 8}, {2, 3, 7, 6});
  attention({2, 6, 50, 16}, {2, 2, 300, 16}, {2, 2, 300, 16});
  attention({1, 4, 70, 33}, {1, 2, 150, 33}, {1, 2, 150, 20}, {.mask = hides({70, 150}), .softcap = 5});
  attention({2, 2, 9, 8}, {2, 2, 140, 8}, {2, 2, 140, 8}, {.mask = hides({2, 1, 1, 140})});
  attention({2, 2, 9, 8}, {2, 1, 140, 8}, {2, 1, 140, 8}, {.mask = adds({2, 9, 1})});
  attention({2, 2, 9, 8}, {2, 2, 10, 8}, {2, 2, 10, 8}, {.mask = adds({2, 1, 9, 10}), .causal = {1}});
  attention({1, 2, 200, 8}, {1, 2, 200, 8}, {1, 2, 200, 8}, {.causal = {0}});
  attention({1, 2, 6, 8}, {1, 2, 6, 8}, {1, 2, 6, 8}, {.causal = {-3}});  // the first rows see nothing
  attention({1, 1, 4, 8}, {1, 1, 6, 8}, {1, 1, 6, 8}, {.mask = numbers({4, 6}, {0}, DType::boolean)});
  attention({1, 2, 1, 64}, {1, 2, 129, 64}, {1, 2, 129, 64}, {.causal = {128}});
}

TEST(Attention, SizesOfHeadsAndSequences) {
  for (int64_t d : {1, 7, 8, 40, 80, 128, 256}) attention({1, 2, 33, d}, {1, 2, 65, d}, {1, 2, 65, d}, {.scale = 0.1});
  for (int64_t t : {1, 7, 9, 15, 17, 63, 65, 97, 129}) attention({1, 2, t, 16}, {1, 1, t, 16}, {1, 1, t, 16});
  attention({1, 1, 20, 600}, {1, 1, 30, 600}, {1, 1, 30, 700}, {.scale = 0.05});
  attention({1, 1, 9, 1500}, {1, 1, 9, 1500}, {1, 1, 9, 1500}, {.scale = 0.02});  // heads that need scratch
  attention({0, 2, 3, 8}, {0, 2, 5, 8}, {0, 2, 5, 8});
  attention({1, 2, 12, 8}, {1, 2, 0, 8}, {1, 2, 0, 8});  // no keys: zeros
  attention({1, 2, 1, 8}, {1, 2, 0, 8}, {1, 2, 0, 8});
}

TEST(Attention, Bands) {
  for (int64_t t : {3, 40, 150}) {  // few queries go another way than many
    const Dims q = {2, 2, t, 16}, k = {2, 2, t + 130, 16};
    attention(q, k, k, {.causal = {130}});
    attention(q, k, k, {.causal = {130}, .window = {130 - 20 + 1}});
    attention(q, k, k, {.causal = {5}, .window = {-5}, .joined = true});
    attention(q, k, k, {.window = {135}});
    attention(q, k, k, {.causal = {1000}, .window = {-1000}});
    attention(q, k, k, {.causal = {-1000}});
    attention(q, k, k, {.sinks = adds({2}), .causal = {130}, .softcap = 3});
  }
}

TEST(Attention, BiasSegmentsAndSinks) {
  for (int64_t t : {2, 30}) {
    const Dims q = {2, 4, t, 16}, k = {2, 2, 140, 16};
    attention(q, k, k, {.bias = adds({1, 4, t, 140})});
    attention(q, k, k, {.mask = hides({2, 1, 1, 140}), .bias = adds({4, 1, 140})});
    attention(q, k, k, {.mask = adds({2, 1, 1, 140}), .bias = adds({4, t, 140}, DType::f16)});
    attention(q, k, k, {.mask = numbers({t, 140}, {0, -kInfinity, 1}, DType::f32), .sinks = adds({4})});
    attention(q, k, k, {.mask = numbers({140}, {-kInfinity}, DType::f32), .sinks = adds({4})});
    attention(q, k, k, {.mask = numbers({140}, {-64, -64, -7e9}, DType::f32)});
    attention(q, k, k, {.mask = numbers({140}, {-1e30, -1e31}, DType::f32)});
    attention(
        q, k, k,
        {.q_segments = numbers({2, t}, {0, 1, 1, 2}), .k_segments = numbers({1, 140}, {0, 0, 1, 1, 1, 2}, DType::i32)});
  }
}

TEST(Attention, LengthsOfACache) {
  for (int64_t t : {1, 4, 20})
    for (const Shape& causal : {Shape{}, Shape{0}}) {
      const Dims q = {4, 4, t, 16}, k = {4, 2, 150, 16};
      // None, one, some, and more than there is room for.
      attention(q, k, k, {.lengths = numbers({4}, {0, 1, 77, 200}), .causal = causal});
      attention(q, k, k, {.lengths = numbers({4}, {3, 150, 64, 65}, DType::i32), .causal = causal, .window = {-9}});
    }
  attention({1, 8, 1, 64}, {1, 2, 3000, 64}, {1, 2, 3000, 64}, {.lengths = numbers({1}, {2111}), .causal = {0}});
}

// Hides nineteen keys of twenty.
constexpr double kPadding[] = {-50, -50, -50, -50, -50, -50, -50, -50, -50, -50,
                               -50, -50, -50, -50, -50, -50, -50, -50, -50, 0};

TEST(Attention, FillsThatAreFinite) {
  for (int64_t t : {3, 40}) {
    const Dims q = {1, 2, t, 16}, k = {1, 2, 200, 16};
    for (double fill : {-10.0, -1e4, -65504.0}) {
      attention(q, k, k, {.causal = {100}, .fill = fill});
      attention(q, k, k, {.causal = {-2}, .fill = fill});  // the first rows weigh all keys alike
      attention(q, k, k, {.mask = hides({t, 1}), .fill = fill});
      attention(q, k, k, {.mask = hides({t, 200}), .lengths = numbers({1}, {120}), .fill = fill});
    }
    // What is added is added to the fill too, and where it hides all that a row sees, the fills show.
    const Operand padding = numbers({200}, std::vector<double>(std::begin(kPadding), std::end(kPadding)), DType::f32);
    for (double fill : {-5.0, -40.0}) {
      attention(q, k, k, {.mask = adds({200}), .bias = adds({t, 200}), .causal = {100}, .fill = fill});
      attention(q, k, k, {.mask = padding, .causal = {1}, .fill = fill});
      attention(q, k, k, {.mask = adds({1, 2, t, 200}), .bias = padding, .causal = {0}, .window = {-3}, .fill = fill});
      attention(q, k, k, {.mask = padding, .sinks = adds({2}), .causal = {20}, .fill = fill});
    }
    const double least = -std::numeric_limits<float>::max();
    attention(q, k, k,
              {.mask = numbers({200}, {least, least, least, 0, least}, DType::f32), .causal = {1}, .fill = least});
  }
}

TEST(Attention, HalfPrecision) {
  for (DType type : {DType::f16, DType::bf16})
    for (int64_t t : {1, 3, 50}) {
      const Dims q = {2, 4, t, 64}, k = {2, 1, 90, 64};
      attention(q, k, k, {.causal = {90 - t}, .type = type, .cache = type});
      attention(q, k, k, {.mask = adds({t, 90}, type), .joined = true, .cache = type});
      attention({1, 2, t, 20}, {1, 2, 90, 20}, {1, 2, 90, 12}, {.type = type, .cache = type});
    }
}

// What is hidden is not read: the keys behind the mask, and their values, are NaN and infinite.
TEST(Attention, NothingLeaksThroughAMask) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (int64_t t : {1, 2, 40}) {
    const int64_t s = 72;
    std::vector<double> keys, clean, mask, added;
    for (int64_t j = 0; j < s; ++j)
      for (int64_t d = 0; d < 16; ++d) {
        const double x = std::sin(static_cast<double>(j * 16 + d));
        clean.push_back(j % 3 == 1 ? 0 : x);
        keys.push_back(j % 3 == 1 ? (d % 2 == 0 ? nan : kInfinity) : x);
      }
    for (int64_t j = 0; j < s; ++j) {
      mask.push_back(j % 3 != 1);
      added.push_back(j % 3 == 1 ? -kInfinity : 0);
    }
    const auto run = [&](const std::vector<double>& rows, const Operand& hidden) {
      const Operand q{DType::f32, {1, 2, t, 16}}, k{DType::f32, {1, 2, s, 16}, 0, 0, false, rows};
      return results({"attention", {q, k, k, hidden}, {0.3, Shape(), 0.0, Shape(), -kInfinity, int64_t{0}}});
    };
    for (const Operand& hidden : {numbers({s}, mask, DType::boolean), numbers({s}, added, DType::f32)})
      EXPECT_EQ(run(keys, hidden), run(clean, hidden));
  }
}

}  // namespace
}  // namespace tessera::kernel_test
