// Attention and its relatives: FlexAttention, LinearAttention, CausalConvWithState, RotaryEmbedding.
#include "ops/attention.h"

#include <cmath>
#include <limits>

#include "import/onnx/importer.h"
#include "import/onnx/onnx_ops.h"
#include "import/onnx/ops/heads.h"

namespace tessera::onnx {
using ir::concat;
using ir::reshape;

Result<X> split_heads(NodeImport& n, X x, int64_t heads, std::string_view which) {
  if (heads < 1) return n.fail(Code::attribute_invalid, "{} is {} for inputs of 3 axes", which, heads);
  Dim width = x.dim(2);
  std::optional<Dim> each =
      width.is_const() ? (width.value() % heads == 0 ? std::optional<Dim>(width.value() / heads) : std::nullopt)
                       : n.b.dims().exact_div(width, heads);
  if (!each) return n.fail(Code::shape_mismatch, "{} columns do not split into {} heads", to_string(width), heads);
  return transpose(reshape(x, {x.dim(0), x.dim(1), heads, *each}), {0, 2, 1, 3});
}

X join_heads(X x) {
  if (!x) return x;
  Dim batch = x.dim(0), rows = x.dim(2), width = x.dim(1) * x.dim(3);
  return reshape(transpose(x, {0, 2, 1, 3}), {batch, rows, width});
}

X rotated(X x, X c, X s, Dim half, bool interleaved) {
  if (!x || !c || !s) return {x.builder, ir::kNoValue};
  X a = interleaved ? slice(x, 3, 0, half, 2) : slice(x, 3, 0, half);
  X b = interleaved ? slice(x, 3, 1, half, 2) : slice(x, 3, half, half);
  X real = c * a - s * b, imaginary = s * a + c * b;
  X y = interleaved ? reshape(concat({unsqueeze(real, {4}), unsqueeze(imaginary, {4})}, 4),
                              {x.dim(0), x.dim(1), x.dim(2), 2 * half})
                    : concat({real, imaginary}, 3);
  const Dim size = x.dim(3);
  return size == 2 * half ? y : concat({y, slice(x, 3, 2 * half, size - 2 * half)}, 3);
}

namespace {

// A mask for fewer keys than there are hides the others.
X pad_mask(NodeImport& n, X mask, Dim keys) {
  if (!mask || mask.rank() == 0 || mask.dim(-1) == keys || mask.dim(-1).is(1)) return mask;
  Shape low(static_cast<size_t>(mask.rank()), Dim(0)), high = low;
  high.back() = keys - mask.dim(-1);
  if (high.back().is_const() && high.back().value() < 0) return mask;
  bool boolean = mask.dtype() == DType::boolean;
  X hidden = boolean ? n.b.integer(0, DType::boolean) : like(mask, -std::numeric_limits<double>::infinity());
  return pad(mask, low, high, hidden);
}

// Hides keys at and past each example's length: adds to a mask of either kind.
X with_lengths(NodeImport& n, X mask, X lengths, Dim batch, Dim keys) {
  X visible = less(iota(n.b, {1, 1, 1, keys}, 3, DType::i64), reshape(cast(lengths, DType::i64), {batch, 1, 1, 1}));
  if (!mask) return visible;
  if (mask.dtype() == DType::boolean) return logical_and(mask, visible);
  return select(visible, mask, like(mask, -std::numeric_limits<double>::infinity()));
}

double default_scale(NodeImport& n, X q, bool& known) {
  known = true;
  if (n.has_attribute("scale")) return n.real("scale", 1);
  known = q.dim(3).is_const();
  return known ? 1 / std::sqrt(static_cast<double>(q.dim(3).value())) : 1;
}

}  // namespace

// Versions 23 and 24. Scores are scaled, capped, masked, and turned to weights in this order.
Status import_attention(NodeImport& n) {
  X q = n.need(0), k = n.need(1), v = n.need(2);
  TESSERA_TRY(n.b.status());
  bool flat = q.rank() == 3;
  if ((q.rank() != 3 && q.rank() != 4) || k.rank() != q.rank() || v.rank() != q.rank())
    return n.fail(Code::rank_mismatch, "Q, K and V have {}, {} and {} axes but must all have 3 or 4", q.rank(),
                  k.rank(), v.rank());
  if (flat) {
    int64_t heads = n.integer("q_num_heads", 0), groups = n.integer("kv_num_heads", 0);
    TESSERA_ASSIGN(q, split_heads(n, q, heads, "q_num_heads"));
    TESSERA_ASSIGN(k, split_heads(n, k, groups, "kv_num_heads"));
    TESSERA_ASSIGN(v, split_heads(n, v, groups, "kv_num_heads"));
  }
  Dim past = 0;
  if (X past_key = n.in(4), past_value = n.in(5); past_key && past_value) {
    past = past_key.dim(2);
    k = concat({past_key, k}, 2);
    v = concat({past_value, v}, 2);
  }
  TESSERA_TRY(n.b.status());
  n.out(1, k);
  n.out(2, v);
  bool known_scale = true;
  double scale = default_scale(n, q, known_scale);
  if (!known_scale) return n.fail(Code::unsupported_feature, "the head size is only known during the run");
  double softcap = n.real("softcap", 0);
  Dim keys = k.dim(2);
  X mask = pad_mask(n, n.in(3), keys);
  X lengths = n.in(6);
  bool causal = n.integer("is_causal", 0) != 0;
  if (lengths) mask = with_lengths(n, mask, lengths, q.dim(0), keys);
  // With a cache that the caller keeps, the queries are the last ones of each example.
  if (lengths && causal) {
    Shape square = {1, 1, q.dim(2), keys};
    X offset = reshape(cast(lengths, DType::i64), {q.dim(0), 1, 1, 1}) - n.b.size(q.dim(2));
    X sees = less_equal(iota(n.b, square, 3, DType::i64), iota(n.b, square, 2, DType::i64) + offset);
    mask = mask.dtype() == DType::boolean ? logical_and(mask, sees)
                                          : select(sees, mask, like(mask, -std::numeric_limits<double>::infinity()));
    causal = false;
  }
  TESSERA_TRY(n.b.status());
  if (!n.wants(3)) {
    Shape offset = causal ? Shape{past} : Shape{};
    X y = n.b.add1(ops::attention_op, {q, k, v, mask}, {scale, offset, softcap, Shape(), -HUGE_VAL, int64_t{0}});
    n.out(0, flat ? join_heads(y) : y);
    return {};
  }
  // The scores are asked for as well: written out, step by step.
  int64_t mode = n.integer("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3)
    return n.fail(Code::attribute_invalid, "qk_matmul_output_mode is {} but must be 0 to 3", mode);
  X raw = attention_scores(q, k, scale, 0);
  X capped = softcap == 0 ? raw : attention_scores(q, k, scale, softcap);
  X masked = attention_mask(capped, mask);
  if (causal) masked = attention_band(masked, {.high = past});
  X weights = attention_weights(masked);
  X y = attention_output(weights, v);
  n.out(0, flat ? join_heads(y) : y);
  n.out(3, mode == 0 ? raw : mode == 1 ? capped : mode == 2 ? masked : weights);
  return {};
}

// Scores and weights pass through the model's own graphs.
Status import_flex_attention(NodeImport& n) {
  X q = n.need(0), k = n.need(1), v = n.need(2);
  TESSERA_TRY(n.b.status());
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4)
    return n.fail(Code::rank_mismatch, "Q, K and V have {}, {} and {} axes but must have 4", q.rank(), k.rank(),
                  v.rank());
  auto modify = [&](std::string_view name, X x) -> Result<X> {
    if (!n.has_attribute(name)) return x;
    const GraphProto* graph = n.graph(name);
    TESSERA_TRY(n.b.status());
    if (graph->input.size() != 1 || graph->output.size() != 1)
      return n.fail(Code::arity, "{} takes {} inputs and gives {} outputs; both must be one", name, graph->input.size(),
                    graph->output.size());
    Scope scope(n.b, &n.scope);
    scope.opsets = n.scope.opsets;
    scope.depth = n.scope.depth + 1;
    scope.bind(graph->input[0].name, x);
    TESSERA_ASSIGN(Xs results, n.importer.inlined(*graph, scope));
    return results[0];
  };
  bool known_scale = true;
  double scale = default_scale(n, q, known_scale);
  if (!known_scale) return n.fail(Code::unsupported_feature, "the head size is only known during the run");
  DType type = q.dtype();
  // Half precision scores are turned to weights in f32.
  DType inner = bits(type) < 32 ? DType::f32 : type;
  X scores = cast(attention_scores(q, k, scale, 0), inner);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(X modified, modify("score_mod", scores));
  TESSERA_ASSIGN(X weights, modify("prob_mod", attention_weights(modified)));
  n.out(attention_output(cast(weights, type), v));
  return {};
}

// A state [B, G, K, V] that each step decays, corrects (delta rules) and adds k v^T to; the query reads it. Yang et al.
// 2024.
Status import_linear_attention(NodeImport& n) {
  X q = n.need(0), k = n.need(1), v = n.need(2);
  TESSERA_TRY(n.b.status());
  std::string_view rule = n.text("update_rule", "gated_delta");
  bool gated = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear")
    return n.fail(Code::attribute_invalid, "update_rule is '{}' but must be linear, gated, delta or gated_delta", rule);
  int64_t heads = n.integer("q_num_heads", 0), groups = n.integer("kv_num_heads", 0);
  if (q.rank() != 3 || k.rank() != 3 || v.rank() != 3)
    return n.fail(Code::rank_mismatch, "query, key and value must have 3 axes");
  if (heads < 1 || groups < 1 || heads % groups != 0)
    return n.fail(Code::attribute_invalid, "q_num_heads {} is no multiple of kv_num_heads {}", heads, groups);
  DType type = q.dtype(), inner = bits(type) < 32 ? DType::f32 : type;
  // [T, B, heads, D]: steps in front, where scan takes them.
  auto steps = [&](X x, int64_t parts) -> Result<X> {
    TESSERA_ASSIGN(X split, split_heads(n, x, parts, "a number of heads"));
    return cast(transpose(split, {2, 0, 1, 3}), inner);
  };
  TESSERA_ASSIGN(X qs, steps(q, heads));
  TESSERA_ASSIGN(X ks, steps(k, groups));
  TESSERA_ASSIGN(X vs, steps(v, groups));
  Xs sliced = {qs, ks, vs};
  if (gated) {
    TESSERA_ASSIGN(X decay, steps(n.need(4), groups));
    sliced.push_back(decay);
  }
  if (delta) {
    X beta = n.need(5);
    TESSERA_TRY(n.b.status());
    // One number a head, or one for all.
    X shaped = cast(transpose(unsqueeze(beta, {3}), {1, 0, 2, 3}), inner);
    sliced.push_back(shaped);
  }
  TESSERA_TRY(n.b.status());
  Dim batch = q.dim(0), width = ks.dim(3), depth = vs.dim(3);
  X state = n.has(3) ? cast(n.in(3), inner) : broadcast(n.b.scalar(inner, 0), {batch, groups, width, depth});
  double scale = n.real("scale", 0);
  if (scale == 0) {
    if (!width.is_const()) return n.fail(Code::unsupported_feature, "the head size is only known during the run");
    scale = 1 / std::sqrt(static_cast<double>(width.value()));
  }
  TESSERA_TRY(n.b.status());

  ir::Graph region(n.b.graph().shared_context());
  region.name = "step";
  Builder b(region);
  b.set_location(n.b.location());
  X s = b.input(state.type(), "state");
  Xs in;
  for (X x : sliced)
    in.push_back(b.input(b.context().tensor(x.dtype(), Shape(x.shape().begin() + 1, x.shape().end())), ""));
  X qt = in[0], kt = in[1], vt = in[2];  // [B, heads or groups, D]
  if (gated) s = s * unsqueeze(exp(in[3]), {3});
  if (delta) {
    X held = squeeze(matmul(unsqueeze(kt, {2}), s), {2});  // what the state gives for this key
    vt = (vt - held) * in.back();
  }
  s = s + unsqueeze(kt, {3}) * unsqueeze(vt, {2});
  X grouped = reshape(qt, {batch, groups, heads / groups, width});
  X y = reshape(matmul(grouped, s), {batch, heads, depth}) * scale;
  TESSERA_TRY(b.status());
  region.outputs = {s.id, y.id};
  region.output_names = {0, 0};
  Xs operands = {state};
  operands.insert(operands.end(), sliced.begin(), sliced.end());
  std::vector<ir::Graph> regions;
  regions.push_back(std::move(region));
  Xs results = n.b.add(ops::scan_op, operands, {int64_t{1}, static_cast<int64_t>(sliced.size())}, std::move(regions));
  TESSERA_TRY(n.b.status());
  X y_all = transpose(results[1], {1, 0, 2, 3});  // [B, T, heads, V]
  n.out(0, cast(reshape(y_all, {batch, q.dim(1), heads * depth}), type));
  n.out(1, cast(results[0], n.has(3) ? n.in(3).dtype() : type));
  return {};
}

// A depthwise convolution over the last K steps, with the K - 1 steps before the first handed on between calls.
Status import_causal_conv_with_state(NodeImport& n) {
  X x = n.need(0), w = n.need(1);
  TESSERA_TRY(n.b.status());
  if (x.rank() != 3 || w.rank() != 3)
    return n.fail(Code::rank_mismatch, "input and weight have {} and {} axes but must have 3", x.rank(), w.rank());
  Dim before = w.dim(2) - 1, channels = x.dim(1), length = x.dim(2);
  X padded = n.has(3) ? concat({n.in(3), x}, 2) : pad(x, {0, 0, before}, {0, 0, 0});
  TESSERA_TRY(n.b.status());
  // Windows [B, C, L, K] times the channel's taps.
  X windows = n.b.view(padded, ir::window_view(padded.shape(), 2, length, 1, w.dim(2), 1));
  DType type = x.dtype(), inner = bits(type) < 32 ? DType::f32 : type;
  X y = squeeze(sum(cast(windows, inner) * cast(reshape(w, {1, channels, 1, w.dim(2)}), inner), {-1}), {-1});
  if (n.has(2)) y = y + cast(reshape(n.in(2), {1, channels, 1}), inner);
  std::string_view activation = n.text("activation", "none");
  if (activation == "silu" || activation == "swish") {
    y = n.b.add1(ops::silu_op, {y});
  } else if (activation != "none" && !activation.empty()) {
    return n.fail(Code::attribute_invalid, "activation is '{}' but must be none, silu or swish", activation);
  }
  n.out(0, cast(y, type));
  n.out(1, slice(padded, 2, padded.dim(2) - before, before));
  return {};
}

// Pairs of columns turned by the angle of their position. Su et al. 2021.
Status import_rotary_embedding(NodeImport& n) {
  X x = n.need(0), c = n.need(1), s = n.need(2);
  TESSERA_TRY(n.b.status());
  bool flat = x.rank() == 3;
  if (!flat && x.rank() != 4)
    return n.fail(Code::rank_mismatch, "the input has {} axes but must have 3 or 4", x.rank());
  if (flat) {
    TESSERA_ASSIGN(x, split_heads(n, x, n.integer("num_heads", 0), "num_heads"));
  }
  Dim size = x.dim(3), turned = n.integer("rotary_embedding_dim", 0);
  if (turned.is(0)) turned = size;
  std::optional<Dim> half = turned.is_const()
                                ? (turned.value() % 2 == 0 ? std::optional<Dim>(turned.value() / 2) : std::nullopt)
                                : n.b.dims().exact_div(turned, 2);
  if (!half) return n.fail(Code::shape_invalid, "{} columns cannot be turned in pairs", to_string(turned));
  if (n.has(3)) {
    c = gather(c, n.in(3), 0);
    s = gather(s, n.in(3), 0);
  }
  TESSERA_TRY(n.b.status());
  c = unsqueeze(slice(c, -1, 0, *half), {1});  // [B, 1, T, half]
  s = unsqueeze(slice(s, -1, 0, *half), {1});
  X y = rotated(x, c, s, *half, n.integer("interleaved", 0) != 0);
  n.out(flat ? join_heads(y) : y);
  return {};
}

}  // namespace tessera::onnx
