#include "ir/core_ops.h"

#include <fmt/format.h>

#include "base/result.h"
#include "base/strings.h"
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

// a <= b: proved, false when refuted, else a guard. Where `some` is 0 nothing is read, and any a and b will do.
bool at_most(Infer& infer, Dim some, Dim a, Dim b) {
  const DimTable& dims = infer.dims();
  if (dims.proves_le(a, b) || dims.proves_le(some * a, some * b)) return true;
  if (some.is(1) && dims.proves_lt(b, a)) return false;
  infer.guards.push_back({Guard::Kind::at_most, some * a, some * b});
  return true;
}

// All indices lie within x, or nothing is read.
Status check_reach(Infer& infer, const View& view) {
  Dim some = 1;  // 0 where the view has no elements
  for (const auto& axis : view.axes) {
    for (const ViewAtom& atom : axis) {
      if (atom.size.is(0)) return {};
      if (atom.size.is_const() && atom.size.value() < 0)
        return fail(Code::shape_invalid, "view: an axis of {} elements", atom.size.value());
      if (!infer.dims().proves_le(1, atom.size)) some = some * min(1, atom.size);
    }
  }
  const std::optional<std::vector<Reach>> reaches = reach(view);
  if (!reaches) return fail(Code::index_out_of_range, "view: how far {} reads is not known", to_string(view));
  for (size_t a = 0; a < reaches->size(); ++a) {
    const auto [low, high] = (*reaches)[a];
    if (!at_most(infer, some, 0, low) || !at_most(infer, some, high, infer.shape(0)[a] - 1))
      return fail(Code::index_out_of_range, "view: reads {} to {} along axis {} of x{}", to_string(low),
                  to_string(high), a, to_string(std::span<const Dim>(infer.shape(0))));
  }
  return {};
}

Status infer_view(Infer& infer) {
  const View& view = infer.attrs["view"];
  if (!infer.operands[0]->ranked || view.base_rank() != infer.rank(0))
    return fail(Code::rank_mismatch, "view: its base has {} axes but x is {}", view.base_rank(),
                to_string(*infer.operands[0]));
  TESSERA_TRY(check_reach(infer, view));
  infer.result(infer.dtype(0), view.shape());
  return {};
}

struct ConcreteDigit {
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
  std::vector<ConcreteDigit> digits;  // of all axes, outermost first
  for (const auto& axis : view.axes) {
    int64_t size = 1;
    for (const ViewAtom& atom : axis) {
      TESSERA_ASSIGN(int64_t stride, e.evaluate(atom.stride));
      TESSERA_ASSIGN(int64_t n, e.evaluate(atom.size));
      if (atom.axis >= 0) stride *= base_stride[static_cast<size_t>(atom.axis)];
      if (atom.tied) {
        digits.back().stride += stride;
        continue;
      }
      digits.push_back({atom.axis < 0 ? 0 : stride, n});
      if (n < 0 || __builtin_mul_overflow(size, n, &size))
        return fail(Code::shape_invalid, "a view with an axis of {} times {} elements", size, n);
    }
    shape.push_back(size);
  }
  TESSERA_ASSIGN(int64_t count, array_count(shape));
  addresses.reserve(static_cast<size_t>(count));
  if (count == 0) return {};
  std::vector<int64_t> at(digits.size(), 0);
  int64_t address = origin;
  for (int64_t i = 0; i < count; ++i) {
    addresses.push_back(address);
    for (size_t k = digits.size(); k-- > 0;) {
      address += digits[k].stride;
      if (++at[k] < digits[k].size) break;
      address -= digits[k].stride * digits[k].size;
      at[k] = 0;
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
  TESSERA_ASSIGN(int64_t count, array_count(shape));
  if (count != y.count())
    return fail(Code::shape_mismatch, "copy: [{}] has other than the {} elements of [{}]", joined(shape, ", "),
                y.count(), joined(y.shape, ", "));
  y.shape = std::move(shape);
  e.out(std::move(y));
  return {};
}

}  // namespace

constinit const OpDef constant = {
    .name = "constant",
    .doc = "A tensor that the model holds.",
    .signature = "-> y[*S]",
    .types = "y: any|string|block",
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
