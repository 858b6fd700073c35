// attention for a few queries: decoding. The time goes into reading K and V, so each key is read once for all query
// heads of its group and in the type in which it is stored, and long sequences are cut into parts that are merged at
// the end (Dao et al. 2023, "Flash-Decoding").
#pragma once

#include "kernels/isa/attention_scores.h"
#include "kernels/isa/loops.h"
#include "kernels/isa/math.h"
#include "kernels/isa/stored.h"

namespace {

// Rows, queries times the heads of a group, up to which tiles of queries would be mostly empty.
constexpr int64_t kFewRows = 8;
constexpr int64_t kFewDepth = 512;
// Parts are not shorter than this many keys, and there are no more tasks than kFewTasks where batch and heads suffice.
constexpr int64_t kPartKeys = 256;
constexpr int64_t kFewTasks = 16;

inline int64_t few_rows(const Attention& a) { return a.groups == 0 ? 0 : a.heads / a.groups * a.queries; }
inline bool takes_few(const Attention& a) {
  return few_rows(a) <= kFewRows && a.depth <= kFewDepth && a.width <= kFewDepth;
}
inline int64_t parts_of(const Attention& a) {
  const int64_t wanted = quotient_up(kFewTasks, most_of(1, a.batch * a.groups));
  return most_of(1, least(wanted, a.keys / kPartKeys));
}
// A part's sums, then its rows' largest scores and totals.
inline int64_t part_floats(const Attention& a) { return few_rows(a) * (a.width + 2); }
inline size_t few_scratch(const Attention& a) {
  return static_cast<size_t>(a.batch * a.groups * parts_of(a) * part_floats(a)) * 4;
}

// One part of one group's keys.
struct Part {
  const Attention &a, &late;
  int64_t batch, group, depth, width;  // of q and o as they are kept: whole vectors
  Span span;
  Range range;
  float *q, *o, *s, *line, *factor, *top, *total;  // q [rows, depth], o [rows, width], s [rows, kBlockKeys]
  float *k_room, *v_room;                          // for rows that do not lie in whole vectors
};

// Head and query of a row.
inline int64_t head_of(const Attention& a, int64_t group, int64_t row) {
  return group * (a.heads / a.groups) + row / a.queries;
}

// Hides, adds and caps; gives whether a key is hidden from a query.
TESSERA_OUTLINE bool finish_few(const Part& p, int64_t row, int64_t key, int64_t n) {
  const Attention& a = p.a;
  float* s = p.s + row * kBlockKeys;
  const int64_t head = head_of(a, p.group, row), query = row % a.queries;
  if (a.cap != 0)
    for (int64_t j = 0; j < n; j += kLanes) store(s + j, vtanh(load(s + j)) * a.cap);
  for (int64_t j = n; j < kBlockKeys; ++j) s[j] = -__builtin_inff();
  bool hidden = false;
  if (a.has_rows()) {
    hidden = mask_row(a, p.batch, head, query, key, n, p.line).hidden != 0;
    for (int64_t j = n; j < kBlockKeys; ++j) p.line[j] = -__builtin_inff();
    for (int64_t j = 0; j < n; j += kLanes) store(s + j, masked(load(s + j), load(p.line + j), a.fill));
  }
  int64_t begin = 0, end = least(n, p.span.keys - key);
  if (a.has_high) end = least(end, query + p.span.high + 1 - key);
  if (a.has_low) begin = query + p.span.low - key;
  if (begin > 0 || end < n) {
    hidden = true;
    for (int64_t j = 0; j < n; ++j)
      if (j < begin || j >= end) s[j] = a.fill;
  }
  if (a.has_late()) {
    hidden = mask_row(p.late, p.batch, head, query, key, n, p.line).hidden != 0 || hidden;
    for (int64_t j = 0; j < n; ++j) s[j] += p.line[j];
  }
  return hidden;
}

// A row's scores become weights; its sums so far are to be multiplied by the factor.
TESSERA_OUTLINE void weigh_few(const Part& p, int64_t row, int64_t n) {
  float* s = p.s + row * kBlockKeys;
  Vec most = splat(p.top[row]);
  for (int64_t j = 0; j < n; j += kLanes) most = vmax(load(s + j), most);
  const float top = max_lanes(most), shift = top == -__builtin_inff() ? 0 : top;
  Vec sum = {};
  for (int64_t j = 0; j < n; j += kLanes) {
    const Vec e = power_of_two((load(s + j) - shift) * kLog2e);
    store(s + j, e);
    sum += e;
  }
  p.factor[row] = power_of_two(splat((p.top[row] - shift) * kLog2e))[0];
  p.total[row] = p.total[row] * p.factor[row] + sum_lanes(sum);
  p.top[row] = top;
}

inline void rescale_few(const Part& p, int64_t row) {
  float* o = p.o + row * p.width;
  for (int64_t e = 0; e < p.width; e += kLanes) store(o + e, load(o + e) * p.factor[row]);
}

// Adds weighed values where a weight of 0 stands for one that must not count, whatever it is.
template <uint8_t kType>
TESSERA_OUTLINE void add_guarded_values(const Part& p, const Stored& v, int64_t n) {
  for (int64_t i = 0; i < few_rows(p.a); ++i) {
    float* o = p.o + i * p.width;
    for (int64_t j = 0; j < n; ++j) {
      const float w = p.s[i * kBlockKeys + j];
      if (w == 0) continue;
      for (int64_t e = 0; e < p.width; e += kLanes)
        store(o + e, fma(splat(w), stored<kType>(v.data, v.at + j * v.row + e), load(o + e)));
    }
  }
}

template <uint8_t kType>
TESSERA_OUTLINE bool values_finite(const Stored& v, int64_t n, int64_t width) {
  Vec zeros = {};
  for (int64_t j = 0; j < n; ++j)
    for (int64_t e = 0; e < width; e += kLanes) zeros = fma(stored<kType>(v.data, v.at + j * v.row + e), Vec{}, zeros);
  return sum_lanes(zeros) == 0;
}

// rows is a multiple of Q. Fetches v while scores are made, and `next` while values are added.
template <uint8_t kType, int Q>
TESSERA_OUTLINE void pass_few(const Part& p, int64_t rows, int64_t key, int64_t n, const Stored& k, const Stored& v,
                              Fetch next) {
  Fetch values = fetch_of<kType>(v, n, p.width);
  for (int64_t i = 0; i < rows; i += Q)
    score_rows<kType, Q>(p.q + i * p.depth, p.depth, k, n, p.s + i * kBlockKeys, values);
  bool hidden = false;
  for (int64_t i = 0; i < few_rows(p.a); ++i) {
    hidden = finish_few(p, i, key, n) || hidden;
    weigh_few(p, i, n);
    if (p.factor[i] != 1) rescale_few(p, i);
  }
  if (hidden && !values_finite<kType>(v, n, p.width)) return add_guarded_values<kType>(p, v, n);
  for (int64_t i = 0; i < rows; i += Q)
    add_values<kType, Q>(p.s + i * kBlockKeys, v, n, p.o + i * p.width, p.width, next);
}

template <uint8_t kType>
inline void pass_few(const Part& p, int64_t key, int64_t n, const Stored& k, const Stored& v, const Stored& next,
                     int64_t coming) {
  const int64_t rows = few_rows(p.a);
  const Fetch fetch = fetch_of<kType>(next, coming, p.depth);
  if (rows == 1) {
    pass_few<kType, 1>(p, 1, key, n, k, v, fetch);
  } else {
    pass_few<kType, 4>(p, quotient_up(rows, 4) * 4, key, n, k, v, fetch);
  }
}

inline Stored rows_from(const tessera::kernels::View& x, int64_t batch, int64_t group, int64_t key) {
  return {x.data, batch * x.stride[0] + group * x.stride[1] + key * x.stride[2], x.stride[2]};
}
inline bool in_vectors(const tessera::kernels::View& x) { return x.shape[3] % kLanes == 0 && x.stride[3] == 1; }
TESSERA_OUTLINE void copy_rows(const tessera::kernels::View& x, const Stored& from, int64_t n, int64_t columns,
                               float* to) {
  for (int64_t j = 0; j < n; ++j) {
    elements_f32(x.data, x.type, from.at + j * from.row, x.stride[3], x.shape[3], to + j * columns);
    for (int64_t d = x.shape[3]; d < columns; ++d) to[j * columns + d] = 0;
  }
}

inline void attend_part(const Part& p) {
  const Attention& a = p.a;
  const bool direct = in_vectors(a.k) && in_vectors(a.v);
  for (int64_t key = p.range.begin; key < p.range.end; key += kBlockKeys) {
    const int64_t n = least(kBlockKeys, p.range.end - key);
    const Stored k = rows_from(a.k, p.batch, p.group, key), v = rows_from(a.v, p.batch, p.group, key);
    if (!direct) {
      copy_rows(a.k, k, n, p.depth, p.k_room);
      copy_rows(a.v, v, n, p.width, p.v_room);
      pass_few<tessera::kernels::kF32>(p, key, n, {p.k_room, 0, p.depth}, {p.v_room, 0, p.width}, {}, 0);
      continue;
    }
    const int64_t coming = least(kBlockKeys, p.range.end - key - n);
    const Stored next = rows_from(a.k, p.batch, p.group, key + n);
    if (a.k.type == tessera::kernels::kF32) {
      pass_few<tessera::kernels::kF32>(p, key, n, k, v, next, coming);
    } else if (a.k.type == tessera::kernels::kF16) {
      pass_few<tessera::kernels::kF16>(p, key, n, k, v, next, coming);
    } else {
      pass_few<tessera::kernels::kBF16>(p, key, n, k, v, next, coming);
    }
  }
}

// Part `part` of the keys of batch and group; leaves its sums in `out`.
inline void attend_part(const Attention& a, int64_t batch, int64_t group, int64_t part, float* out) {
  constexpr int64_t kRows = kFewRows;
  alignas(64) float q[kRows * kFewDepth], o[kRows * kFewDepth], s[kRows * kBlockKeys], line[kBlockKeys];
  alignas(64) float k_room[kBlockKeys * kFewDepth], v_room[kBlockKeys * kFewDepth];
  float factor[kRows], top[kRows], total[kRows];
  const int64_t rows = few_rows(a), depth = quotient_up(a.depth, kLanes) * kLanes;
  const int64_t width = quotient_up(a.width, kLanes) * kLanes;
  const Span span = span_of(a, batch);
  Range range = visible_keys(a, span, 0, a.queries - 1);
  if (a.fills()) range = {0, a.keys};
  const int64_t each = quotient_up(quotient_up(range.end - range.begin, parts_of(a)), kBlockKeys) * kBlockKeys;
  range.begin = least(range.begin + part * each, range.end);
  range.end = least(range.begin + each, range.end);
  for (int64_t i = 0; i < kRows; ++i) {
    top[i] = -__builtin_inff();
    total[i] = 0;
    factor[i] = 0;
    for (int64_t e = 0; e < width; ++e) o[i * width + e] = 0;
    for (int64_t j = 0; j < kBlockKeys; ++j) s[i * kBlockKeys + j] = 0;
    for (int64_t d = 0; d < depth; ++d) q[i * depth + d] = 0;
    if (i >= rows) continue;
    const int64_t head = head_of(a, group, i);
    const int64_t at = batch * a.q.stride[0] + head * a.q.stride[1] + i % a.queries * a.q.stride[2];
    for (int64_t d = 0; d < a.depth; ++d)
      q[i * depth + d] = element_f32(a.q.data, a.q.type, at + d * a.q.stride[3]) * a.scale;
    if (part == 0 && a.sinks.present) {
      top[i] = element_f32(a.sinks.data, a.sinks.type, head * a.sinks.stride[0]);
      total[i] = 1;
    }
  }
  const Attention late = late_of(a);
  attend_part(
      Part{a, late, batch, group, depth, width, span, range, q, o, s, line, factor, top, total, k_room, v_room});
  for (int64_t i = 0; i < rows; ++i) {
    memcpy(out + i * a.width, o + i * width, static_cast<size_t>(a.width) * 4);
    out[rows * a.width + i] = top[i];
    out[rows * (a.width + 1) + i] = total[i];
  }
}

// One row of one group: its parts, weighed by what each saw.
inline void merge_parts(const Attention& a, int64_t batch, int64_t group, int64_t row, const float* parts) {
  const int64_t rows = few_rows(a), count = parts_of(a), step = part_floats(a);
  float top = -__builtin_inff();
  for (int64_t c = 0; c < count; ++c) {
    const float here = parts[c * step + rows * a.width + row];
    top = here > top || here != here ? here : top;
  }
  const float shift = top == -__builtin_inff() ? 0 : top;
  alignas(64) float sums[kFewDepth] = {};
  float total = 0;
  for (int64_t c = 0; c < count; ++c) {
    const float* part = parts + c * step;
    const float factor = power_of_two(splat((part[rows * a.width + row] - shift) * kLog2e))[0];
    total += factor * part[rows * (a.width + 1) + row];
    for (int64_t e = 0; e < a.width; ++e) sums[e] += factor * part[row * a.width + e];
  }
  const float factor = total == 0 ? 0 : 1 / total;
  for (int64_t e = 0; e < a.width; ++e) sums[e] *= factor;
  put_elements(sums, a.y, a.y_type,
               batch * a.y_stride[0] + head_of(a, group, row) * a.y_stride[1] + row % a.queries * a.y_stride[2],
               a.width);
}

inline void attend_few(const Attention& a, float* scratch, const tessera::kernels::Parallel* parallel) {
  const int64_t count = parts_of(a), all = a.batch * a.groups, step = part_floats(a);
  const int64_t work = few_rows(a) * (a.keys / count + 1) * (a.depth + a.width + 1);
  parallel_for(parallel, all * count, 1 + 65536 / work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      attend_part(a, i / count / a.groups, i / count % a.groups, i % count, scratch + i * step);
  });
  for (int64_t i = 0; i < all; ++i)
    for (int64_t row = 0; row < few_rows(a); ++row)
      merge_parts(a, i / a.groups, i % a.groups, row, scratch + i * count * step);
}

}  // namespace
