// attention for a few queries: decoding. The time goes into reading K and V, so each key is read once for all query
// heads of its group and in the type in which it is stored, and long sequences are cut into parts that are merged at
// the end (Dao et al. 2023, "Flash-Decoding").
#pragma once

#include "kernels/isa/attention_scores.h"
#include "kernels/isa/loops.h"
#include "kernels/isa/math.h"

namespace {

// Rows, queries times the heads of a group, up to which tiles of queries would be mostly empty.
constexpr int64_t kFewRows = 8;
// Keys of a block: its K and V, 64 x 128 f32 each, stay in L2 while the next block is fetched.
constexpr int64_t kFewKeys = 64;
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

// kLanes elements as they are stored.
template <uint8_t kType>
TESSERA_INLINE Vec stored(const void* data, int64_t at) {
  if constexpr (kType == tessera::kernels::kF32) return load(static_cast<const float*>(data) + at);
  const uint16_t* p = static_cast<const uint16_t*>(data) + at;
  if constexpr (kType == tessera::kernels::kBF16) {
    typedef uint16_t Halves __attribute__((vector_size(kLanes * 2)));
    Halves h;
    memcpy(&h, p, sizeof h);
    return of_bits(__builtin_convertvector(h, VecI) << 16);
  }
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#elif defined(__F16C__)
  return reinterpret_cast<Vec>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = f16_to_f32(p[i]);
  return load(lanes);
#endif
}

// Lane i: the sum of the lanes of x[i].
TESSERA_INLINE Vec sums_of(const Vec (&x)[kLanes]) {
  alignas(64) float square[kLanes * kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) store(square + i * kLanes, x[i]);
  transpose_square(square, kLanes, square, kLanes);
  Vec sum = load(square);
#pragma GCC unroll 16
  for (int i = 1; i < kLanes; ++i) sum += load(square + i * kLanes);
  return sum;
}

// Rows of K or V in memory: element (j, d) is data[at + j * row + d].
struct Stored {
  const void* data;
  int64_t at, row;
};

inline void fetch(const void* data, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(data) + i);
}

// s[i * kFewKeys + j] = q[i] k[j] for Q queries and n keys; q [Q, depth]. Meanwhile fetches `next`, a row a key.
template <uint8_t kType, int Q>
TESSERA_INLINE void score_rows(const float* q, int64_t depth, const Stored& k, int64_t n, float* s,
                               const Stored& next) {
  constexpr int kAtOnce = kLanes / Q;
  constexpr int64_t kBytes = kType == tessera::kernels::kF32 ? 4 : 2;
  alignas(64) float lanes[kLanes];
  for (int64_t j = 0; j < n; j += kAtOnce) {
    int64_t at[kAtOnce];
#pragma GCC unroll 16
    for (int x = 0; x < kAtOnce; ++x) at[x] = k.at + least(j + x, n - 1) * k.row;
    if (next.data != nullptr)
      for (int x = 0; x < kAtOnce && j + x < n; ++x)
        fetch(static_cast<const char*>(next.data) + (next.at + (j + x) * next.row) * kBytes, depth * kBytes);
    Vec sums[kLanes] = {};
    for (int64_t d = 0; d < depth; d += kLanes) {
#pragma GCC unroll 16
      for (int x = 0; x < kAtOnce; ++x) {
        const Vec key = stored<kType>(k.data, at[x] + d);
#pragma GCC unroll 16
        for (int i = 0; i < Q; ++i) sums[i * kAtOnce + x] = fma(load(q + i * depth + d), key, sums[i * kAtOnce + x]);
      }
    }
    store(lanes, sums_of(sums));
    for (int i = 0; i < Q; ++i)
      for (int x = 0; x < kAtOnce && j + x < n; ++x) s[i * kFewKeys + j + x] = lanes[i * kAtOnce + x];
  }
}

// o[i] = o[i] factor[i] + sum over j of w[i, j] v[j], for Q rows and V vectors of columns from `e` on.
template <uint8_t kType, int Q, int V>
TESSERA_INLINE void add_values(const float* w, const Stored& v, int64_t e, int64_t n, float* o, int64_t width,
                               const float* factor) {
  Vec sums[Q * V];
#pragma GCC unroll 16
  for (int i = 0; i < Q; ++i)
#pragma GCC unroll 16
    for (int x = 0; x < V; ++x) sums[i * V + x] = load(o + i * width + e + x * kLanes) * factor[i];
  for (int64_t j = 0; j < n; ++j) {
    Vec value[V];
#pragma GCC unroll 16
    for (int x = 0; x < V; ++x) value[x] = stored<kType>(v.data, v.at + j * v.row + e + x * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < Q; ++i) {
      const Vec weight = splat(w[i * kFewKeys + j]);
#pragma GCC unroll 16
      for (int x = 0; x < V; ++x) sums[i * V + x] = fma(weight, value[x], sums[i * V + x]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Q; ++i)
#pragma GCC unroll 16
    for (int x = 0; x < V; ++x) store(o + i * width + e + x * kLanes, sums[i * V + x]);
}

// One part of one group's keys.
struct Part {
  const Attention& a;
  int64_t batch, group, depth, width;  // of q and o as they are kept: whole vectors
  Span span;
  Range range;
  float *q, *o, *s, *line, *factor, *top, *total;  // q [rows, depth], o [rows, width], s [rows, kFewKeys]
  float *k_room, *v_room;                          // for rows that do not lie in whole vectors
};

// Head and query of a row.
inline int64_t head_of(const Attention& a, int64_t group, int64_t row) {
  return group * (a.heads / a.groups) + row / a.queries;
}

// Hides, adds and caps; gives whether a key is hidden from a query.
TESSERA_OUTLINE bool finish_few(const Part& p, int64_t row, int64_t key, int64_t n) {
  const Attention& a = p.a;
  float* s = p.s + row * kFewKeys;
  const int64_t head = head_of(a, p.group, row), query = row % a.queries;
  if (a.cap != 0)
    for (int64_t j = 0; j < n; j += kLanes) store(s + j, vtanh(load(s + j)) * a.cap);
  for (int64_t j = n; j < kFewKeys; ++j) s[j] = -__builtin_inff();
  bool hidden = false;
  if (a.has_rows()) {
    hidden = mask_row(a, p.batch, head, query, key, n, p.line).hidden != 0;
    for (int64_t j = n; j < kFewKeys; ++j) p.line[j] = -__builtin_inff();
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
  return hidden;
}

// A row's scores become weights; its sums so far are to be multiplied by the factor.
TESSERA_OUTLINE void weigh_few(const Part& p, int64_t row, int64_t n) {
  float* s = p.s + row * kFewKeys;
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

template <uint8_t kType, int Q>
TESSERA_INLINE void add_all_values(const Part& p, int64_t row, const Stored& v, int64_t n) {
  constexpr int kVecs = 8 / Q;
  const float* w = p.s + row * kFewKeys;
  float* o = p.o + row * p.width;
  int64_t e = 0;
  for (; e + kVecs * kLanes <= p.width; e += kVecs * kLanes)
    add_values<kType, Q, kVecs>(w, v, e, n, o, p.width, p.factor + row);
  for (; e < p.width; e += kLanes) add_values<kType, Q, 1>(w, v, e, n, o, p.width, p.factor + row);
}

// The same where a weight of 0 stands for a value that must not count, whatever it is.
template <uint8_t kType>
TESSERA_OUTLINE void add_guarded_values(const Part& p, const Stored& v, int64_t n) {
  for (int64_t i = 0; i < few_rows(p.a); ++i) {
    float* o = p.o + i * p.width;
    for (int64_t e = 0; e < p.width; ++e) o[e] *= p.factor[i];
    for (int64_t j = 0; j < n; ++j) {
      const float w = p.s[i * kFewKeys + j];
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

// rows is a multiple of Q.
template <uint8_t kType, int Q>
TESSERA_OUTLINE void pass_few(const Part& p, int64_t rows, int64_t key, int64_t n, const Stored& k, const Stored& v,
                              const Stored& next) {
  for (int64_t i = 0; i < rows; i += Q)
    score_rows<kType, Q>(p.q + i * p.depth, p.depth, k, n, p.s + i * kFewKeys, i == 0 ? v : Stored{});
  bool hidden = false;
  for (int64_t i = 0; i < few_rows(p.a); ++i) {
    hidden = finish_few(p, i, key, n) || hidden;
    weigh_few(p, i, n);
  }
  constexpr int64_t kBytes = kType == tessera::kernels::kF32 ? 4 : 2;
  if (next.data != nullptr)
    for (int64_t j = 0; j < n; ++j)
      fetch(static_cast<const char*>(next.data) + (next.at + j * next.row) * kBytes, p.depth * kBytes);
  if (hidden && !values_finite<kType>(v, n, p.width)) return add_guarded_values<kType>(p, v, n);
  for (int64_t i = 0; i < rows; i += Q) add_all_values<kType, Q>(p, i, v, n);
}

template <uint8_t kType>
inline void pass_few(const Part& p, int64_t key, int64_t n, const Stored& k, const Stored& v, const Stored& next) {
  const int64_t rows = few_rows(p.a);
  if (rows == 1) {
    pass_few<kType, 1>(p, 1, key, n, k, v, next);
  } else {
    pass_few<kType, 4>(p, quotient_up(rows, 4) * 4, key, n, k, v, next);
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
  for (int64_t key = p.range.begin; key < p.range.end; key += kFewKeys) {
    const int64_t n = least(kFewKeys, p.range.end - key);
    const Stored k = rows_from(a.k, p.batch, p.group, key), v = rows_from(a.v, p.batch, p.group, key);
    if (!direct) {
      copy_rows(a.k, k, n, p.depth, p.k_room);
      copy_rows(a.v, v, n, p.width, p.v_room);
      pass_few<tessera::kernels::kF32>(p, key, n, {p.k_room, 0, p.depth}, {p.v_room, 0, p.width}, {});
      continue;
    }
    // The next block may be shorter than this one.
    const bool more = key + n + kFewKeys <= p.range.end;
    const Stored next = more ? rows_from(a.k, p.batch, p.group, key + n) : Stored{};
    if (a.k.type == tessera::kernels::kF32) {
      pass_few<tessera::kernels::kF32>(p, key, n, k, v, next);
    } else if (a.k.type == tessera::kernels::kF16) {
      pass_few<tessera::kernels::kF16>(p, key, n, k, v, next);
    } else {
      pass_few<tessera::kernels::kBF16>(p, key, n, k, v, next);
    }
  }
}

// Part `part` of the keys of batch and group; leaves its sums in `out`.
inline void attend_part(const Attention& a, int64_t batch, int64_t group, int64_t part, float* out) {
  constexpr int64_t kRows = kFewRows;
  alignas(64) float q[kRows * kFewDepth], o[kRows * kFewDepth], s[kRows * kFewKeys], line[kFewKeys];
  alignas(64) float k_room[kFewKeys * kFewDepth], v_room[kFewKeys * kFewDepth];
  float factor[kRows], top[kRows], total[kRows];
  const int64_t rows = few_rows(a), depth = quotient_up(a.depth, kLanes) * kLanes;
  const int64_t width = quotient_up(a.width, kLanes) * kLanes;
  const Span span = span_of(a, batch);
  Range range = visible_keys(a, span, 0, a.queries - 1);
  if (a.fills()) range = {0, a.keys};
  const int64_t each = quotient_up(quotient_up(range.end - range.begin, parts_of(a)), kFewKeys) * kFewKeys;
  range.begin = least(range.begin + part * each, range.end);
  range.end = least(range.begin + each, range.end);
  for (int64_t i = 0; i < kRows; ++i) {
    top[i] = -__builtin_inff();
    total[i] = 0;
    factor[i] = 0;
    for (int64_t e = 0; e < width; ++e) o[i * width + e] = 0;
    for (int64_t j = 0; j < kFewKeys; ++j) s[i * kFewKeys + j] = 0;
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
  attend_part(Part{a, batch, group, depth, width, span, range, q, o, s, line, factor, top, total, k_room, v_room});
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
