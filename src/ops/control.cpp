// Control flow. Nested graphs are closed: what they use from outside comes in as operands.
#include <fmt/format.h>

#include "base/strings.h"
#include "ops/ops.h"
#include "ops/reference.h"

namespace tessera::ops {
namespace {

using ir::Graph;
using ir::Infer;
using ir::OpDef;
using ir::RefValue;
using ir::Type;
using ir::TypeRef;

// The type that holds both; nullptr when nothing can.
TypeRef join(ir::Context& context, TypeRef a, TypeRef b) {
  if (a == b) return a;
  if (a->kind == ir::Kind::nothing || b->kind == ir::Kind::nothing)
    return a->dtype != b->dtype ? nullptr : a->kind == ir::Kind::nothing ? b : a;
  if (a->kind != b->kind) return nullptr;
  if (!a->is_tensor()) {
    if (a->element == nullptr || b->element == nullptr) return nullptr;
    TypeRef element = join(context, a->element, b->element);
    if (element == nullptr) return nullptr;
    return a->kind == ir::Kind::sequence ? context.sequence(element) : context.optional(element);
  }
  if (a->dtype != b->dtype) return nullptr;
  if (!a->ranked || !b->ranked || a->rank() != b->rank()) return context.unranked(a->dtype);
  Shape shape;
  for (size_t i = 0; i < a->shape.size(); ++i)
    shape.push_back(a->shape[i] == b->shape[i] ? a->shape[i] : context.dims().fresh("join"));
  return context.tensor(a->dtype, std::move(shape));
}

Status check_region(const Infer& infer, const Graph& region, std::span<const TypeRef> inputs, std::string_view what) {
  if (region.inputs.size() != inputs.size())
    return fail(Code::arity, "{}: its {} takes {} inputs but is given {}", infer.op.name, what, region.inputs.size(),
                inputs.size());
  return {};
}

Status infer_branch(Infer& infer) {
  if (!infer.has(0) || !infer.operands[0]->is_tensor() || infer.dtype(0) != DType::boolean)
    return fail(Code::dtype_mismatch, "branch: the condition must be a bool tensor");
  const Graph &yes = infer.regions[0], &no = infer.regions[1];
  std::span<const TypeRef> captured = infer.operands.subspan(1);
  TESSERA_TRY(check_region(infer, yes, captured, "then graph"));
  TESSERA_TRY(check_region(infer, no, captured, "else graph"));
  if (yes.outputs.size() != no.outputs.size())
    return fail(Code::arity, "branch: the then graph gives {} results but the else graph {}", yes.outputs.size(),
                no.outputs.size());
  for (size_t i = 0; i < yes.outputs.size(); ++i) {
    TypeRef a = yes.type(yes.outputs[i]), b = no.type(no.outputs[i]);
    TypeRef both = join(infer.context, a, b);
    if (both == nullptr)
      return fail(Code::dtype_mismatch, "branch: result {} is {} in the then graph but {} in the else graph", i,
                  to_string(*a), to_string(*b));
    infer.results.push_back(both);
  }
  return {};
}

Status eval_branch(Eval& e) {
  const Array& condition = e.in(0);
  if (condition.count() != 1)
    return fail(Code::shape_mismatch, "branch: the condition has {} elements, not one", condition.count());
  std::vector<RefValue> inputs;
  for (const RefValue* v : e.operands.subspan(1)) inputs.push_back(*v);
  const Graph& region = e.regions[condition.of<Int>()[0] != 0 ? 0 : 1];
  TESSERA_ASSIGN(e.results, e.interpreter->run_region(region, inputs, e.bindings));
  return {};
}

// One number or condition; nothing where it is absent.
Status check_scalar(const Infer& infer, TypeRef type, DType dtype, std::string_view what) {
  if (type == nullptr || (type->is_tensor() && type->dtype == dtype)) return {};
  return fail(Code::dtype_mismatch, "{}: the {} is {} but must be one {}", infer.op.name, what, to_string(*type),
              name(dtype));
}

Result<Int> scalar_of(const Eval& e, const Array& array, std::string_view what) {
  if (array.count() != 1)
    return fail(Code::shape_mismatch, "{}: the {} has {} elements, not one", e.op.name, what, array.count());
  return array.of<Int>()[0];
}

// (trip?, condition?, carried..., captured...); the body takes (iteration, condition, carried..., captured...) and
// gives (condition, carried..., stacked...).
Status infer_loop(Infer& infer) {
  const Graph& body = infer.regions[0];
  size_t carried = static_cast<size_t>(infer.attrs.integer("carried"));
  if (body.inputs.size() != infer.operands.size() || body.outputs.empty() || body.inputs.size() < 2 ||
      carried > body.inputs.size() - 2 || carried > body.outputs.size() - 1)
    return fail(Code::arity, "loop: {} operands for a body of {} inputs and {} results", infer.operands.size(),
                body.inputs.size(), body.outputs.size());
  TESSERA_TRY(check_scalar(infer, infer.operands[0], DType::i64, "trip count"));
  TESSERA_TRY(check_scalar(infer, infer.operands[1], DType::boolean, "condition"));
  TESSERA_TRY(check_scalar(infer, body.type(body.outputs[0]), DType::boolean, "condition that the body gives"));
  for (size_t i = 0; i < carried; ++i) {
    TypeRef in = body.type(body.inputs[2 + i]), out = body.type(body.outputs[1 + i]);
    TypeRef both = in == out ? in : join(infer.context, in, out);
    if (both == nullptr)
      return fail(Code::dtype_mismatch, "loop: carried value {} is {} before and {} after an iteration", i,
                  to_string(*in), to_string(*out));
    infer.results.push_back(in);
  }
  for (size_t i = carried + 1; i < body.outputs.size(); ++i) {
    TypeRef one = body.type(body.outputs[i]);
    if (!one->is_tensor())
      return fail(Code::dtype_mismatch, "loop: stacked result {} is {}, not a tensor", i, to_string(*one));
    if (!one->ranked) {
      infer.results.push_back(one);
      continue;
    }
    Shape shape = {infer.dims().fresh("trips")};
    shape.insert(shape.end(), one->shape.begin(), one->shape.end());
    infer.result(one->dtype, std::move(shape));
  }
  return {};
}

// Slices stacked along a new first axis.
Result<Array> stack(const std::vector<RefValue>& slices, TypeRef slice_type) {
  Array y{slice_type->dtype, {static_cast<int64_t>(slices.size())}, {}};
  if (slices.empty()) {
    for (Dim d : slice_type->shape) y.shape.push_back(d.is_const() ? d.value() : 0);
    return ir::make_array(y.dtype, y.shape);
  }
  const Dims& shape = slices[0].array().shape;
  y.shape.insert(y.shape.end(), shape.begin(), shape.end());
  y.data = slices[0].array().data;
  for (size_t i = 1; i < slices.size(); ++i) {
    const Array& slice = slices[i].array();
    if (slice.shape != shape)
      return fail(Code::shape_mismatch, "iteration 0 gives [{}] but iteration {} gives [{}]", joined(shape, ", "), i,
                  joined(slice.shape, ", "));
    std::visit(
        [&](auto& to) {
          const auto& from = std::get<std::decay_t<decltype(to)>>(slice.data);
          to.insert(to.end(), from.begin(), from.end());
        },
        y.data);
  }
  return y;
}

Status eval_loop(Eval& e) {
  const Graph& body = e.regions[0];
  size_t carried = static_cast<size_t>(e.attrs.integer("carried"));
  Int trips = INT64_MAX, go = 1;
  if (e.has(0)) {
    TESSERA_ASSIGN(trips, scalar_of(e, e.in(0), "trip count"));
  }
  if (e.has(1)) {
    TESSERA_ASSIGN(go, scalar_of(e, e.in(1), "condition"));
  }
  std::vector<RefValue> state;
  for (const RefValue* v : e.operands.subspan(2)) state.push_back(*v);
  std::vector<std::vector<RefValue>> stacked(body.outputs.size() - carried - 1);
  for (Int i = 0; i < trips && go != 0; ++i) {
    if (i >= e.interpreter->options().max_iterations)
      return fail(Code::iteration_limit, "loop: more than {} iterations", e.interpreter->options().max_iterations);
    std::vector<RefValue> inputs = {{std::make_shared<const Array>(Array{DType::i64, {}, std::vector<Int>{i}})},
                                    {std::make_shared<const Array>(Array{DType::boolean, {}, std::vector<Int>{1}})}};
    inputs.insert(inputs.end(), state.begin(), state.end());
    TESSERA_ASSIGN(std::vector<RefValue> outputs, e.interpreter->run_region(body, inputs, e.bindings));
    TESSERA_ASSIGN(go, scalar_of(e, outputs[0].array(), "condition that the body gives"));
    for (size_t k = 0; k < carried; ++k) state[k] = outputs[1 + k];
    for (size_t k = 0; k < stacked.size(); ++k) stacked[k].push_back(outputs[1 + carried + k]);
  }
  for (size_t k = 0; k < carried; ++k) e.results.push_back(state[k]);
  for (size_t k = 0; k < stacked.size(); ++k) {
    TESSERA_ASSIGN(Array y, stack(stacked[k], body.type(body.outputs[1 + carried + k])));
    e.out(std::move(y));
  }
  return {};
}

// (carried..., sliced..., captured...); the body takes the same with one slice of each sliced operand along axis 0, and
// gives (carried..., stacked...).
Status infer_scan(Infer& infer) {
  const Graph& body = infer.regions[0];
  size_t carried = static_cast<size_t>(infer.attrs.integer("carried")),
         sliced = static_cast<size_t>(infer.attrs.integer("sliced"));
  TESSERA_TRY(check_region(infer, body, infer.operands, "body"));
  if (sliced == 0 || carried > infer.operands.size() || sliced > infer.operands.size() - carried ||
      body.outputs.size() < carried)
    return fail(Code::arity, "scan: {} carried and {} sliced values do not fit {} operands", carried, sliced,
                infer.operands.size());
  for (size_t i = carried; i < carried + sliced; ++i) {
    TypeRef type = infer.operands[i];
    if (type == nullptr || !type->is_tensor() || type->shape.empty())
      return fail(Code::rank_mismatch, "scan: sliced operand {} is {}, which has no first axis", i - carried,
                  type != nullptr ? to_string(*type) : "absent");
  }
  Dim trips = infer.shape(static_cast<int>(carried))[0];
  for (size_t i = 1; i < sliced; ++i)
    TESSERA_TRY(
        infer.require_equal(trips, infer.shape(static_cast<int>(carried + i))[0], "the length of the sliced operands"));
  for (size_t i = 0; i < carried; ++i) infer.results.push_back(body.type(body.inputs[i]));
  for (size_t i = carried; i < body.outputs.size(); ++i) {
    TypeRef one = body.type(body.outputs[i]);
    if (!one->is_tensor())
      return fail(Code::dtype_mismatch, "scan: stacked result {} is {}, not a tensor", i, to_string(*one));
    if (!one->ranked) {
      infer.results.push_back(one);
      continue;
    }
    Shape shape = {trips};
    shape.insert(shape.end(), one->shape.begin(), one->shape.end());
    infer.result(one->dtype, std::move(shape));
  }
  return {};
}

Status eval_scan(Eval& e) {
  const Graph& body = e.regions[0];
  size_t carried = static_cast<size_t>(e.attrs.integer("carried")),
         sliced = static_cast<size_t>(e.attrs.integer("sliced"));
  int64_t trips = e.in(static_cast<int>(carried)).shape[0];
  std::vector<RefValue> state;
  for (size_t i = 0; i < carried; ++i) state.push_back(*e.operands[i]);
  std::vector<std::vector<RefValue>> stacked(body.outputs.size() - carried);
  for (int64_t t = 0; t < trips; ++t) {
    std::vector<RefValue> inputs = state;
    for (size_t k = 0; k < sliced; ++k) {
      const Array& x = e.in(static_cast<int>(carried + k));
      if (x.shape[0] != trips)
        return fail(Code::shape_mismatch, "scan: sliced operands have {} and {} slices", trips, x.shape[0]);
      Array slice{x.dtype, Dims(x.shape.begin() + 1, x.shape.end()), {}};
      int64_t count = x.count() / trips;
      visit_data(x, [&](const auto& from) {
        slice.data = std::decay_t<decltype(from)>(from.begin() + t * count, from.begin() + (t + 1) * count);
      });
      inputs.push_back({std::make_shared<const Array>(std::move(slice))});
    }
    for (size_t k = carried + sliced; k < e.operands.size(); ++k) inputs.push_back(*e.operands[k]);
    TESSERA_ASSIGN(std::vector<RefValue> outputs, e.interpreter->run_region(body, inputs, e.bindings));
    for (size_t k = 0; k < carried; ++k) state[k] = outputs[k];
    for (size_t k = 0; k < stacked.size(); ++k) stacked[k].push_back(outputs[carried + k]);
  }
  e.results = std::move(state);
  for (size_t k = 0; k < stacked.size(); ++k) {
    TESSERA_ASSIGN(Array y, stack(stacked[k], body.type(body.outputs[carried + k])));
    e.out(std::move(y));
  }
  return {};
}

}  // namespace

constinit const OpDef branch_op = {
    .name = "branch",
    .doc = "(condition, captured...) Runs the first nested graph when the condition holds, else the second.",
    .infer = infer_branch,
    .reference = eval_branch,
    .regions = 2,
};
constinit const OpDef loop_op = {
    .name = "loop",
    .doc =
        "(trips?, condition?, carried..., captured...) Runs the body at most `trips` times while the condition holds; "
        "carries values on, stacks the others (ONNX Loop).",
    .attrs = {ir::int_attr("carried")},
    .infer = infer_loop,
    .reference = eval_loop,
    .regions = 1,
};
constinit const OpDef scan_op = {
    .name = "scan",
    .doc =
        "(carried..., sliced..., captured...) Runs the body once for each slice along axis 0 of the sliced operands; "
        "carries values on, stacks the others.",
    .attrs = {ir::int_attr("carried"), ir::int_attr("sliced")},
    .infer = infer_scan,
    .reference = eval_scan,
    .regions = 1,
};

}  // namespace tessera::ops
