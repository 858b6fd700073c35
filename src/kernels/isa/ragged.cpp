// ragged_attention: each query row passes over its keys in blocks with a running maximum and sum (Milakov and
// Gimelshein 2018). Blocks begin at multiples of kKeys in the sequence and rows are computed alone, so that a row's
// result depends neither on the other rows of the step nor on how they are divided.
#include "kernels/abi.h"
#include "kernels/isa/export.h"
#include "kernels/isa/half.h"
#include "kernels/isa/loops.h"
#include "kernels/isa/math.h"

namespace {

using namespace tessera::kernels;

constexpr int64_t kKeys = 64;     // K and V of a block: 32 KiB at D = 64, which L1 or L2 keeps for all rows of a task
constexpr int64_t kRows = 32;     // query rows of a task: they share what is read of K and V
constexpr int64_t kWidest = 512;  // elements of a head that are converted from a narrower type

struct Ragged {
  View q, k, v;
  const int64_t* starts;
  const int64_t* table;    // [B, W] or null
  const int64_t* lengths;  // [B] or null
  const float* bias;       // [H, R] or null
  View k_scale, v_scale;   // [M, G, 1], of k and v in i8
  int64_t sequences, pages, page;
  int64_t heads, groups, repeat, depth, width, distances;
  float scale, softcap;
  int64_t left, right;
  float* y;

  int64_t keys(int64_t b) const { return lengths != nullptr ? lengths[b] : starts[b + 1] - starts[b]; }
  // The row of k and v in which token t of sequence b lies.
  int64_t row(int64_t b, int64_t t) const {
    return table == nullptr ? starts[b] + t : table[b * pages + t / page] * page + t % page;
  }
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
  a.width = a.v.shape[2];
  a.scale = static_cast<float>(args.attrs[0].f);
  a.softcap = static_cast<float>(args.attrs[1].f);
  a.left = args.attrs[2].i;
  a.right = args.attrs[3].i;
  a.page = args.attrs[4].i;
  a.y = static_cast<float*>(args.out[0].data);
  return a;
}

// Starts, lengths and table come from the run: nothing outside of k and v may be read.
int check(const Ragged& a) {
  if (a.sequences < 0 || a.starts[0] != 0) return kValueInvalid;
  if (a.starts[a.sequences] != a.q.shape[0]) return kValueInvalid;
  if (a.groups == 0 || a.heads % a.groups != 0) return kValueInvalid;
  const auto scaled = [&](const View& scale) {
    return scale.present && scale.shape[0] == a.k.shape[0] && scale.shape[1] == a.groups;
  };
  if (a.k.type == kI8 && !(scaled(a.k_scale) && scaled(a.v_scale))) return kValueInvalid;
  for (int64_t b = 0; b < a.sequences; ++b) {
    if (a.starts[b + 1] < a.starts[b]) return kValueInvalid;
    if (a.table == nullptr) continue;
    const int64_t rows = a.starts[b + 1] - a.starts[b];
    if (a.lengths[b] < rows || a.lengths[b] > a.pages * a.page) return kValueInvalid;
    for (int64_t i = 0; i * a.page < a.lengths[b]; ++i) {
      const int64_t first = a.table[b * a.pages + i];
      const int64_t last = a.lengths[b] - i * a.page < a.page ? a.lengths[b] - i * a.page : a.page;
      if (first < 0 || first > a.k.shape[0] || first * a.page + last > a.k.shape[0]) return kIndexOutOfRange;
    }
  }
  return kDone;
}

// n codes times their scale.
TESSERA_INLINE void scaled_codes(const int8_t* codes, float scale, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(codes[i]) * scale;
}

// Rows of one head of k or v in f32, for the tokens of a block: where they lie, or converted.
void block_rows(const Ragged& a, const View& x, const View& scale, int64_t b, int64_t group, int64_t first, int64_t n,
                float* room, const float** rows) {
  const int64_t width = x.shape[2];
  for (int64_t j = 0; j < n; ++j) {
    const int64_t at = a.row(b, first + j) * x.stride[0] + group * x.stride[1];
    if (x.type == kF32) {
      rows[j] = static_cast<const float*>(x.data) + at;
      continue;
    }
    float* to = room + j * width;
    rows[j] = to;
    if (x.type == kI8) {
      const int64_t place = a.row(b, first + j) * scale.stride[0] + group * scale.stride[1];
      scaled_codes(static_cast<const int8_t*>(x.data) + at, static_cast<const float*>(scale.data)[place], to, width);
      continue;
    }
    const uint16_t* from = static_cast<const uint16_t*>(x.data) + at;
    if (x.type == kF16)
      f16_block_to_f32(from, to, width);
    else
      bf16_block_to_f32(from, to, width);
  }
}

// scores[j] = q . rows[j] for j in [begin, end): four keys at once, which hides the additions' latency.
void score(const float* q, const float* const* rows, int64_t begin, int64_t end, int64_t depth, float* scores) {
  for (int64_t j = begin; j < end; j += 4) {
    const float* k[4];
    for (int i = 0; i < 4; ++i) k[i] = rows[j + i < end ? j + i : j];
    Vec sums[4] = {};
    int64_t d = 0;
    for (; d + kLanes <= depth; d += kLanes) {
      const Vec x = load(q + d);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sums[i] = fma(x, load(k[i] + d), sums[i]);
    }
    for (int i = 0; i < 4 && j + i < end; ++i) {
      float sum = sum_lanes(sums[i]);
      for (int64_t e = d; e < depth; ++e) sum += q[e] * k[i][e];
      scores[j + i] = sum;
    }
  }
}

// y[0, N vectors) += sum over j in [begin, end) of weights[j] rows[j].
template <int N>
TESSERA_INLINE void add_values(const float* weights, const float* const* rows, int64_t at, int64_t begin, int64_t end,
                               float* y) {
  Vec sums[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) sums[i] = load(y + at + i * kLanes);
  for (int64_t j = begin; j < end; ++j) {
    const Vec w = splat(weights[j]);
    const float* v = rows[j] + at;
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) sums[i] = fma(w, load(v + i * kLanes), sums[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) store(y + at + i * kLanes, sums[i]);
}
void weigh(const float* weights, const float* const* rows, int64_t begin, int64_t end, int64_t width, float* y) {
  int64_t at = 0;
  for (; at + 8 * kLanes <= width; at += 8 * kLanes) add_values<8>(weights, rows, at, begin, end, y);
  for (; at + 4 * kLanes <= width; at += 4 * kLanes) add_values<4>(weights, rows, at, begin, end, y);
  for (; at + kLanes <= width; at += kLanes) add_values<1>(weights, rows, at, begin, end, y);
  for (; at < width; ++at) {
    float sum = y[at];
    for (int64_t j = begin; j < end; ++j) sum += weights[j] * rows[j][at];
    y[at] = sum;
  }
}

// One query row: which it is, and what it has seen so far.
struct Row {
  const float* q;
  float* y;
  int64_t head;
  int64_t place;
  int64_t low, high;  // keys that it sees
  float most, total;
};

// Keys [begin, end) of the block that starts at `first`: weights of one row, and its y up to date.
void take_block(const Ragged& a, Row& row, const float* const* k, const float* const* v, int64_t first, int64_t begin,
                int64_t end) {
  float weights[kKeys + kLanes];
  score(row.q, k, begin, end, a.depth, weights);
  for (int64_t j = begin; j < end; ++j) weights[j] *= a.scale;
  if (a.softcap != 0)
    for (int64_t j = begin; j < end; j += kLanes) {
      const int64_t n = end - j < kLanes ? end - j : kLanes;
      store_first(weights + j, n, vtanh(load_first(weights + j, n, 0) / a.softcap) * a.softcap);
    }
  if (a.bias != nullptr)
    for (int64_t j = begin; j < end; ++j) {
      int64_t at = first + j - row.place + a.distances / 2;
      at = at < 0 ? 0 : at >= a.distances ? a.distances - 1 : at;
      weights[j] += a.bias[row.head * a.distances + at];
    }
  float most = row.most;
  for (int64_t j = begin; j < end; ++j) most = weights[j] > most || weights[j] != weights[j] ? weights[j] : most;
  if (most == -__builtin_inff()) return;  // nothing that weighs yet
  if (most != row.most) {
    const float factor = vexp(splat(row.most - most))[0];
    row.total *= factor;
    for (int64_t e = 0; e < a.width; ++e) row.y[e] *= factor;
    row.most = most;
  }
  Vec sum = {};
  for (int64_t j = begin; j < end; j += kLanes) {
    const int64_t n = end - j < kLanes ? end - j : kLanes;
    const Vec e = vexp(load_first(weights + j, n, -__builtin_inff()) - most);
    store_first(weights + j, n, e);
    sum += e;
  }
  row.total += sum_lanes(sum);
  weigh(weights, v, begin, end, a.width, row.y);
}

// Rows [begin, end) of one sequence and group, counted through its tokens and then the group's heads.
void attend(const Ragged& a, int64_t b, int64_t group, int64_t begin, int64_t end) {
  alignas(64) float room[2][kKeys * kWidest];
  Row rows[kRows];
  const int64_t keys = a.keys(b), tokens = a.starts[b + 1] - a.starts[b];
  int64_t low = keys, high = 0;
  for (int64_t i = begin; i < end; ++i) {
    Row& row = rows[i - begin];
    const int64_t token = i / a.repeat;
    row.head = group * a.repeat + i % a.repeat;
    row.q = static_cast<const float*>(a.q.data) + (a.starts[b] + token) * a.q.stride[0] + row.head * a.q.stride[1];
    row.y = a.y + ((a.starts[b] + token) * a.heads + row.head) * a.width;
    row.place = keys - tokens + token;
    row.low = a.left < 0 || row.place < a.left ? 0 : row.place - a.left;
    row.high = a.right < 0 || row.place + a.right >= keys ? keys : row.place + a.right + 1;
    row.most = -__builtin_inff();
    row.total = 0;
    for (int64_t e = 0; e < a.width; ++e) row.y[e] = 0;
    low = row.low < low ? row.low : low;
    high = row.high > high ? row.high : high;
  }
  for (int64_t first = low / kKeys * kKeys; first < high; first += kKeys) {
    const int64_t n = high - first < kKeys ? high - first : kKeys;
    const float *k[kKeys], *v[kKeys];
    block_rows(a, a.k, a.k_scale, b, group, first, n, room[0], k);
    block_rows(a, a.v, a.v_scale, b, group, first, n, room[1], v);
    for (int64_t i = 0; i < end - begin; ++i) {
      const int64_t from = rows[i].low > first ? rows[i].low - first : 0;
      const int64_t to = rows[i].high - first < n ? rows[i].high - first : n;
      if (from < to) take_block(a, rows[i], k, v, first, from, to);
    }
  }
  for (int64_t i = 0; i < end - begin; ++i) {
    const float factor = rows[i].total == 0 ? 1 : 1 / rows[i].total;
    for (int64_t e = 0; e < a.width; ++e) rows[i].y[e] *= factor;
  }
}

int ragged_attention(const Args& args) noexcept {
  const Ragged a = ragged_of(args);
  if (element_count(args.out[0]) == 0) return kDone;
  if (const int wrong = check(a)) return wrong;
  if (a.k.type != kF32 && (a.depth > kWidest || a.width > kWidest)) return kValueInvalid;
  int64_t tasks = 0, work = 0;
  for (int64_t b = 0; b < a.sequences; ++b) {
    const int64_t rows = (a.starts[b + 1] - a.starts[b]) * a.repeat;
    tasks += (rows + kRows - 1) / kRows * a.groups;
    work += rows * a.groups * (a.keys(b) + 1) * (a.depth + a.width);
  }
  // A task of fewer than 2^15 multiply-adds would take less time than it takes to hand it over.
  const int64_t grain = 1 + (int64_t{1} << 15) / (work / (tasks + 1) + 1);
  parallel_for(args.parallel, tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      int64_t b = 0, at = task, blocks = 0, rows = 0;
      for (;; ++b) {
        rows = (a.starts[b + 1] - a.starts[b]) * a.repeat;
        blocks = (rows + kRows - 1) / kRows;
        if (at < blocks * a.groups) break;
        at -= blocks * a.groups;
      }
      const int64_t first = at % blocks * kRows;
      attend(a, b, at / blocks, first, first + kRows < rows ? first + kRows : rows);
    }
  });
  return kDone;
}

}  // namespace

TESSERA_FAMILY(ragged, {"ragged_attention_f32", ragged_attention, nullptr})
