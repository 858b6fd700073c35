// com.microsoft: products of quantized numbers, and operators that are dequantized, computed and quantized again.
#include <algorithm>
#include <array>

#include "import/onnx/onnx_ops.h"
#include "import/onnx/ops/matmul.h"
#include "import/onnx/ops/microsoft.h"
#include "import/onnx/ops/quant.h"
#include "import/onnx/ops/spatial.h"
#include "import/onnx/tensor_proto.h"

namespace tessera::onnx {
namespace {

// A zero point that says the type of the result; 0 of that type when it is absent.
X zero_of(X zero, DType otherwise) { return zero ? zero : zero.builder->integer(0, otherwise); }

// y in the type of `zero`, at its scale.
X quantized(X y, X scale, X zero) {
  return requantized(y, 1.0 / cast(one_number(scale), DType::f32), one_number(zero));
}

// Input i as a quantized tensor, with its scale and zero point behind it.
X dequantized_input(NodeImport& n, int i) {
  X x = n.need(i), scale = n.need(i + 1);
  return dequantized(x, scale, n.in(i + 2));
}

// f(x) of input 0, at the scale of inputs 3 and 4.
template <class F>
Status requantize(NodeImport& n, F f) {
  X x = dequantized_input(n, 0), scale = n.need(3), zero = n.in(4);
  TESSERA_TRY(n.b.status());
  Result<X> y = f(x);
  if (!y) return tl::unexpected<Error>(std::move(y.error()));
  n.out(quantized(*y, scale, zero_of(zero, n.need(0).dtype())));
  return {};
}

template <class F>
Status requantize_two(NodeImport& n, F f) {
  X a = dequantized_input(n, 0), b = dequantized_input(n, 3), scale = n.need(6), zero = n.in(7);
  TESSERA_TRY(n.b.status());
  n.out(quantized(f(a, b), scale, zero_of(zero, n.need(0).dtype())));
  return {};
}

X last_axis_second(X x, bool move) {
  if (!move || !x) return x;
  std::vector<int> order = {0, x.rank() - 1};
  for (int i = 1; i < x.rank() - 1; ++i) order.push_back(i);
  return transpose(x, std::move(order));
}
X second_axis_last(X x, bool move) {
  if (!move || !x) return x;
  std::vector<int> order = {0};
  for (int i = 2; i < x.rank(); ++i) order.push_back(i);
  order.push_back(1);
  return transpose(x, std::move(order));
}

}  // namespace

Result<X> dequantized_product(NodeImport& n, const Quantized& a, const Quantized& b, Opt bias) {
  TESSERA_TRY(n.b.status());
  auto byte = [](X x) { return x.dtype() == DType::u8 || x.dtype() == DType::i8; };
  const X a_scale = one_number(a.scale), a0 = one_number(a.zero), b_scale = one_number(b.scale),
          b0 = one_number(b.zero);
  if ((a_scale && a_scale.rank() > 0) || (a0 && a0.rank() > 0))
    return n.fail(Code::unsupported_feature, "the left operand must have one scale and one zero point");
  const DType type = bias ? bias.dtype() : a_scale ? a_scale.dtype() : b_scale ? b_scale.dtype() : DType::f32;
  auto wide = [](X s) { return s ? cast(s, DType::f32) : s; };
  if (byte(a.x) && byte(b.x) && a.x.rank() > 0 && b.x.rank() == 2 && (!b_scale || b_scale.rank() < 2) &&
      (!b0 || b0.rank() < 2)) {
    X y = n.b.add1(ops::linear_quantized_op,
                   {a.x, swap_axes(b.x, 0, 1), wide(a_scale), wide(b_scale), a0, b0, wide(bias)});
    return cast(y, type);
  }
  X y = cast(integer_product(n, a.x, a0, b.x, b0), DType::f32);
  if (a_scale) y = y * wide(a_scale);
  if (b_scale) y = y * wide(b_scale);
  return cast(bias ? y + wide(bias) : y, type);
}

Status import_ms_matmul_integer_to_float(NodeImport& n) {
  const Quantized a{n.need(0), n.need(2), n.in(4)}, b{n.need(1), n.need(3), n.in(5)};
  TESSERA_ASSIGN(X y, dequantized_product(n, a, b, n.in(6)));
  n.out(y);
  return {};
}

Status import_ms_dynamic_quantize_matmul(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  const Xs q = n.b.add(ops::quantize_dynamic_op, std::vector<X>{x});
  TESSERA_TRY(n.b.status());
  const Quantized a{q[0], q[1], q[2]}, b{n.need(1), n.need(2), n.in(3)};
  TESSERA_ASSIGN(X y, dequantized_product(n, a, b, n.in(4)));
  n.out(y);
  return {};
}

Status import_ms_matmul_integer_16(NodeImport& n) {
  X a = n.need(0), b = n.need(1);
  TESSERA_TRY(n.b.status());
  const bool both = is_unsigned_int(a.dtype()) && is_unsigned_int(b.dtype());
  const DType wide = both ? DType::u32 : DType::i32;
  n.out(any_matmul(n, cast(a, wide), cast(b, wide)));
  return {};
}

// alpha (a' - a0)(b' - b0) + c, in f32 or, with a scale for it, quantized.
Status import_ms_qgemm(NodeImport& n) {
  X a = n.need(0), a_scale = n.need(1), a0 = n.need(2), b = n.need(3), b_scale = n.need(4), b0 = n.need(5);
  X c = n.in(6), y_scale = n.in(7), y0 = n.in(8);
  TESSERA_TRY(n.b.status());
  if (a.rank() != 2 || b.rank() != 2)
    return n.fail(Code::rank_mismatch, "the operands are {} and {} but must have two axes", to_string(*a.type()),
                  to_string(*b.type()));
  if (static_cast<bool>(y_scale) != static_cast<bool>(y0))
    return n.fail(Code::arity, "y_scale and y_zero_point go together");
  if (n.integer("transA", 0) != 0) a = swap_axes(a, 0, 1);
  if (n.integer("transB", 0) != 0) b = swap_axes(b, 0, 1);
  X sum = integer_product(n, a, a0, b, b0);
  if (c) sum = sum + c;
  X scale = one_number(a_scale) * one_number(b_scale);
  if (const double alpha = n.real("alpha", 1); alpha != 1) scale = scale * alpha;
  n.out(y_scale ? requantized(sum, scale / one_number(y_scale), one_number(y0)) : cast(sum, DType::f32) * scale);
  return {};
}

Status import_ms_qlinear_conv(NodeImport& n) {
  TESSERA_TRY(only_attribute(n, "channels_last", 0));
  return import_qlinear_conv(n);
}

Status import_ms_mul_integer(NodeImport& n) {
  X a = n.need(0), b = n.need(2);
  n.out(centred(a, n.in(1)) * centred(b, n.in(3)));
  return {};
}

Status import_ms_qlinear_add(NodeImport& n) {
  return requantize_two(n, [](X a, X b) { return a + b; });
}
Status import_ms_qlinear_mul(NodeImport& n) {
  return requantize_two(n, [](X a, X b) { return a * b; });
}
Status import_ms_qlinear_sigmoid(NodeImport& n) {
  return requantize(n, [&](X x) -> Result<X> { return n.b.add1(ops::sigmoid_op, {x}); });
}
Status import_ms_qlinear_leaky_relu(NodeImport& n) {
  const double alpha = n.real("alpha", 0.01);
  return requantize(n, [&](X x) -> Result<X> { return select(less(x, like(x, 0)), alpha * x, x); });
}

// Below version 13 of Softmax, over all axes from `axis` on.
Status import_ms_qlinear_softmax(NodeImport& n) {
  const int64_t version = n.integer("opset", 13);
  return requantize(n, [&](X x) -> Result<X> {
    TESSERA_ASSIGN(int axis, n.axis("axis", version < 13 ? 1 : -1, x.rank()));
    const Shape shape = x.shape();
    if (version < 13) {
      Dim outer = 1, inner = 1;
      for (int i = 0; i < x.rank(); ++i) (i < axis ? outer : inner) = (i < axis ? outer : inner) * x.dim(i);
      X flat = reshape(x, {outer, inner});
      return reshape(n.b.add1(ops::softmax_op, {flat}, {int64_t{-1}}), shape);
    }
    return n.b.add1(ops::softmax_op, {x}, {int64_t{axis}});
  });
}

Status import_ms_qlinear_average_pool(NodeImport& n) {
  const bool last = n.integer("channels_last", 0) != 0;
  return requantize(n, [&](X x) -> Result<X> {
    TESSERA_ASSIGN(X y, average_pooled(n, last_axis_second(x, last)));
    return second_axis_last(y, last);
  });
}

Status import_ms_qlinear_global_average_pool(NodeImport& n) {
  const bool last = n.integer("channels_last", 0) != 0;
  return requantize(n, [&](X x) -> Result<X> {
    Axes axes;
    for (int i = last ? 1 : 2; i < x.rank() - (last ? 1 : 0); ++i) axes.push_back(i);
    return mean(x, axes);
  });
}

Status import_ms_qlinear_reduce_mean(NodeImport& n) {
  return requantize(n, [&](X x) -> Result<X> {
    Axes axes;
    std::vector<int> gone;
    for (int64_t a : n.integers("axes")) {
      TESSERA_ASSIGN(int axis, n.normal_axis(a, x.rank()));
      axes.push_back(axis);
      gone.push_back(axis);
    }
    for (int i = 0; axes.empty() && i < x.rank(); ++i) gone.push_back(i);
    if (axes.empty()) axes.assign(gone.begin(), gone.end());
    X y = mean(x, axes);
    return n.integer("keepdims", 1) != 0 ? y : squeeze(y, std::move(gone));
  });
}

// Inputs: the result's scale and zero point, then x, scale and zero point of each part.
Status import_ms_qlinear_concat(NodeImport& n) {
  X scale = n.need(0), zero = n.need(1);
  if (n.inputs() < 5 || (n.inputs() - 2) % 3 != 0)
    return n.fail(Code::arity, "{} inputs are not a scale, a zero point, and three a part", n.inputs());
  Xs parts;
  for (int i = 2; i < n.inputs(); i += 3) parts.push_back(dequantized_input(n, i));
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int axis, n.axis("axis", 0, parts[0].rank()));
  n.out(quantized(ir::concat(parts, axis), scale, zero));
  return {};
}

Status import_ms_qlinear_where(NodeImport& n) {
  X condition = n.need(0), x = dequantized_input(n, 1), y = dequantized_input(n, 4);
  X scale = n.need(7), zero = n.need(8);
  TESSERA_TRY(n.b.status());
  n.out(quantized(select(condition, x, y), scale, zero));
  return {};
}

// The weights [N, K] stand in blocks along K.
Status import_ms_matmul_nbits(NodeImport& n) {
  X x = n.need(0), w = n.need(1), scale = n.need(2), zero = n.in(3), groups = n.in(4), bias = n.in(5);
  const int64_t k = n.integer("K", 0), outputs = n.integer("N", 0), bits = n.integer("bits", 4),
                block = n.integer("block_size", 0);
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(only_attribute(n, "weight_prepacked", 0));
  if (k < 1 || outputs < 1 || k > (int64_t{1} << 31) || outputs > (int64_t{1} << 31))
    return n.fail(Code::attribute_invalid, "attributes 'K' and 'N' are {} and {}", k, outputs);
  if (bits != 2 && bits != 4 && bits != 8)
    return n.fail(Code::unsupported_feature, "attribute 'bits' is {}, but only 2, 4 and 8 are supported", bits);
  if (block < 16 || block > (1 << 20) || (block & (block - 1)) != 0)
    return n.fail(Code::attribute_invalid, "attribute 'block_size' is {} but must be a power of 2 from 16 on", block);
  if (groups) {
    const std::optional<std::vector<double>> known = n.reals(4);
    for (int64_t i = 0; i < k; ++i)
      if (!known || static_cast<int64_t>(known->size()) != k ||
          (*known)[static_cast<size_t>(i)] != static_cast<double>(i / block))
        return n.fail(Code::unsupported_feature, "input 4 (g_idx) is supported only where column i is in block i / {}",
                      block);
  }
  const int64_t count = (k + block - 1) / block;
  const DType type = x.dtype();
  w = reshape(w, {outputs, count, block * bits / 8});
  scale = cast(reshape(scale, {outputs, count}), DType::f32);
  if (zero) {
    const bool packed = zero.dtype() == DType::u8;
    zero = reshape(zero, {outputs, packed ? (count * bits + 7) / 8 : count});
    if (!packed) zero = cast(zero, DType::f32);
  }
  x = cast(x, DType::f32);
  if (bias) bias = cast(bias, DType::f32);
  n.out(cast(n.b.add1(ops::linear_blocks_op, {x, w, scale, zero, bias}, {bits, block}), type));
  return {};
}

namespace {

// The numbers that four bits stand for, bitsandbytes' tables: 4-bit floats, and quantiles of the normal distribution
// (Dettmers et al. 2023, appendix E).
constexpr std::array<float, 16> kFp4 = {
    0.0f, 0.00520833333f,  0.66666667f,  1.0f,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
    0.0f, -0.00520833333f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
constexpr std::array<float, 16> kNf4 = {-1.0f,
                                        -0.6961928009986877f,
                                        -0.5250730514526367f,
                                        -0.39491748809814453f,
                                        -0.28444138169288635f,
                                        -0.18477343022823334f,
                                        -0.09105003625154495f,
                                        0.0f,
                                        0.07958029955625534f,
                                        0.16093020141124725f,
                                        0.24611230194568634f,
                                        0.33791524171829224f,
                                        0.44070982933044434f,
                                        0.5626170039176941f,
                                        0.7229568362236023f,
                                        1.0f};

}  // namespace

// Weights [N, K] in row-major order, two a byte, the first in the high bits; each `block_size` have one absolute
// maximum.
Status import_ms_matmul_bnb4(NodeImport& n) {
  X x = n.need(0), w = n.need(1), top = n.need(2);
  const int64_t k = n.integer("K", 0), outputs = n.integer("N", 0), block = n.integer("block_size", 0);
  const int64_t kind = n.integer("quant_type", 0);
  TESSERA_TRY(n.b.status());
  if (k < 1 || outputs < 1 || k > (1 << 24) || outputs > (1 << 24) || block < 2 || block > (1 << 24) || block % 2 != 0)
    return n.fail(Code::attribute_invalid, "attributes 'K', 'N' and 'block_size' are {}, {} and {}", k, outputs, block);
  if (kind != 0 && kind != 1)
    return n.fail(Code::attribute_invalid, "attribute 'quant_type' is {} but must be 0 or 1", kind);
  const int64_t count = k * outputs, blocks = (count + block - 1) / block, bytes = (count + 1) / 2;
  TESSERA_ASSIGN(Tensor table, Tensor::make(DType::f32, {16}));
  std::copy_n((kind == 0 ? kFp4 : kNf4).begin(), 16, static_cast<float*>(table.mutable_data()));
  w = reshape(w, {bytes, 1});
  X high = n.b.add1(ops::shift_right_op, {w, n.b.integer(4, DType::u8)});
  X low = n.b.add1(ops::bit_and_op, {w, n.b.integer(15, DType::u8)});
  X index = pad(reshape(cast(ir::concat({high, low}, 1), DType::i64), {2 * bytes}), {0}, {blocks * block - 2 * bytes});
  X values = reshape(gather(n.b.constant(std::move(table)), index, 0), {blocks, block});
  values = values * reshape(cast(top, DType::f32), {blocks, 1});
  X weights = reshape(slice(reshape(values, {blocks * block}), 0, 0, count), {outputs, k});
  if (n.integer("transB", 1) == 0) weights = swap_axes(weights, 0, 1);
  n.out(cast(n.b.add1(ops::linear_op, {cast(x, DType::f32), weights}), x.dtype()));
  return {};
}

}  // namespace tessera::onnx
