// Pointwise operators: one formula each.
#include <algorithm>
#include <cmath>

#include "import/onnx/onnx_ops.h"
#include "import/onnx/tensor_proto.h"

namespace tessera::onnx {
namespace {

Status unary(NodeImport& n, const ir::OpDef& op) {
  n.out(apply(op, n.any(0) ? n.any(0) : n.need(0)));
  return {};
}

// Before version 7, b broadcasts only when `broadcast` says so, and then its axes stand from `axis` on.
X legacy_operand(NodeImport& n, X a, X b) {
  if (n.opset >= 7 || !a || !b || n.integer("broadcast", 0) == 0) return b;
  int64_t axis = n.integer("axis", a.rank() - b.rank());
  if (axis < 0) axis += a.rank();
  std::vector<int> positions;
  for (int64_t i = b.rank(); i < a.rank() - axis; ++i) positions.push_back(static_cast<int>(i));
  return positions.empty() || axis < 0 ? b : unsqueeze(b, std::move(positions));
}

// (a, b) after the version's broadcasting rule.
struct Pair {
  X a, b;
};
Pair operands(NodeImport& n) {
  X a = n.need(0), b = n.need(1);
  return {a, legacy_operand(n, a, b)};
}

Status binary(NodeImport& n, const ir::OpDef& op) {
  Pair p = operands(n);
  n.out(apply(op, p.a, p.b));
  return {};
}

// Folds two or more operands.
Status variadic(NodeImport& n, const ir::OpDef& op) {
  Xs xs = n.all();
  X y = xs[0];
  for (size_t i = 1; i < xs.size(); ++i) y = apply(op, y, xs[i]);
  n.out(y);
  return {};
}

}  // namespace

#define TESSERA_UNARY(function, op) \
  Status function(NodeImport& n) { return unary(n, ops::op); }
TESSERA_UNARY(import_abs, abs_op)
TESSERA_UNARY(import_acos, acos_op)
TESSERA_UNARY(import_acosh, acosh_op)
TESSERA_UNARY(import_asin, asin_op)
TESSERA_UNARY(import_asinh, asinh_op)
TESSERA_UNARY(import_atan, atan_op)
TESSERA_UNARY(import_atanh, atanh_op)
TESSERA_UNARY(import_bitwise_not, bit_not_op)
TESSERA_UNARY(import_ceil, ceil_op)
TESSERA_UNARY(import_cos, cos_op)
TESSERA_UNARY(import_cosh, cosh_op)
TESSERA_UNARY(import_erf, erf_op)
TESSERA_UNARY(import_exp, exp_op)
TESSERA_UNARY(import_floor, floor_op)
TESSERA_UNARY(import_is_nan, is_nan_op)
TESSERA_UNARY(import_log, log_op)
TESSERA_UNARY(import_neg, neg_op)
TESSERA_UNARY(import_not, logical_not_op)
TESSERA_UNARY(import_round, round_op)
TESSERA_UNARY(import_sigmoid, sigmoid_op)
TESSERA_UNARY(import_sign, sign_op)
TESSERA_UNARY(import_sin, sin_op)
TESSERA_UNARY(import_sinh, sinh_op)
TESSERA_UNARY(import_softplus, softplus_op)
TESSERA_UNARY(import_sqrt, sqrt_op)
TESSERA_UNARY(import_tan, tan_op)
TESSERA_UNARY(import_tanh, tanh_op)
TESSERA_UNARY(import_relu, relu_op)
TESSERA_UNARY(import_hard_swish, hard_swish_op)
#undef TESSERA_UNARY

#define TESSERA_BINARY(function, op) \
  Status function(NodeImport& n) { return binary(n, ops::op); }
TESSERA_BINARY(import_add, add_op)
TESSERA_BINARY(import_and, logical_and_op)
TESSERA_BINARY(import_bitwise_and, bit_and_op)
TESSERA_BINARY(import_bitwise_or, bit_or_op)
TESSERA_BINARY(import_bitwise_xor, bit_xor_op)
TESSERA_BINARY(import_div, div_op)
TESSERA_BINARY(import_equal, equal_op)
TESSERA_BINARY(import_less, less_op)
TESSERA_BINARY(import_less_or_equal, less_equal_op)
TESSERA_BINARY(import_mul, mul_op)
TESSERA_BINARY(import_or, logical_or_op)
TESSERA_BINARY(import_sub, sub_op)
TESSERA_BINARY(import_xor, logical_xor_op)
#undef TESSERA_BINARY

Status import_greater(NodeImport& n) {
  Pair p = operands(n);
  n.out(less(p.b, p.a));
  return {};
}
Status import_greater_or_equal(NodeImport& n) {
  Pair p = operands(n);
  n.out(less_equal(p.b, p.a));
  return {};
}

Status import_max(NodeImport& n) { return variadic(n, ops::max_op); }
Status import_min(NodeImport& n) { return variadic(n, ops::min_op); }
Status import_sum(NodeImport& n) { return variadic(n, ops::add_op); }
Status import_mean(NodeImport& n) {
  Xs xs = n.all();
  X y = xs[0];
  for (size_t i = 1; i < xs.size(); ++i) y = y + xs[i];
  n.out(y / static_cast<double>(xs.size()));
  return {};
}

Status import_mod(NodeImport& n) {
  X a = n.need(0), b = n.need(1);
  n.out(n.integer("fmod", 0) != 0 ? apply(ops::fmod_op, a, b) : mod(a, b));
  return {};
}

// The result has the base's type; an exponent of another type is taken in the wider of the two.
Status import_pow(NodeImport& n) {
  Pair p = operands(n);
  TESSERA_TRY(n.b.status());
  DType type = p.a.dtype();
  if (p.b.dtype() == type) {
    n.out(pow(p.a, p.b));
  } else if (is_float(type)) {
    n.out(pow(p.a, cast(p.b, type)));
  } else if (is_float(p.b.dtype())) {
    n.out(cast(pow(cast(p.a, DType::f64), cast(p.b, DType::f64)), type));
  } else {
    n.out(cast(pow(cast(p.a, DType::i64), cast(p.b, DType::i64)), type));
  }
  return {};
}

Status import_bit_shift(NodeImport& n) {
  std::string_view direction = n.text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    return n.fail(Code::attribute_invalid, "direction is '{}' but must be LEFT or RIGHT", direction);
  n.out(apply(direction == "LEFT" ? ops::shift_left_op : ops::shift_right_op, n.need(0), n.need(1)));
  return {};
}

Status import_reciprocal(NodeImport& n) {
  n.out(1.0 / n.need(0));
  return {};
}

Status import_is_inf(NodeImport& n) {
  n.out(n.b.add1(ops::is_inf_op, {n.need(0)}, {n.integer("detect_positive", 1), n.integer("detect_negative", 1)}));
  return {};
}

Status import_where(NodeImport& n) {
  n.out(select(n.need(0), n.need(1), n.need(2)));
  return {};
}

namespace {

Status cast_to(NodeImport& n, DType to) {
  X x = n.any(0) ? n.any(0) : n.need(0);
  TESSERA_TRY(n.b.status());
  if (to == DType::string || x.dtype() == DType::string)
    return n.fail(Code::unsupported_feature, "casts from and to strings are not supported");
  int64_t mode = 0;
  if (std::string_view round = n.text("round_mode", "up"); n.has_attribute("round_mode")) {
    mode = ir::word_index("up|down|nearest", round);
    if (mode < 0) return n.fail(Code::attribute_invalid, "round_mode is '{}' but must be up, down or nearest", round);
  }
  if (x.dtype() == to) {
    n.out(x);
    return {};
  }
  n.out(n.b.add1(ops::cast_op, {x}, {static_cast<int64_t>(to), n.integer("saturate", 1), mode}));
  return {};
}

}  // namespace

Status import_cast(NodeImport& n) {
  if (const AttributeProto* to = n.attribute("to"); to && to->s()) {  // version 1 names the type
    DType type;
    std::string lower(*to->s());
    for (char& c : lower) c = static_cast<char>(std::tolower(c));
    static constexpr std::pair<std::string_view, DType> kNames[] = {
        {"float", DType::f32},  {"double", DType::f64}, {"float16", DType::f16}, {"int8", DType::i8},
        {"int16", DType::i16},  {"int32", DType::i32},  {"int64", DType::i64},   {"uint8", DType::u8},
        {"uint16", DType::u16}, {"uint32", DType::u32}, {"uint64", DType::u64},  {"bool", DType::boolean}};
    for (const auto& [name, t] : kNames)
      if (name == lower) return cast_to(n, type = t);
    return n.fail(Code::attribute_invalid, "attribute 'to' is '{}', which is no type", *to->s());
  }
  if (!n.has_attribute("to")) return n.fail(Code::attribute_invalid, "attribute 'to' is missing");
  DType to = n.dtype("to", DType::f32);
  TESSERA_TRY(n.b.status());
  return cast_to(n, to);
}

Status import_cast_like(NodeImport& n) {
  X like = n.any(1);
  if (!like) return n.fail(Code::arity, "input 1 is missing");
  return cast_to(n, like.dtype());
}

Status import_bit_cast(NodeImport& n) {
  DType to = n.dtype("to", DType::f32);
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  n.out(x.dtype() == to ? x : n.b.add1(ops::bitcast_op, {x}, {static_cast<int64_t>(to)}));
  return {};
}

Status import_clip(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  X low, high;
  if (n.opset < 11) {
    if (n.has_attribute("min")) low = like(x, n.real("min", 0));
    if (n.has_attribute("max")) high = like(x, n.real("max", 0));
  } else {
    // Some exporters write bounds of another type than x.
    low = n.in(1) ? cast(n.in(1), x.dtype()) : X{};
    high = n.in(2) ? cast(n.in(2), x.dtype()) : X{};
  }
  if (low) x = max(x, low);
  if (high) x = min(x, high);
  n.out(x);
  return {};
}

// Activations.

// x where it is positive, alpha (e^x - 1) elsewhere.
X elu(X x, double alpha) {
  const X below = alpha * (exp(x) - 1.0), zero = like(x, 0);
  return alpha > 0 ? max(x, zero) + min(below, zero) : select(less(x, zero), below, x);
}
Status import_elu(NodeImport& n) {
  X x = n.need(0);
  double alpha = n.real("alpha", 1.0);
  n.out(elu(x, alpha));
  return {};
}
Status import_celu(NodeImport& n) {
  X x = n.need(0);
  double alpha = n.real("alpha", 1.0);
  n.out(max(x, like(x, 0)) + min(alpha * (exp(x / alpha) - 1.0), like(x, 0)));
  return {};
}
Status import_selu(NodeImport& n) {
  X x = n.need(0);
  // Versions 1 and 6 differ only in the digits of the defaults.
  double alpha = n.real("alpha", n.opset < 6 ? 1.6732 : 1.67326319217681884765625);
  double gamma = n.real("gamma", n.opset < 6 ? 1.0507 : 1.05070102214813232421875);
  n.out(gamma * elu(x, alpha));
  return {};
}
Status import_leaky_relu(NodeImport& n) {
  X x = n.need(0);
  const double alpha = n.real("alpha", 0.01);
  n.out(alpha > 0 && alpha <= 1 ? max(x, alpha * x) : select(less(x, like(x, 0)), alpha * x, x));
  return {};
}
Status import_thresholded_relu(NodeImport& n) {
  X x = n.need(0);
  n.out(select(less(like(x, n.real("alpha", 1.0)), x), x, like(x, 0)));
  return {};
}
Status import_prelu(NodeImport& n) {
  X x = n.need(0), slope = n.need(1);
  TESSERA_TRY(n.b.status());
  // Before version 7 a vector is one slope a channel; after it numpy broadcasting holds, towards x only.
  if (n.opset < 7 && slope.rank() == 1 && x.rank() > 2) {
    std::vector<int> positions;
    for (int i = 1; i < x.rank() - 1; ++i) positions.push_back(i);
    slope = unsqueeze(slope, positions);
  }
  // A slope that is no number would reach what it is not for.
  const std::optional<std::vector<double>> slopes = n.reals(1);
  const bool plain = slopes && std::all_of(slopes->begin(), slopes->end(), [](double s) { return std::isfinite(s); });
  const X zero = like(x, 0);
  n.out(plain ? max(x, zero) + slope * min(x, zero) : select(less(x, zero), slope * x, x));
  return {};
}
Status import_hard_sigmoid(NodeImport& n) {
  n.out(n.b.add1(ops::hard_sigmoid_op, {n.need(0)}, {n.real("alpha", 0.2), n.real("beta", 0.5)}));
  return {};
}
Status import_softsign(NodeImport& n) {
  X x = n.need(0);
  n.out(x / (1.0 + abs(x)));
  return {};
}
Status import_mish(NodeImport& n) {
  X x = n.need(0);
  n.out(x * tanh(apply(ops::softplus_op, x)));
  return {};
}
Status import_gelu(NodeImport& n) {
  std::string_view approximate = n.text("approximate", "none");
  if (approximate != "none" && approximate != "tanh")
    return n.fail(Code::attribute_invalid, "approximate is '{}' but must be none or tanh", approximate);
  n.out(apply(approximate == "tanh" ? ops::gelu_tanh_op : ops::gelu_op, n.need(0)));
  return {};
}
Status import_swish(NodeImport& n) {
  X x = n.need(0);
  double alpha = n.real("alpha", 1.0);
  n.out(alpha == 1.0 ? apply(ops::silu_op, x) : x * apply(ops::sigmoid_op, alpha * x));
  return {};
}
Status import_shrink(NodeImport& n) {
  X x = n.need(0);
  TESSERA_TRY(n.b.status());
  DType type = x.dtype();
  // Integers are compared with and moved by fractions.
  X real = is_float(type) ? x : cast(x, DType::f64);
  double bias = n.real("bias", 0.0), lambd = n.real("lambd", 0.5);
  X y = select(less(real, like(real, -lambd)), real + bias,
               select(less(like(real, lambd), real), real - bias, like(real, 0)));
  n.out(cast(y, type));
  return {};
}

}  // namespace tessera::onnx
