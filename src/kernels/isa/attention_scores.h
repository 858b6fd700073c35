// The operands of an attention call, and which keys a query sees.
#pragma once

#include "kernels/abi.h"
#include "kernels/isa/attention_tile.h"

namespace {

// e^(s - top) is 2^((s - top) log2 e). Scores stay as they are: large ones times log2 e would lose their differences.
constexpr float kLog2e = 1.44269504f;

// An operand that broadcasts to [B, H, T, S].
struct Mask {
  const void* data = nullptr;  // null: absent
  uint8_t type = 0;
  int64_t stride[4] = {0, 0, 0, 0};
};

struct Attention {
  int64_t batch, heads, groups, queries, keys, depth, width;  // B, H, G, T, S, D, E
  tessera::kernels::View q, k, v, lengths, q_segments, k_segments, sinks;
  Mask hides, adds[2];
  Mask late;        // added to what is hidden too
  float scale;      // of q; where there is a cap, the scores come out as shares of it
  float cap, fill;  // a cap of 0 is none
  bool has_high, has_low;
  int64_t high, low;  // query i sees the keys i + low ... i + high
  void* y;
  uint8_t y_type;
  int64_t y_stride[3];  // of batch, head, query

  bool fills() const { return fill != -__builtin_inff(); }
  bool has_rows() const { return hides.data || adds[0].data || adds[1].data || q_segments.present; }
  bool has_late() const { return late.data; }
};

inline Mask mask_of(const tessera::kernels::View& view) {
  Mask mask;
  if (!view.present) return mask;
  mask.data = view.data;
  mask.type = view.type;
  for (int i = 0; i < 4; ++i) {
    const int axis = i - (4 - view.rank);
    mask.stride[i] = axis < 0 || view.shape[axis] == 1 ? 0 : view.stride[axis];
  }
  return mask;
}

// Operands: q, k, v, mask?, bias?, lengths?, q_segments?, k_segments?, sinks?. Attributes: scale, causal, softcap,
// window, fill, joined.
inline Attention attention_of(const tessera::kernels::Args& args) {
  Attention a = {};
  const auto operand = [&](int i) { return i < args.n_in ? args.in[i] : tessera::kernels::View{}; };
  a.q = operand(0);
  a.k = operand(1);
  a.v = operand(2);
  const Mask mask = mask_of(operand(3));
  (mask.type == tessera::kernels::kBool ? a.hides : a.adds[0]) = mask;
  a.adds[1] = mask_of(operand(4));
  a.lengths = operand(5);
  a.q_segments = operand(6);
  a.k_segments = operand(7);
  a.sinks = operand(8);
  a.batch = a.q.shape[0];
  a.heads = a.q.shape[1];
  a.queries = a.q.shape[2];
  a.depth = a.q.shape[3];
  a.groups = a.k.shape[1];
  a.keys = a.k.shape[2];
  a.width = a.v.shape[3];
  const double cap = args.attrs[2].f;
  a.scale = static_cast<float>(cap == 0 ? args.attrs[0].f : args.attrs[0].f / cap);
  a.cap = static_cast<float>(cap);
  a.fill = static_cast<float>(args.attrs[4].f);
  if (a.fills()) {  // nothing shows below -inf
    a.late = a.adds[0];
    a.adds[0] = {};
  }
  a.has_high = args.attrs[1].length > 0;
  a.has_low = args.attrs[3].length > 0;
  // Any reach beyond all queries and keys means the same; inside, differences fit 32 bits.
  const auto bounded = [&](int64_t offset) {
    const int64_t far = a.queries + a.keys;
    return offset < -far ? -far : offset > far ? far : offset;
  };
  a.high = a.has_high ? bounded(args.attrs[1].list[0]) : 0;
  a.low = a.has_low ? bounded(args.attrs[3].list[0]) : 0;
  a.y = args.out[0].data;
  a.y_type = args.out[0].type;
  const bool joined = args.attrs[5].i != 0;  // y [B, T, H, E] instead of [B, H, T, E]
  a.y_stride[0] = a.heads * a.queries * a.width;
  a.y_stride[1] = joined ? a.width : a.queries * a.width;
  a.y_stride[2] = joined ? a.heads * a.width : a.width;
  return a;
}

// The call as if it had the late mask alone.
inline Attention late_of(const Attention& a) {
  Attention late = a;
  late.hides = late.adds[1] = {};
  late.adds[0] = a.late;
  late.q_segments.present = 0;
  return late;
}

// Sums of offsets of up to T + S each stay small.
struct Span {
  int64_t keys;       // those that the batch's length leaves
  int64_t high, low;  // as Attention's, from where this batch's queries stand
};
inline int64_t integer_at(const tessera::kernels::View& view, int64_t at) {
  return view.type == tessera::kernels::kI64 ? static_cast<const int64_t*>(view.data)[at]
                                             : static_cast<const int32_t*>(view.data)[at];
}
inline Span span_of(const Attention& a, int64_t batch) {
  if (!a.lengths.present) return {a.keys, a.high, a.low};
  const int64_t length = integer_at(a.lengths, batch * a.lengths.stride[0]);
  const int64_t keys = length < 0 ? 0 : least(length, a.keys);
  // With a length, the queries are its last tokens.
  const int64_t shift = keys - a.queries;
  return {keys, a.high + shift, a.low + shift};
}
// Keys that any of the queries [first, last] may see.
struct Range {
  int64_t begin, end;
};
inline Range visible_keys(const Attention& a, const Span& span, int64_t first, int64_t last) {
  Range range = {0, span.keys};
  if (a.has_high) range.end = least(range.end, last + span.high + 1);
  if (a.has_low) range.begin = most_of(0, first + span.low);
  range.end = most_of(range.end, range.begin);
  return range;
}

// The bits of a score that is hidden: a NaN that arithmetic does not make.
constexpr int32_t kHiddenBits = 0x7fc0beef;
TESSERA_INLINE float hidden_mark() { return float_of(static_cast<uint32_t>(kHiddenBits)); }

// What the rows of masks say about some keys.
struct RowFacts {
  int64_t hidden = 0;  // keys that this query does not see
  bool plain = true;   // all others are left as they are
};

// What is added to the scores of one query with keys [key, key + n); hidden_mark() where hidden.
TESSERA_OUTLINE RowFacts mask_row(const Attention& a, int64_t batch, int64_t head, int64_t query, int64_t key,
                                  int64_t n, float* out) {
  const auto start = [&](const Mask& m) {
    return batch * m.stride[0] + head * m.stride[1] + query * m.stride[2] + key * m.stride[3];
  };
  RowFacts facts;
  bool any = false;
  for (const Mask& mask : a.adds) {
    if (mask.data == nullptr) continue;
    const int64_t at = start(mask), step = mask.stride[3];
    if (mask.type == tessera::kernels::kF32 && step == 1) {
      const float* row = static_cast<const float*>(mask.data) + at;
      if (any)
        for (int64_t j = 0; j < n; ++j) out[j] += row[j];
      else
        for (int64_t j = 0; j < n; ++j) out[j] = row[j];
    } else {
      for (int64_t j = 0; j < n; ++j) out[j] = (any ? out[j] : 0) + element_f32(mask.data, mask.type, at + j * step);
    }
    any = true;
  }
  if (!any)
    for (int64_t j = 0; j < n; ++j) out[j] = 0;
  const float hidden = hidden_mark();
  if (a.hides.data != nullptr) {
    const uint8_t* row = static_cast<const uint8_t*>(a.hides.data) + start(a.hides);
    const int64_t step = a.hides.stride[3];
    if (step == 1)
      for (int64_t j = 0; j < n; ++j) out[j] = row[j] != 0 ? out[j] : hidden;
    else
      for (int64_t j = 0; j < n; ++j) out[j] = row[j * step] != 0 ? out[j] : hidden;
  }
  if (a.q_segments.present) {
    const auto& qs = a.q_segments;
    const auto& ks = a.k_segments;
    const int64_t mine = integer_at(qs, (qs.shape[0] == 1 ? 0 : batch * qs.stride[0]) + query * qs.stride[1]);
    const int64_t at = ks.shape[0] == 1 ? 0 : batch * ks.stride[0];
    for (int64_t j = 0; j < n; ++j)
      if (integer_at(ks, at + (key + j) * ks.stride[1]) != mine) out[j] = hidden;
  }
  int64_t changed = 0;
  for (int64_t j = 0; j < n; ++j) {
    int32_t b;
    memcpy(&b, out + j, 4);
    facts.hidden += b == kHiddenBits || out[j] == -__builtin_inff();
    changed += (b & 0x7fffffff) != 0;
  }
  facts.plain = changed == facts.hidden;
  return facts;
}

// A score with what a row of masks says about it.
TESSERA_INLINE Vec masked(Vec score, Vec row, float fill) {
  const Vec sum = row == -__builtin_inff() ? row : score + row;  // also where the score is NaN
  return bits_of(row) == kHiddenBits ? splat(fill) : sum;
}

// True when none of [rows, columns] is infinite or NaN.
TESSERA_OUTLINE bool all_finite(const Strided& x, int64_t rows, int64_t columns) {
  Vec zeros = {};
  float zero = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = x.data + i * x.row;
    int64_t j = 0;
    if (x.column == 1)
      for (; j + kLanes <= columns; j += kLanes) zeros = fma(load(row + j), Vec{}, zeros);
    for (; j < columns; ++j) zero += row[j * x.column] * 0.f;
  }
  return sum_lanes(zeros) + zero == 0;
}

}  // namespace
