// Pointwise primitives: one scalar function each.
#include <cmath>
#include <limits>

#include "ops/ops.h"
#include "ops/reference.h"

namespace tessera::ops {
namespace {

using ir::A;
using ir::Infer;
using ir::OpDef;

Status undecided() { return fail(Code::value_invalid, "the sizes do not decide this"); }

// For double-only functions.
template <double (*F)(double)>
Status real1(Eval& e) {
  return map1<double, double>(e, e.in(0).dtype, F);
}

double sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }  // NaN stays NaN
double rsqrt_of(double x) { return 1 / std::sqrt(x); }

Status eval_neg(Eval& e) {
  DType t = e.in(0).dtype;
  if (e.in(0).is_real()) return map1<double, double>(e, t, [](double x) { return -x; });
  if (e.in(0).data.index() == 2) return map1<Dim, Dim>(e, t, [](Dim x) { return -x; });
  return map1<Int, Int>(e, t, [](Int x) { return -x; });
}
Status eval_abs(Eval& e) {
  DType t = e.in(0).dtype;
  if (e.in(0).is_real()) return map1<double, double>(e, t, [](double x) { return std::fabs(x); });
  return map1<Int, Int>(e, t, [](Int x) { return x < 0 ? -x : x; });
}
Status eval_sign(Eval& e) {
  if (e.in(0).is_real()) return real1<sign_of>(e);
  return map1<Int, Int>(e, e.in(0).dtype, [](Int x) { return Int((x > 0) - (x < 0)); });
}
Status eval_is_nan(Eval& e) {
  return map1<double, Int>(e, DType::boolean, [](double x) { return Int(std::isnan(x)); });
}
Status eval_is_inf(Eval& e) {
  bool positive = e.attrs.flag("positive"), negative = e.attrs.flag("negative");
  return map1<double, Int>(e, DType::boolean,
                           [=](double x) { return Int(std::isinf(x) && (x > 0 ? positive : negative)); });
}
Status eval_logical_not(Eval& e) {
  return map1<Int, Int>(e, DType::boolean, [](Int x) { return Int(x == 0); });
}
Status eval_bit_not(Eval& e) {
  return map1<Int, Int>(e, e.in(0).dtype, [](Int x) { return ~x; });
}

Status eval_cast(Eval& e) {
  const Array& x = e.in(0);
  DType to = e.attrs["to"];
  if (x.data.index() == 2) {  // sizes stay what they are in any integer type
    if (!is_int(to)) return undecided();
    return map1<Dim, Dim>(e, to, [](Dim v) { return v; });
  }
  Rounding rounding{e.attrs.flag("saturate"), static_cast<E8m0Round>(e.attrs.integer("e8m0"))};
  if (x.is_real() && is_float(to)) {
    // A cast to a narrow type is there to round, inside a meaning too. The choices of the float8 types are its alone.
    if (bits(to) > 16) return map1<double, double>(e, to, [](double v) { return v; });
    const Rounding how = bits(to) <= 8 ? rounding : Rounding{.saturate = false};
    return map1<double, double>(e, to, [=](double v) {
      unsigned char element[8];
      encode(to, element, 0, v, how);
      return decode(to, element, 0);
    });
  }
  if (x.is_real())
    return map1<double, Int>(e, to, [=](double v) {
      unsigned char element[8];
      encode(to, element, 0, v);
      return decode_int(to, element, 0);
    });
  if (is_float(to))
    return map1<Int, double>(e, to, [=](Int v) {
      unsigned char element[8];
      encode_int(to, element, 0, v, rounding);
      return decode(to, element, 0);
    });
  if (to == DType::boolean) return map1<Int, Int>(e, to, [](Int v) { return Int(v != 0); });
  return map1<Int, Int>(e, to, [](Int v) { return v; });
}
Status infer_cast(Infer& infer) {
  if (!infer.operands[0]->ranked) {
    infer.results.push_back(infer.context.unranked(infer.attrs["to"]));
    return {};
  }
  infer.result(infer.attrs["to"], infer.shape(0));
  return {};
}

Status infer_bitcast(Infer& infer) {
  DType to = infer.attrs["to"];
  if (bits(to) != bits(infer.dtype(0)))
    return fail(Code::dtype_mismatch, "bitcast: {} has {} bits but {} has {}", name(infer.dtype(0)),
                bits(infer.dtype(0)), name(to), bits(to));
  return infer_cast(infer);
}
Status eval_bitcast(Eval& e) {
  TESSERA_ASSIGN(Tensor bits_of_x, ir::to_tensor(e.in(0)));
  TESSERA_ASSIGN(Array y, ir::to_array(Tensor::borrow(e.attrs["to"], bits_of_x.shape(), bits_of_x.data())));
  e.out(std::move(y));
  return {};
}

// One function for reals, one for integers; sizes where D is given.
template <class FR, class FI>
Status arithmetic(Eval& e, FR real, FI integer) {
  DType t = e.in(0).dtype;
  if (e.in(0).is_real()) return map2<double, double>(e, t, real);
  if (e.in(0).data.index() == 2) return undecided();
  return map2<Int, Int>(e, t, integer);
}
template <class FR, class FI, class FD>
Status arithmetic(Eval& e, FR real, FI integer, FD dim) {
  if (e.in(0).data.index() != 2) return arithmetic(e, real, integer);
  return map2<Dim, Dim>(e, e.in(0).dtype, dim);
}

Result<Int> zero_divisor() { return fail(Code::value_invalid, "an integer is divided by zero"); }
Result<Dim> undecided_dim() { return fail(Code::value_invalid, "the sizes do not decide this"); }
bool not_negative(Dim d) { return d.is_const() ? d.value() >= 0 : d.table()->bounds(d).lo >= 0; }
bool positive(Dim d) { return d.is_const() ? d.value() > 0 : d.table()->bounds(d).lo > 0; }
DimTable* table_of(Dim a, Dim b) { return a.is_const() ? b.table() : a.table(); }

Status eval_add(Eval& e) {
  return arithmetic(
      e, [](double a, double b) { return a + b; }, [](Int a, Int b) { return a + b; },
      [](Dim a, Dim b) { return a + b; });
}
Status eval_sub(Eval& e) {
  return arithmetic(
      e, [](double a, double b) { return a - b; }, [](Int a, Int b) { return a - b; },
      [](Dim a, Dim b) { return a - b; });
}
Status eval_mul(Eval& e) {
  return arithmetic(
      e, [](double a, double b) { return a * b; }, multiply, [](Dim a, Dim b) { return a * b; });
}
// Integers truncate toward zero.
Status eval_div(Eval& e) {
  return arithmetic(
      e, [](double a, double b) { return a / b; },
      [](Int a, Int b) -> Result<Int> {
        if (b == 0) return zero_divisor();
        return a / b;
      },
      [](Dim a, Dim b) -> Result<Dim> {
        if (DimTable* table = table_of(a, b))
          if (std::optional<Dim> exact = table->exact_div(a, b)) return *exact;
        if (not_negative(a) && positive(b)) return floordiv(a, b);
        return undecided_dim();
      });
}
// The remainder with the divisor's sign (Python's %).
double floor_mod(double a, double b) {
  double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
Status eval_mod(Eval& e) {
  return arithmetic(
      e, floor_mod,
      [](Int a, Int b) -> Result<Int> {
        if (b == 0) return zero_divisor();
        Int r = a % b;
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;
      },
      [](Dim a, Dim b) -> Result<Dim> {
        if (positive(b)) return tessera::mod(a, b);
        return undecided_dim();
      });
}
// The remainder with the dividend's sign (C's fmod and %).
Status eval_fmod(Eval& e) {
  return arithmetic(
      e, [](double a, double b) { return std::fmod(a, b); },
      [](Int a, Int b) -> Result<Int> {
        if (b == 0) return zero_divisor();
        return a % b;
      });
}
Int power(Int a, Int n) {
  if (n < 0) return a == 1 ? 1 : a == -1 ? (n % 2 == 0 ? 1 : -1) : 0;  // 1/a^-n, truncated
  Int result = 1;
  for (; n > 0; n >>= 1) {
    if (n & 1) result = multiply(result, a);
    a = multiply(a, a);
  }
  return result;
}
Status eval_pow(Eval& e) {
  return arithmetic(
      e, [](double a, double b) { return std::pow(a, b); }, power);
}
double min_of(double a, double b) { return std::isnan(a) || a < b ? a : b; }  // NaN wins, as in numpy
double max_of(double a, double b) { return std::isnan(a) || a > b ? a : b; }
Status eval_min(Eval& e) {
  return arithmetic(
      e, min_of, [](Int a, Int b) { return a < b ? a : b; }, [](Dim a, Dim b) { return tessera::min(a, b); });
}
Status eval_max(Eval& e) {
  return arithmetic(
      e, max_of, [](Int a, Int b) { return a > b ? a : b; }, [](Dim a, Dim b) { return tessera::max(a, b); });
}

template <class F>
Status bitwise(Eval& e, F f) {
  return map2<Int, Int>(e, e.in(0).dtype, f);
}
Status eval_bit_and(Eval& e) {
  return bitwise(e, [](Int a, Int b) { return a & b; });
}
Status eval_bit_or(Eval& e) {
  return bitwise(e, [](Int a, Int b) { return a | b; });
}
Status eval_bit_xor(Eval& e) {
  return bitwise(e, [](Int a, Int b) { return a ^ b; });
}
// Shifts by the type's width or more give 0 (or the sign).
Status eval_shift_left(Eval& e) {
  return bitwise(e,
                 [](Int a, Int n) { return n >= 64 || n < 0 ? Int(0) : static_cast<Int>(static_cast<UInt>(a) << n); });
}
Status eval_shift_right(Eval& e) {
  return bitwise(e, [](Int a, Int n) { return n >= 64 || n < 0 ? Int(a < 0 ? -1 : 0) : a >> n; });
}

// `proved` and `refuted` decide sizes.
template <class F, class P, class N>
Status compare(Eval& e, F f, P proved, N refuted) {
  if (e.in(0).is_real()) return map2<double, Int>(e, DType::boolean, [=](double a, double b) { return Int(f(a, b)); });
  if (e.in(0).data.index() == 2)
    return map2<Dim, Dim>(e, DType::boolean, [=](Dim a, Dim b) -> Result<Dim> {
      DimTable* table = table_of(a, b);
      if (table == nullptr) return Dim(f(a.value(), b.value()));
      if (proved(*table, a, b)) return Dim(1);
      if (refuted(*table, a, b)) return Dim(0);
      return undecided_dim();
    });
  return map2<Int, Int>(e, DType::boolean, [=](Int a, Int b) { return Int(f(a, b)); });
}
Status eval_equal(Eval& e) {
  return compare(
      e, [](auto a, auto b) { return a == b; }, [](DimTable& t, Dim a, Dim b) { return t.proves_eq(a, b); },
      [](DimTable& t, Dim a, Dim b) { return t.proves_ne(a, b); });
}
Status eval_less(Eval& e) {
  return compare(
      e, [](auto a, auto b) { return a < b; }, [](DimTable& t, Dim a, Dim b) { return t.proves_lt(a, b); },
      [](DimTable& t, Dim a, Dim b) { return t.proves_le(b, a); });
}
Status eval_less_equal(Eval& e) {
  return compare(
      e, [](auto a, auto b) { return a <= b; }, [](DimTable& t, Dim a, Dim b) { return t.proves_le(a, b); },
      [](DimTable& t, Dim a, Dim b) { return t.proves_lt(b, a); });
}

Status eval_select(Eval& e) {
  const Array &c = e.in(0), &a = e.in(1), &b = e.in(2);
  TESSERA_ASSIGN(Dims shape, broadcast(a.shape, b.shape));
  TESSERA_ASSIGN(shape, broadcast(c.shape, shape));
  std::vector<int64_t> sc = broadcast_strides(c.shape, shape), sa = broadcast_strides(a.shape, shape),
                       sb = broadcast_strides(b.shape, shape);
  bool decided = true;
  auto chosen = [&](size_t i) {
    if (c.data.index() == 1) return c.of<Int>()[i] != 0;
    const Dim& d = c.of<Dim>()[i];
    decided &= d.is_const();
    return !d.is(0);
  };
  Array y{a.dtype, shape, {}};
  visit_data(a, [&](const auto& da) {
    std::decay_t<decltype(da)> data;
    const auto& db = std::get<std::decay_t<decltype(da)>>(b.data);
    for_each_index<3>(shape, {&sc, &sa, &sb}, [&](int64_t, const int64_t(&at)[3]) {
      data.push_back(chosen(static_cast<size_t>(at[0])) ? da[static_cast<size_t>(at[1])]
                                                        : db[static_cast<size_t>(at[2])]);
    });
    y.data = std::move(data);
  });
  if (!decided) return undecided();
  e.out(std::move(y));
  return {};
}

constexpr OpDef unary(std::string_view name, std::string_view doc, std::string_view types, ir::ReferenceFn reference) {
  OpDef op{};
  op.name = name;
  op.doc = doc;
  op.signature = "x[*S] -> y[*S]";
  op.types = types;
  op.reference = reference;
  return op;
}
constexpr OpDef binary(std::string_view name, std::string_view doc, std::string_view types, ir::ReferenceFn reference,
                       bool commutative, bool folds_dims) {
  OpDef op{};
  op.name = name;
  op.doc = doc;
  op.signature = "a[*S|1], b[*S|1] -> y[*S]";
  op.types = types;
  op.reference = reference;
  op.commutative = commutative;
  op.folds_dims = folds_dims;
  return op;
}
constexpr OpDef folding(OpDef op) {
  op.folds_dims = true;
  return op;
}
constexpr OpDef with(OpDef op, ir::AttrSpecs attrs, ir::InferFn infer = nullptr) {
  op.attrs = attrs;
  op.infer = infer;
  return op;
}

constexpr std::string_view kReal = "x, y: float";
constexpr std::string_view kNumber = "x, y: number";
constexpr std::string_view kNumbers = "a, b, y: number";
constexpr std::string_view kInts = "a, b, y: int";
constexpr std::string_view kBools = "a, b, y: bool";

}  // namespace

// clang-format off
constinit const OpDef neg_op = folding(unary("neg", "-x.", kNumber, eval_neg));
constinit const OpDef abs_op = unary("abs", "|x|.", kNumber, eval_abs);
constinit const OpDef sign_op = unary("sign", "1, 0 or -1 by the sign of x; NaN stays.", kNumber, eval_sign);
constinit const OpDef exp_op = unary("exp", "e^x.", kReal, real1<std::exp>);
constinit const OpDef log_op = unary("log", "Natural logarithm.", kReal, real1<std::log>);
constinit const OpDef sqrt_op = unary("sqrt", "Square root.", kReal, real1<std::sqrt>);
constinit const OpDef rsqrt_op = unary("rsqrt", "1 / sqrt(x).", kReal, real1<rsqrt_of>);
constinit const OpDef sin_op = unary("sin", "Sine of radians.", kReal, real1<std::sin>);
constinit const OpDef cos_op = unary("cos", "Cosine of radians.", kReal, real1<std::cos>);
constinit const OpDef tan_op = unary("tan", "Tangent of radians.", kReal, real1<std::tan>);
constinit const OpDef asin_op = unary("asin", "Inverse sine.", kReal, real1<std::asin>);
constinit const OpDef acos_op = unary("acos", "Inverse cosine.", kReal, real1<std::acos>);
constinit const OpDef atan_op = unary("atan", "Inverse tangent.", kReal, real1<std::atan>);
constinit const OpDef sinh_op = unary("sinh", "Hyperbolic sine.", kReal, real1<std::sinh>);
constinit const OpDef cosh_op = unary("cosh", "Hyperbolic cosine.", kReal, real1<std::cosh>);
constinit const OpDef tanh_op = unary("tanh", "Hyperbolic tangent.", kReal, real1<std::tanh>);
constinit const OpDef asinh_op = unary("asinh", "Inverse hyperbolic sine.", kReal, real1<std::asinh>);
constinit const OpDef acosh_op = unary("acosh", "Inverse hyperbolic cosine.", kReal, real1<std::acosh>);
constinit const OpDef atanh_op = unary("atanh", "Inverse hyperbolic tangent.", kReal, real1<std::atanh>);
constinit const OpDef erf_op = unary("erf", "Error function.", kReal, real1<std::erf>);
constinit const OpDef floor_op = unary("floor", "Largest integer not above x.", kReal, real1<std::floor>);
constinit const OpDef ceil_op = unary("ceil", "Smallest integer not below x.", kReal, real1<std::ceil>);
constinit const OpDef round_op = unary("round", "Nearest integer, ties to even.", kReal, real1<std::nearbyint>);
constinit const OpDef is_nan_op = unary("is_nan", "Whether x is NaN.", "x: float; y: bool", eval_is_nan);
constinit const OpDef is_inf_op = with(unary("is_inf", "Whether x is infinite with an asked-for sign.", "x: float; y: bool", eval_is_inf),
                                    {ir::bool_attr("positive", true), ir::bool_attr("negative", true)});
constinit const OpDef logical_not_op = unary("logical_not", "Negation.", "x, y: bool", eval_logical_not);
constinit const OpDef bit_not_op = unary("bit_not", "Complement of every bit.", "x, y: int", eval_bit_not);
constinit const OpDef cast_op = folding(with(unary("cast", "The value in another type: floats to nearest even, to integers toward zero, integers modulo 2^bits, "
                                                "booleans x != 0 (ONNX Cast).", "x: any; y: -> to", eval_cast),
                                  {ir::dtype_attr("to"), ir::bool_attr("saturate", true), ir::word_attr("e8m0", "up|down|nearest")}, infer_cast));
constinit const OpDef bitcast_op = with(unary("bitcast", "The same bits as another type of equal width.", "x: any; y: -> to", eval_bitcast),
                                     {ir::dtype_attr("to")}, infer_bitcast);

constinit const OpDef add_op = binary("add", "a + b.", kNumbers, eval_add, true, true);
constinit const OpDef sub_op = binary("sub", "a - b.", kNumbers, eval_sub, false, true);
constinit const OpDef mul_op = binary("mul", "a * b.", kNumbers, eval_mul, true, true);
constinit const OpDef div_op = binary("div", "a / b; integers truncate toward zero.", kNumbers, eval_div, false, true);
constinit const OpDef mod_op = binary("mod", "Remainder with b's sign.", kNumbers, eval_mod, false, true);
constinit const OpDef fmod_op = binary("fmod", "Remainder with a's sign.", kNumbers, eval_fmod, false, false);
constinit const OpDef pow_op = binary("pow", "a to the power b.", kNumbers, eval_pow, false, false);
constinit const OpDef min_op = binary("min", "The smaller; NaN when either is.", "a, b, y: any", eval_min, true, true);
constinit const OpDef max_op = binary("max", "The larger; NaN when either is.", "a, b, y: any", eval_max, true, true);
constinit const OpDef logical_and_op = binary("logical_and", "Conjunction.", kBools, eval_bit_and, true, false);
constinit const OpDef logical_or_op = binary("logical_or", "Disjunction.", kBools, eval_bit_or, true, false);
constinit const OpDef logical_xor_op = binary("logical_xor", "Exclusive or.", kBools, eval_bit_xor, true, false);
constinit const OpDef bit_and_op = binary("bit_and", "And of every bit.", kInts, eval_bit_and, true, false);
constinit const OpDef bit_or_op = binary("bit_or", "Or of every bit.", kInts, eval_bit_or, true, false);
constinit const OpDef bit_xor_op = binary("bit_xor", "Exclusive or of every bit.", kInts, eval_bit_xor, true, false);
constinit const OpDef shift_left_op = binary("shift_left", "a shifted left by b bits.", kInts, eval_shift_left, false, false);
constinit const OpDef shift_right_op = binary("shift_right", "a shifted right by b bits, with its sign.", kInts, eval_shift_right, false, false);
constinit const OpDef equal_op = binary("equal", "a == b.", "a, b: any; y: bool", eval_equal, true, true);
constinit const OpDef less_op = binary("less", "a < b.", "a, b: any; y: bool", eval_less, false, true);
constinit const OpDef less_equal_op = binary("less_equal", "a <= b.", "a, b: any; y: bool", eval_less_equal, false, true);
constinit const OpDef select_op = {
    .name = "select", .doc = "a where c holds, else b.", .signature = "c[*S|1], a[*S|1], b[*S|1] -> y[*S]",
    .types = "c: bool; a, b, y: any", .reference = eval_select, .folds_dims = true};
// clang-format on

}  // namespace tessera::ops
