// Query rows of one sequence and group, and blocks of the keys that they see.
#pragma once

#include "kernels/isa/attention_scores.h"
#include "kernels/isa/loops.h"
#include "kernels/isa/math.h"
#include "kernels/isa/stored.h"

namespace {

using namespace tessera::kernels;

constexpr int64_t kRows = 32;     // query rows of a task: they share what is read of K and V
constexpr int64_t kWidest = 512;  // elements of a head, with which sums of codes fit into 32 bits

struct Ragged {
  View q, k, v;  // [N, H, D], [P, G, R, D], [P, G, R, E]
  const int64_t* starts;
  const int64_t* table;    // [B, W] or null: R is 1, and pages are the queries' own rows
  const int64_t* lengths;  // [B] or null
  const float* bias;       // [H, L] or null
  View k_scale, v_scale;   // [P, G, R, 1], of k and v in i8
  int64_t sequences, pages, page;
  int64_t heads, groups, repeat, depth, width, distances;
  float scale, softcap;
  int64_t left, right;
  float* y;

  int64_t tokens(int64_t b) const { return starts[b + 1] - starts[b]; }
  int64_t rows(int64_t b) const { return tokens(b) * repeat; }  // of a group
  int64_t keys(int64_t b) const { return lengths != nullptr ? lengths[b] : tokens(b); }
  // Rows of x for the tokens of sequence b from t on, up to the end of their page.
  Stored from(const View& x, int64_t b, int64_t group, int64_t t) const {
    if (table == nullptr) return {x.data, (starts[b] + t) * x.stride[0] + group * x.stride[1], x.stride[0]};
    const int64_t at = table[b * pages + t / page] * x.stride[0] + group * x.stride[1] + t % page * x.stride[2];
    return {x.data, at, x.stride[2]};
  }
  // How many of the tokens [t, end) those are.
  int64_t run(int64_t t, int64_t end) const { return table == nullptr ? end - t : least(end - t, page - t % page); }
};

// One query row: which it is, and which keys it sees.
struct Row {
  int64_t head, place;
  int64_t low, high;
};

// What rows have seen: o [rows, columns], sums of weighed values; of each row the largest score and the sum of weights.
struct Seen {
  float *o, *most, *total;
  int64_t columns;

  void clear(int64_t rows) const {
    memset(o, 0, static_cast<size_t>(rows * columns) * 4);
    for (int64_t i = 0; i < rows; ++i) most[i] = -__builtin_inff(), total[i] = 0;
  }
};

TESSERA_INLINE float power(float difference) { return power_of_two(splat(difference * kLog2e))[0]; }

// Row i of `to` has also seen what row j of `from` has.
inline void merge(const Seen& to, int64_t i, const Seen& from, int64_t j) {
  const float here = from.most[j];
  if (here == -__builtin_inff() && from.total[j] == 0) return;  // nothing that weighs
  const float top = to.most[i] > here ? to.most[i] : here, shift = top == -__builtin_inff() ? 0 : top;
  const float old = power(to.most[i] - shift), fresh = power(here - shift);
  float* o = to.o + i * to.columns;
  for (int64_t e = 0; e < to.columns; e += kLanes)
    store(o + e, fma(splat(fresh), load(from.o + j * to.columns + e), load(o + e) * old));
  to.total[i] = to.total[i] * old + from.total[j] * fresh;
  to.most[i] = top;
}

inline void finish(const Ragged& a, const Seen& seen, int64_t i, int64_t token, int64_t head) {
  const float factor = seen.total[i] == 0 ? 1 : 1 / seen.total[i];
  float* y = a.y + (token * a.heads + head) * a.width;
  for (int64_t e = 0; e < a.width; ++e) y[e] = seen.o[i * seen.columns + e] * factor;
}

// Query rows of one sequence and group, and where they are computed.
struct Task {
  const Ragged& a;
  int64_t b, group, rows;
  int64_t depth;  // a.depth in whole steps
  Row* row;
  const void* q;           // [rows, depth], times the scale: f32, or codes where keys are
  const float* q_scale;    // [rows], of codes
  float* scores;           // [rows, kBlockKeys]
  int16_t* w_codes;        // [rows, kBlockKeys], weights of values that are codes, times the values' scales
  float* w_scale;          // [rows], of those
  float *k_room, *v_room;  // [kBlockKeys, kWidest]
  Seen part;               // of one span
};

// Keys [first, first + n) of the sequence, and which of them each row sees.
struct Block {
  int64_t first, n;
  Range seen[kRows];
  float k_scale[kBlockKeys], v_scale[kBlockKeys];  // of codes
};

// f(rows, at, n) for the parts of a block that lie in one page each.
template <class F>
TESSERA_INLINE void each_run(const Task& t, const View& x, const Block& block, const F& f) {
  for (int64_t at = 0, n = 0; at < block.n; at += n) {
    n = t.a.run(block.first + at, block.first + block.n);
    f(t.a.from(x, t.b, t.group, block.first + at), at, n);
  }
}

// f(Count<Q>, i) for rows i to i + Q, whatever there is behind the last one.
template <int N>
struct Count {
  static constexpr int value = N;
};
template <class F>
TESSERA_INLINE void each_few(int64_t rows, const F& f) {
  int64_t i = 0;
  for (; rows - i > 2; i += 4) f(Count<4>(), i);
  if (rows - i == 2) f(Count<2>(), i);
  if (rows - i == 1) f(Count<1>(), i);
}

// The scores of Q rows that see the same keys become weights; the rows' sums so far follow their largest scores. Rows
// are taken together because each waits for its maximum and its sum.
template <int Q>
TESSERA_OUTLINE void weigh_rows(const Task& t, int64_t i, const Block& block) {
  const Ragged& a = t.a;
  const auto [begin, end] = block.seen[i];
  float* const s = t.scores + i * kBlockKeys;
  const int64_t low = begin / kLanes * kLanes;
  if (a.k.type == kI8)
    for (int64_t j = low; j < end; j += kLanes)
#pragma GCC unroll 4
      for (int r = 0; r < Q; ++r) {
        float* const at = s + r * kBlockKeys + j;
        store(at, load(at) * (load(block.k_scale + j) * t.q_scale[i + r]));
      }
  for (int r = 0; r < Q; ++r) {
    float* const row = s + r * kBlockKeys;
    if (a.softcap != 0)
      for (int64_t j = low; j < end; j += kLanes) store(row + j, vtanh(load(row + j) / a.softcap) * a.softcap);
    if (a.bias != nullptr)
      for (int64_t j = begin; j < end; ++j) {
        const int64_t at = block.first + j - t.row[i + r].place + a.distances / 2;
        row[j] += a.bias[t.row[i + r].head * a.distances + (at < 0 ? 0 : least(at, a.distances - 1))];
      }
    for (int64_t j = low; j < begin; ++j) row[j] = -__builtin_inff();
    for (int64_t j = end; j % kLanes != 0; ++j) row[j] = -__builtin_inff();
  }
  Vec most[Q], sum[Q] = {}, shift[Q];
  for (int r = 0; r < Q; ++r) most[r] = splat(t.part.most[i + r]);
  for (int64_t j = low; j < end; j += kLanes)
#pragma GCC unroll 4
    for (int r = 0; r < Q; ++r) most[r] = vmax(load(s + r * kBlockKeys + j), most[r]);
  float top[Q];
#pragma GCC unroll 4
  for (int r = 0; r < Q; ++r) {
    top[r] = max_lanes(most[r]);
    shift[r] = splat(top[r] == -__builtin_inff() ? 0 : top[r]);
  }
  for (int64_t j = low; j < end; j += kLanes)
#pragma GCC unroll 4
    for (int r = 0; r < Q; ++r) {
      float* const at = s + r * kBlockKeys + j;
      const Vec e = power_of_two((load(at) - shift[r]) * kLog2e);
      store(at, e);
      sum[r] += e;
    }
  for (int r = 0; r < Q; ++r) {
    if (top[r] != t.part.most[i + r]) {
      const float factor = power(t.part.most[i + r] - shift[r][0]);
      float* o = t.part.o + (i + r) * t.part.columns;
      for (int64_t e = 0; e < t.part.columns; e += kLanes) store(o + e, load(o + e) * factor);
      t.part.total[i + r] *= factor;
      t.part.most[i + r] = top[r];
    }
    t.part.total[i + r] += sum_lanes(sum[r]);
  }
  if (a.v.type != kI8) return;
  alignas(64) float w[Q * kBlockKeys] = {};
  for (int r = 0; r < Q; ++r)
    for (int64_t j = begin; j < end; ++j) w[r * kBlockKeys + j] = s[r * kBlockKeys + j] * block.v_scale[j];
  codes_of<Q>(w, kBlockKeys, t.w_codes + i * kBlockKeys, t.w_scale + i);
}

inline void weigh(const Task& t, const Block& block) {
  for (int64_t i = 0; i < t.rows;) {
    const auto [begin, end] = block.seen[i];
    if (begin == end) {
      t.w_scale[i] = 0;
      memset(t.w_codes + i * kBlockKeys, 0, kBlockKeys * sizeof *t.w_codes);
      ++i;
      continue;
    }
    int64_t same = i + 1;
    while (same < least(i + 4, t.rows) && block.seen[same].begin == begin && block.seen[same].end == end) ++same;
    if (same == i + 4) {
      weigh_rows<4>(t, i, block);
      i += 4;
    } else {
      weigh_rows<1>(t, i++, block);
    }
  }
}

// Rows [i, i + Q) take n values of the block from the key `at` on, each those that it sees.
template <uint8_t kType, int Q>
TESSERA_INLINE void take_values(const Task& t, const Block& block, int64_t i, const Stored& v, int64_t at, int64_t n,
                                Fetch& next) {
  const auto add = [&](auto count, int64_t row, int64_t begin, int64_t end) {
    begin = most_of(begin, at);
    end = least(end, at + n);
    if (begin < end)
      add_values<kType, decltype(count)::value>(t.scores + row * kBlockKeys + begin,
                                                {v.data, v.at + (begin - at) * v.row, v.row}, end - begin,
                                                t.part.o + row * t.part.columns, t.part.columns, next);
  };
  const int64_t stop = least(i + Q, t.rows);
  int64_t begin = 0, end = kBlockKeys;  // what all of them see
  for (int64_t x = i; x < stop; ++x) {
    begin = most_of(begin, block.seen[x].begin);
    end = least(end, block.seen[x].end);
  }
  end = most_of(begin, end);
  if constexpr (Q > 1)
    for (int64_t x = i; x < stop; ++x) add(Count<1>(), x, block.seen[x].begin, least(begin, block.seen[x].end));
  add(Count<Q>(), i, begin, end);
  if constexpr (Q > 1)
    for (int64_t x = i; x < stop; ++x) add(Count<1>(), x, most_of(end, block.seen[x].begin), block.seen[x].end);
}

// Values that are codes: pairs of rows side by side, once for all of t's rows, then their products as integers. So it
// does not matter to the sums where pages end.
TESSERA_OUTLINE void take_codes(const Task& t, const Block& block, Fetch next) {
  alignas(64) static constexpr int8_t kNothing[kWidest] = {};
  const int64_t columns = t.part.columns, width = t.a.width, pairs = quotient_up(block.n, 2);
  int32_t* const room = reinterpret_cast<int32_t*>(t.v_room);
  const int8_t* rows[kBlockKeys + 1];
  each_run(t, t.a.v, block, [&](const Stored& from, int64_t at, int64_t n) {
    for (int64_t j = 0; j < n; ++j) rows[at + j] = static_cast<const int8_t*>(from.data) + from.at + j * from.row;
  });
  rows[block.n] = kNothing;
  for (int64_t p = 0; p < pairs; ++p) {
    const int8_t *a = rows[2 * p], *b = rows[2 * p + 1];
    int32_t* to = room + p * columns;
    int64_t e = 0;
    for (; e + kPairColumns <= width; e += kPairColumns) interleave(a + e, b + e, to + e);
    if (e == width) continue;
    // Reaches into the next pair's place, which is written later.
    int8_t rest[2][kPairColumns] = {};
    memcpy(rest[0], a + e, static_cast<size_t>(width - e));
    memcpy(rest[1], b + e, static_cast<size_t>(width - e));
    interleave(rest[0], rest[1], to + e);
  }
  each_few(t.rows, [&](auto count, int64_t i) {
    add_codes<decltype(count)::value>(t.w_codes + i * kBlockKeys, t.w_scale + i, room, pairs, t.part.o + i * columns,
                                      columns, next);
  });
}

// A block whose rows lie in memory, or in t's rooms where they were copied. Fetches v while scores are made, and `next`
// while values are added.
template <uint8_t kType>
TESSERA_OUTLINE void take_block(const Task& t, const Block& block, bool copied, Fetch next) {
  using Query = typename Meeting<kType>::Query;
  const auto runs = [&](const View& x, const Stored& room, const auto& f) {
    if (copied)
      f(room, int64_t{0}, block.n);
    else
      each_run(t, x, block, f);
  };
  runs(t.a.k, {t.k_room, 0, t.depth}, [&](const Stored& k, int64_t at, int64_t n) {
    // Also where a block's keys were copied because their rows are not whole steps, but its values were not.
    Fetch values = copied && kType != kI8
                       ? Fetch()
                       : fetch_of<kType>(t.a.from(t.a.v, t.b, t.group, block.first + at), n, t.a.width);
    each_few(t.rows, [&](auto count, int64_t i) {
      score_rows<kType, decltype(count)::value>(static_cast<const Query*>(t.q) + i * t.depth, t.depth, k, n,
                                                t.scores + i * kBlockKeys + at, values);
    });
  });
  weigh(t, block);
  if constexpr (kType == kI8) return take_codes(t, block, next);
  runs(t.a.v, {t.v_room, 0, t.part.columns}, [&](const Stored& v, int64_t at, int64_t n) {
    each_few(t.rows,
             [&](auto count, int64_t i) { take_values<kType, decltype(count)::value>(t, block, i, v, at, n, next); });
  });
}

// Rows of the block in f32 and whole vectors.
template <uint8_t kType>
TESSERA_OUTLINE void copy_block(const Task& t, const View& x, const Block& block, float* room, int64_t columns) {
  const int64_t width = x.shape[3];
  each_run(t, x, block, [&](const Stored& from, int64_t at, int64_t n) {
    for (int64_t j = 0; j < n; ++j) {
      float* to = room + (at + j) * columns;
      int64_t d = 0;
      for (; d + kLanes <= width; d += kLanes) store(to + d, stored<kType>(from.data, from.at + j * from.row + d));
      if (d == columns) continue;
      alignas(64) char rest[kLanes * 4] = {};
      memcpy(rest, static_cast<const char*>(from.data) + (from.at + j * from.row + d) * kStoredBytes<kType>,
             static_cast<size_t>((width - d) * kStoredBytes<kType>));
      store(to + d, stored<kType>(rest, 0));
    }
  });
}

// Keys that are codes, with zeroes behind them.
inline void copy_codes(const Task& t, const Block& block) {
  int8_t* room = reinterpret_cast<int8_t*>(t.k_room);
  memset(room, 0, static_cast<size_t>(block.n * t.depth));
  each_run(t, t.a.k, block, [&](const Stored& from, int64_t at, int64_t n) {
    for (int64_t j = 0; j < n; ++j)
      memcpy(room + (at + j) * t.depth, static_cast<const int8_t*>(from.data) + from.at + j * from.row,
             static_cast<size_t>(t.a.depth));
  });
}

inline void copy_scales(const Task& t, const Block& block, const View& scale, float* to) {
  each_run(t, scale, block, [&](const Stored& from, int64_t at, int64_t n) {
    const float* rows = static_cast<const float*>(from.data) + from.at;
    if (from.row == 1) {
      memcpy(to + at, rows, static_cast<size_t>(n) * 4);
    } else {
      for (int64_t j = 0; j < n; ++j) to[at + j] = rows[j * from.row];
    }
  });
}
inline void fetch_scales(const Ragged& a, int64_t b, int64_t group, int64_t key, int64_t n) {
  const View* const scales[] = {&a.k_scale, &a.v_scale};
  for (const View* scale : scales) {
    const Stored rows = a.from(*scale, b, group, key);
    Fetch fetch = fetch_of<kF32>(rows, n, 1);
    fetch.some(fetch.end - fetch.at);
  }
}

template <uint8_t kType>
void take_keys(const Task& t, int64_t first, int64_t end, Fetch next) {
  const Ragged& a = t.a;
  // Many rows share what is converted.
  constexpr int64_t kFew = 8;
  const bool odd = a.depth != t.depth || (kType != kI8 && a.width != t.part.columns);
  const bool copied = odd || (kType != kF32 && kType != kI8 && t.rows > kFew);
  Block block = {};
  for (; first < end; first += kBlockKeys) {
    block.first = first;
    block.n = least(kBlockKeys, end - first);
    for (int64_t i = 0; i < t.rows; ++i) {
      const Row& row = t.row[i];
      block.seen[i] = {most_of(row.low - first, 0), least(row.high - first, block.n)};
      if (block.seen[i].begin >= block.seen[i].end) block.seen[i] = {0, 0};
    }
    const int64_t after = first + block.n;
    Fetch following = next;
    if (after < end) {
      const int64_t n = a.run(after, least(end, after + kBlockKeys));
      following = fetch_of<kType>(a.from(a.k, t.b, t.group, after), n, a.depth);
      if (kType == kI8) fetch_scales(a, t.b, t.group, after, n);
    }
    if constexpr (kType == kI8) {
      copy_scales(t, block, a.k_scale, block.k_scale);
      copy_scales(t, block, a.v_scale, block.v_scale);
      // A row's sums do not depend on who shares the block: codes stay codes.
      if (copied) copy_codes(t, block);
      take_block<kI8>(t, block, copied, following);
    } else if (copied) {
      copy_block<kType>(t, a.k, block, t.k_room, t.depth);
      copy_block<kType>(t, a.v, block, t.v_room, t.part.columns);
      take_block<kF32>(t, block, true, Fetch());
    } else {
      take_block<kType>(t, block, false, following);
    }
  }
}

using TakeKeys = void (*)(const Task& t, int64_t first, int64_t end, Fetch next);
inline TakeKeys take_keys_of(uint8_t type) {
  return type == kF32    ? take_keys<kF32>
         : type == kF16  ? take_keys<kF16>
         : type == kBF16 ? take_keys<kBF16>
                         : take_keys<kI8>;
}

}  // namespace
