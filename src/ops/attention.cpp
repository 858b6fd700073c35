// attention: scaled dot-product attention with grouped heads.
#include "ops/attention.h"

#include <limits>

namespace tessera::ir {

X attention_scores(X q, X k, double scale, double softcap) {
  // The R query heads of a group stand one after another, so a group's queries are R T rows of one product.
  Dim batch = q.dim(0), heads = q.dim(1), groups = k.dim(1), rows = q.dim(2), keys = k.dim(2);
  std::optional<Dim> repeat =
      heads.is_const() && groups.is_const() && groups.value() > 0 && heads.value() % groups.value() == 0
          ? std::optional<Dim>(heads.value() / groups.value())
      : heads == groups ? std::optional<Dim>(1)
                        : q.builder->dims().exact_div(heads, groups);
  if (!repeat) {
    q.builder->fail_with(fail(Code::shape_mismatch, "attention: {} query heads are no multiple of {} key heads",
                              to_string(heads), to_string(groups))
                             .value());
    return {q.builder, kNoValue};
  }
  X grouped = reshape(q, {batch, groups, *repeat * rows, q.dim(3)});
  X s = reshape(dot(grouped, k), {batch, heads, rows, keys}) * scale;
  return softcap == 0 ? s : softcap * tanh(s / softcap);
}

X attention_mask(X scores, X mask) {
  if (!mask) return scores;
  X hidden = like(scores, -std::numeric_limits<double>::infinity());
  return mask.dtype() == DType::boolean ? select(mask, scores, hidden) : scores + cast(mask, scores.dtype());
}

X attention_causal(X scores, Dim offset) {
  Shape square = {scores.dim(-2), scores.dim(-1)};
  Builder& b = *scores.builder;
  X row = iota(b, square, 0, DType::i64), column = iota(b, square, 1, DType::i64);
  return attention_mask(scores, less_equal(column, row + b.size(offset)));
}

X attention_weights(X scores) {
  X infinite = like(scores, -std::numeric_limits<double>::infinity());
  X top = reduce_max(scores, {-1});
  // A row without a visible key has no largest score, and weighs nothing.
  X shift = select(equal(top, infinite), like(scores, 0), top);
  X e = exp(scores - shift);
  X total = sum(e, {-1});
  return e / select(equal(total, like(scores, 0)), like(scores, 1), total);
}

X attention_output(X weights, X v) {
  Dim batch = weights.dim(0), heads = weights.dim(1), rows = weights.dim(2), keys = weights.dim(3), groups = v.dim(1);
  std::optional<Dim> repeat = heads == groups ? std::optional<Dim>(1)
                              : heads.is_const() && groups.is_const()
                                  ? std::optional<Dim>(heads.value() / groups.value())
                                  : v.builder->dims().exact_div(heads, groups);
  X grouped = reshape(weights, {batch, groups, *repeat * rows, keys});
  return reshape(matmul(grouped, v), {batch, heads, rows, v.dim(3)});
}

}  // namespace tessera::ir

namespace tessera::ops {

using ir::A;
using ir::OpDef;
using ir::Opt;
using ir::X;

constinit const OpDef attention_op = {
    .name = "attention",
    .doc =
        "softmax(mask(softcap(scale q k^T))) v over heads; each of G key heads serves H/G query heads. The mask "
        "broadcasts to "
        "[B, H, T, S] and hides (bool) or is added; with causal = [o], query i sees keys up to i + o. A row that sees "
        "no key is 0. "
        "Vaswani et al. 2017; Ainslie et al. 2023.",
    .signature = "q[B, H, T, D], k[B, G, S, D], v[B, G, S, E], mask?[*M] -> y[B, H, T, E]",
    .types = "q, k, v, y: float; mask: any",
    .attrs = {ir::real_attr("scale"), ir::dims_attr("causal"), ir::real_attr("softcap", 0)},
    .meaning =
        [](X q, X k, X v, Opt mask, A a) {
          X s = attention_mask(attention_scores(q, k, a["scale"], a["softcap"]), mask);
          const Shape& causal = a["causal"];
          if (!causal.empty()) s = attention_causal(s, causal[0]);
          return attention_output(attention_weights(s), v);
        },
};

}  // namespace tessera::ops
