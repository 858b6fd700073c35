#include "engine/check_step.h"

#include <fmt/format.h>

#include <span>

#include "base/result.h"
#include "ir/signature.h"
#include "ops/ops.h"

namespace tessera::engine {
namespace {

Shape shape_of(const kernels::View& view) { return Shape(view.shape, view.shape + view.rank); }

Result<ir::Attrs> attributes(const ir::OpDef& op, const kernels::Args& args) {
  if (args.n_attrs != op.attrs.size())
    return fail(Code::artifact_corrupt, "'{}' has {} attributes, the plan gives {}", op.name, op.attrs.size(),
                args.n_attrs);
  ir::Attrs attrs;
  for (int i = 0; i < op.attrs.size(); ++i) {
    const kernels::Attr& given = args.attrs[i];
    const std::span<const int64_t> list(given.list, static_cast<size_t>(given.length));
    switch (op.attrs[i].kind) {
      case ir::AttrKind::real:
        attrs.values.emplace_back(given.f);
        break;
      case ir::AttrKind::integers:
        attrs.values.emplace_back(std::vector<int64_t>(list.begin(), list.end()));
        break;
      case ir::AttrKind::dims:
        attrs.values.emplace_back(Shape(list.begin(), list.end()));
        break;
      case ir::AttrKind::view:
        return fail(Code::artifact_corrupt, "no kernel takes the views of '{}'", op.name);
      case ir::AttrKind::dtype:
        if (given.i < 0 || given.i >= kDTypeCount)
          return fail(Code::artifact_corrupt, "'{}' names the element type {}, which is none", op.name, given.i);
        attrs.values.emplace_back(given.i);
        break;
      case ir::AttrKind::word:
        if (ir::word_at(op.attrs[i].words, given.i).empty())
          return fail(Code::artifact_corrupt, "'{}' has no word {} for '{}'", op.name, given.i, op.attrs[i].name);
        attrs.values.emplace_back(given.i);
        break;
      default:
        attrs.values.emplace_back(given.i);
        break;
    }
  }
  return attrs;
}

}  // namespace

Status check_step(std::string_view op_name, const kernels::Args& args) {
  const ir::OpDef* op = ops::find_op(op_name);
  if (op == nullptr) return fail(Code::artifact_corrupt, "there is no operator '{}'", op_name);
  TESSERA_ASSIGN(const ir::Attrs attrs, attributes(*op, args));
  ir::Context context;
  std::vector<ir::TypeRef> operands;
  for (int i = 0; i < args.n_in; ++i) {
    const kernels::View& view = args.in[i];
    operands.push_back(view.present ? context.tensor(static_cast<DType>(view.type), shape_of(view)) : nullptr);
  }
  while (!operands.empty() && operands.back() == nullptr) operands.pop_back();
  ir::Infer infer{*op, ir::A(*op, attrs), context, operands, {}};
  Status inferred;
  if (!op->signature.empty()) inferred = ir::apply_signature(infer);
  if (inferred && op->infer != nullptr) inferred = op->infer(infer);
  if (!inferred) return fail(Code::artifact_corrupt, "a step of the plan is impossible: {}", inferred.error().message);
  if (infer.results.size() != static_cast<size_t>(args.n_out))
    return fail(Code::artifact_corrupt, "'{}' has {} results, the plan takes {}", op_name, infer.results.size(),
                args.n_out);
  for (int i = 0; i < args.n_out; ++i) {
    const ir::Type& type = *infer.results[static_cast<size_t>(i)];
    const kernels::View& view = args.out[i];
    bool same = type.dtype == static_cast<DType>(view.type) && (!type.ranked || type.rank() == view.rank);
    // Sizes that values decide are not known here; kernels write as many elements as the result has.
    for (int axis = 0; same && type.ranked && axis < view.rank; ++axis)
      same = !type.shape[static_cast<size_t>(axis)].is_const() ||
             type.shape[static_cast<size_t>(axis)].is(view.shape[axis]);
    if (!same)
      return fail(Code::artifact_corrupt, "result {} of '{}' is {}, the plan has {}{}", i, op_name, to_string(type),
                  name(static_cast<DType>(view.type)), to_string(std::span<const Dim>(shape_of(view))));
  }
  return {};
}

}  // namespace tessera::engine
