// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.
#include "import/onnx/ops/quant.h"

#include "import/onnx/onnx_ops.h"

namespace tessera::onnx {
namespace {

X rounded(X x) { return x.builder->add1(ops::round_op, {x}); }

// The x [f32] clipped to what an integer type holds.
X clipped(X x, DType to) {
  const int width = bits(to);
  const double low = is_signed_int(to) ? -static_cast<double>(int64_t{1} << (width - 1)) : 0;
  const double high = static_cast<double>((int64_t{1} << (is_signed_int(to) ? width - 1 : width)) - 1);
  return cast(min(max(x, like(x, low)), like(x, high)), to);
}

bool can_quantize_to(DType t) { return bits(t) <= 16 && (is_int(t) || (is_float(t) && bits(t) <= 8)); }

// A scale or zero point so that it broadcasts to x: one for all, one for each index of `axis`, or one for each block of
// `block` indices.
Result<X> spread(NodeImport& n, X x, X s, int64_t axis, int64_t block) {
  s = one_number(s);
  if (!s || s.rank() == 0) return s;
  if (block == 0) {
    if (s.rank() != 1)
      return n.fail(Code::rank_mismatch, "the scale is {} but without 'block_size' it must have at most one axis",
                    to_string(*s.type()));
    TESSERA_ASSIGN(int a, n.normal_axis(axis, x.rank()));
    Shape shape(x.shape().size(), 1);
    shape[static_cast<size_t>(a)] = s.dim(0);
    return reshape(s, std::move(shape));
  }
  if (s.rank() != x.rank())
    return n.fail(Code::rank_mismatch, "blocked scales are {} but x is {}", to_string(*s.type()), to_string(*x.type()));
  TESSERA_ASSIGN(int a, n.normal_axis(axis, x.rank()));
  const size_t along = static_cast<size_t>(a);
  if (n.b.dims().proves_ne(s.dim(a), ceildiv(x.dim(a), block)))
    return n.fail(Code::shape_mismatch, "{} scales along axis {} do not serve {} elements in blocks of {}",
                  to_string(s.dim(a)), a, to_string(x.dim(a)), block);
  Shape shape = s.shape();
  const Dim whole = shape[along] * block;
  shape.insert(shape.begin() + a + 1, block);
  X y = broadcast(unsqueeze(s, {a + 1}), shape);
  shape.erase(shape.begin() + a + 1);
  shape[along] = whole;
  return slice(reshape(y, std::move(shape)), a, 0, x.dim(a));
}

Result<int64_t> block_size(NodeImport& n) {
  const int64_t block = n.integer("block_size", 0);
  if (block >= 0 && block <= (int64_t{1} << 30)) return block;
  return n.fail(Code::attribute_invalid, "attribute 'block_size' is {} but must be positive", block);
}

// The attribute's type; nullopt when it is absent or 0.
std::optional<DType> chosen_type(NodeImport& n, std::string_view name) {
  if (n.integer(name, 0) == 0) return std::nullopt;
  return n.dtype(name, DType::f32);
}

}  // namespace

X centred(X x, Opt zero) {
  const DType wide = x && is_float(x.dtype()) ? DType::f32 : DType::i32;
  X y = cast(x, wide);
  return zero ? y - cast(zero, wide) : y;
}

X saturated(X x, DType to, bool saturate) {
  if (!x) return x;
  if (is_int(to)) return clipped(rounded(x), to);
  return x.builder->add1(ops::cast_op, {x}, {static_cast<int64_t>(to), int64_t{saturate}});
}

X requantized(X sum, X scale, X zero) {
  if (!sum || !zero) return sum;
  const DType to = zero.dtype();
  X y = cast(sum, DType::f32) * scale;
  if (!is_int(to)) return saturated(y + cast(zero, DType::f32), to);
  return clipped(rounded(y) + cast(zero, DType::f32), to);
}

X one_number(X s) { return s && s.rank() == 1 && s.dim(0).is(1) ? squeeze(s, {0}) : s; }

X dequantized(X x, X scale, Opt zero) {
  if (!x || !scale) return x;
  return x.builder->add1(ops::dequantize_linear_op, {x, one_number(scale), one_number(zero)}, {int64_t{0}});
}

Status import_quantize_linear(NodeImport& n) {
  X x = n.need(0), scale = n.need(1), zero = n.in(2);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int64_t block, block_size(n));
  const int64_t axis = n.integer("axis", 1);
  const std::optional<DType> asked = chosen_type(n, "output_dtype"), precision = chosen_type(n, "precision");
  TESSERA_TRY(n.b.status());
  if (asked && zero && *asked != zero.dtype())
    return n.fail(Code::dtype_mismatch, "'output_dtype' is {} but the zero point is {}", name(*asked),
                  name(zero.dtype()));
  const DType to = zero ? zero.dtype() : asked.value_or(DType::u8);
  if (!can_quantize_to(to)) return n.fail(Code::dtype_mismatch, "nothing is quantized to {}", name(to));
  // The quotient is as precise as the scale, unless the node says otherwise; a scale of 8 bits is a power of two only.
  const DType exact = precision.value_or(bits(scale.dtype()) < 16 ? DType::f32 : scale.dtype());
  if (!is_float(exact) || bits(exact) < 16)
    return n.fail(Code::dtype_mismatch, "a quotient cannot be computed in {}", name(exact));
  TESSERA_ASSIGN(scale, spread(n, x, scale, axis, block));
  TESSERA_ASSIGN(zero, spread(n, x, zero, axis, block));
  X y = cast(cast(x, exact) / cast(scale, exact), DType::f32);
  if (!is_int(to)) {
    // float8 has no zero point but 0.
    if (zero && to == DType::f4e2m1) y = y + cast(zero, DType::f32);
    n.out(saturated(y, to, n.integer("saturate", 1) != 0));
    return {};
  }
  y = rounded(y);
  n.out(clipped(zero ? y + cast(zero, DType::f32) : y, to));
  return {};
}

Status import_dequantize_linear(NodeImport& n) {
  X x = n.need(0), scale = n.need(1), zero = n.in(2);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int64_t block, block_size(n));
  const int64_t axis = n.integer("axis", 1);
  const std::optional<DType> asked = chosen_type(n, "output_dtype");
  TESSERA_TRY(n.b.status());
  const DType to = asked.value_or(scale.dtype());
  if (!is_float(to)) return n.fail(Code::dtype_mismatch, "nothing is dequantized to {}", name(to));
  scale = one_number(scale);
  zero = one_number(zero);
  if (block == 0 && is_int(x.dtype()) && to == scale.dtype() && scale.rank() <= 1) {
    // With one scale for all the axis says nothing.
    int at = 0;
    if (scale.rank() == 1) {
      TESSERA_ASSIGN(at, n.normal_axis(axis, x.rank()));
    }
    if (!zero || zero.rank() == scale.rank()) {
      n.out(n.b.add1(ops::dequantize_linear_op, {x, scale, zero}, {int64_t{at}}));
      return {};
    }
  }
  TESSERA_ASSIGN(scale, spread(n, x, scale, axis, block));
  TESSERA_ASSIGN(zero, spread(n, x, zero, axis, block));
  X y = cast(x, DType::f32);
  if (zero && is_int(x.dtype())) y = y - cast(zero, DType::f32);
  n.out(cast(y * cast(scale, DType::f32), to));
  return {};
}

Status import_dynamic_quantize_linear(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  if (x.dtype() != DType::f32)
    return n.fail(Code::dtype_mismatch, "input 0 is {} but must be f32", to_string(*x.type()));
  const Xs results = n.b.add(ops::quantize_dynamic_op, std::vector<X>{x});
  TESSERA_TRY(n.b.status());
  for (int i = 0; i < 3; ++i) n.out(i, results[static_cast<size_t>(i)]);
  return {};
}

}  // namespace tessera::onnx
