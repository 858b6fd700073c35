// MatMul, Gemm and the quantized products.
#include "import/onnx/ops/matmul.h"

#include "import/onnx/onnx_ops.h"
#include "import/onnx/ops/quant.h"

namespace tessera::onnx {

X any_matmul(NodeImport& n, X a, X b) {
  if (!a || !b) return {&n.b, ir::kNoValue};
  const bool row = a.rank() == 1, column = b.rank() == 1;
  if (a.rank() == 0 || b.rank() == 0) {
    n.b.fail_with(n.fail(Code::rank_mismatch, "the operands are {} and {} but need an axis each", to_string(*a.type()),
                         to_string(*b.type()))
                      .value());
    return {&n.b, ir::kNoValue};
  }
  X y = matmul(row ? unsqueeze(a, {0}) : a, column ? unsqueeze(b, {1}) : b);
  std::vector<int> gone;
  if (row) gone.push_back(-2);
  if (column) gone.push_back(-1);
  return gone.empty() ? y : squeeze(y, std::move(gone));
}

namespace {

// One value a row: [M] as [M, 1].
X by_row(X s) { return s && s.rank() == 1 ? unsqueeze(s, {1}) : s; }

// x times a number, in any type.
X scaled(X x, double factor) {
  if (!x || factor == 1) return x;
  if (is_float(x.dtype())) return x * factor;
  return cast(cast(x, DType::f64) * factor, x.dtype());
}

}  // namespace

Status import_matmul(NodeImport& n) {
  X a = n.need(0), b = n.need(1);
  TESSERA_TRY(n.b.status());
  n.out(any_matmul(n, a, b));
  return {};
}

Status import_gemm(NodeImport& n) {
  if (n.opset < 11 && !n.has(2)) return n.fail(Code::arity, "input 2 is missing");
  TESSERA_ASSIGN(X y, gemm(n));
  n.out(y);
  return {};
}

// c broadcasts in every version (before 7 only where `broadcast` says so, which shapes that agree satisfy as well).
Result<X> gemm(NodeImport& n) {
  X a = n.need(0), b = n.need(1), c = n.in(2);
  TESSERA_TRY(n.b.status());
  if (a.rank() != 2 || b.rank() != 2)
    return n.fail(Code::rank_mismatch, "the operands are {} and {} but must have two axes", to_string(*a.type()),
                  to_string(*b.type()));
  if (n.integer("transA", 0) != 0) a = swap_axes(a, 0, 1);
  if (n.integer("transB", 0) == 0) b = swap_axes(b, 0, 1);  // [N, K]
  const double alpha = n.real("alpha", 1), beta = n.real("beta", 1);
  if (c && c.rank() > 2)
    return n.fail(Code::rank_mismatch, "input 2 is {} but must broadcast to two axes", to_string(*c.type()));
  if (is_float(a.dtype()) && alpha == 1) {
    const bool bias = c && beta == 1 && c.rank() == 1 && c.dim(0) == b.dim(0);
    X y = n.b.add1(ops::linear_op, {a, b, bias ? c : X{&n.b, ir::kNoValue}});
    return c && !bias ? y + scaled(c, beta) : y;
  }
  X y = scaled(dot(a, b), alpha);
  return c ? y + scaled(c, beta) : y;
}

X integer_product(NodeImport& n, X a, Opt a0, X b, Opt b0) {
  a0 = one_number(a0);
  b0 = one_number(b0);
  if (!n.b.ok()) return a;
  auto byte = [](X x) { return x.dtype() == DType::u8 || x.dtype() == DType::i8; };
  // A zero point a row of a matrix a fits as well, but not one a row of a stack of them.
  const bool rows_fit = !a0 || a0.rank() == 0 || (a0.rank() == 1 && a.rank() == 2);
  if (byte(a) && byte(b) && a.rank() > 0 && b.rank() == 2 && rows_fit && (!b0 || b0.rank() <= 1))
    return n.b.add1(ops::linear_integer_op, {a, swap_axes(b, 0, 1), by_row(a0), b0});
  return any_matmul(n, centred(a, by_row(a0)), centred(b, b0));
}

Status import_matmul_integer(NodeImport& n) {
  X a = n.need(0), b = n.need(1), a0 = n.in(2), b0 = n.in(3);
  TESSERA_TRY(n.b.status());
  n.out(integer_product(n, a, a0, b, b0));
  return {};
}

Status import_qlinear_matmul(NodeImport& n) {
  X a = n.need(0), a_scale = n.need(1), a0 = n.need(2), b = n.need(3), b_scale = n.need(4), b0 = n.need(5);
  X y_scale = n.need(6), y0 = n.need(7);
  TESSERA_TRY(n.b.status());
  X product = integer_product(n, a, a0, b, b0);
  TESSERA_TRY(n.b.status());
  X scale = cast(by_row(a_scale), DType::f32) * cast(b_scale, DType::f32) / cast(by_row(y_scale), DType::f32);
  n.out(requantized(product, scale, by_row(y0)));
  return {};
}

}  // namespace tessera::onnx
