// attention: scaled dot-product attention with grouped heads.
#include "ops/attention.h"

#include <limits>

#include "base/result.h"

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
  X s = reshape(dot(grouped, cast(k, q.dtype())), {batch, heads, rows, keys}) * scale;
  return softcap == 0 ? s : softcap * tanh(s / softcap);
}

X attention_mask(X scores, X mask, double fill) {
  if (!mask || !scores) return scores;
  return mask.dtype() == DType::boolean ? select(mask, scores, like(scores, fill))
                                        : scores + cast(mask, scores.dtype());
}

X attention_band(X scores, const Band& band) {
  if (!scores || (!band.high && !band.low && !band.lengths)) return scores;
  Builder& b = *scores.builder;
  Dim rows = scores.dim(-2), keys = scores.dim(-1);
  Shape square = {1, 1, rows, keys};
  X row = iota(b, square, 2, DType::i64), column = iota(b, square, 3, DType::i64);
  X visible{&b, kNoValue};
  const auto also = [&](X condition) { visible = visible ? logical_and(visible, condition) : condition; };
  if (band.lengths) {
    X lengths = min(max(cast(band.lengths, DType::i64), b.integer(0)), b.size(keys));
    lengths = reshape(lengths, {band.lengths.dim(0), 1, 1, 1});
    also(less(column, lengths));
    row = row + lengths - b.size(rows);
  }
  if (band.high) also(less_equal(column, row + b.size(*band.high)));
  if (band.low) also(less_equal(row + b.size(*band.low), column));
  return attention_mask(scores, visible, band.fill);
}

X attention_weights(X scores, X sinks) {
  X infinite = like(scores, -std::numeric_limits<double>::infinity());
  X top = reduce_max(scores, {-1});
  X sink = sinks ? cast(reshape(sinks, {1, sinks.dim(0), 1, 1}), scores.dtype()) : sinks;
  if (sink) top = max(top, sink);
  // A row without a visible key has no largest score, and weighs nothing.
  X shift = select(equal(top, infinite), like(scores, 0), top);
  X e = exp(scores - shift);
  X total = sum(e, {-1});
  if (sink) total = total + exp(sink - shift);
  return e / select(equal(total, like(scores, 0)), like(scores, 1), total);
}

X attention_output(X weights, X v) {
  Dim batch = weights.dim(0), heads = weights.dim(1), rows = weights.dim(2), keys = weights.dim(3), groups = v.dim(1);
  std::optional<Dim> repeat = heads == groups ? std::optional<Dim>(1)
                              : heads.is_const() && groups.is_const()
                                  ? std::optional<Dim>(heads.value() / groups.value())
                                  : v.builder->dims().exact_div(heads, groups);
  X grouped = reshape(weights, {batch, groups, *repeat * rows, keys});
  return reshape(matmul(grouped, cast(v, weights.dtype())), {batch, heads, rows, v.dim(3)});
}

}  // namespace tessera::ir

namespace tessera::ops {

using ir::A;
using ir::OpDef;
using ir::Opt;
using ir::X;

namespace {

// A mask has the scores' size or 1 along each axis: it does not make them more.
Status check_mask(ir::Infer& infer, int operand, const Shape& scores, std::string_view what) {
  if (!infer.has(operand)) return {};
  const Shape& mask = infer.shape(operand);
  if (mask.size() > scores.size())
    return fail(Code::rank_mismatch, "attention: {} has {} axes but scores have 4", what, mask.size());
  for (size_t i = 0; i < mask.size(); ++i)
    if (!mask[i].is(1)) TESSERA_TRY(infer.require_equal(mask[i], scores[scores.size() - mask.size() + i], what));
  return {};
}

Status infer_attention(ir::Infer& infer) {
  const Shape &q = infer.shape(0), &k = infer.shape(1), &v = infer.shape(2);
  const Shape scores = {q[0], q[1], q[2], k[2]};
  TESSERA_TRY(check_mask(infer, 3, scores, "the sizes of mask and scores"));
  TESSERA_TRY(check_mask(infer, 4, scores, "the sizes of bias and scores"));
  if (infer.has(6) != infer.has(7))
    return fail(Code::arity, "attention: {} is given without {}", infer.has(6) ? "q_segments" : "k_segments",
                infer.has(6) ? "k_segments" : "q_segments");
  for (std::string_view name : {"causal", "window"})
    if (infer.attrs.dims(name).size() > 1)
      return fail(Code::attribute_invalid, "attention: {} has {} sizes but must have at most one", name,
                  infer.attrs.dims(name).size());
  if (infer.attrs.flag("joined")) {
    infer.result(infer.dtype(0), {q[0], q[2], q[1], v[3]});
  } else {
    infer.result(infer.dtype(0), {q[0], q[1], q[2], v[3]});
  }
  return {};
}

}  // namespace

constinit const OpDef attention_op = {
    .name = "attention",
    .doc =
        "softmax(mask(softcap(scale q k^T) + bias)) v over heads; each of G key heads serves H/G query heads. mask and "
        "bias broadcast to [B, H, T, S]; a mask hides (bool) or is added. causal = [o]: query i sees keys up to i + o; "
        "window = [w]: from i + w on; lengths: the first lengths[b] keys, and i then counts from lengths[b] - T, so "
        "that the queries are the last tokens; segments: keys of its own segment. What is hidden scores `fill`, as a "
        "rule -inf, and a mask that is added is added to that as well; a row of -inf is 0. sinks [H] are scores of a "
        "key without a value. "
        "joined: y is [B, T, H, E]. "
        "Vaswani et al. 2017; Ainslie et al. 2023; Xiao et al. 2023.",
    .signature =
        "q[B, H, T, D], k[B, G, S, D], v[B, G, S, E], mask?[*M], bias?[*N], lengths?[B], q_segments?[B|1, T], "
        "k_segments?[B|1, S], sinks?[H] -> y[B, H, T, E]",
    .types =
        "q, y: float; k, v: float; mask: any; each bias, sinks: float; each lengths, q_segments, k_segments: index",
    .attrs = {ir::real_attr("scale"), ir::dims_attr("causal"), ir::real_attr("softcap", 0), ir::dims_attr("window"),
              ir::real_attr("fill", -std::numeric_limits<double>::infinity()), ir::bool_attr("joined", false)},
    .infer = infer_attention,
    .meaning =
        [](X q, X k, X v, Opt mask, Opt bias, Opt lengths, Opt q_segments, Opt k_segments, Opt sinks, A a) {
          const double fill = a["fill"];
          X s = attention_scores(q, k, a["scale"], a["softcap"]);
          const bool hides = mask && mask.dtype() == DType::boolean;
          s = attention_mask(s, bias, fill);
          if (hides) s = attention_mask(s, mask, fill);
          const Shape &causal = a["causal"], &window = a["window"];
          ir::Band band{.lengths = lengths, .fill = fill};
          if (!causal.empty()) band.high = causal[0];
          if (!window.empty()) band.low = window[0];
          s = attention_band(s, band);
          if (q_segments && k_segments)
            s = attention_mask(
                s,
                equal(unsqueeze(cast(q_segments, DType::i64), {1, 3}), unsqueeze(cast(k_segments, DType::i64), {1, 2})),
                fill);
          if (!hides) s = attention_mask(s, mask, fill);
          X y = attention_output(attention_weights(s, sinks), v);
          return a.flag("joined") ? transpose(y, {0, 2, 1, 3}) : y;
        },
};

}  // namespace tessera::ops
