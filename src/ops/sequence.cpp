// Lists and optional values. ONNX's sequence and optional operators.
#include <algorithm>

#include "ops/ops.h"
#include "ops/reference.h"

namespace tessera::ops {
namespace {

using ir::Infer;
using ir::Kind;
using ir::OpDef;
using ir::RefValue;
using ir::TypeRef;

Status need(const Infer& infer, int i, Kind kind, std::string_view what) {
  if (infer.has(i) && infer.operands[static_cast<size_t>(i)]->kind == kind) return {};
  return fail(Code::dtype_mismatch, "{}: operand {} is {} but must be {}", infer.op.name, i,
              infer.has(i) ? to_string(*infer.operands[static_cast<size_t>(i)]) : "absent", what);
}

// Items of one list share the element type and may differ in shape: axes that differ become sizes that only the run
// tells.
TypeRef item_type(ir::Context& context, std::span<const TypeRef> types) {
  TypeRef joined = types[0];
  for (TypeRef type : types.subspan(1)) {
    if (type == joined || type->kind == Kind::nothing) continue;
    if (joined->kind == Kind::nothing && joined->dtype == type->dtype) {
      joined = type;
      continue;
    }
    if (!type->is_tensor() || !joined->is_tensor() || type->dtype != joined->dtype) return nullptr;
    if (!joined->ranked || !type->ranked || joined->rank() != type->rank()) {
      joined = context.unranked(joined->dtype);
      continue;
    }
    Shape shape = joined->shape;
    for (size_t i = 0; i < shape.size(); ++i)
      if (!(shape[i] == type->shape[i])) shape[i] = context.dims().fresh("item");
    joined = context.tensor(joined->dtype, std::move(shape));
  }
  return joined;
}

// Sizes of an item hold for that item only, so what comes out of a list has sizes of its own.
TypeRef fresh_item(ir::Context& context, TypeRef type) {
  if (type->kind == Kind::nothing) return context.unranked(type->dtype);
  if (!type->is_tensor() || !type->ranked) return type;
  Shape shape;
  for (Dim d : type->shape) shape.push_back(d.is_const() ? d : context.dims().fresh("item"));
  return context.tensor(type->dtype, std::move(shape));
}

Status infer_make(Infer& infer) {
  if (infer.operands.empty()) {
    infer.results.push_back(infer.context.sequence(infer.context.nothing(infer.attrs["dtype"])));
    return {};
  }
  TypeRef item = item_type(infer.context, infer.operands);
  if (item == nullptr) return fail(Code::dtype_mismatch, "seq_make: its operands differ in type");
  infer.results.push_back(infer.context.sequence(item));
  return {};
}
Status eval_make(Eval& e) {
  RefValue::List list{e.operands.empty() ? e.attrs["dtype"] : DType::f32, {}};
  for (const RefValue* v : e.operands) list.items.push_back(*v);
  if (!e.operands.empty() && e.operands[0]->held.index() == 0) list.element = e.in(0).dtype;
  e.out(RefValue{std::move(list)});
  return {};
}

Result<size_t> position(Eval& e, int operand, size_t length, size_t limit) {
  if (!e.has(operand)) return length;
  Int at = e.in(operand).of<Int>()[0];
  if (at < 0) at += static_cast<Int>(length);
  if (at < 0 || at >= static_cast<Int>(limit))
    return fail(Code::index_out_of_range, "{}: position {} in a list of {}", e.op.name, static_cast<int64_t>(at),
                length);
  return static_cast<size_t>(at);
}

Status infer_at(Infer& infer) {
  TESSERA_TRY(need(infer, 0, Kind::sequence, "a sequence"));
  TESSERA_TRY(need(infer, 1, Kind::tensor, "a tensor"));
  infer.results.push_back(fresh_item(infer.context, infer.operands[0]->element));
  return {};
}
Status eval_at(Eval& e) {
  const RefValue::List& list = e.operands[0]->list();
  TESSERA_ASSIGN(size_t at, position(e, 1, list.items.size(), list.items.size()));
  e.out(list.items[at]);
  return {};
}

Status infer_insert(Infer& infer) {
  TESSERA_TRY(need(infer, 0, Kind::sequence, "a sequence"));
  const TypeRef types[] = {infer.operands[0]->element, infer.operands[1]};
  TypeRef item = item_type(infer.context, types);
  if (item == nullptr)
    return fail(Code::dtype_mismatch, "seq_insert: {} into a list of {}", to_string(*types[1]), to_string(*types[0]));
  infer.results.push_back(infer.context.sequence(item));
  return {};
}
Status eval_insert(Eval& e) {
  RefValue::List list = e.operands[0]->list();
  TESSERA_ASSIGN(size_t at, position(e, 2, list.items.size(), list.items.size() + 1));
  list.items.insert(list.items.begin() + static_cast<ptrdiff_t>(at), *e.operands[1]);
  e.out(RefValue{std::move(list)});
  return {};
}

Status infer_erase(Infer& infer) {
  TESSERA_TRY(need(infer, 0, Kind::sequence, "a sequence"));
  infer.results.push_back(infer.operands[0]);
  return {};
}
Status eval_erase(Eval& e) {
  RefValue::List list = e.operands[0]->list();
  if (list.items.empty()) return fail(Code::value_invalid, "seq_erase: the list is empty");
  size_t at = list.items.size() - 1;
  if (e.has(1)) {
    TESSERA_ASSIGN(at, position(e, 1, list.items.size(), list.items.size()));
  }
  list.items.erase(list.items.begin() + static_cast<ptrdiff_t>(at));
  e.out(RefValue{std::move(list)});
  return {};
}

Status infer_length(Infer& infer) {
  TESSERA_TRY(need(infer, 0, Kind::sequence, "a sequence"));
  infer.result(DType::i64, {});
  return {};
}
Status eval_length(Eval& e) {
  e.out(Array{DType::i64, {}, std::vector<Int>{static_cast<Int>(e.operands[0]->list().items.size())}});
  return {};
}

Status infer_concat_items(Infer& infer) {
  TESSERA_TRY(need(infer, 0, Kind::sequence, "a sequence"));
  TypeRef item = infer.operands[0]->element;
  if (!item->is_tensor())
    return fail(Code::dtype_mismatch, "seq_concat: the items are {}, not tensors", to_string(*item));
  if (!item->ranked) {
    infer.results.push_back(item);
    return {};
  }
  bool stack = infer.attrs.flag("stack");
  Shape shape;
  for (Dim d : item->shape) shape.push_back(d.is_const() ? d : infer.dims().fresh("item"));
  int rank = static_cast<int>(shape.size()) + (stack ? 1 : 0);
  TESSERA_ASSIGN(int axis, infer.axis(infer.attrs.integer("axis"), rank));
  Dim total = infer.dims().fresh("items");
  if (stack) {
    shape.insert(shape.begin() + axis, total);
  } else {
    shape[static_cast<size_t>(axis)] = total;
  }
  infer.result(item->dtype, std::move(shape));
  return {};
}
Status eval_concat_items(Eval& e) {
  const RefValue::List& list = e.operands[0]->list();
  if (list.items.empty()) return fail(Code::value_invalid, "seq_concat: the list is empty");
  bool stack = e.attrs.flag("stack");
  std::vector<RefValue> items;
  int64_t axis = e.attrs.integer("axis");
  if (axis < 0) axis += list.items[0].array().rank() + (stack ? 1 : 0);
  for (const RefValue& item : list.items) {
    Array array = item.array();
    if (stack) array.shape.insert(array.shape.begin() + axis, 1);
    items.push_back({std::make_shared<const Array>(std::move(array))});
  }
  std::vector<const RefValue*> operands;
  for (const RefValue& item : items) operands.push_back(&item);
  TESSERA_ASSIGN(e.results,
                 e.interpreter->run_node(ops::concat_op, ir::Attrs{{axis}}, operands, {}, {}, nullptr, nullptr));
  return {};
}

// Parts of x along `axis`: of the given sizes, or all of one size (the last one smaller); `drop` removes the axis of
// size 1.
Status infer_split(Infer& infer) {
  TESSERA_TRY(need(infer, 0, Kind::tensor, "a tensor"));
  TESSERA_TRY(need(infer, 1, Kind::tensor, "a tensor"));
  TESSERA_ASSIGN(int axis, infer.axis(infer.attrs.integer("axis"), infer.rank(0)));
  Shape shape = infer.shape(0);
  if (infer.attrs.flag("drop")) {
    shape.erase(shape.begin() + axis);
  } else {
    // Parts that are all of one size have it in their type.
    Dim& size = shape[static_cast<size_t>(axis)];
    const Shape* parts = infer.contents(1);
    bool same = parts != nullptr && !parts->empty() &&
                std::all_of(parts->begin(), parts->end(), [&](Dim d) { return d == (*parts)[0]; });
    bool divides = same && (infer.rank(1) == 1 || ((*parts)[0].is_const() && (*parts)[0].value() > 0 &&
                                                   infer.dims().proves_divisible(size, (*parts)[0])));
    size = divides ? (*parts)[0] : infer.dims().fresh("part");
  }
  infer.results.push_back(infer.context.sequence(infer.context.tensor(infer.dtype(0), std::move(shape))));
  return {};
}
Status eval_split(Eval& e) {
  const Array &x = e.in(0), &split = e.in(1);
  size_t axis = static_cast<size_t>(e.attrs.integer("axis"));
  int64_t size = x.shape[axis], outer = 1, inner = 1;
  for (size_t i = 0; i < axis; ++i) outer *= x.shape[i];
  for (size_t i = axis + 1; i < x.shape.size(); ++i) inner *= x.shape[i];
  std::vector<int64_t> sizes;
  int64_t total = 0;
  if (split.rank() == 0) {
    int64_t each = static_cast<int64_t>(split.of<Int>()[0]);
    if (each < 1) return fail(Code::value_invalid, "seq_split: parts of {}", each);
    for (; total < size; total += sizes.back()) sizes.push_back(std::min(each, size - total));
  } else {
    for (Int s : split.of<Int>()) {
      if (s < 0 || s > size) return fail(Code::value_invalid, "seq_split: a part of {}", static_cast<int64_t>(s));
      sizes.push_back(static_cast<int64_t>(s));
      total += sizes.back();
    }
  }
  if (total != size)
    return fail(Code::shape_mismatch, "seq_split: parts of {} elements in all for an axis of {}", total, size);
  RefValue::List list{x.dtype, {}};
  int64_t start = 0;
  for (int64_t part : sizes) {
    Array y{x.dtype, x.shape, {}};
    y.shape[axis] = part;
    if (e.attrs.flag("drop")) y.shape.erase(y.shape.begin() + static_cast<ptrdiff_t>(axis));
    visit_data(x, [&](const auto& from) {
      std::decay_t<decltype(from)> to;
      for (int64_t o = 0; o < outer; ++o) {
        auto begin = from.begin() + (o * size + start) * inner;
        to.insert(to.end(), begin, begin + part * inner);
      }
      y.data = std::move(to);
    });
    list.items.push_back({std::make_shared<const Array>(std::move(y))});
    start += part;
  }
  e.out(RefValue{std::move(list)});
  return {};
}

Status infer_optional(Infer& infer) {
  TypeRef element = infer.has(0) ? infer.operands[0] : infer.context.unranked(infer.attrs["dtype"]);
  if (!infer.has(0) && infer.attrs.flag("list")) element = infer.context.sequence(element);
  infer.results.push_back(infer.context.optional(element));
  return {};
}
Status eval_optional(Eval& e) {
  RefValue::Maybe maybe;
  if (e.has(0)) maybe.value = std::make_shared<const RefValue>(*e.operands[0]);
  e.out(RefValue{std::move(maybe)});
  return {};
}

// What is not an optional counts as present.
Status infer_has(Infer& infer) {
  infer.result(DType::boolean, {});
  return {};
}
Status eval_has(Eval& e) {
  const auto* maybe = e.has(0) ? std::get_if<RefValue::Maybe>(&e.operands[0]->held) : nullptr;
  bool present = e.has(0) && (maybe == nullptr || maybe->value != nullptr);
  e.out(Array{DType::boolean, {}, std::vector<Int>{present}});
  return {};
}

Status infer_get(Infer& infer) {
  if (!infer.has(0)) return fail(Code::arity, "opt_get: its operand is absent");
  bool optional = infer.operands[0]->kind == Kind::optional;
  infer.results.push_back(optional ? fresh_item(infer.context, infer.operands[0]->element) : infer.operands[0]);
  return {};
}
Status eval_get(Eval& e) {
  const auto* maybe = std::get_if<RefValue::Maybe>(&e.operands[0]->held);
  if (maybe != nullptr && maybe->value == nullptr)
    return fail(Code::value_invalid, "opt_get: the optional holds nothing");
  e.out(maybe ? *maybe->value : *e.operands[0]);
  return {};
}

}  // namespace

constinit const OpDef seq_make_op = {.name = "seq_make",
                                     .doc = "(xs...) A list of the operands; an empty one of `dtype`.",
                                     .attrs = {{"dtype", ir::AttrKind::dtype}},
                                     .infer = infer_make,
                                     .reference = eval_make};
constinit const OpDef seq_at_op = {.name = "seq_at",
                                   .doc = "(list, position) One item; negative positions count from the end.",
                                   .infer = infer_at,
                                   .reference = eval_at};
constinit const OpDef seq_insert_op = {.name = "seq_insert",
                                       .doc = "(list, x, position?) The list with x at the position, or at its end.",
                                       .infer = infer_insert,
                                       .reference = eval_insert};
constinit const OpDef seq_erase_op = {
    .name = "seq_erase",
    .doc = "(list, position?) The list without the item at the position, or without its last.",
    .infer = infer_erase,
    .reference = eval_erase};
constinit const OpDef seq_length_op = {
    .name = "seq_length", .doc = "(list) How many items.", .infer = infer_length, .reference = eval_length};
constinit const OpDef seq_concat_op = {
    .name = "seq_concat",
    .doc = "(list) The items one after another along `axis`, a new one when `stack`.",
    .attrs = {ir::int_attr("axis"), ir::bool_attr("stack", false)},
    .infer = infer_concat_items,
    .reference = eval_concat_items};
constinit const OpDef seq_split_op = {.name = "seq_split",
                                      .doc = "(x, sizes) Parts of x along the axis as a list.",
                                      .attrs = {ir::int_attr("axis"), ir::bool_attr("drop", false)},
                                      .infer = infer_split,
                                      .reference = eval_split};
constinit const OpDef opt_make_op = {
    .name = "opt_make",
    .doc =
        "(x?) An optional that holds x; or nothing, and might a tensor of `dtype`, or a list "
        "of such.",
    .attrs = {{"dtype", ir::AttrKind::dtype}, ir::bool_attr("list", false)},
    .infer = infer_optional,
    .reference = eval_optional};
constinit const OpDef opt_has_op = {
    .name = "opt_has", .doc = "(x?) Whether the optional holds a value.", .infer = infer_has, .reference = eval_has};
constinit const OpDef opt_get_op = {
    .name = "opt_get", .doc = "(x) What the optional holds.", .infer = infer_get, .reference = eval_get};

}  // namespace tessera::ops
