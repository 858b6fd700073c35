// Reductions, running sums and the contraction.
#include <limits>

#include "ops/ops.h"
#include "ops/reference.h"

namespace tessera::ops {
namespace {

using ir::Infer;
using ir::OpDef;

Status infer_reduce(Infer& infer) {
  if (!infer.operands[0]->ranked) {
    infer.results.push_back(infer.context.unranked(infer.dtype(0)));
    return {};
  }
  Shape shape = infer.shape(0);
  for (int64_t axis : infer.attrs.integers("axes")) {
    TESSERA_ASSIGN(int a, infer.axis(axis, infer.rank(0)));
    shape[static_cast<size_t>(a)] = 1;
  }
  infer.result(infer.dtype(0), std::move(shape));
  return {};
}

size_t index_of(int64_t axis, int rank) { return static_cast<size_t>(axis < 0 ? axis + rank : axis); }

// y = fold of x over the axes, each kept with size 1.
template <class S, class F>
Status fold(Eval& e, S initial, F f) {
  const Array& x = e.in(0);
  Dims shape = x.shape;
  for (int64_t axis : e.attrs.integers("axes")) shape[index_of(axis, x.rank())] = 1;
  std::vector<int64_t> out = broadcast_strides(shape, x.shape);
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  std::vector<S> data(static_cast<size_t>(count), initial);
  const std::vector<S>& from = x.of<S>();
  for_each_index<1>(x.shape, {&out}, [&](int64_t i, const int64_t(&at)[1]) {
    S& y = data[static_cast<size_t>(at[0])];
    y = f(y, from[static_cast<size_t>(i)]);
  });
  e.out(Array{x.dtype, std::move(shape), std::move(data)});
  return {};
}

Status eval_reduce_sum(Eval& e) {
  switch (e.in(0).data.index()) {
    case 0:
      return fold<double>(e, 0, [](double a, double b) { return a + b; });
    case 1:
      return fold<Int>(e, 0, [](Int a, Int b) { return a + b; });
    default:
      return fold<Dim>(e, 0, [](Dim a, Dim b) { return a + b; });
  }
}
Status eval_reduce_prod(Eval& e) {
  switch (e.in(0).data.index()) {
    case 0:
      return fold<double>(e, 1, [](double a, double b) { return a * b; });
    case 1:
      return fold<Int>(e, 1, multiply);
    default:
      return fold<Dim>(e, 1, [](Dim a, Dim b) { return a * b; });
  }
}

Int lowest(DType t) { return is_signed_int(t) ? -(Int(1) << (bits(t) - 1)) : Int(0); }
Int highest(DType t) {
  if (t == DType::boolean) return 1;
  return (Int(1) << (bits(t) - (is_signed_int(t) ? 1 : 0))) - 1;
}

Status eval_reduce_max(Eval& e) {
  if (e.in(0).is_real())
    return fold<double>(e, -std::numeric_limits<double>::infinity(),
                        [](double a, double b) { return std::isnan(a) || a > b ? a : b; });
  if (e.in(0).data.index() == 2) return fail(Code::value_invalid, "the sizes do not decide this");
  return fold<Int>(e, lowest(e.in(0).dtype), [](Int a, Int b) { return a > b ? a : b; });
}
Status eval_reduce_min(Eval& e) {
  if (e.in(0).is_real())
    return fold<double>(e, std::numeric_limits<double>::infinity(),
                        [](double a, double b) { return std::isnan(a) || a < b ? a : b; });
  if (e.in(0).data.index() == 2) return fail(Code::value_invalid, "the sizes do not decide this");
  return fold<Int>(e, highest(e.in(0).dtype), [](Int a, Int b) { return a < b ? a : b; });
}

constexpr OpDef reduction(std::string_view name, std::string_view doc, std::string_view types,
                          ir::ReferenceFn reference) {
  OpDef op{};
  op.name = name;
  op.doc = doc;
  op.signature = "x[*S] -> y[*R]";
  op.types = types;
  op.attrs = {ir::ints_attr("axes")};
  op.infer = infer_reduce;
  op.reference = reference;
  op.folds_dims = true;
  return op;
}

Status infer_along_axis(Infer& infer) {
  if (!infer.operands[0]->ranked) {
    infer.results.push_back(infer.operands[0]);
    return {};
  }
  TESSERA_TRY(infer.axis(infer.attrs.integer("axis"), infer.rank(0)));
  infer.result(infer.dtype(0), infer.shape(0));
  return {};
}

Status infer_arg(Infer& infer) {
  if (!infer.operands[0]->ranked) {
    infer.results.push_back(infer.context.unranked(DType::i64));
    return {};
  }
  TESSERA_ASSIGN(int axis, infer.axis(infer.attrs.integer("axis"), infer.rank(0)));
  Shape shape = infer.shape(0);
  if (shape[static_cast<size_t>(axis)].is(0))
    return fail(Code::shape_invalid, "{}: axis {} is empty", infer.op.name, axis);
  shape[static_cast<size_t>(axis)] = 1;
  infer.result(DType::i64, std::move(shape));
  return {};
}

// Splits x into [outer][n][inner] around `axis`.
struct Split {
  int64_t outer = 1, n = 1, inner = 1;
  Split(const Dims& shape, int64_t axis) {
    size_t at = index_of(axis, static_cast<int>(shape.size()));
    for (size_t i = 0; i < at; ++i) outer *= shape[i];
    n = shape[at];
    for (size_t i = at + 1; i < shape.size(); ++i) inner *= shape[i];
  }
};

template <bool Max>
Status eval_arg(Eval& e) {
  const Array& x = e.in(0);
  Split s(x.shape, e.attrs.integer("axis"));
  if (s.n == 0 && s.outer * s.inner > 0) return fail(Code::value_invalid, "{}: the axis is empty", e.op.name);
  bool last = e.attrs.flag("last");
  Dims shape = x.shape;
  shape[index_of(e.attrs.integer("axis"), x.rank())] = 1;
  std::vector<Int> data;
  auto search = [&](const auto& from) {
    for (int64_t o = 0; o < s.outer; ++o)
      for (int64_t i = 0; i < s.inner; ++i) {
        auto at = [&](int64_t k) { return from[static_cast<size_t>((o * s.n + k) * s.inner + i)]; };
        int64_t best = 0;
        for (int64_t k = 1; k < s.n; ++k) {
          bool better = Max ? at(k) > at(best) : at(k) < at(best);
          if (better || (last && at(k) == at(best))) best = k;
        }
        data.push_back(best);
      }
  };
  if (x.is_real()) {
    search(x.of<double>());
  } else {
    search(x.of<Int>());
  }
  e.out(Array{DType::i64, std::move(shape), std::move(data)});
  return {};
}

template <class F>
Status running(Eval& e, int initial, F f) {
  const Array& x = e.in(0);
  Split s(x.shape, e.attrs.integer("axis"));
  bool exclusive = e.attrs.flag("exclusive"), reverse = e.attrs.flag("reverse");
  Array y{x.dtype, x.shape, {}};
  auto run = [&](const auto& from) {
    using S = typename std::decay_t<decltype(from)>::value_type;
    std::vector<S> to(from.size());
    for (int64_t o = 0; o < s.outer; ++o)
      for (int64_t i = 0; i < s.inner; ++i) {
        S total = initial;
        for (int64_t k = 0; k < s.n; ++k) {
          size_t at = static_cast<size_t>((o * s.n + (reverse ? s.n - 1 - k : k)) * s.inner + i);
          S next = f(total, from[at]);
          to[at] = exclusive ? total : next;
          total = next;
        }
      }
    y.data = std::move(to);
  };
  if (x.is_real()) {
    run(x.of<double>());
  } else {
    run(x.of<Int>());
  }
  e.out(std::move(y));
  return {};
}
Status eval_cumsum(Eval& e) {
  return running(e, 0, [](auto a, auto b) { return a + b; });
}
Status eval_cumprod(Eval& e) {
  return running(e, 1, [](auto a, auto b) {
    if constexpr (std::is_same_v<decltype(a), Int>)
      return multiply(a, b);
    else
      return a * b;
  });
}

// c[i] += a[m, k] b[n, k] for one [M, N] panel. Eight independent sums hide the latency of the addition.
template <class S>
void dot_panel(const S* a, const S* b, S* c, int64_t m_count, int64_t n_count, int64_t k_count) {
  for (int64_t m = 0; m < m_count; ++m) {
    const S* row = a + m * k_count;
    int64_t n = 0;
    for (; n + 8 <= n_count; n += 8) {
      const S* column = b + n * k_count;
      S sum[8] = {};
      for (int64_t k = 0; k < k_count; ++k)
        for (int64_t j = 0; j < 8; ++j) sum[j] += row[k] * column[j * k_count + k];
      for (int64_t j = 0; j < 8; ++j) c[m * n_count + n + j] = sum[j];
    }
    for (; n < n_count; ++n) {
      S sum = 0;
      for (int64_t k = 0; k < k_count; ++k) sum += row[k] * b[n * k_count + k];
      c[m * n_count + n] = sum;
    }
  }
}

Status eval_dot(Eval& e) {
  const Array &a = e.in(0), &b = e.in(1);
  size_t ra = a.shape.size(), rb = b.shape.size();
  Dims batch_a(a.shape.begin(), a.shape.end() - 2), batch_b(b.shape.begin(), b.shape.end() - 2);
  TESSERA_ASSIGN(Dims batch, broadcast(batch_a, batch_b));
  int64_t m = a.shape[ra - 2], k = a.shape[ra - 1], n = b.shape[rb - 2];
  if (b.shape[rb - 1] != k) return fail(Code::shape_mismatch, "dot: K is {} in a but {} in b", k, b.shape[rb - 1]);
  std::vector<int64_t> sa = broadcast_strides(batch_a, batch), sb = broadcast_strides(batch_b, batch);
  Dims shape = batch;
  shape.push_back(m);
  shape.push_back(n);
  TESSERA_ASSIGN(int64_t count, ir::array_count(shape));
  auto run = [&]<class S>(S) {
    std::vector<S> data(static_cast<size_t>(count));
    if (count > 0)
      for_each_index<2>(batch, {&sa, &sb}, [&](int64_t i, const int64_t(&at)[2]) {
        dot_panel(a.of<S>().data() + at[0] * m * k, b.of<S>().data() + at[1] * n * k, data.data() + i * m * n, m, n, k);
      });
    e.out(Array{a.dtype, shape, std::move(data)});
  };
  if (a.is_real()) {
    run(double());
  } else {
    run(Int());
  }
  return {};
}

Status eval_det(Eval& e) {
  const Array& x = e.in(0);
  size_t rank = x.shape.size();
  int64_t n = x.shape[rank - 1];
  Dims shape(x.shape.begin(), x.shape.end() - 2);
  TESSERA_ASSIGN(int64_t count, ir::array_count(shape));
  std::vector<double> data;
  for (int64_t b = 0; b < count; ++b) {
    // Gaussian elimination with partial pivoting.
    std::vector<double> m(x.of<double>().begin() + b * n * n, x.of<double>().begin() + (b + 1) * n * n);
    auto at = [&](int64_t i, int64_t j) -> double& { return m[static_cast<size_t>(i * n + j)]; };
    double det = 1;
    for (int64_t c = 0; c < n; ++c) {
      int64_t pivot = c;
      for (int64_t r = c + 1; r < n; ++r)
        if (std::fabs(at(r, c)) > std::fabs(at(pivot, c))) pivot = r;
      if (pivot != c) {
        det = -det;
        for (int64_t j = 0; j < n; ++j) std::swap(at(c, j), at(pivot, j));
      }
      det *= at(c, c);
      if (at(c, c) == 0) break;
      for (int64_t r = c + 1; r < n; ++r) {
        double factor = at(r, c) / at(c, c);
        for (int64_t j = c; j < n; ++j) at(r, j) -= factor * at(c, j);
      }
    }
    data.push_back(det);
  }
  e.out(Array{x.dtype, std::move(shape), std::move(data)});
  return {};
}

}  // namespace

// clang-format off
constinit const OpDef reduce_sum_op = reduction("reduce_sum", "Sum over the axes, which stay with size 1; 0 of nothing.", "x, y: number", eval_reduce_sum);
constinit const OpDef reduce_prod_op = reduction("reduce_prod", "Product over the axes, which stay with size 1; 1 of nothing.", "x, y: number", eval_reduce_prod);
constinit const OpDef reduce_max_op = reduction("reduce_max", "Largest over the axes, which stay with size 1; NaN wins; the type's lowest of nothing.", "x, y: any", eval_reduce_max);
constinit const OpDef reduce_min_op = reduction("reduce_min", "Smallest over the axes, which stay with size 1; NaN wins; the type's highest of nothing.", "x, y: any", eval_reduce_min);
// clang-format on

constinit const OpDef argmax_op = {
    .name = "argmax",
    .doc = "Index of the largest along the axis, which stays with size 1; the first of equals, or the last.",
    .signature = "x[*S] -> y[*R]",
    .types = "x: any; y: i64",
    .attrs = {ir::int_attr("axis"), ir::bool_attr("last", false)},
    .infer = infer_arg,
    .reference = eval_arg<true>,
};
constinit const OpDef argmin_op = {
    .name = "argmin",
    .doc = "Index of the smallest along the axis, which stays with size 1; the first of equals, or the last.",
    .signature = "x[*S] -> y[*R]",
    .types = "x: any; y: i64",
    .attrs = {ir::int_attr("axis"), ir::bool_attr("last", false)},
    .infer = infer_arg,
    .reference = eval_arg<false>,
};
constinit const OpDef cumsum_op = {
    .name = "cumsum",
    .doc = "Running sum along the axis.",
    .signature = "x[*S] -> y[*S]",
    .types = "x, y: number",
    .attrs = {ir::int_attr("axis"), ir::bool_attr("exclusive", false), ir::bool_attr("reverse", false)},
    .infer = infer_along_axis,
    .reference = eval_cumsum,
};
constinit const OpDef cumprod_op = {
    .name = "cumprod",
    .doc = "Running product along the axis.",
    .signature = "x[*S] -> y[*S]",
    .types = "x, y: number",
    .attrs = {ir::int_attr("axis"), ir::bool_attr("exclusive", false), ir::bool_attr("reverse", false)},
    .infer = infer_along_axis,
    .reference = eval_cumprod,
};
constinit const OpDef dot_op = {
    .name = "dot",
    .doc =
        "Contracts the last axes: y[..., m, n] = sum over k of a[..., m, k] b[..., n, k]. Every matmul, gemm and "
        "einsum.",
    .signature = "a[*B|1, M, K], b[*B|1, N, K] -> y[*B, M, N]",
    .types = "a, b, y: number",
    .reference = eval_dot,
};
constinit const OpDef det_op = {
    .name = "det",
    .doc = "Determinant.",
    .signature = "x[*B, N, N] -> y[*B]",
    .types = "x, y: float",
    .reference = eval_det,
};

}  // namespace tessera::ops
