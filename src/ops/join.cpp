// Joining, padding and the sources of indices and randomness.
#include <cmath>
#include <numbers>

#include "ops/ops.h"
#include "ops/reference.h"

namespace tessera::ops {
namespace {

using ir::Infer;
using ir::OpDef;

Status infer_concat(Infer& infer) {
  if (infer.operands.empty()) return fail(Code::arity, "concat: needs at least one operand");
  for (const ir::TypeRef type : infer.operands)
    if (!type->ranked) {
      infer.results.push_back(infer.context.unranked(type->dtype));
      return {};
    }
  TESSERA_ASSIGN(int axis, infer.axis(infer.attrs.integer("axis"), infer.rank(0)));
  Shape shape = infer.shape(0);
  for (size_t k = 1; k < infer.operands.size(); ++k) {
    const ir::Type& type = *infer.operands[k];
    if (type.rank() != infer.rank(0))
      return fail(Code::rank_mismatch, "concat: operand 0 is {} but operand {} is {}", to_string(*infer.operands[0]), k,
                  to_string(type));
    for (int i = 0; i < type.rank(); ++i) {
      size_t at = static_cast<size_t>(i);
      if (i == axis) {
        shape[at] = shape[at] + type.shape[at];
      } else {
        TESSERA_TRY(infer.require_equal(shape[at], type.shape[at], fmt::format("axis {} of the operands", i)));
      }
    }
  }
  infer.result(infer.dtype(0), std::move(shape));
  return {};
}

Status eval_concat(Eval& e) {
  int64_t axis = e.attrs.integer("axis");
  const Array& first = e.in(0);
  size_t at = static_cast<size_t>(axis < 0 ? axis + first.rank() : axis);
  Array y{first.dtype, first.shape, {}};
  int64_t outer = 1;
  for (size_t i = 0; i < at; ++i) outer *= first.shape[i];
  y.shape[at] = 0;
  for (size_t k = 0; k < e.operands.size(); ++k) {
    const Dims& shape = e.in(static_cast<int>(k)).shape;
    for (size_t i = 0; i < shape.size(); ++i)
      if (i != at && shape[i] != y.shape[i])
        return fail(Code::shape_mismatch, "concat: axis {} is {} in operand 0 but {} in operand {}", i, y.shape[i],
                    shape[i], k);
    y.shape[at] += shape[at];
  }
  visit_data(first, [&](const auto& like) {
    std::decay_t<decltype(like)> data;
    for (int64_t o = 0; o < outer; ++o)
      for (size_t k = 0; k < e.operands.size(); ++k) {
        const auto& from = std::get<std::decay_t<decltype(like)>>(e.in(static_cast<int>(k)).data);
        int64_t chunk = static_cast<int64_t>(from.size()) / outer;
        data.insert(data.end(), from.begin() + o * chunk, from.begin() + (o + 1) * chunk);
      }
    y.data = std::move(data);
  });
  e.out(std::move(y));
  return {};
}

Status infer_pad(Infer& infer) {
  const Shape &low = infer.attrs.dims("low"), &high = infer.attrs.dims("high");
  Shape shape = infer.shape(0);
  if (low.size() != shape.size() || high.size() != shape.size())
    return fail(Code::attribute_invalid, "pad: {} low and {} high sizes for {} axes", low.size(), high.size(),
                shape.size());
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = shape[i] + low[i] + high[i];
  infer.result(infer.dtype(0), std::move(shape));
  return {};
}

Status pad_array(Eval& e, const Array& x, const Dims& low, const Dims& high, const Array* value) {
  Dims shape = x.shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (low[i] < 0 || high[i] < 0)
      return fail(Code::shape_invalid, "pad: sizes {} and {} on axis {} must not be negative", low[i], high[i], i);
    if (__builtin_add_overflow(shape[i], low[i], &shape[i]) || __builtin_add_overflow(shape[i], high[i], &shape[i]))
      return fail(Code::shape_invalid, "pad: sizes {} and {} on axis {} overflow", low[i], high[i], i);
  }
  TESSERA_ASSIGN(Array y, ir::make_array(x.dtype, std::move(shape)));
  std::vector<int64_t> strides = strides_of(y.shape);
  int64_t origin = 0;
  for (size_t i = 0; i < low.size(); ++i) origin += low[i] * strides[i];
  visit_data(x, [&](const auto& from) {
    using Data = std::decay_t<decltype(from)>;
    Data to(static_cast<size_t>(y.count()), value ? std::get<Data>(value->data)[0] : typename Data::value_type(0));
    for_each_index<1>(x.shape, {&strides}, [&](int64_t i, const int64_t(&at)[1]) {
      to[static_cast<size_t>(origin + at[0])] = from[static_cast<size_t>(i)];
    });
    y.data = std::move(to);
  });
  e.out(std::move(y));
  return {};
}

Status eval_pad(Eval& e) {
  Dims low, high;
  for (Dim d : e.attrs.dims("low")) {
    TESSERA_ASSIGN(int64_t size, e.evaluate(d));
    low.push_back(size);
  }
  for (Dim d : e.attrs.dims("high")) {
    TESSERA_ASSIGN(int64_t size, e.evaluate(d));
    high.push_back(size);
  }
  return pad_array(e, e.in(0), low, high, e.has(1) ? &e.in(1) : nullptr);
}

Status infer_pad_to(Infer& infer) {
  TESSERA_TRY(infer.require_equal(infer.shape(1)[0], 2 * infer.rank(0), "the number of pads"));
  Shape shape;
  for (int i = 0; i < infer.rank(0); ++i) shape.push_back(infer.dims().fresh("padded"));
  infer.result(infer.dtype(0), std::move(shape));
  return {};
}

Status eval_pad_to(Eval& e) {
  const Array& x = e.in(0);
  const std::vector<Int>& pads = e.in(1).of<Int>();
  if (pads.size() != 2 * x.shape.size())
    return fail(Code::shape_mismatch, "pad_to: {} pads for {} axes", pads.size(), x.shape.size());
  Dims low, high;
  for (size_t i = 0; i < x.shape.size(); ++i) {
    low.push_back(static_cast<int64_t>(pads[i]));
    high.push_back(static_cast<int64_t>(pads[i + x.shape.size()]));
  }
  return pad_array(e, x, low, high, e.has(2) ? &e.in(2) : nullptr);
}

Status infer_iota(Infer& infer) {
  const Shape& shape = infer.attrs.dims("shape");
  if (!shape.empty()) TESSERA_TRY(infer.axis(infer.attrs.integer("axis"), static_cast<int>(shape.size())));
  infer.result(infer.attrs["dtype"], shape);
  return {};
}

Status eval_iota(Eval& e) {
  Dims shape;
  for (Dim d : e.attrs.dims("shape")) {
    TESSERA_ASSIGN(int64_t size, e.evaluate(d));
    shape.push_back(size);
  }
  TESSERA_ASSIGN(Array y, ir::make_array(e.attrs["dtype"], shape));
  int64_t axis = e.attrs.integer("axis");
  std::vector<int64_t> steps(shape.size(), 0);
  steps[static_cast<size_t>(axis < 0 ? axis + y.rank() : axis)] = 1;
  std::visit(
      [&](auto& data) {
        using S = typename std::decay_t<decltype(data)>::value_type;
        for_each_index<1>(shape, {&steps},
                          [&](int64_t i, const int64_t(&at)[1]) { data[static_cast<size_t>(i)] = S(at[0]); });
      },
      y.data);
  e.out(std::move(y));
  return {};
}

// Philox-like counter-based bits would need a library; SplitMix64 (Steele et al. 2014) over seed and index is enough
// here: draws depend on the seed and the element alone, never on threads or order.
uint64_t draw(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0xd1342543de82ef95ULL + (index + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

Status infer_random(Infer& infer) {
  infer.result(infer.attrs["dtype"], infer.attrs.dims("shape"));
  return {};
}

Status eval_random(Eval& e) {
  Dims shape;
  for (Dim d : e.attrs.dims("shape")) {
    TESSERA_ASSIGN(int64_t size, e.evaluate(d));
    shape.push_back(size);
  }
  TESSERA_ASSIGN(Array y, ir::make_array(e.attrs["dtype"], shape));
  uint64_t seed = static_cast<uint64_t>(e.attrs.integer("seed"));
  auto uniform = [&](uint64_t i) { return static_cast<double>(draw(seed, i) >> 11) * 0x1p-53; };  // [0, 1)
  double low = e.attrs.real("low"), high = e.attrs.real("high");
  bool normal = e.attrs.word("kind") == "normal";  // then low is the mean and high the standard deviation
  std::vector<double>& data = y.of<double>();
  for (size_t i = 0; i < data.size(); ++i) {
    if (normal) {  // Box-Muller
      double r = std::sqrt(-2 * std::log(1 - uniform(2 * i)));
      data[i] = low + high * r * std::cos(2 * std::numbers::pi * uniform(2 * i + 1));
    } else {
      data[i] = low + (high - low) * uniform(i);
    }
  }
  e.out(std::move(y));
  return {};
}

// [0, 1, ..., n - 1] for an n known only during the run.
Status infer_range(Infer& infer) {
  if (const Shape* n = infer.contents(0)) {
    infer.result(DType::i64, {tessera::max((*n)[0], Dim(0))});
  } else {
    infer.result(DType::i64, {infer.dims().fresh("range")});
  }
  return {};
}
Status eval_range(Eval& e) {
  Int n = e.in(0).of<Int>()[0];
  if (n > (Int(1) << 31)) return fail(Code::out_of_memory, "range: {} elements are too many", static_cast<int64_t>(n));
  std::vector<Int> data;
  for (Int i = 0; i < n; ++i) data.push_back(i);
  int64_t count = static_cast<int64_t>(data.size());
  e.out(Array{DType::i64, {count}, std::move(data)});
  return {};
}

}  // namespace

constinit const OpDef concat_op = {
    .name = "concat",
    .doc = "Operands one after another along the axis.",
    .signature = "xs...[*S] -> y[*R]",
    .types = "xs, y: any",
    .attrs = {ir::int_attr("axis")},
    .infer = infer_concat,
    .reference = eval_concat,
    .folds_dims = true,
};
constinit const OpDef pad_op = {
    .name = "pad",
    .doc = "x with `low` and `high` elements of `value` (0 when absent) before and after each axis.",
    .signature = "x[*S], value?[] -> y[*R]",
    .types = "x, value, y: any",
    .attrs = {ir::dims_attr("low"), ir::dims_attr("high")},
    .infer = infer_pad,
    .reference = eval_pad,
};
constinit const OpDef pad_to_op = {
    .name = "pad_to",
    .doc = "pad with sizes known only during the run: pads = [low of every axis, high of every axis].",
    .signature = "x[*S], pads[P], value?[] -> y[*R]",
    .types = "x, value, y: any; pads: i64",
    .infer = infer_pad_to,
    .reference = eval_pad_to,
};
constinit const OpDef iota_op = {
    .name = "iota",
    .doc = "The index along `axis`.",
    .signature = "-> y[*S]",
    .types = "y: -> dtype",
    .attrs = {ir::dims_attr("shape"), ir::int_attr("axis", 0), ir::dtype_attr("dtype")},
    .infer = infer_iota,
    .reference = eval_iota,
    .folds_dims = true,
};
constinit const OpDef random_op = {
    .name = "random",
    .doc =
        "Random numbers: uniform in [low, high), or normal with mean `low` and deviation `high`; drawn from the seed "
        "and the "
        "element's index alone.",
    .signature = "-> y[*S]",
    .types = "y: -> dtype",
    .attrs = {ir::dims_attr("shape"), ir::dtype_attr("dtype"), ir::word_attr("kind", "uniform|normal"),
              ir::real_attr("low", 0), ir::real_attr("high", 1), ir::int_attr("seed", 0)},
    .infer = infer_random,
    .reference = eval_random,
    .pure = false,
};
constinit const OpDef range_op = {
    .name = "range",
    .doc = "0, 1, ..., n - 1.",
    .signature = "n[] -> y[R]",
    .types = "n, y: i64",
    .infer = infer_range,
    .reference = eval_range,
    .folds_dims = true,
};

}  // namespace tessera::ops
