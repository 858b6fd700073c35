// Quantized and half-precision weights: what their products and lookups mean.
#include <algorithm>
#include <cmath>

#include "ops/math.h"
#include "ops/reference.h"

namespace tessera::ops {

using ir::A;
using ir::OpDef;
using ir::Opt;
using ir::X;

namespace {

// The interpreter decodes constants as it reads them: what is left is to say so.
Status eval_dequantize(Eval& e) {
  Array y = e.in(0);
  y.dtype = DType::f32;
  e.out(std::move(y));
  return {};
}

// In the arithmetic of f32, so that every kernel finds the very same integers.
void round_block(std::span<float> block) {
  float most = 0;
  bool finite = true;
  for (float v : block) {
    most = std::max(most, std::fabs(v));
    finite &= std::isfinite(v);
  }
  const float scale = most / 127.0f;
  const float inverse = most > 0 ? 127.0f / most : 0.0f;
  for (float& v : block) {
    const float code = std::nearbyint(std::clamp(v * inverse, -127.0f, 127.0f));
    v = finite && std::isfinite(inverse) ? code * scale : (finite ? 0.0f : std::nanf(""));
  }
}

Status eval_round_to_int8(Eval& e) {
  Array y = e.in(0);
  std::vector<double>& data = y.of<double>();
  const auto row = static_cast<size_t>(y.shape.back());
  constexpr size_t kSize = 32;
  const bool twice = row > 0 && static_cast<int64_t>(data.size() / row) <= e.attrs.integer("fine");
  for (size_t begin = 0; begin < data.size(); begin += row)
    for (size_t at = 0; at < row; at += kSize) {
      const std::span<double> block = std::span(data).subspan(begin + at, std::min(kSize, row - at));
      std::vector<float> first(block.begin(), block.end());
      round_block(first);
      std::vector<float> left(block.size());
      for (size_t i = 0; twice && i < block.size(); ++i) left[i] = static_cast<float>(block[i]) - first[i];
      round_block(left);
      for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<double>(first[i]) + static_cast<double>(left[i]);
    }
  e.out(std::move(y));
  return {};
}

}  // namespace

constinit const OpDef dequantize_op = {
    .name = "dequantize",
    .doc = "The values of weights that are stored in blocks or in halves, as f32.",
    .signature = "w[*S] -> y[*S]",
    .types = "w: block|f16|bf16; y: f32",
    .reference = eval_dequantize,
};

constinit const OpDef round_to_int8_op = {
    .name = "round_to_int8",
    .doc =
        "Each run of 32 elements of the last axis rounded to multiples of its largest magnitude / 127. Of up to "
        "`fine` rows, what that leaves is rounded likewise and added: near 16 bits.",
    .signature = "x[*B, K] -> y[*B, K]",
    .types = "x, y: f32",
    .attrs = {ir::int_attr("fine", 0)},
    .reference = eval_round_to_int8,
};

constinit const OpDef dequant_linear_op = {
    .name = "dequant_linear",
    .doc = "x w^T + b with quantized or bf16 weights, in the arithmetic of f32.",
    .signature = "x[*B, K], w[N, K], b?[N] -> y[*B, N]",
    .types = "x, b, y: f32; w: block|bf16",
    .meaning =
        [](X x, X w, Opt b) {
          w = w.builder->add1(dequantize_op, {w});
          return x.builder->add1(linear_op, {x, w, b});
        },
};

constinit const OpDef quant_linear_op = {
    .name = "quant_linear",
    .doc = "x w^T + b with quantized weights, and x rounded as `round_to_int8` does: products of integers.",
    .signature = "x[*B, K], w[N, K], b?[N] -> y[*B, N]",
    .types = "x, b, y: f32; w: block",
    .attrs = {ir::int_attr("fine", 0)},
    .meaning =
        [](X x, X w, Opt b, A attrs) {
          x = x.builder->add1(round_to_int8_op, {x}, {attrs.integer("fine")});
          return x.builder->add1(dequant_linear_op, {x, w, b});
        },
};

constinit const OpDef embedding_op = {
    .name = "embedding",
    .doc = "Rows of a table of quantized or half-precision weights, as f32.",
    .signature = "w[V, C], ids[*B] -> y[*B, C]",
    .types = "w: block|f16|bf16; ids: i64|i32; y: f32",
    .meaning = [](X w, X ids) { return gather(w.builder->add1(dequantize_op, {w}), ids, 0); },
};

}  // namespace tessera::ops
