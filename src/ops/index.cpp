// Reading and writing by index.
#include <fmt/format.h>

#include <algorithm>

#include "base/strings.h"
#include "ops/ops.h"
#include "ops/reference.h"

namespace tessera::ops {
namespace {

using ir::Infer;
using ir::OpDef;

bool all_ranked(const Infer& infer) {
  for (const ir::TypeRef type : infer.operands)
    if (type != nullptr && !type->ranked) return false;
  return true;
}

Status unranked(Infer& infer) {
  infer.results.push_back(infer.context.unranked(infer.dtype(0)));
  return {};
}

// Indices count from the end when negative.
Result<int64_t> checked(Int index, int64_t size, std::string_view op) {
  if (index < -static_cast<Int>(size) || index >= size)
    return fail(Code::index_out_of_range, "{}: index {} is outside [-{}, {})", op, static_cast<int64_t>(index), size,
                size);
  return static_cast<int64_t>(index < 0 ? index + size : index);
}

Status infer_gather(Infer& infer) {
  if (!all_ranked(infer)) return unranked(infer);
  TESSERA_ASSIGN(int axis, infer.axis(infer.attrs.integer("axis"), infer.rank(0)));
  Shape shape(infer.shape(0).begin(), infer.shape(0).begin() + axis);
  shape.insert(shape.end(), infer.shape(1).begin(), infer.shape(1).end());
  shape.insert(shape.end(), infer.shape(0).begin() + axis + 1, infer.shape(0).end());
  infer.result(infer.dtype(0), std::move(shape));
  return {};
}

Status eval_gather(Eval& e) {
  const Array &x = e.in(0), &index = e.in(1);
  if (index.data.index() == 2) return fail(Code::value_invalid, "the sizes do not decide this");
  int64_t axis = e.attrs.integer("axis");
  size_t at = static_cast<size_t>(axis < 0 ? axis + x.rank() : axis);
  int64_t outer = 1, inner = 1, size = x.shape[at];
  for (size_t i = 0; i < at; ++i) outer *= x.shape[i];
  for (size_t i = at + 1; i < x.shape.size(); ++i) inner *= x.shape[i];
  std::vector<int64_t> rows;
  for (Int i : index.of<Int>()) {
    TESSERA_ASSIGN(int64_t row, checked(i, size, "gather"));
    rows.push_back(row);
  }
  Dims shape(x.shape.begin(), x.shape.begin() + static_cast<ptrdiff_t>(at));
  shape.insert(shape.end(), index.shape.begin(), index.shape.end());
  shape.insert(shape.end(), x.shape.begin() + static_cast<ptrdiff_t>(at) + 1, x.shape.end());
  TESSERA_TRY(ir::array_count(shape));
  Array y{x.dtype, std::move(shape), {}};
  visit_data(x, [&](const auto& from) {
    std::decay_t<decltype(from)> to;
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t row : rows) {
        auto begin = from.begin() + (o * size + row) * inner;
        to.insert(to.end(), begin, begin + inner);
      }
    y.data = std::move(to);
  });
  e.out(std::move(y));
  return {};
}

Status infer_gather_elements(Infer& infer) {
  if (!all_ranked(infer)) return unranked(infer);
  if (infer.rank(0) != infer.rank(1))
    return fail(Code::rank_mismatch, "{}: x has {} axes but index has {}", infer.op.name, infer.rank(0), infer.rank(1));
  TESSERA_TRY(infer.axis(infer.attrs.integer("axis"), infer.rank(0)));
  infer.result(infer.dtype(0), infer.shape(1));
  return {};
}

// Where in x each element of `index` points, when it replaces the coordinate along `axis`.
Result<std::vector<int64_t>> element_addresses(Eval& e, const Array& x, const Array& index) {
  int64_t axis = e.attrs.integer("axis");
  size_t along = static_cast<size_t>(axis < 0 ? axis + x.rank() : axis);
  std::vector<int64_t> strides = strides_of(x.shape);
  int64_t step = strides[along];
  strides[along] = 0;
  for (size_t i = 0; i < x.shape.size(); ++i)
    if (i != along && index.shape[i] > x.shape[i])
      return fail(Code::shape_mismatch, "{}: axis {} of the index is {} but x has {}", e.op.name, i, index.shape[i],
                  x.shape[i]);
  std::vector<int64_t> addresses;
  Status status;
  for_each_index<1>(index.shape, {&strides}, [&](int64_t i, const int64_t(&at)[1]) {
    if (!status) return;
    Result<int64_t> row = checked(index.of<Int>()[static_cast<size_t>(i)], x.shape[along], e.op.name);
    if (row) {
      addresses.push_back(at[0] + *row * step);
    } else {
      status = tl::unexpected<Error>(std::move(row.error()));
    }
  });
  TESSERA_TRY(status);
  return addresses;
}

Status eval_gather_elements(Eval& e) {
  const Array& x = e.in(0);
  TESSERA_ASSIGN(std::vector<int64_t> addresses, element_addresses(e, x, e.in(1)));
  Array y{x.dtype, e.in(1).shape, {}};
  visit_data(x, [&](const auto& from) {
    std::decay_t<decltype(from)> to;
    for (int64_t a : addresses) to.push_back(from[static_cast<size_t>(a)]);
    y.data = std::move(to);
  });
  e.out(std::move(y));
  return {};
}

// index [*B.., *I, K] points with K coordinates behind `batch` shared axes.
Status infer_gather_nd(Infer& infer) {
  if (!all_ranked(infer)) return unranked(infer);
  int64_t batch = infer.attrs.integer("batch_dims");
  const Shape &x = infer.shape(0), &index = infer.shape(1);
  if (index.empty() || !index.back().is_const())
    return fail(Code::shape_invalid, "gather_nd: the last axis of the index must be a known size");
  int64_t k = index.back().value();
  if (batch < 0 || batch >= infer.rank(1) || batch + k > infer.rank(0))
    return fail(Code::shape_mismatch, "gather_nd: {} shared axes and {} coordinates do not fit x {}", batch, k,
                to_string(*infer.operands[0]));
  for (int64_t i = 0; i < batch; ++i)
    TESSERA_TRY(infer.require_equal(x[static_cast<size_t>(i)], index[static_cast<size_t>(i)],
                                    fmt::format("shared axis {}", i)));
  Shape shape(index.begin(), index.end() - 1);
  shape.insert(shape.end(), x.begin() + batch + k, x.end());
  infer.result(infer.dtype(0), std::move(shape));
  return {};
}

struct Points {
  std::vector<int64_t> addresses;  // start of each addressed slice
  int64_t slice = 1;               // elements of a slice
};

Result<Points> point_addresses(const Array& x, const Array& index, int64_t batch, std::string_view op) {
  std::vector<int64_t> strides = strides_of(x.shape);
  int64_t k = index.shape.back();
  Points points;
  for (size_t i = static_cast<size_t>(batch + k); i < x.shape.size(); ++i) points.slice *= x.shape[i];
  Dims outer(index.shape.begin(), index.shape.end() - 1);
  std::vector<int64_t> shared(outer.size(), 0);
  for (int64_t i = 0; i < batch; ++i) shared[static_cast<size_t>(i)] = strides[static_cast<size_t>(i)];
  Status status;
  for_each_index<1>(outer, {&shared}, [&](int64_t i, const int64_t(&at)[1]) {
    if (!status) return;
    int64_t address = at[0];
    for (int64_t j = 0; j < k; ++j) {
      size_t axis = static_cast<size_t>(batch + j);
      Result<int64_t> row = checked(index.of<Int>()[static_cast<size_t>(i * k + j)], x.shape[axis], op);
      if (!row) {
        status = tl::unexpected<Error>(std::move(row.error()));
        return;
      }
      address += *row * strides[axis];
    }
    points.addresses.push_back(address);
  });
  TESSERA_TRY(status);
  return points;
}

Status eval_gather_nd(Eval& e) {
  const Array &x = e.in(0), &index = e.in(1);
  int64_t batch = e.attrs.integer("batch_dims");
  TESSERA_ASSIGN(Points points, point_addresses(x, index, batch, "gather_nd"));
  Dims shape(index.shape.begin(), index.shape.end() - 1);
  shape.insert(shape.end(), x.shape.begin() + batch + index.shape.back(), x.shape.end());
  Array y{x.dtype, std::move(shape), {}};
  visit_data(x, [&](const auto& from) {
    std::decay_t<decltype(from)> to;
    for (int64_t a : points.addresses) to.insert(to.end(), from.begin() + a, from.begin() + a + points.slice);
    y.data = std::move(to);
  });
  e.out(std::move(y));
  return {};
}

// How a written element combines with what is there: ONNX's `reduction`.
template <class S>
S combine(std::string_view how, const S& old, const S& update) {
  if (how == "add") return old + update;
  if constexpr (std::is_same_v<S, Int>) {
    if (how == "mul") return multiply(old, update);
  } else {
    if (how == "mul") return old * update;
  }
  if constexpr (std::is_same_v<S, double>) {
    if (how == "max") return std::isnan(old) || old > update ? old : update;
    if (how == "min") return std::isnan(old) || old < update ? old : update;
  } else if constexpr (std::is_same_v<S, Int>) {
    if (how == "max") return old > update ? old : update;
    if (how == "min") return old < update ? old : update;
  }
  return update;
}

Status infer_like_first(Infer& infer) {
  infer.results.push_back(infer.operands[0]);
  return {};
}

Status infer_scatter_elements(Infer& infer) {
  if (!all_ranked(infer)) return unranked(infer);
  if (infer.rank(0) != infer.rank(1) || infer.rank(1) != infer.rank(2))
    return fail(Code::rank_mismatch, "scatter_elements: x has {} axes, index {} and updates {}", infer.rank(0),
                infer.rank(1), infer.rank(2));
  TESSERA_TRY(infer.axis(infer.attrs.integer("axis"), infer.rank(0)));
  for (size_t i = 0; i < infer.shape(1).size(); ++i)
    TESSERA_TRY(
        infer.require_equal(infer.shape(1)[i], infer.shape(2)[i], fmt::format("axis {} of index and updates", i)));
  return infer_like_first(infer);
}

Status eval_scatter_elements(Eval& e) {
  const Array& x = e.in(0);
  TESSERA_ASSIGN(std::vector<int64_t> addresses, element_addresses(e, x, e.in(1)));
  Array y = x;
  std::string_view how = e.attrs.word("reduction");
  std::visit(
      [&](auto& to) {
        const auto& updates = std::get<std::decay_t<decltype(to)>>(e.in(2).data);
        for (size_t i = 0; i < addresses.size(); ++i) {
          auto& old = to[static_cast<size_t>(addresses[i])];
          old = combine(how, old, updates[i]);
        }
      },
      y.data);
  e.out(std::move(y));
  return {};
}

Status infer_scatter_nd(Infer& infer) {
  if (!all_ranked(infer)) return unranked(infer);
  const Shape &x = infer.shape(0), &index = infer.shape(1), &updates = infer.shape(2);
  if (index.empty() || !index.back().is_const() || index.back().value() > infer.rank(0))
    return fail(Code::shape_invalid, "scatter_nd: the last axis of the index must be a known size of at most {}",
                infer.rank(0));
  Shape expected(index.begin(), index.end() - 1);
  expected.insert(expected.end(), x.begin() + index.back().value(), x.end());
  if (expected.size() != updates.size())
    return fail(Code::rank_mismatch, "scatter_nd: updates are {} but must be {}",
                to_string(std::span<const Dim>(updates)), to_string(std::span<const Dim>(expected)));
  for (size_t i = 0; i < expected.size(); ++i)
    TESSERA_TRY(infer.require_equal(expected[i], updates[i], fmt::format("axis {} of the updates", i)));
  return infer_like_first(infer);
}

Status eval_scatter_nd(Eval& e) {
  const Array& x = e.in(0);
  TESSERA_ASSIGN(Points points, point_addresses(x, e.in(1), 0, "scatter_nd"));
  Array y = x;
  std::string_view how = e.attrs.word("reduction");
  std::visit(
      [&](auto& to) {
        const auto& updates = std::get<std::decay_t<decltype(to)>>(e.in(2).data);
        for (size_t i = 0; i < points.addresses.size(); ++i)
          for (int64_t j = 0; j < points.slice; ++j) {
            auto& old = to[static_cast<size_t>(points.addresses[i] + j)];
            old = combine(how, old, updates[i * static_cast<size_t>(points.slice) + static_cast<size_t>(j)]);
          }
      },
      y.data);
  e.out(std::move(y));
  return {};
}

// Shapes that a tensor gives during the run.
Result<Dims> shape_operand(const Array& shape) {
  Dims sizes;
  for (Int v : shape.of<Int>()) {
    if (v < 0 || v > (Int(1) << 40)) return fail(Code::shape_invalid, "size {} is impossible", static_cast<int64_t>(v));
    sizes.push_back(static_cast<int64_t>(v));
  }
  return sizes;
}

constexpr int64_t kMaxAxes = 64;  // as plans allow

// A vector of sizes has as many elements as the result has axes.
Status check_axes(const Infer& infer, Dim count) {
  if (!count.is_const() || count.value() <= kMaxAxes) return {};
  return fail(Code::unsupported_feature, "{}: the shape has {} axes, more than {}", infer.op.name, count.value(),
              kMaxAxes);
}

Status infer_runtime_shape(Infer& infer) {
  const Dim rank = infer.shape(1)[0];
  TESSERA_TRY(check_axes(infer, rank));
  if (!rank.is_const()) {
    infer.results.push_back(infer.context.unranked(infer.dtype(0)));
    return {};
  }
  Shape shape;
  const Shape* known = infer.contents(1);
  for (int64_t i = 0; i < rank.value(); ++i)
    shape.push_back(known ? (*known)[static_cast<size_t>(i)] : infer.dims().fresh("size"));
  infer.result(infer.dtype(0), std::move(shape));
  return {};
}

// Axes in front of the shorter one come from the longer.
Status infer_broadcast_to(Infer& infer) {
  const Dim rank = infer.shape(1)[0];
  TESSERA_TRY(check_axes(infer, rank));
  if (!rank.is_const()) {
    infer.results.push_back(infer.context.unranked(infer.dtype(0)));
    return {};
  }
  Shape shape;
  for (int64_t i = 0; i < std::max<int64_t>(rank.value(), infer.rank(0)); ++i)
    shape.push_back(infer.dims().fresh("size"));
  infer.result(infer.dtype(0), std::move(shape));
  return {};
}

Status eval_reshape_to(Eval& e) {
  TESSERA_ASSIGN(Dims shape, shape_operand(e.in(1)));
  TESSERA_ASSIGN(int64_t count, ir::array_count(shape));
  Array y = e.in(0);
  if (count != y.count())
    return fail(Code::shape_mismatch, "reshape of [{}] to [{}]: {} elements become {}", joined(y.shape, ", "),
                joined(shape, ", "), y.count(), count);
  y.shape = std::move(shape);
  e.out(std::move(y));
  return {};
}

Status eval_broadcast_to(Eval& e) {
  const Array& x = e.in(0);
  TESSERA_ASSIGN(Dims shape, shape_operand(e.in(1)));
  TESSERA_ASSIGN(Dims both, broadcast(x.shape, shape));
  TESSERA_ASSIGN(Array y, ir::make_array(x.dtype, both));
  std::vector<int64_t> strides = broadcast_strides(x.shape, both);
  std::visit(
      [&](auto& to) {
        const auto& from = std::get<std::decay_t<decltype(to)>>(x.data);
        for_each_index<1>(both, {&strides}, [&](int64_t i, const int64_t(&at)[1]) {
          to[static_cast<size_t>(i)] = from[static_cast<size_t>(at[0])];
        });
      },
      y.data);
  e.out(std::move(y));
  return {};
}

constexpr std::string_view kReductions = "none|add|mul|min|max";

}  // namespace

constinit const OpDef gather_op = {
    .name = "gather",
    .doc = "x indexed along `axis`, which the index's axes replace; negative indices count from the end.",
    .signature = "x[*S], index[*I] -> y[*R]",
    .types = "x, y: any; index: index",
    .attrs = {ir::int_attr("axis", 0)},
    .infer = infer_gather,
    .reference = eval_gather,
    .folds_dims = true,
};
constinit const OpDef gather_elements_op = {
    .name = "gather_elements",
    .doc = "y[i, j] = x[index[i, j], j] for axis 0, and so on (ONNX GatherElements).",
    .signature = "x[*S], index[*I] -> y[*I]",
    .types = "x, y: any; index: index",
    .attrs = {ir::int_attr("axis", 0)},
    .infer = infer_gather_elements,
    .reference = eval_gather_elements,
};
constinit const OpDef gather_nd_op = {
    .name = "gather_nd",
    .doc =
        "Slices of x at the points that the last axis of the index gives, behind `batch_dims` shared axes (ONNX "
        "GatherND).",
    .signature = "x[*S], index[*I] -> y[*R]",
    .types = "x, y: any; index: index",
    .attrs = {ir::int_attr("batch_dims", 0)},
    .infer = infer_gather_nd,
    .reference = eval_gather_nd,
};
constinit const OpDef scatter_elements_op = {
    .name = "scatter_elements",
    .doc = "x with updates written at index along `axis`, in order, combined by `reduction` (ONNX ScatterElements).",
    .signature = "x[*S], index[*I], updates[*I] -> y[*S]",
    .types = "x, updates, y: any; index: index",
    .attrs = {ir::int_attr("axis", 0), ir::word_attr("reduction", kReductions)},
    .infer = infer_scatter_elements,
    .reference = eval_scatter_elements,
};
constinit const OpDef scatter_nd_op = {
    .name = "scatter_nd",
    .doc = "x with slices of updates written at the points that the last axis of the index gives (ONNX ScatterND).",
    .signature = "x[*S], index[*I], updates[*U] -> y[*S]",
    .types = "x, updates, y: any; index: index",
    .attrs = {ir::word_attr("reduction", kReductions)},
    .infer = infer_scatter_nd,
    .reference = eval_scatter_nd,
};
constinit const OpDef reshape_to_op = {
    .name = "reshape_to",
    .doc = "The elements in row-major order under a shape known only during the run.",
    .signature = "x[*S], shape[N] -> y[*R]",
    .types = "x, y: any; shape: i64",
    .infer = infer_runtime_shape,
    .reference = eval_reshape_to,
};
constinit const OpDef broadcast_to_op = {
    .name = "broadcast_to",
    .doc = "x repeated along axes of size 1 to a shape known only during the run (both ways, as ONNX Expand).",
    .signature = "x[*S], shape[N] -> y[*R]",
    .types = "x, y: any; shape: i64",
    .infer = infer_broadcast_to,
    .reference = eval_broadcast_to,
};

}  // namespace tessera::ops
