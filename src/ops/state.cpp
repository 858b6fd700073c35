// append: writing into a state that lives between runs.
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
  if (state.empty() || state.size() != rows.size())
    return fail(Code::rank_mismatch, "append: the state has {} axes and the rows have {}", state.size(), rows.size());
  for (size_t i = 1; i < state.size(); ++i)
    TESSERA_TRY(infer.require_equal(state[i], rows[i], "the inner axes of state and rows"));
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
  const size_t width = slots.empty() ? 0 : rows.size() / slots.size();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0 || slots[i] >= state.shape[0])
      return fail(Code::index_out_of_range, "append: slot {} is outside of [0, {})", static_cast<int64_t>(slots[i]),
                  state.shape[0]);
    std::copy_n(rows.begin() + static_cast<ptrdiff_t>(i * width), width,
                to.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(slots[i]) * width));
  }
  e.out(std::move(state));
  return {};
}

Status eval_append(Eval& e) { return e.in(0).dtype == DType::i8 ? append_rows<Int>(e) : append_rows<double>(e); }

}  // namespace

constinit const OpDef append_op = {
    .name = "append",
    .doc = "The state with rows written at slots along its first axis, rounded to its type; consumes the state.",
    .signature = "state[S, *D], rows[N, *D], slots[N] -> y[S, *D]",
    .types = "state, y: float|i8; rows: float|i8; slots: index",
    .infer = infer_append,
    .reference = eval_append,
};

}  // namespace tessera::ops
