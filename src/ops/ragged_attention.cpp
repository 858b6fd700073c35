// ragged_attention: attention of several sequences that lie one after another, over their own rows or over pages.
// How pages lie in memory is said here and in append (state.cpp), and nowhere else.
#include "base/result.h"
#include "ops/attention.h"

namespace tessera::ops {
namespace {

using ir::A;
using ir::Infer;
using ir::OpDef;
using ir::Opt;
using ir::X;

Status infer_ragged(Infer& infer) {
  const Shape &q = infer.shape(0), &v = infer.shape(2);
  if (infer.has(4) != infer.has(5))
    return fail(Code::arity, "ragged_attention: {} is given without {}", infer.has(4) ? "table" : "lengths",
                infer.has(4) ? "lengths" : "table");
  if (!infer.has(4)) {
    TESSERA_TRY(infer.require_equal(q[0], v[0], "the rows of q and v"));
    TESSERA_TRY(infer.require_equal(v[2], 1, "the rows of a page without a table"));
  }
  if (infer.has(4)) TESSERA_TRY(infer.require_equal(infer.shape(4)[0] + 1, infer.shape(3)[0], "sequences and starts"));
  for (int i : {1, 2})
    if ((infer.dtype(i) == DType::i8) != infer.has(i + 6))
      return fail(Code::dtype_mismatch, "ragged_attention: {} of {} {} scales", i == 1 ? "keys" : "values",
                  name(infer.dtype(i)), infer.has(i + 6) ? "with" : "without");
  infer.result(infer.dtype(0), {q[0], q[1], v[3]});
  return {};
}

// Where keys stand, as far as query rows are concerned: all [N, S] or [1, S].
struct Keys {
  X k, v;         // [S, G, D], [S, G, E]
  X owner;        // the sequence of each key [1, S]
  X place;        // its place in that sequence [1, S]
  X query_place;  // [N, 1]
};

Keys own_rows(X k, X v, X owner, X row) {
  return {k, v, reshape(owner, {1, owner.dim(0)}), reshape(row, {1, row.dim(0)}), row};
}

Keys paged(X k, X v, X table, X lengths, X owner, X row, X ends, Dim page) {
  ir::Builder& b = *k.builder;
  Dim sequences = table.dim(0), pages = table.dim(1), keys = sequences * pages * page;
  X slots = unsqueeze(cast(table, DType::i64), {2}) * b.size(page) + iota(b, {1, 1, page}, 2, DType::i64);
  slots = reshape(slots, {keys});
  const Shape grid = {sequences, pages * page};
  X behind = gather(cast(lengths, DType::i64) - ends, owner, 0);  // [N, 1]
  return {gather(k, slots, 0), gather(v, slots, 0), reshape(iota(b, grid, 0, DType::i64), {1, keys}),
          reshape(iota(b, grid, 1, DType::i64), {1, keys}), row + behind};
}

X attend(X q, X k, X v, X starts, X table, X lengths, X bias, const A& a) {
  ir::Builder& b = *q.builder;
  Dim rows = q.dim(0), sequences = starts.dim(0) - 1;
  X ends = slice(cast(starts, DType::i64), 0, 1, sequences);
  X row = iota(b, {rows, 1}, 0, DType::i64);
  X owner = sum(cast(less_equal(unsqueeze(ends, {0}), row), DType::i64), {1});  // [N, 1]
  const auto tokens = [](X x) {                                                 // [P, G, R, D] -> [P R, G, D]
    return reshape(transpose(x, {0, 2, 1, 3}), {x.dim(0) * x.dim(2), x.dim(1), x.dim(3)});
  };
  const Dim page = k.dim(2);
  k = tokens(k);
  v = tokens(v);
  Keys keys = table ? paged(k, v, table, lengths, owner, row, ends, page) : own_rows(k, v, owner, row);
  X ahead = keys.place - keys.query_place;  // [N, S]
  X visible = equal(owner, keys.owner);
  if (a.integer("left") >= 0) visible = logical_and(visible, less_equal(b.integer(-a.integer("left")), ahead));
  if (a.integer("right") >= 0) visible = logical_and(visible, less_equal(ahead, b.integer(a["right"])));
  if (table) visible = logical_and(visible, less(keys.place, gather(cast(lengths, DType::i64), keys.owner, 0)));
  const auto heads = [](X x) { return unsqueeze(transpose(x, {1, 0, 2}), {0}); };
  X scores = attention_scores(heads(q), heads(cast(keys.k, q.dtype())), a["scale"], a["softcap"]);
  if (bias) {
    Dim middle = floordiv(bias.dim(1), 2);
    X at = min(max(ahead + b.size(middle), b.integer(0)), b.size(bias.dim(1) - 1));
    scores = scores + unsqueeze(gather(bias, at, 1), {0});
  }
  X y = attention_output(attention_weights(attention_mask(scores, visible)), heads(cast(keys.v, q.dtype())));
  return transpose(squeeze(y, {0}), {1, 0, 2});
}

}  // namespace

constinit const OpDef ragged_attention_op = {
    .name = "ragged_attention",
    .doc =
        "Attention of sequences of any lengths: rows starts[b] to starts[b + 1] are the queries of sequence b. k and v "
        "are P pages of R rows for each group, as append writes them. Without a table R is 1, and page i belongs to "
        "query row i; with one, a sequence has lengths[b] tokens, the queries' own the last, token t being row t mod R "
        "of page table[b, t / R]. A query sees keys at most `left` tokens before and `right` after it (-1: all). "
        "bias[h, j - i + L / 2] is added to the scaled and capped score of key j for query i, the index clipped. Keys "
        "and values of i8 are multiplied by the scale of their row and group. Kwon et al. 2023.",
    .signature =
        "q[N, H, D], k[P, G, R, D], v[P, G, R, E], starts[C], table?[B, W], lengths?[B], bias?[H, L], "
        "k_scale?[P, G, R, 1], v_scale?[P, G, R, 1] -> y[N, H, E]",
    .types = "q, bias, y: float; k, v: float|i8; k_scale, v_scale: f32; starts, table, lengths: index",
    .attrs = {ir::real_attr("scale"), ir::real_attr("softcap", 0), ir::int_attr("left", -1), ir::int_attr("right", -1)},
    .infer = infer_ragged,
    .meaning =
        [](X q, X k, X v, X starts, Opt table, Opt lengths, Opt bias, Opt k_scale, Opt v_scale, A a) {
          if (k_scale) k = cast(k, DType::f32) * k_scale;
          if (v_scale) v = cast(v, DType::f32) * v_scale;
          return attend(q, k, v, starts, table, lengths, bias, a);
        },
};

}  // namespace tessera::ops
