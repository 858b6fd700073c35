// What operators' shape inference calls: attributes by name, equations between sizes, axes, broadcasting.
#include "ir/op_def.h"

namespace tessera::ir {

A::Read A::operator[](std::string_view name) const {
  const int index = op_->attrs.find(name);
  TESSERA_CHECK(index >= 0 && static_cast<size_t>(index) < attrs_->values.size());
  return {&attrs_->values[static_cast<size_t>(index)]};
}

std::string_view A::word(std::string_view name) const {
  const int64_t index = integer(name);
  return word_at(op_->attrs[op_->attrs.find(name)].words, index);
}

Status Infer::require_equal(Dim a, Dim b, std::string_view what) {
  if (dims().proves_eq(a, b)) return {};
  if (dims().proves_ne(a, b))
    return fail(Code::shape_mismatch, "{}: {} must agree, but are {} and {}", op.name, what, to_string(a),
                to_string(b));
  guards.push_back({Guard::Kind::equal, a, b});
  return {};
}

Result<int> Infer::axis(int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank)
    return fail(Code::axis_out_of_range, "{}: axis {} is not in [{}, {})", op.name, axis, -rank, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::optional<Dim> broadcast_dims(Infer& infer, Dim a, Dim b) {
  DimTable& dims = infer.dims();
  if (a.is(1)) return b;
  if (b.is(1)) return a;
  if (dims.proves_eq(a, b)) return a.is_const() ? a : b;
  if (!dims.proves_ne(a, b)) {
    // Equal is what shapes nearly always are; a plan without this assumption serves the others.
    infer.guards.push_back({Guard::Kind::equal, a, b});
    return a.is_const() ? a : b;
  }
  // They differ, so one of them has to be 1.
  if (!dims.proves_ne(b, 1)) {
    infer.guards.push_back({Guard::Kind::equal, b, 1});
    return a;
  }
  if (dims.proves_ne(a, 1)) return std::nullopt;
  infer.guards.push_back({Guard::Kind::equal, a, 1});
  return b;
}

Result<Shape> broadcast_shapes(Infer& infer, const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape shape = longer;
  const size_t lead = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    const std::optional<Dim> size = broadcast_dims(infer, longer[lead + i], shorter[i]);
    if (!size)
      return fail(Code::shape_mismatch, "{}: {} and {} do not broadcast: axis {} is {} and {}", infer.op.name,
                  to_string(std::span<const Dim>(a)), to_string(std::span<const Dim>(b)),
                  static_cast<int64_t>(i) - static_cast<int64_t>(shorter.size()), to_string(longer[lead + i]),
                  to_string(shorter[i]));
    shape[lead + i] = *size;
  }
  return shape;
}

}  // namespace tessera::ir
