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
void round_block(std::span<double> block) {
  float most = 0;
  bool finite = true;
  for (double v : block) {
    most = std::max(most, std::fabs(static_cast<float>(v)));
    finite &= std::isfinite(v);
  }
  const float scale = most / 127.0f;
  const float inverse = most > 0 ? 127.0f / most : 0.0f;
  for (double& v : block) {
    const float code = std::nearbyint(std::clamp(static_cast<float>(v) * inverse, -127.0f, 127.0f));
    v = finite && std::isfinite(inverse) ? static_cast<double>(code) * static_cast<double>(scale)
                                         : (finite ? 0.0 : std::nan(""));
  }
}

Status eval_round_to_int8(Eval& e) {
  Array y = e.in(0);
  std::vector<double>& data = y.of<double>();
  const auto row = static_cast<size_t>(y.shape.back());
  constexpr size_t kSize = 32;
  for (size_t begin = 0; begin < data.size(); begin += row)
    for (size_t at = 0; at < row; at += kSize)
      round_block(std::span(data).subspan(begin + at, std::min(kSize, row - at)));
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
    .doc = "Each run of 32 elements of the last axis rounded to multiples of its largest magnitude / 127.",
    .signature = "x[*B, K] -> y[*B, K]",
    .types = "x, y: f32",
    .reference = eval_round_to_int8,
};

constinit const OpDef dequant_linear_op = {
    .name = "dequant_linear",
    .doc = "x w^T + b with quantized or half-precision weights, in the arithmetic of f32.",
    .signature = "x[*B, K], w[N, K], b?[N] -> y[*B, N]",
    .types = "x, b, y: f32; w: block|f16|bf16",
    .meaning =
        [](X x, X w, Opt b) {
          w = w.builder->add1(dequantize_op, {w});
          return x.builder->add1(linear_op, {x, w, b});
        },
};

constinit const OpDef quant_linear_op = {
    .name = "quant_linear",
    .doc = "x w^T + b with quantized weights, and x rounded to int8 a block: products of integers.",
    .signature = "x[*B, K], w[N, K], b?[N] -> y[*B, N]",
    .types = "x, b, y: f32; w: block",
    .meaning =
        [](X x, X w, Opt b) {
          x = x.builder->add1(round_to_int8_op, {x});
          return x.builder->add1(dequant_linear_op, {x, w, b});
        },
};

constinit const OpDef bf16_linear_op = {
    .name = "bf16_linear",
    .doc = "x w^T + b with bf16 weights, and x rounded to bf16; sums in f32.",
    .signature = "x[*B, K], w[N, K], b?[N] -> y[*B, N]",
    .types = "x, b, y: f32; w: bf16",
    .meaning =
        [](X x, X w, Opt b) {
          x = cast(cast(x, DType::bf16), DType::f32);
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
