#include "ir/builder.h"

#include <algorithm>
#include <cstring>

#include "ir/core_ops.h"
#include "ir/interpreter.h"
#include "ir/signature.h"
#include "tensor/scalar.h"

namespace tessera::ir {
namespace {

// Larger integer tensors are data, not shapes.
constexpr int64_t kMaxContents = 1024;
constexpr int kMaxAxes = 64;  // as plans allow

// The number of elements when it is a small constant; -1 otherwise.
int64_t small_count(const Type& type) {
  if (!type.is_tensor() || !type.ranked || !(is_int(type.dtype) || type.dtype == DType::boolean)) return -1;
  int64_t count = 1;
  for (const Dim& d : type.shape) {
    if (!d.is_const() || d.value() > kMaxContents) return -1;
    count *= d.value();
    if (count > kMaxContents) return -1;
  }
  return count;
}

// Sizes wrap where attributes near 2^63 meet, and axes cost memory in everything that names them.
Status check_result(const OpDef& op, const Type& type) {
  if (!type.ranked) return {};
  if (type.rank() > kMaxAxes)
    return fail(Code::unsupported_feature, "{}: the result has {} axes, more than {}", op.name, type.rank(), kMaxAxes);
  Dims sizes;
  for (Dim d : type.shape) {
    if (!d.is_const()) continue;
    if (d.value() < 0)
      return fail(Code::shape_invalid, "{}: the result has the size {} in {}", op.name, d.value(), to_string(type));
    sizes.push_back(d.value());
  }
  if (Result<int64_t> count = element_count(sizes); !count)
    return fail(Code::shape_invalid, "{}: the result {} has more than 2^62 elements", op.name, to_string(type));
  return {};
}

}  // namespace

Xs Builder::absent() { return Xs(8, X{this, kNoValue}); }

TypeRef X::type() const {
  TESSERA_CHECK(builder != nullptr && id != kNoValue);
  return builder->graph().type(id);
}

Dim X::dim(int axis) const {
  const Shape& s = shape();
  int rank = static_cast<int>(s.size());
  TESSERA_CHECK(axis >= -rank && axis < rank);
  return s[static_cast<size_t>(axis < 0 ? axis + rank : axis)];
}

Status Builder::status() const {
  if (error_) return tl::unexpected<Error>(*error_);
  return {};
}

Status Builder::take_status() {
  if (!error_) return {};
  Error error = std::move(*error_);
  error_.reset();
  return tl::unexpected<Error>(std::move(error));
}

Xs Builder::add(const OpDef& op, std::span<const X> operands, std::vector<AttrValue> attrs,
                std::vector<Graph> regions) {
  if (error_) return absent();
  for (int i = static_cast<int>(attrs.size()); i < op.attrs.size(); ++i) {
    TESSERA_CHECK(!op.attrs[i].required);
    attrs.push_back(default_value(op.attrs[i]));
  }
  TESSERA_CHECK(static_cast<int>(attrs.size()) == op.attrs.size());
  return add_interned(op, operands, context().attrs(Attrs{std::move(attrs)}), std::move(regions));
}

Xs Builder::add_interned(const OpDef& op, std::span<const X> operands, AttrsRef interned, std::vector<Graph> regions) {
  std::vector<ValueId> ids;
  std::vector<TypeRef> types;
  std::vector<const Shape*> known;
  bool any_known = false;
  for (const X& x : operands) {
    ids.push_back(x.id);
    types.push_back(x ? graph_.type(x.id) : nullptr);
    known.push_back(x ? contents(x) : nullptr);
    any_known = any_known || known.back() != nullptr;
  }
  while (!ids.empty() && ids.back() == kNoValue) ids.pop_back(), types.pop_back(), known.pop_back();

  Infer infer{op, A(op, *interned), context(), types, regions};
  infer.contents_list = known;
  const bool by_types = !any_known && regions.empty() && op.pure;
  const std::vector<TypeRef>* before = by_types ? context().known_results(op, interned, types) : nullptr;
  if (before != nullptr) {
    infer.results = *before;
  } else {
    const auto symbols = dims().symbol_count();
    Status inferred;
    if (!op.signature.empty()) inferred = apply_signature(infer);
    if (inferred && op.infer != nullptr) inferred = op.infer(infer);
    for (size_t i = 0; inferred && i < infer.results.size(); ++i) inferred = check_result(op, *infer.results[i]);
    if (!inferred) {
      fail_with(std::move(inferred.error()));
      return absent();
    }
    // Sizes that only a run tells are others each time.
    if (by_types && infer.guards.empty() && dims().symbol_count() == symbols)
      context().remember_results(op, interned, types, infer.results);
  }
  record(std::move(infer.guards));
  NodeId node = graph_.add_node(op, ids, interned, infer.results, location_, std::move(regions));

  if (op.folds_dims) {
    bool all = true;
    for (size_t i = 0; i < ids.size(); ++i) all &= ids[i] == kNoValue || known[i] != nullptr;
    for (TypeRef type : infer.results) all &= small_count(*type) >= 0;
    if (all) {
      auto folded = fold_dims(op, *interned, types, known, infer.results, context());
      if (folded)
        for (size_t i = 0; i < folded->size(); ++i)
          graph_.contents[graph_.result(node, static_cast<int>(i))] = std::move((*folded)[i]);
    }
  }
  Xs results;
  for (size_t i = 0; i < infer.results.size(); ++i) results.push_back(wrap(graph_.result(node, static_cast<int>(i))));
  return results;
}

void Builder::record(std::vector<Guard> guards) {
  for (Guard& guard : guards) {
    guard.location = location_;
    bool known = std::any_of(graph_.guards.begin(), graph_.guards.end(),
                             [&](const Guard& g) { return g.kind == guard.kind && g.a == guard.a && g.b == guard.b; });
    if (!known) graph_.guards.push_back(guard);
  }
}

void Builder::require_equal(Dim a, Dim b) {
  if (error_) return;
  Infer infer{core::copy, A(core::copy, Attrs()), context(), {}, {}};
  if (Status equal = infer.require_equal(a, b, "two sizes"); !equal) {
    fail_with(std::move(equal.error()));
  } else {
    record(std::move(infer.guards));
  }
}

Result<Shape> Builder::broadcast(const Shape& a, const Shape& b) {
  Infer infer{core::copy, A(core::copy, Attrs()), context(), {}, {}};
  TESSERA_ASSIGN(Shape shape, broadcast_shapes(infer, a, b));
  record(std::move(infer.guards));
  return shape;
}

X Builder::add1(const OpDef& op, std::initializer_list<X> operands, std::vector<AttrValue> attrs) {
  return add(op, std::span<const X>(operands.begin(), operands.size()), std::move(attrs))[0];
}

X Builder::constant(Tensor tensor) {
  if (error_) return {this, kNoValue};
  Shape shape(tensor.shape().begin(), tensor.shape().end());
  TypeRef type = context().tensor(tensor.dtype(), std::move(shape));
  int64_t count = small_count(*type);
  std::optional<Shape> elements;
  if (count >= 0) {
    elements.emplace();
    for (int64_t i = 0; i < count; ++i)
      elements->push_back(static_cast<int64_t>(decode_int(tensor.dtype(), tensor.data(), i)));
  }
  AttrsRef attrs = context().attrs(Attrs{{static_cast<int64_t>(context().constant(std::move(tensor)))}});
  NodeId node = graph_.add_node(core::constant, {}, attrs, std::span<const TypeRef>(&type, 1), location_);
  if (elements) graph_.contents[graph_.result(node, 0)] = std::move(*elements);
  return wrap(graph_.result(node, 0));
}

X Builder::scalar(DType dtype, double value) {
  Result<Tensor> tensor = Tensor::make(dtype, {});
  if (!tensor) {
    fail_with(std::move(tensor.error()));
    return {this, kNoValue};
  }
  if (is_float(dtype)) {
    encode(dtype, tensor->mutable_data(), 0, value);
  } else {
    encode_int(dtype, tensor->mutable_data(), 0, static_cast<int64_t>(value));
  }
  return constant(std::move(*tensor));
}

X Builder::integer(int64_t value, DType dtype) {
  Result<Tensor> tensor = Tensor::make(dtype, {});
  if (!tensor) {
    fail_with(std::move(tensor.error()));
    return {this, kNoValue};
  }
  encode_int(dtype, tensor->mutable_data(), 0, value);
  return constant(std::move(*tensor));
}

X Builder::integers(std::span<const int64_t> values) {
  Result<Tensor> tensor = Tensor::make(DType::i64, {static_cast<int64_t>(values.size())});
  if (!tensor) {
    fail_with(std::move(tensor.error()));
    return {this, kNoValue};
  }
  if (!values.empty()) std::memcpy(tensor->mutable_data(), values.data(), values.size() * sizeof(int64_t));
  return constant(std::move(*tensor));
}

X Builder::sizes(std::span<const Dim> sizes) {
  std::vector<int64_t> values;
  for (const Dim& d : sizes)
    if (d.is_const()) values.push_back(d.value());
  if (values.size() == sizes.size()) return integers(values);
  return add(core::dims, {}, {Shape(sizes.begin(), sizes.end())})[0];
}

X Builder::size(Dim size) {
  if (size.is_const()) return integer(size.value());
  const int axis[] = {0};
  return view(sizes(std::span<const Dim>(&size, 1)), squeeze_view(Shape{Dim(1)}, axis));
}

const Shape* Builder::contents(X x) const {
  auto found = graph_.contents.find(x.id);
  return found == graph_.contents.end() ? nullptr : &found->second;
}

const Tensor* Builder::constant_of(X x) const {
  if (!x) return nullptr;
  NodeId def = graph_.value(x.id).def;
  if (def == kNoNode || graph_.node(def).op != &core::constant) return nullptr;
  return &graph_.context().constant(static_cast<uint32_t>(std::get<int64_t>(graph_.node(def).attrs->values[0])));
}

X Builder::view(X x, View view) {
  if (error_ || !x) return {this, kNoValue};
  return this->view(x, context().attrs(Attrs{{std::move(view)}}));
}

X Builder::view(X x, AttrsRef attrs) {
  if (error_ || !x) return {this, kNoValue};
  if (std::get<View>(attrs->values[0]).is_identity(x.shape())) return x;
  NodeId def = graph_.value(x.id).def;
  if (def != kNoNode && graph_.node(def).op == &core::view) {
    if (const AttrsRef both = context().composed(graph_.node(def).attrs, attrs))
      return view(wrap(graph_.operands(def)[0]), both);
    x = add1(core::copy, {x}, {x.shape()});
    if (!x) return x;
  }
  return add_interned(core::view, std::span<const X>(&x, 1), context().composed(nullptr, attrs), {})[0];
}

}  // namespace tessera::ir
