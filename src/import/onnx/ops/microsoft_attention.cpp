// com.microsoft: attention in its forms, and rotary embedding.
#include <cmath>
#include <limits>

#include "import/onnx/onnx_ops.h"
#include "import/onnx/ops/heads.h"
#include "import/onnx/ops/microsoft.h"
#include "ops/attention.h"

namespace tessera::onnx {
using ir::concat;
using ir::reshape;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Attention over heads: q [B, H, T, D], k and v [B, G, S, D], and what is added to the scores; absent: nothing.
struct Attention {
  X q, k, v, mask;
  std::optional<Dim> causal = {};  // the position of the first query among the keys
  double scale = 1, softcap = 0;
};

X plus_mask(X mask, X more) { return mask && more ? mask + more : mask ? mask : more; }

// 0 where visible, else `hidden`, in the type of x.
X additive(X visible, X x, double hidden) { return select(visible, like(x, 0), like(x, hidden)); }

Result<double> scale_of(NodeImport& n, X q) {
  if (const double scale = n.real("scale", 0); scale != 0) return scale;
  if (q.dim(3).is_const()) return 1 / std::sqrt(static_cast<double>(q.dim(3).value()));
  return n.fail(Code::unsupported_feature, "the head size is only known during the run");
}

// The number of heads; E0403.
Result<int64_t> heads_of(NodeImport& n, std::string_view name = "num_heads") {
  const int64_t heads = n.integer(name, 0);
  if (heads >= 1 && heads <= (1 << 20)) return heads;
  return n.fail(Code::attribute_invalid, "attribute '{}' is {} but must be positive", name, heads);
}

// What a mask input of one of its forms adds to the scores of T queries, of which the first is at `past`, and S keys.
Result<X> mask_of(NodeImport& n, X m, const Attention& a, Dim past) {
  if (!m) return m;
  Builder& b = n.b;
  const Dim batch = a.q.dim(0), rows = a.q.dim(2), keys = a.k.dim(2);
  const double filter = n.real("mask_filter_value", -10000);
  X position = iota(b, {1, 1, 1, keys}, 3, DType::i64);
  auto each = [&](X x) { return reshape(cast(x, DType::i64), {batch, 1, 1, 1}); };
  X kept;
  switch (m.rank()) {
    case 1: {
      if (m.dim(0) == batch * 2 && !(m.dim(0) == batch)) {  // ends, then starts
        kept = logical_and(less(position, each(slice(m, 0, 0, batch))),
                           less_equal(each(slice(m, 0, batch, batch)), position));
        break;
      }
      if (m.dim(0).is_const() && batch.is_const() && m.dim(0).value() == 3 * batch.value() + 2)
        return n.fail(Code::unsupported_feature, "a mask of 3 * batch + 2 positions is not supported");
      b.require_equal(m.dim(0), batch);
      kept = less(position, each(m));
      break;
    }
    case 2:
      kept = less(b.integer(0, m.dtype()), unsqueeze(m, {1, 2}));
      break;
    case 3:
      kept = less(b.integer(0, m.dtype()), unsqueeze(m, {1}));
      break;
    case 4:  // of the longest sequence: the rows of these queries, and the columns of these keys
      m = slice(slice(m, 2, past, rows), 3, 0, keys);
      kept = less(b.integer(0, m.dtype()), m);
      break;
    default:
      return n.fail(Code::rank_mismatch, "the mask is {} but must have 1 to 4 axes", to_string(*m.type()));
  }
  TESSERA_TRY(b.status());
  return additive(kept, a.q, filter);
}

// The result [B, T, H D], and the scores or weights when they are asked for.
enum class Scores { raw, weights };
X attend(NodeImport& n, const Attention& a, X* scores = nullptr, Scores which = Scores::raw) {
  if (!n.b.ok()) return a.q;
  if (scores == nullptr) {
    const Shape causal = a.causal ? Shape{*a.causal} : Shape{};
    return join_heads(n.b.add1(ops::attention_op, {a.q, a.k, a.v, a.mask},
                               {a.scale, causal, a.softcap, Shape(), -HUGE_VAL, int64_t{0}}));
  }
  X s = attention_mask(attention_scores(a.q, a.k, a.scale, a.softcap), a.mask);
  if (a.causal) s = attention_band(s, {.high = *a.causal});
  X weights = attention_weights(s);
  *scores = which == Scores::raw ? s : weights;
  return join_heads(attention_output(weights, a.v));
}

// Keys and values behind those of a past [2, B, H, P, D]; the present in the same form.
Status with_past(NodeImport& n, Attention& a, X past, int output) {
  if (past) {
    if (past.rank() != 5)
      return n.fail(Code::rank_mismatch, "the past is {} but must have 5 axes", to_string(*past.type()));
    a.k = concat({squeeze(slice(past, 0, 0, 1), {0}), a.k}, 2);
    a.v = concat({squeeze(slice(past, 0, 1, 1), {0}), a.v}, 2);
  }
  TESSERA_TRY(n.b.status());
  if (n.wants(output)) n.out(output, concat({unsqueeze(a.k, {0}), unsqueeze(a.v, {0})}, 0));
  return n.b.status();
}

// q, k and v side by side, as a projection leaves them: [B, T, sizes].
Result<Attention> attention_of(NodeImport& n, X projected, const std::vector<Dim>& sizes, int64_t heads) {
  Attention a;
  X* const parts[] = {&a.q, &a.k, &a.v};
  Dim at = 0;
  for (size_t i = 0; i < 3; ++i) {
    TESSERA_ASSIGN(*parts[i], split_heads(n, slice(projected, 2, at, sizes[i]), heads, "num_heads"));
    at = at + sizes[i];
  }
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(a.scale, scale_of(n, a.q));
  return a;
}

// Attention and QAttention from their projection on: mask, past and attention bias stand at these inputs.
Status attend_projected(NodeImport& n, X projected, std::vector<Dim> sizes, X mask, X past, X bias) {
  TESSERA_TRY(only_attribute(n, "do_rotary", 0));
  TESSERA_TRY(only_attribute(n, "past_present_share_buffer", 0));
  TESSERA_ASSIGN(int64_t heads, heads_of(n));
  TESSERA_ASSIGN(Attention a, attention_of(n, projected, sizes, heads));
  const Dim before = past && past.rank() == 5 ? past.dim(3) : Dim(0);
  TESSERA_TRY(with_past(n, a, past, 1));
  TESSERA_ASSIGN(a.mask, mask_of(n, mask, a, before));
  a.mask = plus_mask(a.mask, bias);
  if (n.integer("unidirectional", 0) != 0) a.causal = before;
  n.out(0, attend(n, a));
  return {};
}

// A third of the columns each.
std::vector<Dim> thirds(NodeImport& n, Dim columns) {
  const Dim each = floordiv(columns, 3);
  n.b.require_equal(columns, 3 * each);
  return {each, each, each};
}

// The heads of one of MultiHeadAttention's inputs, plus its part [C] of the bias.
Result<X> biased_heads(NodeImport& n, X x, Opt bias, Dim at, int64_t heads) {
  if (bias) x = x + slice(bias, 0, at, x.dim(2));
  return split_heads(n, x, heads, "num_heads");
}

// q, k and v of MultiHeadAttention: apart, keys with values packed, all packed, or keys and values of a cross attention
// in heads already.
Result<Attention> read_heads(NodeImport& n, int64_t heads, Opt bias) {
  X q = n.need(0), k = n.in(1), v = n.in(2);
  TESSERA_TRY(n.b.status());
  Attention a;
  auto packed = [&](X x, int i) { return transpose(squeeze(slice(x, 3, i, 1), {3}), {0, 2, 1, 3}); };
  if (q.rank() == 5) {
    if (k || v) return n.fail(Code::arity, "the query is packed, so key and value must be absent");
    const Dim width = q.dim(2) * q.dim(4);
    X* const parts[] = {&a.q, &a.k, &a.v};
    for (int i = 0; i < 3; ++i) {
      X part = squeeze(slice(q, 3, i, 1), {3});  // [B, T, H, D]
      if (bias) part = part + reshape(slice(bias, 0, width * i, width), {q.dim(2), q.dim(4)});
      *parts[i] = transpose(part, {0, 2, 1, 3});
    }
    return a;
  }
  if (q.rank() != 3)
    return n.fail(Code::rank_mismatch, "the query is {} but must have 3 or 5 axes", to_string(*q.type()));
  if (!k) return n.fail(Code::arity, "input 1 is missing");
  const Dim width = q.dim(2);
  TESSERA_ASSIGN(a.q, biased_heads(n, q, bias, 0, heads));
  if (k.rank() == 5) {
    if (v || bias) return n.fail(Code::arity, "keys and values are packed, so value and bias must be absent");
    a.k = packed(k, 0);
    a.v = packed(k, 1);
  } else if (!v) {
    return n.fail(Code::arity, "input 2 is missing");
  } else if (k.rank() == 4 && v.rank() == 4) {
    a.k = k;
    a.v = v;
  } else if (k.rank() == 3 && v.rank() == 3) {
    TESSERA_ASSIGN(a.k, biased_heads(n, k, bias, width, heads));
    TESSERA_ASSIGN(a.v, biased_heads(n, v, bias, 2 * width, heads));
  } else {
    return n.fail(Code::rank_mismatch, "key and value are {} and {} but must both have 3 or 4 axes",
                  to_string(*k.type()), to_string(*v.type()));
  }
  return a;
}

// The cosines and sines of these positions [B, T] (or one for all, [1]: of the first token), as [B|1, 1, T, half].
struct Angles {
  X c, s;
};
Angles angles_of(X c, X s, X positions, Dim half) {
  auto of = [&](X table) { return unsqueeze(gather(slice(table, -1, 0, half), positions, 0), {1}); };
  return {of(c), of(s)};
}

}  // namespace

Status import_ms_attention(NodeImport& n) {
  X x = n.need(0), w = n.need(1), bias = n.in(2);
  TESSERA_TRY(n.b.status());
  TESSERA_TRY(no_input(n, 6, "past_sequence_length"));
  if (x.rank() != 3 || w.rank() != 2)
    return n.fail(Code::rank_mismatch, "input and weights are {} and {} but must have 3 and 2 axes",
                  to_string(*x.type()), to_string(*w.type()));
  std::vector<Dim> sizes;
  for (int64_t size : n.integers("qkv_hidden_sizes")) sizes.push_back(size);
  if (!sizes.empty() && sizes.size() != 3)
    return n.fail(Code::attribute_invalid, "attribute 'qkv_hidden_sizes' has {} entries but must have 3", sizes.size());
  if (sizes.empty()) {
    sizes = thirds(n, w.dim(1));
  } else {
    n.b.require_equal(w.dim(1), sizes[0] + sizes[1] + sizes[2]);
  }
  TESSERA_TRY(n.b.status());
  return attend_projected(n, n.b.add1(ops::linear_op, {x, swap_axes(w, 0, 1), bias}), sizes, n.in(3), n.in(4), n.in(5));
}

Status import_ms_qattention(NodeImport& n) {
  X x = n.need(0), w = n.need(1), bias = n.need(2);
  const Quantized a{x, n.need(3), n.in(6)}, b{w, n.need(4), n.in(7)};
  TESSERA_TRY(n.b.status());
  if (x.rank() != 3 || w.rank() != 2)
    return n.fail(Code::rank_mismatch, "input and weights are {} and {} but must have 3 and 2 axes",
                  to_string(*x.type()), to_string(*w.type()));
  TESSERA_ASSIGN(X projected, dequantized_product(n, a, b, bias));
  return attend_projected(n, projected, thirds(n, w.dim(1)), n.in(5), n.in(8), {});
}

Status import_ms_multi_head_attention(NodeImport& n) {
  TESSERA_TRY(no_input(n, 8, "past_sequence_length"));
  TESSERA_TRY(no_input(n, 9, "cache_indirection"));
  TESSERA_ASSIGN(int64_t heads, heads_of(n));
  TESSERA_ASSIGN(Attention a, read_heads(n, heads, n.in(3)));
  X past_key = n.in(6), past_value = n.in(7);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(a.scale, scale_of(n, a.q));
  Dim before = 0;
  if (past_key && past_value) {
    before = past_key.dim(2);
    a.k = concat({past_key, a.k}, 2);
    a.v = concat({past_value, a.v}, 2);
  }
  TESSERA_TRY(n.b.status());
  n.out(1, a.k);
  n.out(2, a.v);
  TESSERA_ASSIGN(a.mask, mask_of(n, n.in(4), a, before));
  a.mask = plus_mask(a.mask, n.in(5));
  if (n.integer("unidirectional", 0) != 0) a.causal = before;
  X scores;
  n.out(0, attend(n, a, n.wants(3) ? &scores : nullptr));
  TESSERA_TRY(n.b.status());
  if (n.wants(3)) n.out(3, scores);
  return {};
}

// One query a sequence, whose keys and values stand behind those of the past.
Status import_ms_decoder_attention(NodeImport& n) {
  TESSERA_TRY(only_attribute(n, "past_present_share_buffer", 0));
  TESSERA_TRY(only_attribute(n, "output_qk", 0));
  for (int i : {7, 8, 9}) TESSERA_TRY(no_input(n, i, "past_sequence_length, beam_width or cache_indirection"));
  TESSERA_TRY(no_output(n, 3, "qk"));
  X q = n.need(0), k = n.in(1), v = n.in(2), bias = n.in(10), past_key = n.in(5), past_value = n.in(6);
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(int64_t heads, heads_of(n));
  Attention a;
  if (!k && !v) {
    if (q.rank() != 3) return n.fail(Code::rank_mismatch, "the query is {} but must have 3 axes", to_string(*q.type()));
    TESSERA_ASSIGN(a, attention_of(n, bias ? q + bias : q, thirds(n, q.dim(2)), heads));
  } else {
    TESSERA_ASSIGN(a, read_heads(n, heads, bias));
    TESSERA_ASSIGN(a.scale, scale_of(n, a.q));
  }
  Dim before = 0;
  if (past_key && past_value) {
    before = past_key.dim(2);
    a.k = concat({past_key, a.k}, 2);
    a.v = concat({past_value, a.v}, 2);
  }
  TESSERA_TRY(n.b.status());
  n.out(1, a.k);
  n.out(2, a.v);
  TESSERA_ASSIGN(a.mask, mask_of(n, n.in(3), a, before));
  a.mask = plus_mask(a.mask, n.in(4));
  n.out(0, attend(n, a));
  return {};
}

// x [B, T, H D] or [B, H, T, D]; without num_heads the tables tell the head size.
Status import_ms_rotary_embedding(NodeImport& n) {
  TESSERA_TRY(only_attribute(n, "is_packed_batching", 0));
  X x = n.need(0), positions = n.need(1), c = n.need(2), s = n.need(3);
  TESSERA_TRY(n.b.status());
  if ((x.rank() != 3 && x.rank() != 4) || c.rank() != 2 || s.rank() != 2)
    return n.fail(Code::rank_mismatch, "the input has {} axes but must have 3 or 4, and the tables 2", x.rank());
  const bool flat = x.rank() == 3;
  const int64_t turned = n.integer("rotary_embedding_dim", 0);
  if (turned < 0 || turned % 2 != 0)
    return n.fail(Code::attribute_invalid, "attribute 'rotary_embedding_dim' is {} but must be even", turned);
  const Dim half = turned > 0 ? Dim(turned / 2) : c.dim(1);
  if (flat) {
    int64_t heads = n.integer("num_heads", 0);
    if (heads == 0) {
      if (turned > 0) return n.fail(Code::attribute_invalid, "'rotary_embedding_dim' needs 'num_heads'");
      if (!x.dim(2).is_const() || !half.is_const() || half.is(0))
        return n.fail(Code::unsupported_feature, "the head size is only known during the run");
      heads = x.dim(2).value() / (2 * half.value());
    }
    TESSERA_ASSIGN(x, split_heads(n, x, heads, "num_heads"));
  }
  TESSERA_TRY(n.b.status());
  if (positions.rank() == 1) {
    n.b.require_equal(positions.dim(0), 1);
    positions = unsqueeze(iota(n.b, {x.dim(2)}, 0, DType::i64) + cast(positions, DType::i64), {0});
  }
  const Angles angles = angles_of(c, s, positions, half);
  X y = rotated(x, angles.c, angles.s, half, n.integer("interleaved", 0) != 0);
  TESSERA_TRY(n.b.status());
  n.out(flat ? join_heads(y) : y);
  return {};
}

namespace {

// The keys that query t of example b sees among S: up to its own position start[b] + t, at most `window` of them.
X visible_keys(NodeImport& n, X start, Dim rows, Dim keys, int64_t window, bool causal, X lengths) {
  X column = iota(n.b, {1, 1, rows, keys}, 3, DType::i64);
  if (!causal) return less(column, lengths);
  X own = iota(n.b, {1, 1, rows, keys}, 2, DType::i64) + start;
  X sees = less_equal(column, own);
  return window > 0 ? logical_and(sees, less(own - n.b.integer(window), column)) : sees;
}

// x [B, G, T, D] in its place, from start[b] on, behind as much of the cache [B, G, P, D]; `total` rows, the rest 0.
X cached(NodeImport& n, Opt past, X x, X start, Dim total) {
  const Dim rows = x.dim(2);
  if (!past) return x.dim(2) == total ? x : pad(x, {0, 0, 0, 0}, {0, 0, total - rows, 0});
  X position = iota(n.b, {1, 1, total, 1}, 2, DType::i64) - start;  // among the new rows; [B, 1, total, 1]
  X row = min(max(position, n.b.integer(0)), n.b.size(rows - 1));
  const Shape shape = {x.dim(0), x.dim(1), total, x.dim(3)};
  X placed = n.b.add1(ops::gather_elements_op, {x, broadcast(row, shape)}, {int64_t{2}});
  X kept = pad(past, {0, 0, 0, 0}, {0, 0, total - past.dim(2), 0});
  return select(less(position, n.b.integer(0)), kept, select(less(position, n.b.size(rows)), placed, like(x, 0)));
}

Status refuse_group_query_forms(NodeImport& n) {
  for (std::string_view name : {"k_quant_type", "v_quant_type"})
    if (const std::string_view type = n.text(name, "NONE"); type != "NONE" && !type.empty())
      return n.fail(Code::unsupported_feature, "attribute '{}' is '{}', but only NONE is supported", name, type);
  TESSERA_TRY(only_attribute(n, "sliding_window_cache", 0));
  TESSERA_TRY(no_input(n, 12, "k_scale"));
  return no_input(n, 13, "v_scale");
}

}  // namespace

// Queries of H heads over G heads of keys and values, which go into a cache; each example has a length of its own.
Status import_ms_group_query_attention(NodeImport& n) {
  TESSERA_TRY(refuse_group_query_forms(n));
  X q = n.need(0), k = n.in(1), v = n.in(2), past_key = n.in(3), past_value = n.in(4), last = n.need(5);
  X bias = n.in(10), sink = n.in(11), q_norm = n.in(14), k_norm = n.in(15);
  TESSERA_ASSIGN(int64_t heads, heads_of(n));
  TESSERA_ASSIGN(int64_t groups, heads_of(n, "kv_num_heads"));
  TESSERA_TRY(n.b.status());
  if (q.rank() != 3 || (k && k.rank() != 3) || (v && v.rank() != 3))
    return n.fail(Code::rank_mismatch, "query, key and value must have 3 axes");
  if (static_cast<bool>(k) != static_cast<bool>(v)) return n.fail(Code::arity, "key and value go together");
  const Shape* total_size = n.sizes(6);
  if (total_size == nullptr || total_size->size() != 1) return n.value_unknown(6);
  const Dim total = (*total_size)[0], rows = q.dim(1), batch = q.dim(0);
  if (!k) {
    const Dim size = floordiv(q.dim(2), heads + 2 * groups);
    n.b.require_equal(q.dim(2), size * (heads + 2 * groups));
    k = slice(q, 2, size * heads, size * groups);
    v = slice(q, 2, size * (heads + groups), size * groups);
    q = slice(q, 2, 0, size * heads);
  }
  TESSERA_TRY(n.b.status());
  Attention a;
  TESSERA_ASSIGN(a.q, split_heads(n, q, heads, "num_heads"));
  TESSERA_ASSIGN(a.k, split_heads(n, k, groups, "kv_num_heads"));
  TESSERA_ASSIGN(a.v, split_heads(n, v, groups, "kv_num_heads"));
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(a.scale, scale_of(n, a.q));
  a.softcap = n.real("softcap", 0);
  if (q_norm && k_norm) {
    const double eps = n.real("qk_norm_epsilon", 1e-6);
    a.q = n.b.add1(ops::rms_norm_op, {a.q, q_norm}, {int64_t{1}, eps});
    a.k = n.b.add1(ops::rms_norm_op, {a.k, k_norm}, {int64_t{1}, eps});
  }
  // A first call's tokens start at 0, even where the sequence is shorter than the longest; later ones end it.
  const bool prompt = rows == total;
  X lengths = reshape(cast(last, DType::i64), {batch, 1, 1, 1}) + n.b.integer(1);
  X later = lengths - n.b.size(rows);
  X start = prompt ? n.b.integer(0)
                   : select(equal(n.b.size(rows), n.b.size(total)), broadcast(n.b.integer(0), {batch, 1, 1, 1}), later);
  if (n.integer("do_rotary", 0) != 0) {
    X c = n.need(7), s = n.need(8), positions = n.in(9);
    TESSERA_TRY(n.b.status());
    const Dim half = c.dim(-1);
    if (!positions) {
      X first = prompt ? broadcast(n.b.integer(0), {1, 1}) : reshape(start, {batch, 1});
      positions = iota(n.b, {1, rows}, 1, DType::i64) + first;
    }
    const Angles angles = angles_of(c, s, positions, half);
    const bool interleaved = n.integer("rotary_interleaved", 0) != 0;
    a.q = rotated(a.q, angles.c, angles.s, half, interleaved);
    a.k = rotated(a.k, angles.c, angles.s, half, interleaved);
  }
  TESSERA_TRY(n.b.status());
  const Dim capacity = past_key ? max(past_key.dim(2), total) : total;
  // One example is as long as the longest: what is new stands behind the past.
  const bool appends = past_key && past_value && batch.is(1) && past_key.dim(2) + rows == total;
  a.k = appends ? concat({past_key, a.k}, 2) : cached(n, past_key, a.k, start, capacity);
  a.v = appends ? concat({past_value, a.v}, 2) : cached(n, past_value, a.v, start, capacity);
  TESSERA_TRY(n.b.status());
  n.out(1, a.k);
  n.out(2, a.v);
  if (!(capacity == total)) {  // a cache that has room for more
    a.k = slice(a.k, 2, 0, total);
    a.v = slice(a.v, 2, 0, total);
  }
  const int64_t window = n.integer("local_window_size", -1);
  const bool causal = n.integer("causal", 1) != 0;
  const bool smooth = sink || n.integer("smooth_softmax", 0) == 1;
  if (causal && (prompt || appends) && window <= 0 && !smooth) {
    a.mask = bias;
    a.causal = appends ? past_key.dim(2) : Dim(0);
  } else {
    X visible = visible_keys(n, start, rows, total, window, causal, lengths);
    a.mask = bias || smooth ? plus_mask(additive(visible, a.q, -kInfinity), bias) : visible;
  }
  if (smooth) {
    // One key more, of zeros, that adds e^sink to the softmax's sum and nothing to its result.
    const Shape none(4, 0), one = {0, 0, 1, 0};
    a.k = pad(a.k, none, one);
    a.v = pad(a.v, none, one);
    X extra = sink ? reshape(cast(sink, a.q.dtype()), {1, heads, 1, 1}) : like(a.q, 0);
    Shape of_mask = a.mask.shape();
    of_mask[1] = heads;
    X mask = broadcast(a.mask, of_mask);
    of_mask[3] = 1;
    a.mask = concat({mask, broadcast(extra, of_mask)}, 3);
  }
  const int64_t output = n.integer("qk_output", 0);
  X scores;
  const bool wanted = n.wants(3) && output != 0;
  n.out(0, attend(n, a, wanted ? &scores : nullptr, output == 2 ? Scores::weights : Scores::raw));
  TESSERA_TRY(n.b.status());
  if (!wanted) return {};
  if (smooth) scores = slice(scores, 3, 0, total);
  n.out(3, select(equal(scores, like(scores, -kInfinity)), like(scores, 0), scores));  // hidden ones are told as 0
  return {};
}

}  // namespace tessera::onnx
