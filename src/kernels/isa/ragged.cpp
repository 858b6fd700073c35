// ragged_attention: query rows that see the same keys pass over them in blocks with a running maximum and sum (Milakov
// and Gimelshein 2018); spans of many blocks are summed apart and merged in order (Dao et al. 2023, "Flash-Decoding"),
// so that few rows with many keys still are work for all threads. Blocks and spans begin at multiples of kBlockKeys and
// kSpanKeys in the sequence and rows are computed alone, so that a row's result depends neither on the other rows of
// the step nor on how they are divided.
#include "kernels/abi.h"
#include "kernels/isa/export.h"
#include "kernels/isa/loops.h"
#include "kernels/isa/ragged_block.h"

namespace {

constexpr int64_t kSpanKeys = 512;                 // much more is read of them, 64 KiB at least, than is left of them
constexpr int64_t kPartBytes = int64_t{16} << 20;  // what may be left of all spans of a call

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
  if (a.k.type == kI8) fetch_scales(a, at.b, at.group, key, n);
  return a.k.type == kF32  ? fetch_of<kF32>(k, n, a.depth)
         : a.k.type == kI8 ? fetch_of<kI8>(k, n, a.depth)
                           : fetch_of<kF16>(k, n, a.depth);
}

// One task; sums of a span go to `sums`. Fetches `next` at last.
void attend(const Ragged& a, const Place& at, const Share& share, const Seen& sums, const Fetch& next) {
  alignas(64) float q[kRows * kWidest], o[2][kRows * kWidest], scores[kRows * kBlockKeys] = {};
  alignas(64) float room[2][kBlockKeys * kWidest];
  alignas(64) int16_t q_codes[kRows * kWidest], w_codes[kRows * kBlockKeys] = {};
  float most[2][kRows], total[2][kRows], q_scale[kRows], w_scale[kRows] = {};
  Row row[kRows];
  const int64_t keys = a.keys(at.b), tokens = a.tokens(at.b), rows = least(kRows, a.rows(at.b) - at.first);
  const bool codes = a.k.type == kI8;
  const int64_t step = codes ? Meeting<kI8>::kStep : kLanes, depth = quotient_up(a.depth, step) * step;
  const int64_t columns = quotient_up(a.width, kLanes) * kLanes;
  const int64_t padded = quotient_up(rows, 4) * 4;
  memset(q, 0, static_cast<size_t>(padded * depth) * 4);
  if (codes) memset(q_codes, 0, static_cast<size_t>(padded * depth) * 2);
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
    if (codes) codes_of<1>(q + i * depth, depth, q_codes + i * depth, q_scale + i);
    low = least(low, r.low);
    high = most_of(high, r.high);
  }
  const void* queries = codes ? static_cast<const void*>(q_codes) : q;
  const Task task = {a,       at.b,   at.group, rows,    depth,   row,     queries,
                     q_scale, scores, w_codes,  w_scale, room[0], room[1], {o[0], most[0], total[0], columns}};
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
  constexpr int64_t kTasks = 16;  // of a thread: those of one that starts late are taken by others
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
