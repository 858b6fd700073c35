// append: writing into the pages of a state that lives between runs.
#include "ops/ops.h"
#include "ops/reference.h"

namespace tessera::ops {
namespace {

using ir::Infer;
using ir::OpDef;

Status infer_append(Infer& infer) {
  const Shape &state = infer.shape(0), &rows = infer.shape(1);
  if (infer.operands[0]->kind != ir::Kind::state)
    return fail(Code::dtype_mismatch, "append: writes into a state, not into {}", to_string(*infer.operands[0]));
  if (infer.operands[1]->kind != ir::Kind::tensor || !infer.operands[1]->ranked || !infer.operands[2]->ranked)
    return fail(Code::dtype_mismatch, "append: rows are {}, but must be a tensor of known rank",
                to_string(*infer.operands[1]));
  if ((infer.dtype(0) == DType::i8) != (infer.dtype(1) == DType::i8))
    return fail(Code::dtype_mismatch, "append: rows of {} into a state of {}: integers are not rounded",
                name(infer.dtype(1)), name(infer.dtype(0)));
  if (state.size() != 4 || rows.size() != 3)
    return fail(Code::rank_mismatch, "append: the state has {} axes and the rows have {}, but 4 and 3 belong together",
                state.size(), rows.size());
  TESSERA_TRY(infer.require_equal(state[1], rows[1], "the groups of state and rows"));
  TESSERA_TRY(infer.require_equal(state[3], rows[2], "the inner axes of state and rows"));
  TESSERA_TRY(infer.require_equal(rows[0], infer.shape(2)[0], "the numbers of rows and slots"));
  infer.results.push_back(infer.operands[0]);
  return {};
}

template <class T>
Status append_rows(Eval& e) {
  Array state = e.in(0);
  const auto& rows = e.in(1).of<T>();
  const auto& slots = e.in(2).of<Int>();
  auto& to = std::get<std::vector<T>>(state.data);
  const int64_t groups = state.shape[1], page = state.shape[2], width = state.shape[3];
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0 || slots[i] >= state.shape[0] * page)
      return fail(Code::index_out_of_range, "append: slot {} is outside of [0, {})", static_cast<int64_t>(slots[i]),
                  state.shape[0] * page);
    const auto slot = static_cast<int64_t>(slots[i]);
    for (int64_t g = 0; g < groups; ++g)
      std::copy_n(rows.begin() + (static_cast<int64_t>(i) * groups + g) * width, width,
                  to.begin() + ((slot / page * groups + g) * page + slot % page) * width);
  }
  e.out(std::move(state));
  return {};
}

Status eval_append(Eval& e) { return e.in(0).dtype == DType::i8 ? append_rows<Int>(e) : append_rows<double>(e); }

}  // namespace

constinit const OpDef append_op = {
    .name = "append",
    .doc =
        "The state, P pages of R rows for each group, with rows written at slots, rounded to its type: row i of group "
        "g is at [slots[i] / R, g, slots[i] mod R], so that a group's rows of a page lie together. Consumes the state.",
    .signature = "state[P, G, R, D], rows[N, G, D], slots[N] -> y[P, G, R, D]",
    .types = "state, y: float|i8; rows: float|i8; slots: index",
    .infer = infer_append,
    .reference = eval_append,
};

}  // namespace tessera::ops
