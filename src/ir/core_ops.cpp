#include "ir/core_ops.h"

#include <fmt/format.h>

#include "base/result.h"
#include "ir/interpreter.h"

namespace tessera::ir::core {
namespace {

Status infer_constant(Infer& infer) {
  const Tensor& tensor = infer.context.constant(static_cast<uint32_t>(infer.attrs.integer("id")));
  infer.result(tensor.dtype(), Shape(tensor.shape().begin(), tensor.shape().end()));
  return {};
}

Status eval_constant(Eval& e) {
  TESSERA_ASSIGN(Array array, to_array(e.context->constant(static_cast<uint32_t>(e.attrs.integer("id")))));
  e.out(std::move(array));
  return {};
}

Status infer_dims(Infer& infer) {
  infer.result(DType::i64, {static_cast<int64_t>(infer.attrs.dims("sizes").size())});
  return {};
}

Status eval_dims(Eval& e) {
  const Shape& sizes = e.attrs.dims("sizes");
  Array array{DType::i64, {static_cast<int64_t>(sizes.size())}, {}};
  if (e.bindings == nullptr) {  // folding
    array.data = sizes;
  } else {
    std::vector<Int> data;
    for (Dim d : sizes) {
      TESSERA_ASSIGN(int64_t value, e.evaluate(d));
      data.push_back(value);
    }
    array.data = std::move(data);
  }
  e.out(std::move(array));
  return {};
}

Status infer_view(Infer& infer) {
  const View& view = infer.attrs["view"];
  if (!infer.operands[0]->ranked || view.base_rank() != infer.rank(0))
    return fail(Code::rank_mismatch, "view: its base has {} axes but x is {}", view.base_rank(),
                to_string(*infer.operands[0]));
  infer.result(infer.dtype(0), view.shape());
  return {};
}

struct ConcreteAtom {
  int64_t stride;  // in elements of the base
  int64_t size;
};

// Address of every element of the view, in order.
Status for_each_address(const Eval& e, const View& view, const Dims& base, Dims& shape,
                        std::vector<int64_t>& addresses) {
  std::vector<int64_t> base_stride(base.size(), 1);
  for (size_t a = base.size(); a-- > 1;) base_stride[a - 1] = base_stride[a] * base[a];
  int64_t origin = 0;
  for (size_t a = 0; a < base.size(); ++a) {
    TESSERA_ASSIGN(int64_t offset, e.evaluate(view.offsets[a]));
    origin += offset * base_stride[a];
  }
  std::vector<ConcreteAtom> atoms;  // all axes, outermost first
  for (const auto& axis : view.axes) {
    int64_t size = 1;
    for (const ViewAtom& atom : axis) {
      TESSERA_ASSIGN(int64_t stride, e.evaluate(atom.stride));
      TESSERA_ASSIGN(int64_t n, e.evaluate(atom.size));
      if (atom.axis >= 0) stride *= base_stride[static_cast<size_t>(atom.axis)];
      atoms.push_back({atom.axis < 0 ? 0 : stride, n});
      size *= n;
    }
    shape.push_back(size);
  }
  TESSERA_ASSIGN(int64_t count, element_count(shape));
  addresses.reserve(static_cast<size_t>(count));
  if (count == 0) return {};
  std::vector<int64_t> digit(atoms.size(), 0);
  int64_t address = origin;
  for (int64_t i = 0; i < count; ++i) {
    addresses.push_back(address);
    for (size_t k = atoms.size(); k-- > 0;) {
      address += atoms[k].stride;
      if (++digit[k] < atoms[k].size) break;
      address -= atoms[k].stride * atoms[k].size;
      digit[k] = 0;
    }
  }
  int64_t base_count = 1;
  for (int64_t size : base) base_count *= size;
  for (int64_t a : addresses)
    if (a < 0 || a >= base_count) return fail(Code::index_out_of_range, "a view reads element {} of {}", a, base_count);
  return {};
}

Status eval_view(Eval& e) {
  const Array& x = e.in(0);
  Array y{x.dtype, {}, {}};
  std::vector<int64_t> addresses;
  TESSERA_TRY(for_each_address(e, e.attrs["view"], x.shape, y.shape, addresses));
  std::visit(
      [&](const auto& from) {
        std::decay_t<decltype(from)> to;
        to.reserve(addresses.size());
        for (int64_t a : addresses) to.push_back(from[static_cast<size_t>(a)]);
        y.data = std::move(to);
      },
      x.data);
  e.out(std::move(y));
  return {};
}

Status infer_copy(Infer& infer) {
  const Shape& shape = infer.attrs.dims("shape");
  if (infer.operands[0]->ranked)
    TESSERA_TRY(
        infer.require_equal(product(infer.shape(0)), product(shape), "the number of elements of x and of the result"));
  infer.result(infer.dtype(0), shape);
  return {};
}

Status eval_copy(Eval& e) {
  Array y = e.in(0);
  Dims shape;
  for (Dim d : e.attrs.dims("shape")) {
    TESSERA_ASSIGN(int64_t size, e.evaluate(d));
    shape.push_back(size);
  }
  TESSERA_ASSIGN(int64_t count, element_count(shape));
  if (count != y.count())
    return fail(Code::shape_mismatch, "copy: [{}] has other than the {} elements of [{}]", fmt::join(shape, ", "),
                y.count(), fmt::join(y.shape, ", "));
  y.shape = std::move(shape);
  e.out(std::move(y));
  return {};
}

}  // namespace

constinit const OpDef constant = {
    .name = "constant",
    .doc = "A tensor that the model holds.",
    .signature = "-> y[*S]",
    .types = "y: any|string",
    .attrs = {int_attr("id")},
    .infer = infer_constant,
    .reference = eval_constant,
};

constinit const OpDef dims = {
    .name = "dims",
    .doc = "Sizes as integers.",
    .signature = "-> y[N]",
    .types = "y: i64",
    .attrs = {dims_attr("sizes")},
    .infer = infer_dims,
    .reference = eval_dims,
    .folds_dims = true,
};

constinit const OpDef view = {
    .name = "view",
    .doc = "The same elements under other indices: transpose, slice, expand, windows. Moves no data.",
    .signature = "x[*S] -> y[*R]",
    .types = "x, y: any",
    .attrs = {view_attr("view")},
    .infer = infer_view,
    .reference = eval_view,
    .folds_dims = true,
};

constinit const OpDef copy = {
    .name = "copy",
    .doc = "The elements in row-major order under another shape of equal count.",
    .signature = "x[*S] -> y[*R]",
    .types = "x, y: any",
    .attrs = {dims_attr("shape")},
    .infer = infer_copy,
    .reference = eval_copy,
    .folds_dims = true,
};

}  // namespace tessera::ir::core
