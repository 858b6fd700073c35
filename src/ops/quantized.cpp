// Quantized numbers: integers that stand for (integer - zero point) * scale.
#include <algorithm>
#include <cmath>

#include "ops/math.h"
#include "ops/reference.h"

namespace tessera::ops {
namespace {

using ir::A;
using ir::Infer;
using ir::OpDef;
using ir::Opt;
using ir::X;

// round(v) in [low, high]; `low` for NaN.
Int to_integer(float v, float low, float high) {
  v = std::nearbyint(v);
  if (!(v > low)) v = low;
  return static_cast<Int>(std::min(v, high));
}

// Every step in f32, as the specification's formula is computed: a quotient at a tie must not fall to the other side.
Status eval_quantize_dynamic(Eval& e) {
  const Array& x = e.in(0);
  float low = 0, high = 0;
  for (double v : x.of<double>()) {
    low = std::min(low, static_cast<float>(v));
    high = std::max(high, static_cast<float>(v));
  }
  const float range = high - low;
  const float scale = range == 0 ? 1.0f : range / 255.0f;
  const float zero = static_cast<float>(to_integer(-low / scale, 0, 255));
  std::vector<Int> y;
  y.reserve(x.of<double>().size());
  for (double v : x.of<double>()) {
    const float rounded = std::nearbyint(static_cast<float>(v) / scale);
    y.push_back(to_integer(rounded + zero, 0, 255));
  }
  e.out(Array{DType::u8, x.shape, std::move(y)});
  e.out(Array{DType::f32, {}, std::vector<double>{scale}});
  e.out(Array{DType::u8, {}, std::vector<Int>{static_cast<Int>(zero)}});
  return {};
}

Status eval_quantize_rows(Eval& e) {
  const Array& x = e.in(0);
  const std::vector<double>& values = x.of<double>();
  const int64_t columns = x.shape.back();
  Dims rows = x.shape;
  rows.back() = 1;
  TESSERA_ASSIGN(int64_t count, ir::array_count(rows));
  std::vector<Int> y(values.size());
  std::vector<double> scales;
  for (int64_t r = 0; r < count; ++r) {
    const auto row = static_cast<size_t>(r * columns), end = row + static_cast<size_t>(columns);
    float top = 0;
    bool finite = true;
    for (size_t i = row; i < end; ++i) {
      top = std::max(top, std::fabs(static_cast<float>(values[i])));
      finite &= std::isfinite(static_cast<float>(values[i]));
    }
    const float scale = !finite ? std::nanf("") : top == 0 ? 1.0f : top / 127.0f;
    for (size_t i = row; i < end && finite; ++i) y[i] = to_integer(static_cast<float>(values[i]) / scale, -127, 127);
    scales.push_back(scale);
  }
  e.out(Array{DType::i8, x.shape, std::move(y)});
  e.out(Array{DType::f32, std::move(rows), std::move(scales)});
  return {};
}

// One for all, or one a row of x.
Status check_rows(Infer& infer, int i, std::string_view what) {
  if (!infer.has(i) || !infer.operands[static_cast<size_t>(i)]->ranked || !infer.operands[0]->ranked) return {};
  const Shape& s = infer.shape(i);
  if (s.empty()) return {};
  Shape rows = infer.shape(0);
  rows.back() = 1;
  if (s.size() != rows.size())
    return fail(Code::rank_mismatch, "{}: {} is {} but must be one number or one a row of x {}", infer.op.name, what,
                to_string(*infer.operands[static_cast<size_t>(i)]), to_string(*infer.operands[0]));
  for (size_t a = 0; a < s.size(); ++a) TESSERA_TRY(infer.require_equal(s[a], rows[a], "the rows of x and its scales"));
  return {};
}

// One for all, or one a row of w.
Status check_outputs(Infer& infer, int i, std::string_view what) {
  if (!infer.has(i) || !infer.operands[static_cast<size_t>(i)]->ranked || !infer.operands[1]->ranked) return {};
  const Shape& s = infer.shape(i);
  if (s.empty()) return {};
  if (s.size() != 1)
    return fail(Code::rank_mismatch, "{}: {} is {} but must be one number or one a row of w", infer.op.name, what,
                to_string(*infer.operands[static_cast<size_t>(i)]));
  return infer.require_equal(s[0], infer.shape(1)[0], "the rows of w and its scales");
}

Status infer_product(Infer& infer, DType result) {
  if (!infer.operands[0]->ranked) {
    infer.results.push_back(infer.context.unranked(result));
    return {};
  }
  Shape y = infer.shape(0);
  if (infer.operands[1]->ranked) {
    y.back() = infer.shape(1)[0];
    infer.result(result, std::move(y));
  } else {
    infer.results.push_back(infer.context.unranked(result));
  }
  return {};
}

// The exact product of what the integers stand for, scales apart: [*B, N] in i32.
X product_of_integers(X x, X w, Opt x_zero, Opt w_zero) {
  auto wide = [](X v) { return cast(v, DType::i32); };
  X a = wide(x), b = wide(w);
  if (x_zero) a = a - wide(x_zero);
  if (w_zero) b = b - (w_zero.rank() == 0 ? wide(w_zero) : unsqueeze(wide(w_zero), {1}));
  const Dim n = w.dim(0), k = w.dim(1);
  Shape rows(x.shape().begin(), x.shape().end() - 1);
  X y = dot(reshape(a, {product(rows), k}), b);
  rows.push_back(n);
  return reshape(y, std::move(rows));
}

// Packed integers of `bits` bits, lowest first, one an element: the last axis grows by 8 / bits.
X unpacked(X x, int64_t bits) {
  if (bits == 8) return x;
  auto byte = [&](int64_t v) { return x.builder->integer(v, DType::u8); };
  ir::Xs parts;
  for (int64_t at = 0; at < 8; at += bits) {
    X part = at == 0 ? x : x.builder->add1(shift_right_op, {x, byte(at)});
    parts.push_back(unsqueeze(x.builder->add1(bit_and_op, {part, byte((1 << bits) - 1)}), {-1}));
  }
  Shape shape = x.shape();
  shape.back() = shape.back() * (8 / bits);
  return reshape(concat(parts, -1), std::move(shape));
}

}  // namespace

constinit const OpDef quantize_dynamic_op = {
    .name = "quantize_dynamic",
    .doc =
        "x as 8-bit integers with one scale and zero point from its range, to which 0 belongs; computed in f32. ONNX "
        "DynamicQuantizeLinear.",
    .signature = "x[*S] -> y[*S], scale[*T], zero[*T]",
    .types = "x, scale: f32; y, zero: u8",
    .infer = [](Infer& infer) -> Status {
      infer.results.push_back(infer.operands[0]->ranked ? infer.context.tensor(DType::u8, infer.shape(0))
                                                        : infer.context.unranked(DType::u8));
      infer.result(DType::f32, {});
      infer.result(DType::u8, {});
      return {};
    },
    .reference = eval_quantize_dynamic,
};

constinit const OpDef quantize_rows_op = {
    .name = "quantize_rows",
    .doc =
        "Each row of x as integers from -127 to 127 with a scale of its own: its largest magnitude is 127. A row with "
        "NaN or infinity gets the scale NaN.",
    .signature = "x[*B, K] -> y[*B, K], scale[*B, 1]",
    .types = "x, scale: f32; y: i8",
    .reference = eval_quantize_rows,
};

constinit const OpDef dequantize_linear_op = {
    .name = "dequantize_linear",
    .doc = "(x - zero) scale, with one scale and zero point for all or one for each index of `axis`.",
    .signature = "x[*S], scale[*P], zero?[*P] -> y[*S]",
    .types = "x, zero: int; scale, y: float",
    .attrs = {ir::int_attr("axis", 0)},
    .infer = [](Infer& infer) -> Status {
      if (!infer.operands[0]->ranked) {
        infer.results.push_back(infer.context.unranked(infer.dtype(1)));
        return {};
      }
      if (infer.operands[1]->ranked && infer.rank(1) > 0) {
        if (infer.rank(1) != 1)
          return fail(Code::rank_mismatch, "dequantize_linear: the scale is {} but must have at most one axis",
                      to_string(*infer.operands[1]));
        TESSERA_ASSIGN(int axis, infer.axis(infer.attrs.integer("axis"), infer.rank(0)));
        TESSERA_TRY(infer.require_equal(infer.shape(1)[0], infer.shape(0)[static_cast<size_t>(axis)],
                                        "the scales and the indices of their axis"));
      }
      infer.result(infer.dtype(1), infer.shape(0));
      return {};
    },
    .meaning =
        [](X x, X scale, Opt zero, A a) {
          auto placed = [&](X s) {
            if (s.rank() == 0) return s;
            Shape shape(x.shape().size(), 1);
            const int64_t axis = a["axis"];
            shape[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)] = s.dim(0);
            return reshape(s, std::move(shape));
          };
          X y = cast(x, DType::f32);
          if (zero) y = y - placed(cast(zero, DType::f32));
          return cast(y * placed(cast(scale, DType::f32)), scale.dtype());
        },
};

constinit const OpDef linear_integer_op = {
    .name = "linear_integer",
    .doc = "(x - x_zero) (w - w_zero)^T of 8-bit integers, exact in i32. Zero points are one for all, or one a row.",
    .signature = "x[*B, K], w[N, K], x_zero?[*P], w_zero?[*Q] -> y[*B, N]",
    .types = "x, x_zero: u8|i8; w, w_zero: u8|i8; y: i32",
    .infer = [](Infer& infer) -> Status {
      TESSERA_TRY(check_rows(infer, 2, "x_zero"));
      TESSERA_TRY(check_outputs(infer, 3, "w_zero"));
      return infer_product(infer, DType::i32);
    },
    .meaning = [](X x, X w, Opt x_zero, Opt w_zero) { return product_of_integers(x, w, x_zero, w_zero); },
};

constinit const OpDef linear_quantized_op = {
    .name = "linear_quantized",
    .doc =
        "scale x' w'^T + bias, where x' is (x - x_zero) x_scale and w' is (w - w_zero) w_scale: 8-bit integers, "
        "multiplied exactly. Scales and zero points are one for all, or one a row.",
    .signature = "x[*B, K], w[N, K], x_scale?[*P], w_scale?[*Q], x_zero?[*R], w_zero?[*S], bias?[N] -> y[*B, N]",
    .types = "x, x_zero: u8|i8; w, w_zero: u8|i8; x_scale, w_scale, bias, y: f32",
    .attrs = {ir::real_attr("scale", 1)},
    .infer = [](Infer& infer) -> Status {
      TESSERA_TRY(check_rows(infer, 2, "x_scale"));
      TESSERA_TRY(check_outputs(infer, 3, "w_scale"));
      TESSERA_TRY(check_rows(infer, 4, "x_zero"));
      TESSERA_TRY(check_outputs(infer, 5, "w_zero"));
      return infer_product(infer, DType::f32);
    },
    .meaning =
        [](X x, X w, Opt x_scale, Opt w_scale, Opt x_zero, Opt w_zero, Opt bias, A a) {
          X y = cast(product_of_integers(x, w, x_zero, w_zero), DType::f32);
          if (x_scale) y = y * x_scale;
          if (w_scale) y = y * w_scale;
          if (a.real("scale") != 1) y = y * a.real("scale");
          return bias ? y + bias : y;
        },
};

constinit const OpDef linear_blocks_op = {
    .name = "linear_blocks",
    .doc =
        "x w^T + bias, with w in integers of 2, 4 or 8 bits, packed lowest first, of which each `block` along K have a "
        "scale and a zero point (packed too, or floats; absent: half of the range). onnxruntime MatMulNBits.",
    .signature = "x[*B, K], w[N, G, W], scale[N, G], zero?[N, Z], bias?[N] -> y[*B, N]",
    .types = "x, scale, bias, y: f32; w: u8; zero: u8|f32",
    .attrs = {ir::int_attr("bits", 4), ir::int_attr("block", 32)},
    .infer = [](Infer& infer) -> Status {
      const int64_t bits = infer.attrs.integer("bits"), block = infer.attrs.integer("block");
      if (bits != 2 && bits != 4 && bits != 8) return fail(Code::attribute_invalid, "linear_blocks: {} bits", bits);
      if (block < 16 || block > (1 << 20) || (block & (block - 1)) != 0)
        return fail(Code::attribute_invalid, "linear_blocks: blocks of {}", block);
      if (!infer.operands[0]->ranked || !infer.operands[1]->ranked) return infer_product(infer, DType::f32);
      const Dim groups = ceildiv(infer.shape(0).back(), block);
      TESSERA_TRY(infer.require_equal(infer.shape(1)[1], groups, "the blocks of w and those of a row of x"));
      TESSERA_TRY(infer.require_equal(infer.shape(1)[2], block * bits / 8, "the bytes of a block"));
      if (infer.has(3) && infer.operands[3]->ranked) {
        const Dim wanted = infer.dtype(3) == DType::u8 ? ceildiv(groups * bits, 8) : groups;
        TESSERA_TRY(infer.require_equal(infer.shape(3)[1], wanted, "the zero points and the blocks"));
      }
      return infer_product(infer, DType::f32);
    },
    .meaning =
        [](X x, X w, X scale, Opt zero, Opt bias, A a) {
          const int64_t bits = a["bits"], block = a["block"];
          const Dim n = w.dim(0), groups = w.dim(1);
          X q = cast(unpacked(w, bits), DType::f32);  // [N, G, block]
          if (!zero) {
            q = q - static_cast<double>(1 << (bits - 1));
          } else {
            X z = zero.dtype() == DType::u8 ? slice(cast(unpacked(zero, bits), DType::f32), 1, 0, groups) : zero;
            q = q - unsqueeze(z, {2});
          }
          q = reshape(q * unsqueeze(scale, {2}), {n, groups * block});
          return x.builder->add1(linear_op, {x, slice(q, 1, 0, x.dim(-1)), bias});
        },
};

}  // namespace tessera::ops
