// attention: blocks of queries pass over blocks of keys with a running maximum and sum, so that no score matrix is ever
// stored (Milakov and Gimelshein 2018; Dao et al. 2022). Arithmetic in f32 whatever the storage.
#include "kernels/abi.h"
#include "kernels/isa/attention_few.h"
#include "kernels/isa/attention_scores.h"
#include "kernels/isa/export.h"
#include "kernels/isa/loops.h"
#include "kernels/isa/math.h"

namespace {

using namespace tessera::kernels;

// Queries of a task at most: K and V pass from L2 or L3 through L1 once for all of them.
constexpr int64_t kTaskQueries = 96;
// A task's memory in floats, on the stack of its thread; larger heads take scratch, one task at a time.
constexpr int64_t kWork = 96 * 1024;

// How a call is cut.
struct Cut {
  int64_t keys;    // of a block; its scores for one tile of queries stay in L1
  int64_t vecs;    // of queries in a task
  int64_t floats;  // that a task needs
};

// Read where it lies: f32, without gaps along one of its axes.
bool direct(const View& x) { return x.type == kF32 && (x.stride[2] == 1 || x.stride[3] == 1); }

int64_t task_floats(const Attention& a, int64_t keys, int64_t vecs) {
  const bool converted = !direct(a.k) || !direct(a.v);
  return vecs * kLanes * (a.depth + a.width + 2) + (a.has_late() ? 3 : 2) * keys * kQueryVecs * kLanes + kLanes * keys +
         (kQueryVecs + kLanes) * kLanes + (converted ? keys * (a.depth + a.width) : 0);
}

Cut cut_of(const Attention& a) {
  int64_t keys = 128;
  while (keys > 8 && keys * (a.depth + a.width) > 32 * 1024) keys /= 2;
  const int64_t all = quotient_up(a.queries, kLanes);
  int64_t vecs = least(all, kTaskQueries / kLanes);
  while (vecs > 1 && task_floats(a, keys, vecs) > kWork) --vecs;
  vecs = quotient_up(all, quotient_up(all, vecs));  // tasks of one size
  return {keys, vecs, task_floats(a, keys, vecs)};
}

// Some vectors of queries, and what they have gathered so far.
struct QueryTile {
  int64_t first, queries;  // those that are real
  int vecs;
  bool started;        // o holds sums
  float* q;            // [D, lanes]
  float* o;            // [E, lanes]
  float *top, *total;  // [lanes] largest score, sum of weights
};

// One head's block of queries on its way over the keys.
struct Task {
  const Attention &a, &late;
  int64_t batch, head;
  Span span;
  bool exhaustive;  // hidden keys count with their fill
  int64_t key, n;   // the block of keys
  Strided k, v;     // its rows
  int v_finite;     // -1: not looked yet
  float *scores, *rows, *late_rows, *lines, *factor;
};

Strided rows_of(const View& x, int64_t batch, int64_t head, int64_t first, int64_t n, int64_t columns, float* room) {
  const int64_t at = batch * x.stride[0] + head * x.stride[1] + first * x.stride[2];
  if (direct(x)) return {static_cast<const float*>(x.data) + at, x.stride[2], x.stride[3]};
  for (int64_t i = 0; i < n; ++i)
    elements_f32(x.data, x.type, at + i * x.stride[2], x.stride[3], columns, room + i * columns);
  return {room, columns, 1};
}

enum class Sees { none, some, all };

// Without regard to masks that are tensors.
Sees reach(const Task& t, const QueryTile& tile) {
  const Attention& a = t.a;
  const int64_t last = tile.first + tile.queries - 1, last_key = t.key + t.n - 1;
  bool all = last_key < t.span.keys, none = t.key >= t.span.keys;
  if (a.has_high) {
    none = none || t.key > last + t.span.high;
    all = all && last_key <= tile.first + t.span.high;
  }
  if (a.has_low) {
    none = none || last_key < tile.first + t.span.low;
    all = all && t.key >= last + t.span.low;
  }
  return none ? Sees::none : all ? Sees::all : Sees::some;
}

// The rows of the masks of `a` for a tile, keys down and queries across; false when they change nothing.
bool gather_rows(Task& t, const QueryTile& tile, const Attention& a, float* rows, Sees& sees) {
  const int64_t width = tile.vecs * kLanes;
  int64_t hidden = 0;
  bool plain = true;
  const bool same =
      a.hides.stride[2] == 0 && a.adds[0].stride[2] == 0 && a.adds[1].stride[2] == 0 && !a.q_segments.present;
  if (same) {
    const RowFacts facts = mask_row(a, t.batch, t.head, tile.first, t.key, t.n, t.lines);
    hidden = facts.hidden * tile.queries;
    plain = facts.plain;
    if (hidden != 0 || !plain)
      for (int64_t j = 0; j < t.n; ++j)
        for (int64_t x = 0; x < width; x += kLanes) store(rows + j * width + x, splat(t.lines[j]));
  } else {
    for (int64_t x = 0; x < width; x += kLanes) {
      const int64_t m = least(kLanes, most_of(tile.queries - x, 0));
      for (int64_t i = 0; i < m; ++i) {
        const RowFacts facts = mask_row(a, t.batch, t.head, tile.first + x + i, t.key, t.n, t.lines + i * t.n);
        hidden += facts.hidden;
        plain = plain && facts.plain;
      }
      for (int64_t j = 0; j < t.n; j += kLanes) {
        if (m == kLanes && j + kLanes <= t.n) {
          transpose_square(t.lines + j, t.n, rows + j * width + x, width);
          continue;
        }
        for (int64_t y = j; y < least(j + kLanes, t.n); ++y)
          for (int64_t i = 0; i < kLanes; ++i) rows[y * width + x + i] = i < m ? t.lines[i * t.n + y] : 0;
      }
    }
  }
  if (hidden == t.n * tile.queries) sees = Sees::none;
  if (hidden != 0 && sees == Sees::all) sees = Sees::some;
  return hidden != 0 || !plain;
}

// Which masks a tile's scores pass. `banded`: keys out of reach are hidden.
struct Passes {
  bool banded, rows, late;
};

// Caps and masks the scores [n, lanes].
template <int V>
void finish_scores(const Task& t, const QueryTile& tile, const Passes& passes) {
  constexpr int kWidth = V * kLanes;
  const Attention& a = t.a;
  VecI lane = {};
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  // A key's distance from a query is at most `high` and at least `low`.
  const int32_t none = INT32_MAX;
  const int32_t high = a.has_high ? static_cast<int32_t>(t.span.high) : none;
  const int32_t low = a.has_low ? static_cast<int32_t>(t.span.low) : -none;
  for (int64_t j = 0; j < t.n; ++j) {
    const bool past = t.key + j >= t.span.keys;
    for (int x = 0; x < kWidth; x += kLanes) {
      float* at = t.scores + j * kWidth + x;
      Vec s = load(at);
      if (a.cap != 0) s = vtanh(s) * a.cap;
      if (passes.rows) s = masked(s, load(t.rows + j * kWidth + x), a.fill);
      if (passes.banded) {
        const VecI distance = splat_int(static_cast<int32_t>(t.key + j - tile.first - x)) - lane;
        s = (distance > high) | (distance < low) | splat_int(past ? -1 : 0) ? splat(a.fill) : s;
      }
      if (passes.late) s = masked(s, load(t.late_rows + j * kWidth + x), a.fill);
      store(at, s);
    }
  }
}

// Scores become weights; tells what is to become of the sums so far, and by which factor.
template <int V>
TESSERA_OUTLINE Old weigh(float* scores, int64_t n, const QueryTile& tile, float* factor) {
  constexpr int kWidth = V * kLanes;
  VecI moved = {};
  for (int x = 0; x < kWidth; x += kLanes) {
    const Vec before = load(tile.top + x);
    Vec top = before;
    for (int64_t j = 0; j < n; ++j) top = vmax(load(scores + j * kWidth + x), top);
    const Vec shift = top == -__builtin_inff() ? Vec{} : top;  // nothing seen yet: all weights are 0
    Vec sum = {};
#pragma GCC unroll 2
    for (int64_t j = 0; j < n; ++j) {
      float* at = scores + j * kWidth + x;
      const Vec e = power_of_two((load(at) - shift) * kLog2e);
      store(at, e);
      sum += e;
    }
    const Vec shrunk = power_of_two((before - shift) * kLog2e);
    store(factor + x, shrunk);
    store(tile.top + x, top);
    store(tile.total + x, fma(load(tile.total + x), shrunk, sum));
    moved |= top != before;
  }
  int32_t lanes[kLanes];
  memcpy(lanes, &moved, sizeof moved);
  int32_t any = 0;
  for (int i = 0; i < kLanes; ++i) any |= lanes[i];
  return !tile.started ? Old::none : any != 0 ? Old::scaled : Old::kept;
}

template <int V>
void pass(Task& t, QueryTile& tile) {
  const Attention& a = t.a;
  Sees sees = reach(t, tile);
  if (sees == Sees::none && !t.exhaustive) return;
  Passes passes = {sees != Sees::all, false, false};
  passes.rows = a.has_rows() && gather_rows(t, tile, a, t.rows, sees);
  passes.late = a.has_late() && gather_rows(t, tile, t.late, t.late_rows, sees);
  if (sees == Sees::none && !t.exhaustive) return;
  product<V>(t.k, t.n, tile.q, a.depth, t.scores, Old::none, nullptr);
  if (a.cap != 0 || passes.rows || passes.banded || passes.late) finish_scores<V>(t, tile, passes);
  const Old old = weigh<V>(t.scores, t.n, tile, t.factor);
  // Hidden keys weigh 0, which their values, should they be NaN, must not see.
  if (sees != Sees::all && t.v_finite < 0) t.v_finite = all_finite(t.v, t.n, a.width);
  const Strided v = {t.v.data, t.v.column, t.v.row};
  if (sees != Sees::all && t.v_finite == 0) {
    guarded_product<V>(v, a.width, t.scores, t.n, tile.o, old, t.factor);
  } else {
    product<V>(v, a.width, t.scores, t.n, tile.o, old, t.factor);
  }
  tile.started = true;
}

// y of the tile's queries: the sums over the total.
void finish_tile(const Attention& a, int64_t batch, int64_t head, const QueryTile& tile) {
  alignas(64) float square[kLanes * kLanes];
  const int64_t width = tile.vecs * kLanes;
  const int64_t at = batch * a.y_stride[0] + head * a.y_stride[1] + tile.first * a.y_stride[2];
  for (int64_t x = 0; x < tile.queries; x += kLanes) {
    const Vec total = load(tile.total + x);
    const Vec factor = total == 0.f ? Vec{} : 1.f / total;
    const int64_t m = least(kLanes, tile.queries - x);
    for (int64_t e = 0; e < a.width; e += kLanes) {
      const int64_t n = least(kLanes, a.width - e);
      for (int64_t i = 0; i < n; ++i)
        store(square + i * kLanes, tile.started ? load(tile.o + (e + i) * width + x) * factor : Vec{});
      for (int64_t i = n; i < kLanes; ++i) store(square + i * kLanes, Vec{});
      transpose_square(square, kLanes, square, kLanes);
      for (int64_t i = 0; i < m; ++i)
        put_elements(square + i * kLanes, a.y, a.y_type, at + (x + i) * a.y_stride[2] + e, n);
    }
  }
}

// The most that a hidden score of the query can be.
float highest_fill(const Task& t, int64_t query) {
  const Attention& a = t.a;
  if (!a.has_late()) return a.fill;
  float most = -__builtin_inff();
  for (int64_t key = 0; key < a.keys; key += kLanes) {
    const int64_t n = least(kLanes, a.keys - key);
    mask_row(t.late, t.batch, t.head, query, key, n, t.lines);
    for (int64_t j = 0; j < n; ++j) most = t.lines[j] > most || t.lines[j] != t.lines[j] ? t.lines[j] : most;
  }
  return a.fill + most;
}

// Whether hidden keys count: they may be left out where 2^(fill - top) is 0 for every query.
bool shows_hidden(const Task& t, const QueryTile* tiles, int count) {
  const Attention& a = t.a;
  if (!a.fills()) return false;
  const bool same = a.late.stride[2] == 0;
  float fill = highest_fill(t, tiles[0].first);
  for (int i = 0; i < count; ++i)
    for (int64_t x = 0; x < tiles[i].queries; ++x) {
      if (!same) fill = highest_fill(t, tiles[i].first + x);
      if (!((tiles[i].top[x] - fill) * kLog2e > 127)) return true;
    }
  return false;
}

// Queries [first, first + m) of one head.
void attend(const Attention& a, const Cut& cut, int64_t batch, int64_t head, int64_t first, int64_t m, float* work) {
  const auto take = [&](int64_t n) {
    float* at = work;
    work += n;
    return at;
  };
  const Attention late = late_of(a);
  Task t = {a,  late, batch, head,    span_of(a, batch), false,   0,       0,
            {}, {},   -1,    nullptr, nullptr,           nullptr, nullptr, nullptr};
  t.scores = take(cut.keys * kQueryVecs * kLanes);
  t.rows = take(cut.keys * kQueryVecs * kLanes);
  if (a.has_late()) t.late_rows = take(cut.keys * kQueryVecs * kLanes);
  t.lines = take(cut.keys * kLanes);
  t.factor = take((kQueryVecs + kLanes) * kLanes);
  QueryTile tiles[kTaskQueries / kLanes];
  int count = 0;
  const int64_t vecs = quotient_up(m, kLanes);
  for (int64_t at = 0; at < vecs; ++count) {
    // Of four vectors left, two and two: a tile of one would wait for its sums.
    const int64_t left = vecs - at;
    QueryTile& tile = tiles[count];
    tile.vecs = static_cast<int>(left == 4 ? 2 : least(left, kQueryVecs));
    tile.first = first + at * kLanes;
    tile.queries = least(tile.vecs * kLanes, first + m - tile.first);
    const int64_t width = tile.vecs * kLanes;
    tile.q = take(a.depth * width);
    tile.o = take(a.width * width);
    tile.top = take(width);
    tile.total = take(width);
    const int64_t from = batch * a.q.stride[0] + head * a.q.stride[1] + tile.first * a.q.stride[2];
    if (a.q.type == kF32) {
      pack_transposed({static_cast<const float*>(a.q.data) + from, a.q.stride[2], a.q.stride[3]}, tile.queries, a.depth,
                      a.scale, tile.q, width);
    } else {
      for (int64_t d = 0; d < a.depth; ++d)
        for (int64_t i = 0; i < width; ++i)
          tile.q[d * width + i] =
              i < tile.queries ? element_f32(a.q.data, a.q.type, from + i * a.q.stride[2] + d * a.q.stride[3]) * a.scale
                               : 0;
    }
    at += tile.vecs;
  }
  float* k_room = work;
  float* v_room = k_room + cut.keys * a.depth;
  const int64_t group = head / (a.heads / a.groups);
  for (;;) {
    for (int i = 0; i < count; ++i) {
      tiles[i].started = false;
      for (int64_t x = 0; x < tiles[i].vecs * kLanes; ++x) {
        tiles[i].top[x] = -__builtin_inff();
        tiles[i].total[x] = 0;
        if (!a.sinks.present) continue;
        tiles[i].top[x] = element_f32(a.sinks.data, a.sinks.type, head * a.sinks.stride[0]);
        tiles[i].total[x] = 1;
      }
    }
    Range range = visible_keys(a, t.span, first, first + m - 1);
    if (t.exhaustive) range = {0, a.keys};
    for (t.key = range.begin; t.key < range.end; t.key += cut.keys) {
      t.n = least(cut.keys, range.end - t.key);
      t.k = rows_of(a.k, batch, group, t.key, t.n, a.depth, k_room);
      t.v = rows_of(a.v, batch, group, t.key, t.n, a.width, v_room);
      t.v_finite = -1;
      for (int i = 0; i < count; ++i) {
        if (tiles[i].vecs == 3) {
          pass<3>(t, tiles[i]);
        } else if (tiles[i].vecs == 2) {
          pass<2>(t, tiles[i]);
        } else {
          pass<1>(t, tiles[i]);
        }
      }
    }
    if (t.exhaustive || !shows_hidden(t, tiles, count)) break;
    t.exhaustive = true;
  }
  for (int i = 0; i < count; ++i) finish_tile(a, batch, head, tiles[i]);
}

bool takes_scratch(const Attention& a, const Cut& cut) { return !takes_few(a) && cut.floats > kWork; }

size_t attention_scratch(const Args& args) noexcept {
  const Attention a = attention_of(args);
  if (takes_few(a)) return few_scratch(a);
  const Cut cut = cut_of(a);
  return takes_scratch(a, cut) ? static_cast<size_t>(cut.floats) * 4 : 0;
}

int attention(const Args& args) noexcept {
  const Attention a = attention_of(args);
  if (element_count(args.out[0]) == 0) return kDone;
  if (takes_few(a)) {
    attend_few(a, static_cast<float*>(args.scratch), args.parallel);
    return kDone;
  }
  const Cut cut = cut_of(a);
  const int64_t most = cut.vecs * kLanes, blocks = quotient_up(a.queries, most);
  const auto run = [&](int64_t begin, int64_t end, float* work) {
    for (int64_t i = begin; i < end; ++i) {
      // The later queries first: under a causal mask they see the most, and threads then end together.
      const int64_t one = i / blocks, first = (blocks - 1 - i % blocks) * most;
      attend(a, cut, one / a.heads, one % a.heads, first, least(most, a.queries - first), work);
    }
  };
  const int64_t tasks = a.batch * a.heads * blocks;
  if (takes_scratch(a, cut)) {
    run(0, tasks, static_cast<float*>(args.scratch));
    return kDone;
  }
  const int64_t work = most * (a.keys + 1) * (a.depth + a.width + 1);
  parallel_for(args.parallel, tasks, 1 + 262144 / work, [&](int64_t begin, int64_t end) {
    alignas(64) float room[kWork];
    run(begin, end, room);
  });
  return kDone;
}

}  // namespace

TESSERA_FAMILY(attention, {"attention_f32", attention, attention_scratch})
