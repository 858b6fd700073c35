// attention in f32: blocks of queries pass over blocks of keys with a running maximum and sum, so that no score matrix
// is ever stored (Milakov and Gimelshein 2018; Dao et al. 2022).
#include "kernels/abi.h"
#include "kernels/isa/export.h"
#include "kernels/isa/gemm.h"
#include "kernels/isa/math.h"

namespace {

using namespace tessera::kernels;

constexpr int64_t kQueries = 48;
constexpr int64_t kKeys = 128;  // scores [48, 128] take 24 KiB: half of an L1, or a slice of L2
// What K and V of some heads may take when packed, in elements: more heads than that go in rounds.
constexpr int64_t kPackedHeads = int64_t{1} << 22;

struct Attention {
  int64_t batch, heads, groups, queries, keys, depth, width;  // B, H, G, T, S, D, E
  View q, k, v, mask;
  int64_t mask_stride[4];  // over [B, H, T, S]
  float scale, softcap;
  bool causal;
  int64_t offset;
  float* y;

  int64_t padded_keys() const { return ceil_div(keys, kTileColumns) * kTileColumns; }
  int64_t padded_width() const { return ceil_div(width, kTileColumns) * kTileColumns; }
  int64_t packed_keys() const { return padded_keys() * depth; }
  int64_t packed() const { return packed_keys() + keys * padded_width(); }
  int64_t round() const {
    const int64_t all = batch * groups, most = packed() == 0 ? all : kPackedHeads / packed();
    return most < 1 ? 1 : most < all ? most : all;
  }
};

Attention attention_of(const Args& args) {
  Attention a;
  a.q = args.in[0];
  a.k = args.in[1];
  a.v = args.in[2];
  a.mask = View{};
  if (args.n_in > 3) a.mask = args.in[3];
  a.batch = a.q.shape[0];
  a.heads = a.q.shape[1];
  a.queries = a.q.shape[2];
  a.depth = a.q.shape[3];
  a.groups = a.k.shape[1];
  a.keys = a.k.shape[2];
  a.width = a.v.shape[3];
  for (int i = 0; i < 4; ++i) {
    const int axis = i - (4 - a.mask.rank);
    a.mask_stride[i] = !a.mask.present || axis < 0 || a.mask.shape[axis] == 1 ? 0 : a.mask.stride[axis];
  }
  a.scale = static_cast<float>(args.attrs[0].f);
  a.causal = args.attrs[1].length > 0;
  a.offset = a.causal ? args.attrs[1].list[0] : 0;
  a.softcap = static_cast<float>(args.attrs[2].f);
  a.y = static_cast<float*>(args.out[0].data);
  return a;
}

// Rows of one head of q, k or v.
Matrix head_of(const View& x, int64_t batch, int64_t head) {
  return {static_cast<const float*>(x.data) + batch * x.stride[0] + head * x.stride[1], x.stride[2], x.stride[3]};
}

// One group's K as panels of keys, then its V as panels of width for each block of keys.
void pack_group(const Attention& a, int64_t group, int64_t panel, float* packed) {
  const int64_t key_panels = a.padded_keys() / kTileColumns;
  if (panel < key_panels) {
    const int64_t first = panel * kTileColumns;
    Matrix k = head_of(a.k, group / a.groups, group % a.groups);
    k.data += first * k.row;
    pack_panel(k, a.keys - first < kTileColumns ? a.keys - first : kTileColumns, a.depth, packed + first * a.depth);
    return;
  }
  const int64_t first = (panel - key_panels) * kKeys;
  const int64_t keys = a.keys - first < kKeys ? a.keys - first : kKeys;
  const Matrix v = head_of(a.v, group / a.groups, group % a.groups);
  float* out = packed + a.packed_keys() + first * a.padded_width();
  for (int64_t e = 0; e < a.width; e += kTileColumns)
    pack_panel({v.data + first * v.row + e * v.column, v.column, v.row},
               a.width - e < kTileColumns ? a.width - e : kTileColumns, keys, out + e * keys);
}

// Scores [kKeys] of one query, of which n are real: scaled, capped, masked; the others -inf. Gives the largest; NaN
// wins.
float finish_scores(const Attention& a, float* s, int64_t n, int64_t batch, int64_t head, int64_t query, int64_t key) {
  for (int64_t j = 0; j < n; j += kLanes) {
    Vec v = load(s + j) * a.scale;
    if (a.softcap != 0) v = vtanh(v / a.softcap) * a.softcap;
    store(s + j, v);
  }
  if (a.mask.present) {
    const int64_t step = a.mask_stride[3];
    const int64_t at = batch * a.mask_stride[0] + head * a.mask_stride[1] + query * a.mask_stride[2] + key * step;
    if (a.mask.type == kBool) {
      const uint8_t* mask = static_cast<const uint8_t*>(a.mask.data) + at;
      for (int64_t j = 0; j < n; ++j) s[j] = mask[j * step] != 0 ? s[j] : -__builtin_inff();
    } else {
      const float* mask = static_cast<const float*>(a.mask.data) + at;
      for (int64_t j = 0; j < n; ++j) s[j] += mask[j * step];
    }
  }
  int64_t visible = n;
  if (a.causal) {
    visible = query + a.offset + 1 - key;
    visible = visible < 0 ? 0 : visible < n ? visible : n;
  }
  for (int64_t j = visible; j < kKeys; ++j) s[j] = -__builtin_inff();
  Vec most = splat(-__builtin_inff());
  for (int64_t j = 0; j < n; j += kLanes) {
    const Vec v = load(s + j);
    most = v > most || v != v ? v : most;
  }
  float lanes[kLanes];
  store(lanes, most);
  float largest = lanes[0];
  for (int i = 1; i < kLanes; ++i) largest = lanes[i] > largest || lanes[i] != lanes[i] ? lanes[i] : largest;
  return largest;
}

// Queries [first, first + m) of one head; `packed` is its group's.
void attend(const Attention& a, int64_t batch, int64_t head, int64_t first, int64_t m, const float* packed) {
  alignas(64) float scores[kQueries * kKeys];
  float most[kQueries], total[kQueries];
  Matrix q = head_of(a.q, batch, head);
  q.data += first * q.row;
  float* y = a.y + ((batch * a.heads + head) * a.queries + first) * a.width;
  for (int64_t i = 0; i < m; ++i) {
    most[i] = -__builtin_inff();
    total[i] = 0;
  }
  for (int64_t i = 0; i < m * a.width; ++i) y[i] = 0;
  for (int64_t key = 0; key < a.keys; key += kKeys) {
    if (a.causal && key > first + m - 1 + a.offset) break;  // no query of the block sees these keys, or later ones
    const int64_t n = a.keys - key < kKeys ? a.keys - key : kKeys;
    multiply_block(q, m, a.depth, packed + key * a.depth, n, {scores, kKeys});
    for (int64_t i = 0; i < m; ++i) {
      float* s = scores + i * kKeys;
      const float here = finish_scores(a, s, n, batch, head, first + i, key);
      const float largest = here > most[i] || here != here ? here : most[i];
      if (largest == -__builtin_inff()) {  // nothing seen yet: such a row stays 0
        for (int64_t j = 0; j < n; ++j) s[j] = 0;
        continue;
      }
      Vec sum = {};
      for (int64_t j = 0; j < n; j += kLanes) {
        const Vec e = vexp(load(s + j) - largest);
        store(s + j, e);
        sum += e;
      }
      if (largest != most[i]) {
        const Vec shrunk = vexp(splat(most[i] - largest));
        const float factor = shrunk[0];
        total[i] *= factor;
        for (int64_t e = 0; e < a.width; ++e) y[i * a.width + e] *= factor;
        most[i] = largest;
      }
      total[i] += sum_lanes(sum);
    }
    multiply_block({scores, kKeys, 1}, m, n, packed + a.packed_keys() + key * a.padded_width(), a.width, {y, a.width},
                   true);
  }
  for (int64_t i = 0; i < m; ++i) {
    const float factor = total[i] == 0 ? 1 : 1 / total[i];
    for (int64_t e = 0; e < a.width; ++e) y[i * a.width + e] *= factor;
  }
}

size_t attention_scratch(const Args& args) noexcept {
  const Attention a = attention_of(args);
  return static_cast<size_t>(a.round() * a.packed()) * 4;
}

int attention(const Args& args) noexcept {
  const Attention a = attention_of(args);
  if (element_count(args.out[0]) == 0) return kDone;
  float* packed = static_cast<float*>(args.scratch);
  const int64_t repeat = a.heads / a.groups, all = a.batch * a.groups;
  const int64_t panels = a.padded_keys() / kTileColumns + ceil_div(a.keys, kKeys);
  const int64_t bands = ceil_div(a.queries, kQueries);
  for (int64_t group = 0; group < all; group += a.round()) {
    const int64_t groups = all - group < a.round() ? all - group : a.round();
    parallel_for(args.parallel, groups * panels, 1 + 8192 / (kTileColumns * (a.depth + 1)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i)
                     pack_group(a, group + i / panels, i % panels, packed + i / panels * a.packed());
                 });
    const int64_t work = kQueries * (a.keys + 1) * (a.depth + a.width + 1);
    parallel_for(args.parallel, groups * repeat * bands, 1 + 262144 / work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i / (repeat * bands), one = group + at;
        const int64_t head = one % a.groups * repeat + i / bands % repeat, first = i % bands * kQueries;
        attend(a, one / a.groups, head, first, a.queries - first < kQueries ? a.queries - first : kQueries,
               packed + at * a.packed());
      }
    });
  }
  return kDone;
}

}  // namespace

TESSERA_FAMILY(attention, {"attention_f32", attention, attention_scratch})
