// ragged_attention: query rows that see the same keys pass over them in blocks with a running maximum and sum (Milakov
// and Gimelshein 2018); spans of many blocks are summed apart and merged in order (Dao et al. 2023, "Flash-Decoding"),
// so that few rows with many keys still are work for all threads. Blocks and spans begin at multiples of kBlockKeys and
// kSpanKeys in the sequence and rows are computed alone, so that a row's result depends neither on the other rows of
// the step nor on how they are divided.
#include "kernels/abi.h"
#include "kernels/isa/attention_scores.h"
#include "kernels/isa/export.h"
#include "kernels/isa/loops.h"
#include "kernels/isa/math.h"
#include "kernels/isa/stored.h"

namespace {

using namespace tessera::kernels;

constexpr int64_t kRows = 32;       // query rows of a task: they share what is read of K and V
constexpr int64_t kWidest = 512;    // elements of a head
constexpr int64_t kSpanKeys = 512;  // what is read of them, 64 KiB at least, is much more than what is left of them
constexpr int64_t kPartBytes = int64_t{16} << 20;  // what may be left of all spans of a call

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

Ragged ragged_of(const Args& args) {
  Ragged a;
  a.q = args.in[0];
  a.k = args.in[1];
  a.v = args.in[2];
  const auto optional = [&](int i) -> const void* {
    return i < args.n_in && args.in[i].present ? args.in[i].data : nullptr;
  };
  a.starts = static_cast<const int64_t*>(args.in[3].data);
  a.table = static_cast<const int64_t*>(optional(4));
  a.lengths = static_cast<const int64_t*>(optional(5));
  a.bias = static_cast<const float*>(optional(6));
  a.k_scale = args.n_in > 7 ? args.in[7] : View();
  a.v_scale = args.n_in > 8 ? args.in[8] : View();
  a.sequences = args.in[3].shape[0] - 1;
  a.pages = a.table != nullptr ? args.in[4].shape[1] : 0;
  a.distances = a.bias != nullptr ? args.in[6].shape[1] : 0;
  a.heads = a.q.shape[1];
  a.groups = a.k.shape[1];
  a.repeat = a.groups == 0 ? 0 : a.heads / a.groups;
  a.depth = a.q.shape[2];
  a.width = a.v.shape[3];
  a.scale = static_cast<float>(args.attrs[0].f);
  a.softcap = static_cast<float>(args.attrs[1].f);
  a.left = args.attrs[2].i;
  a.right = args.attrs[3].i;
  a.page = a.k.shape[2];
  a.y = static_cast<float*>(args.out[0].data);
  return a;
}

// Starts, lengths and table come from the run: nothing outside of k and v may be read.
int check(const Ragged& a) {
  if (a.sequences < 0 || a.starts[0] != 0) return kValueInvalid;
  if (a.starts[a.sequences] != a.q.shape[0]) return kValueInvalid;
  if (a.groups == 0 || a.heads % a.groups != 0) return kValueInvalid;
  if (a.depth > kWidest || a.width > kWidest || (a.table == nullptr && a.page != 1)) return kValueInvalid;
  const auto scaled = [&](const View& scale) {
    return scale.present && scale.shape[0] == a.k.shape[0] && scale.shape[1] == a.groups && scale.shape[2] == a.page;
  };
  if (a.k.type == kI8 && !(scaled(a.k_scale) && scaled(a.v_scale))) return kValueInvalid;
  for (int64_t b = 0; b < a.sequences; ++b) {
    if (a.starts[b + 1] < a.starts[b]) return kValueInvalid;
    if (a.table == nullptr) continue;
    if (a.lengths[b] < a.tokens(b) || a.lengths[b] > a.pages * a.page) return kValueInvalid;
    for (int64_t i = 0; i * a.page < a.lengths[b]; ++i) {
      const int64_t page = a.table[b * a.pages + i];
      if (page < 0 || page >= a.k.shape[0]) return kIndexOutOfRange;
    }
  }
  return kDone;
}

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
void merge(const Seen& to, int64_t i, const Seen& from, int64_t j) {
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

void finish(const Ragged& a, const Seen& seen, int64_t i, int64_t token, int64_t head) {
  const float factor = seen.total[i] == 0 ? 1 : 1 / seen.total[i];
  float* y = a.y + (token * a.heads + head) * a.width;
  for (int64_t e = 0; e < a.width; ++e) y[e] = seen.o[i * seen.columns + e] * factor;
}

// Query rows of one sequence and group, and where they are computed.
struct Task {
  const Ragged& a;
  int64_t b, group, rows;
  int64_t depth;  // a.depth in whole vectors
  Row* row;
  float* q;                // [rows, depth], times the scale
  float* scores;           // [rows, kBlockKeys]
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

// The scores of row i become weights; its sums so far follow its largest score.
void weigh(const Task& t, int64_t i, const Block& block) {
  const Ragged& a = t.a;
  const auto [begin, end] = block.seen[i];
  if (begin == end) return;
  float* s = t.scores + i * kBlockKeys;
  const int64_t low = begin / kLanes * kLanes;
  if (a.k.type == kI8)
    for (int64_t j = begin; j < end; ++j) s[j] *= block.k_scale[j];
  if (a.softcap != 0)
    for (int64_t j = low; j < end; j += kLanes) store(s + j, vtanh(load(s + j) / a.softcap) * a.softcap);
  if (a.bias != nullptr)
    for (int64_t j = begin; j < end; ++j) {
      const int64_t at = block.first + j - t.row[i].place + a.distances / 2;
      s[j] += a.bias[t.row[i].head * a.distances + (at < 0 ? 0 : least(at, a.distances - 1))];
    }
  for (int64_t j = low; j < begin; ++j) s[j] = -__builtin_inff();
  for (int64_t j = end; j % kLanes != 0; ++j) s[j] = -__builtin_inff();
  Vec most = splat(t.part.most[i]);
  for (int64_t j = low; j < end; j += kLanes) most = vmax(load(s + j), most);
  const float top = max_lanes(most), shift = top == -__builtin_inff() ? 0 : top;
  Vec sum = {};
  for (int64_t j = low; j < end; j += kLanes) {
    const Vec e = power_of_two((load(s + j) - shift) * kLog2e);
    store(s + j, e);
    sum += e;
  }
  if (top != t.part.most[i]) {
    const float factor = power(t.part.most[i] - shift);
    float* o = t.part.o + i * t.part.columns;
    for (int64_t e = 0; e < t.part.columns; e += kLanes) store(o + e, load(o + e) * factor);
    t.part.total[i] *= factor;
    t.part.most[i] = top;
  }
  t.part.total[i] += sum_lanes(sum);
  if (a.v.type == kI8)
    for (int64_t j = begin; j < end; ++j) s[j] *= block.v_scale[j];
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

// A block whose rows lie in memory, or in t's rooms when `copied`. Fetches v while scores are made, and `next` while
// values are added.
template <uint8_t kType>
TESSERA_OUTLINE void take_block(const Task& t, const Block& block, bool copied, Fetch next) {
  const auto runs = [&](const View& x, const float* room, int64_t row, const auto& f) {
    if (copied)
      f(Stored{room, 0, row}, int64_t{0}, block.n);
    else
      each_run(t, x, block, f);
  };
  runs(t.a.k, t.k_room, t.depth, [&](const Stored& k, int64_t at, int64_t n) {
    Fetch values = copied ? Fetch() : fetch_of<kType>(t.a.from(t.a.v, t.b, t.group, block.first + at), n, t.a.width);
    each_few(t.rows, [&](auto count, int64_t i) {
      score_rows<kType, decltype(count)::value>(t.q + i * t.depth, t.depth, k, n, t.scores + i * kBlockKeys + at,
                                                values);
    });
  });
  for (int64_t i = 0; i < t.rows; ++i) weigh(t, i, block);
  runs(t.a.v, t.v_room, t.part.columns, [&](const Stored& v, int64_t at, int64_t n) {
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

template <uint8_t kType>
void take_keys(const Task& t, int64_t first, int64_t end, Fetch next) {
  const Ragged& a = t.a;
  // Many rows share what is converted.
  constexpr int64_t kFew = 8;
  const bool whole = a.depth == t.depth && a.width == t.part.columns;
  const bool copied = !whole || (kType != kF32 && t.rows > kFew);
  Block block;
  for (; first < end; first += kBlockKeys) {
    block.first = first;
    block.n = least(kBlockKeys, end - first);
    for (int64_t i = 0; i < t.rows; ++i) {
      const Row& row = t.row[i];
      block.seen[i] = {most_of(row.low - first, 0), least(row.high - first, block.n)};
      if (block.seen[i].begin >= block.seen[i].end) block.seen[i] = {0, 0};
    }
    if constexpr (kType == kI8)
      for (int v = 0; v < 2; ++v)
        each_run(t, v ? a.v_scale : a.k_scale, block, [&](const Stored& from, int64_t at, int64_t n) {
          for (int64_t j = 0; j < n; ++j)
            (v ? block.v_scale : block.k_scale)[at + j] = static_cast<const float*>(from.data)[from.at + j * from.row];
        });
    const int64_t after = first + block.n;
    const Fetch following = after < end ? fetch_of<kType>(a.from(a.k, t.b, t.group, after),
                                                          a.run(after, least(end, after + kBlockKeys)), a.depth)
                                        : next;
    if (copied) {
      copy_block<kType>(t, a.k, block, t.k_room, t.depth);
      copy_block<kType>(t, a.v, block, t.v_room, t.part.columns);
      take_block<kF32>(t, block, true, Fetch());
    } else {
      take_block<kType>(t, block, false, following);
    }
  }
}

using TakeKeys = void (*)(const Task& t, int64_t first, int64_t end, Fetch next);
TakeKeys take_keys_of(uint8_t type) {
  return type == kF32    ? take_keys<kF32>
         : type == kF16  ? take_keys<kF16>
         : type == kBF16 ? take_keys<kBF16>
                         : take_keys<kI8>;
}

// How a sequence is divided: its tasks begin at `task`, each a group's rows, up to kRows of them, with all their keys;
// or with one span of them, whose sums begin at `slot`: [spans, groups, rows].
struct Share {
  int64_t task, spans, slot;
};
int64_t bands(const Ragged& a, int64_t b) { return quotient_up(a.rows(b), kRows); }

// Which of a step's tasks: bands of a group of a sequence follow each other, and spans of a band.
struct Place {
  int64_t b, group, first, span;
};
Place place_of(const Ragged& a, const Share* shares, int64_t task) {
  Place at = {};
  while (at.b + 1 < a.sequences && shares[at.b + 1].task <= task) ++at.b;
  const int64_t spans = most_of(shares[at.b].spans, 1), rest = task - shares[at.b].task;
  at.span = rest % spans;
  at.first = rest / spans % bands(a, at.b) * kRows;
  at.group = rest / spans / bands(a, at.b);
  return at;
}

// The first keys that a task reads.
Fetch beginning(const Ragged& a, const Place& at) {
  const int64_t key = at.span * kSpanKeys, end = least(a.keys(at.b), key + kBlockKeys);
  if (a.table == nullptr || a.left >= 0 || key >= end) return {};
  const Stored k = a.from(a.k, at.b, at.group, key);
  const int64_t n = a.run(key, end);
  return a.k.type == kF32  ? fetch_of<kF32>(k, n, a.depth)
         : a.k.type == kI8 ? fetch_of<kI8>(k, n, a.depth)
                           : fetch_of<kF16>(k, n, a.depth);
}

// One task; sums of a span go to `sums`. Fetches `next` at last.
void attend(const Ragged& a, const Place& at, const Share& share, const Seen& sums, const Fetch& next) {
  alignas(64) float q[kRows * kWidest], o[2][kRows * kWidest], scores[kRows * kBlockKeys] = {};
  alignas(64) float room[2][kBlockKeys * kWidest];
  float most[2][kRows], total[2][kRows];
  Row row[kRows];
  const int64_t keys = a.keys(at.b), tokens = a.tokens(at.b), rows = least(kRows, a.rows(at.b) - at.first);
  const int64_t depth = quotient_up(a.depth, kLanes) * kLanes, columns = quotient_up(a.width, kLanes) * kLanes;
  const int64_t padded = quotient_up(rows, 4) * 4;
  memset(q, 0, static_cast<size_t>(padded * depth) * 4);
  int64_t low = keys, high = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t token = (at.first + i) / a.repeat;
    Row& r = row[i];
    r.head = at.group * a.repeat + (at.first + i) % a.repeat;
    r.place = keys - tokens + token;
    r.low = a.left < 0 || r.place < a.left ? 0 : r.place - a.left;
    r.high = a.right < 0 || r.place + a.right >= keys ? keys : r.place + a.right + 1;
    const float* from =
        static_cast<const float*>(a.q.data) + (a.starts[at.b] + token) * a.q.stride[0] + r.head * a.q.stride[1];
    for (int64_t d = 0; d < a.depth; ++d) q[i * depth + d] = from[d] * a.scale;
    low = least(low, r.low);
    high = most_of(high, r.high);
  }
  const Task task = {
      a, at.b, at.group, rows, depth, row, q, scores, room[0], room[1], {o[0], most[0], total[0], columns}};
  const Seen all = {o[1], most[1], total[1], columns};
  const bool apart = share.spans > 0;
  const int64_t first = apart ? at.span : low / kSpanKeys, last = apart ? at.span + 1 : quotient_up(high, kSpanKeys);
  all.clear(rows);
  const TakeKeys take = take_keys_of(a.k.type);
  for (int64_t span = first; span < last; ++span) {
    const int64_t begin = most_of(span * kSpanKeys, low / kBlockKeys * kBlockKeys);
    const int64_t end = least((span + 1) * kSpanKeys, high);
    task.part.clear(padded);
    Fetch coming = span + 1 < last ? beginning(a, {at.b, at.group, at.first, span + 1}) : next;
    if (begin < end) take(task, begin, end, coming);
    for (int64_t i = 0; i < rows && !apart; ++i) merge(all, i, task.part, i);
  }
  if (!apart) {
    for (int64_t i = 0; i < rows; ++i) finish(a, all, i, a.starts[at.b] + (at.first + i) / a.repeat, row[i].head);
    return;
  }
  const int64_t slot = share.slot + (at.span * a.groups + at.group) * a.rows(at.b) + at.first;
  memcpy(sums.o + slot * columns, o[0], static_cast<size_t>(rows * columns) * 4);
  memcpy(sums.most + slot, most[0], static_cast<size_t>(rows) * 4);
  memcpy(sums.total + slot, total[0], static_cast<size_t>(rows) * 4);
}

// Sequences with more keys than their share of the work are cut into spans, as far as `slots` rows of sums suffice.
// Gives the number of tasks. What is cut does not change results.
int64_t divide(const Ragged& a, int threads, int64_t slots, Share* shares) {
  constexpr int64_t kTasks = 16;  // of a thread, so that one that starts late does not make the others wait
  double work = 0;
  const auto work_of = [&](int64_t b) { return static_cast<double>(least(a.rows(b), kRows) * a.keys(b)); };
  for (int64_t b = 0; b < a.sequences; ++b) work += work_of(b) * static_cast<double>(a.groups * bands(a, b));
  int64_t task = 0, slot = 0;
  for (int64_t b = 0; b < a.sequences; ++b) {
    const int64_t spans = quotient_up(a.keys(b), kSpanKeys), rows = a.groups * a.rows(b);
    const bool apart = threads > 1 && spans > 1 && work_of(b) * static_cast<double>(kTasks * threads) > work &&
                       rows * spans <= slots - slot;
    shares[b] = {task, apart ? spans : 0, slot};
    task += a.groups * bands(a, b) * (apart ? spans : 1);
    slot += apart ? rows * spans : 0;
  }
  return task;
}

// Rows of sums that a step of such sizes may need, as far as kPartBytes go.
int64_t most_slots(const Args& args, int64_t columns) {
  const int64_t tokens = args.in[0].shape[0], heads = args.in[0].shape[1];
  const bool paged = args.n_in > 4 && args.in[4].present;
  const int64_t keys = paged ? args.in[4].shape[1] * args.in[1].shape[2] : tokens;
  const int64_t most = kPartBytes / 4 / (columns + 2), spans = quotient_up(keys, kSpanKeys);
  return spans < 2 ? 0 : tokens * heads > most / spans ? most : tokens * heads * spans;
}
int64_t columns_of(const Args& args) { return quotient_up(args.in[2].shape[3], kLanes) * kLanes; }

size_t scratch_bytes(const Args& args) noexcept {
  const int64_t columns = columns_of(args), sequences = most_of(args.in[3].shape[0], 1);
  const int64_t shares = quotient_up(sequences * static_cast<int64_t>(sizeof(Share)), 64) * 64;
  return static_cast<size_t>(shares + most_slots(args, columns) * (columns + 2) * 4);
}

int ragged_attention(const Args& args) noexcept {
  const Ragged a = ragged_of(args);
  if (element_count(args.out[0]) == 0) return kDone;
  if (const int wrong = check(a)) return wrong;
  const int64_t columns = columns_of(args), slots = most_slots(args, columns);
  Share* shares = static_cast<Share*>(args.scratch);
  float* room =
      reinterpret_cast<float*>(static_cast<char*>(args.scratch) + scratch_bytes(args)) - slots * (columns + 2);
  const Seen sums = {room, room + slots * columns, room + slots * (columns + 1), columns};
  const int threads = args.parallel == nullptr ? 1 : args.parallel->threads;
  const int64_t tasks = divide(a, threads, slots, shares);
  int64_t work = 0;
  for (int64_t b = 0; b < a.sequences; ++b) work += a.rows(b) * a.groups * (a.keys(b) + 1) * (a.depth + a.width);
  // A task of fewer than 2^15 multiply-adds would take less time than it takes to hand it over; and one after another
  // on the same thread, tasks fetch each other's keys.
  const int64_t grain = most_of(1 + (int64_t{1} << 15) / (work / (tasks + 1) + 1), tasks / (16 * threads));
  parallel_for(args.parallel, tasks, grain, [&](int64_t begin, int64_t end) {
    Place at = place_of(a, shares, begin);
    Fetch keys = beginning(a, at);
    keys.some(keys.end - keys.at);
    for (int64_t task = begin; task < end; ++task) {
      const Place now = at;
      if (task + 1 < end) at = place_of(a, shares, task + 1);
      attend(a, now, shares[now.b], sums, task + 1 < end ? beginning(a, at) : Fetch());
    }
  });
  for (int64_t b = 0; b < a.sequences; ++b) {
    if (shares[b].spans == 0) continue;
    const int64_t rows = a.rows(b);
    parallel_for(args.parallel, a.groups * rows, 1 + 8192 / (shares[b].spans * columns),
                 [&](int64_t begin, int64_t end) {
                   alignas(64) float o[kWidest];
                   float most, total;
                   const Seen all = {o, &most, &total, columns};
                   for (int64_t i = begin; i < end; ++i) {
                     all.clear(1);
                     for (int64_t span = 0; span < shares[b].spans; ++span)
                       merge(all, 0, sums, shares[b].slot + span * a.groups * rows + i);
                     finish(a, all, 0, a.starts[b] + i % rows / a.repeat, i / rows * a.repeat + i % rows % a.repeat);
                   }
                 });
  }
  return kDone;
}

}  // namespace

TESSERA_FAMILY(ragged, {"ragged_attention_f32", ragged_attention, scratch_bytes})
