#include "ir/text_test_ops.h"

#include "base/result.h"
#include "ir/core_ops.h"

namespace tessera::ir::test_ops {
namespace {

Status infer_attrs(Infer& infer) {
  infer.result(infer.dtype(0), infer.shape(0));
  return {};
}

Status infer_branch(Infer& infer) {
  if (infer.operands.empty()) return fail(Code::arity, "branch needs a condition");
  for (const Graph& region : infer.regions) {
    if (region.inputs.size() + 1 != infer.operands.size())
      return fail(Code::arity, "branch captures {} values but its graph takes {}", infer.operands.size() - 1,
                  region.inputs.size());
    if (region.outputs.size() != infer.regions[0].outputs.size()) return fail(Code::arity, "branches differ");
  }
  for (ValueId v : infer.regions[0].outputs) infer.results.push_back(infer.regions[0].type(v));
  return {};
}

Status infer_append(Infer& infer) {
  if (infer.operands.size() != 2 || infer.operands[0]->kind != Kind::state)
    return fail(Code::arity, "append takes a state and a tensor");
  infer.results.push_back(infer.operands[0]);
  return {};
}

Status infer_peek(Infer& infer) {
  infer.result(infer.dtype(0), infer.shape(0));
  return {};
}

Status infer_where_true(Infer& infer) {
  Dim count = infer.dims().fresh("count");
  infer.result(DType::i64, {infer.rank(0), count});
  infer.result(DType::i64, {count * 2 + 1});
  return {};
}

constinit const OpDef kOps[] = {
    {.name = "add", .signature = "x[*B|1], y[*B|1] -> z[*B]", .types = "x, y, z: number", .commutative = true},
    {.name = "relu", .signature = "x[*B] -> y[*B]", .types = "x, y: number"},
    {.name = "matmul", .signature = "x[*B, K], w[N, K], b?[N] -> y[*B, N]", .types = "x, w, b, y: float"},
    {.name = "norm", .signature = "x[*B, C] -> y[*B, C], mean?[*B]", .types = "x, y, mean: float"},
    {.name = "attrs",
     .signature = "x[*B] -> y[*B]",
     .types = "x, y: any",
     .attrs = {int_attr("axis", -1), bool_attr("keep", false), dtype_attr("to"),
               word_attr("mode", "constant|reflect|edge"), real_attr("eps", 1e-5), ints_attr("perm"),
               dims_attr("shape"), AttrSpec{"pads", AttrKind::integers, false}},
     .infer = infer_attrs},
    {.name = "branch", .infer = infer_branch, .regions = 2},
    {.name = "append", .infer = infer_append},
    {.name = "peek", .infer = infer_peek},
    {.name = "where_true",
     .signature = "x[*B] -> at[R, N], extra?[M]",
     .types = "x: any; at, extra: i64",
     .infer = infer_where_true},
};

}  // namespace

const OpDef* find(std::string_view name) {
  for (const OpDef* op : {&core::constant, &core::view, &core::dims})
    if (op->name == name) return op;
  for (const OpDef& op : kOps)
    if (op.name == name) return &op;
  return nullptr;
}

}  // namespace tessera::ir::test_ops
