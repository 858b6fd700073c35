// Interprets tile programs on blocks of f32: an operator at a time over a few hundred elements that stay in L1.
#pragma once

#include <math.h>

#include "kernels/isa/activations.h"
#include "kernels/isa/blocks.h"
#include "kernels/program.h"

namespace {

constexpr int64_t kTileBlock = 384;   // elements: a dozen values of a program stay in a 32 KiB L1
constexpr int64_t kTileGrain = 4096;  // elements that a thread takes at least
constexpr int kTileSlots = tessera::kernels::kMaxTileSteps;  // blocks of intermediate values; few live at once

struct TileStepCode {
  int32_t op;
  int32_t args[3];
  int32_t slot;  // where the result goes; -1: the program's result, or the value that it keeps
  float literal;
};

// A program made ready: each step knows where its result lies.
struct TileCode {
  int inputs = 0;
  int steps = 0;
  int keep = -1;
  TileStepCode code[tessera::kernels::kMaxTileSteps];

  // Without a step the result is what the anchor made: the operands that follow it are for the row region.
  int last() const { return steps == 0 ? 0 : inputs + steps - 1; }
};

// The attributes `program` and `keep`, which stand next to each other.
inline TileCode tile_code(const tessera::kernels::Attr* attrs, int inputs) {
  using namespace tessera::kernels;
  TileCode tile;
  tile.inputs = inputs;
  tile.steps = attrs[0].length / 4;
  tile.keep = static_cast<int>(attrs[1].i);
  int last_use[kMaxTileInputs + kMaxTileSteps];
  for (int i = 0; i < tile.inputs + tile.steps; ++i) last_use[i] = -1;
  for (int s = 0; s < tile.steps; ++s) {
    TileStepCode& step = tile.code[s];
    const int64_t* from = attrs[0].list + 4 * s;
    step.op = static_cast<int32_t>(from[0]);
    if (step.op == tile_literal) {
      const uint32_t bits = static_cast<uint32_t>(from[1]);
      memcpy(&step.literal, &bits, 4);
      continue;
    }
    for (int i = 0; i < 3; ++i) {
      step.args[i] = static_cast<int32_t>(from[1 + i]);
      if (step.args[i] >= 0) last_use[step.args[i]] = s;
    }
  }
  bool taken[kTileSlots] = {};
  int slot_of[kMaxTileInputs + kMaxTileSteps];
  for (int s = 0; s < tile.steps; ++s) {
    const int value = tile.inputs + s;
    for (int v = tile.inputs; v < value; ++v)
      if (last_use[v] == s && slot_of[v] >= 0) taken[slot_of[v]] = false;  // lane by lane: operands may be overwritten
    slot_of[value] = -1;
    if (value != tile.last() && value != tile.keep) {
      int slot = 0;
      while (taken[slot]) ++slot;
      taken[slot] = true;
      slot_of[value] = slot;
    }
    tile.code[s].slot = slot_of[value];
  }
  return tile;
}

template <Vec (*F)(Vec)>
TESSERA_OUTLINE void tile_unary(const float* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, F(load(x + i)));
  if (i < n) store_first(y + i, n - i, F(load_first(x + i, n - i, 1.f)));
}
template <class F>
TESSERA_INLINE void tile_map(const float* x, float* y, int64_t n, const F& f) {
  for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
}
template <class F>
TESSERA_INLINE void tile_map(const float* a, const float* b, float* y, int64_t n, const F& f) {
  for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
}

TESSERA_OUTLINE void tile_step(const TileStepCode& step, const float* a, const float* b, float* y, int64_t n) {
  using namespace tessera::kernels;
  switch (step.op) {
    case tile_literal:
      for (int64_t i = 0; i < n; ++i) y[i] = step.literal;
      return;
    case tile_neg:
      return tile_map(a, y, n, [](float x) { return -x; });
    case tile_abs:
      return tile_map(a, y, n, [](float x) { return __builtin_fabsf(x); });
    case tile_exp:
      return tile_unary<vexp>(a, y, n);
    case tile_log:
      return tile_unary<vlog>(a, y, n);
    case tile_sqrt:
      return tile_map(a, y, n, [](float x) { return __builtin_sqrtf(x); });
    case tile_rsqrt:
      return tile_map(a, y, n, [](float x) { return 1 / __builtin_sqrtf(x); });
    case tile_tanh:
      return tile_unary<vtanh>(a, y, n);
    case tile_erf:
      return tile_unary<verf>(a, y, n);
    case tile_floor:
      return tile_map(a, y, n, [](float x) { return floorf(x); });
    case tile_ceil:
      return tile_map(a, y, n, [](float x) { return ceilf(x); });
    case tile_round:
      return tile_map(a, y, n, [](float x) { return rintf(x); });
    case tile_sin:
      return tile_map(a, y, n, [](float x) { return sinf(x); });
    case tile_cos:
      return tile_map(a, y, n, [](float x) { return cosf(x); });
    case tile_relu:
      return tile_unary<vrelu>(a, y, n);
    case tile_sigmoid:
      return tile_unary<vsigmoid>(a, y, n);
    case tile_silu:
      return tile_unary<vsilu>(a, y, n);
    case tile_gelu:
      return tile_unary<vgelu>(a, y, n);
    case tile_gelu_tanh:
      return tile_unary<vgelu_tanh>(a, y, n);
    case tile_softplus:
      return tile_unary<vsoftplus>(a, y, n);
    case tile_hard_swish:
      return tile_unary<vhard_swish>(a, y, n);
    case tile_add:
      return tile_map(a, b, y, n, [](float p, float q) { return p + q; });
    case tile_sub:
      return tile_map(a, b, y, n, [](float p, float q) { return p - q; });
    case tile_mul:
      return tile_map(a, b, y, n, [](float p, float q) { return p * q; });
    case tile_div:
      return tile_map(a, b, y, n, [](float p, float q) { return p / q; });
    case tile_min:
      return tile_map(a, b, y, n, [](float p, float q) { return p < q || p != p ? p : q; });
    default:
      return tile_map(a, b, y, n, [](float p, float q) { return p > q || p != p ? p : q; });
  }
}

struct TileRoom {
  alignas(64) float slots[kTileSlots][kTileBlock];
};

// y = the program of in[0], ..., in[inputs - 1], n <= kTileBlock elements each; kept where the program keeps a value. y
// may be the memory of an input, kept may not, and they are not the same.
inline void run_tile(const TileCode& tile, const float* const* in, int64_t n, float* y, float* kept, TileRoom& room) {
  using namespace tessera::kernels;
  const float* values[kMaxTileInputs + kMaxTileSteps];
  for (int i = 0; i < tile.inputs; ++i) values[i] = in[i];
  if (tile.keep >= 0 && tile.keep < tile.inputs) memcpy(kept, in[tile.keep], static_cast<size_t>(n) * 4);
  for (int s = 0; s < tile.steps; ++s) {
    const TileStepCode& step = tile.code[s];
    const int value = tile.inputs + s;
    float* to = step.slot >= 0 ? room.slots[step.slot] : value == tile.keep ? kept : y;
    tile_step(step, step.op == tile_literal ? nullptr : values[step.args[0]],
              step.op == tile_literal || step.args[1] < 0 ? nullptr : values[step.args[1]], to, n);
    values[value] = to;
  }
  if (values[tile.last()] != y) memcpy(y, values[tile.last()], static_cast<size_t>(n) * 4);
}

// The operands of a program, each broadcast to the result: a walk that has room for all of them.
struct TileOperands {
  Walk<tessera::kernels::kMaxTileInputs> walk;
  Source sources[tessera::kernels::kMaxTileInputs];
  int count = 0;
};
inline TileOperands tile_operands(const tessera::kernels::View& out, const tessera::kernels::View* views, int count) {
  using namespace tessera::kernels;
  TileOperands operands;
  operands.count = count;
  const View* all[kMaxTileInputs];
  for (int k = 0; k < kMaxTileInputs; ++k) all[k] = k < count ? &views[k] : &out;
  operands.walk = make_walk<kMaxTileInputs>(out.rank, out.shape, all);
  for (int k = 0; k < count; ++k) {
    Source& s = operands.sources[k];
    s.data = static_cast<const char*>(views[k].data);
    s.bytes = element_bytes(views[k].type);
    s.half = half_of(views[k].type);
    s.dense = s.scalar = true;
    int64_t expected = 1;
    for (int a = operands.walk.rank - 1; a >= 0; --a) {
      s.dense = s.dense && operands.walk.stride[k][a] == expected;
      s.scalar = s.scalar && operands.walk.stride[k][a] == 0;
      expected *= operands.walk.shape[a];
    }
  }
  return operands;
}

// Where one thread gathers operands that do not lie as the result does.
struct TileGather {
  alignas(64) char room[tessera::kernels::kMaxTileInputs][kTileBlock * 4];
  alignas(64) float wide[tessera::kernels::kMaxTileInputs][kTileBlock];
};

// The elements [at, at + n) of operand k, as f32. Scalars are gathered once: `fresh` where this is the first block.
inline const float* tile_operand(const TileOperands& operands, int k, int64_t at, int64_t n, TileGather& gather,
                                 bool fresh) {
  const Source& s = operands.sources[k];
  if (s.scalar) {
    float* to = s.half != 0 ? gather.wide[k] : reinterpret_cast<float*>(gather.room[k]);
    if (!fresh) return to;
    gather_run(s.data, gather.room[k], kTileBlock, 0, s.bytes);
    if (s.half != 0) widen(s.half, gather.room[k], gather.wide[k], kTileBlock);
    return to;
  }
  const void* block = block_of(operands.walk, k, s, at, n, gather.room[k]);
  if (s.half == 0) return static_cast<const float*>(block);
  widen(s.half, block, gather.wide[k], n);
  return gather.wide[k];
}

// The elements [begin, end) of a program without a norm, of any float type but f64.
inline void run_blocks_of(const TileCode& tile, const TileOperands& operands, const tessera::kernels::View& out,
                          const tessera::kernels::View* kept, int64_t begin, int64_t end) {
  using namespace tessera::kernels;
  TileRoom room;
  TileGather gather;
  alignas(64) float wide[2][kTileBlock];
  bool fresh = true;
  const uint8_t half = half_of(out.type);
  const int64_t bytes = element_bytes(out.type);
  for (int64_t at = begin; at < end; at += kTileBlock) {
    const int64_t n = end - at < kTileBlock ? end - at : kTileBlock;
    const float* in[kMaxTileInputs];
    for (int k = 0; k < tile.inputs; ++k) in[k] = tile_operand(operands, k, at, n, gather, fresh);
    fresh = false;
    char* to[2] = {static_cast<char*>(out.data) + at * bytes,
                   kept == nullptr ? nullptr : static_cast<char*>(kept->data) + at * bytes};
    run_tile(tile, in, n, half != 0 ? wide[0] : reinterpret_cast<float*>(to[0]),
             half != 0 ? wide[1] : reinterpret_cast<float*>(to[1]), room);
    for (int i = 0; half != 0 && i < (kept == nullptr ? 1 : 2); ++i) {
      if (half == kF16)
        f32_block_to_f16(wide[i], reinterpret_cast<uint16_t*>(to[i]), n);
      else
        f32_block_to_bf16(wide[i], reinterpret_cast<uint16_t*>(to[i]), n);
    }
  }
}

// All of them. An operand may be the result's own memory.
inline void run_flat(const TileCode& tile, const TileOperands& operands, const tessera::kernels::View& out,
                     const tessera::kernels::View* kept, const tessera::kernels::Parallel* parallel) {
  parallel_for(parallel, element_count(out), kTileGrain,
               [&](int64_t begin, int64_t end) { run_blocks_of(tile, operands, out, kept, begin, end); });
}

// The attributes `norm`, `gain`, `shift` and `eps`, which stand next to each other; gain and shift are values that the
// program starts from.
struct TileNorm {
  enum Kind { none, layer, rms } kind = none;
  int gain = -1, shift = -1;
  double eps = 0;
};
inline TileNorm tile_norm(const tessera::kernels::Attr* attrs) {
  return {static_cast<TileNorm::Kind>(attrs[0].i), static_cast<int>(attrs[1].i), static_cast<int>(attrs[2].i),
          attrs[3].f};
}

// Mean and inverse deviation of x [n], in two passes over what lies in cache.
inline void tile_statistics(const TileNorm& norm, const float* x, int64_t n, float& mean, float& inv) {
  const auto sum = [&](float shift, bool square) {
    Vec a = {}, b = {};
    int64_t i = 0;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
      const Vec p = load(x + i) - shift, q = load(x + i + kLanes) - shift;
      a += square ? p * p : p;
      b += square ? q * q : q;
    }
    float total = sum_lanes(a + b);
    for (; i < n; ++i) total += square ? (x[i] - shift) * (x[i] - shift) : x[i] - shift;
    return total;
  };
  const float count = static_cast<float>(n);
  mean = norm.kind == TileNorm::layer ? sum(0, false) / count : 0;
  inv = static_cast<float>(1 / sqrt(static_cast<double>(sum(mean, true) / count) + norm.eps));
}

// y [n] = (x - mean) inv g + b; g and b may be null.
inline void tile_scale(const float* x, float mean, float inv, const float* g, const float* b, float* y, int64_t n) {
  if (g != nullptr && b != nullptr)
    for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - mean) * inv * g[j] + b[j];
  else if (g != nullptr)
    for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - mean) * inv * g[j];
  else if (b != nullptr)
    for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - mean) * inv + b[j];
  else
    for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - mean) * inv;
}

// A program over rows of its result. The values that it starts from are `parts` groups of columns of `product`, if
// there are any, and then operands.
struct ProgramJob {
  TileCode tile;
  TileNorm norm;
  TileOperands operands;
  int parts = 0;
  const float* product = nullptr;  // [rows, parts * n]
  int64_t rows = 0, n = 0;
  float* y = nullptr;
  float* kept = nullptr;  // [rows, n]; null where nothing is kept
};

struct ProgramWorker {
  const ProgramJob& job;
  TileRoom room;
  TileGather gather;
  bool fresh = true;

  explicit ProgramWorker(const ProgramJob& of) : job(of) {}

  const float* input(int i, int64_t row, int64_t column, int64_t width) {
    if (i < job.parts) return job.product + (row * job.parts + i) * job.n + column;
    return tile_operand(job.operands, i - job.parts, row * job.n + column, width, gather, fresh);
  }
  void block(int64_t row, int64_t column, int64_t width, float* y, float* kept) {
    const float* in[tessera::kernels::kMaxTileInputs];
    for (int i = 0; i < job.tile.inputs; ++i) in[i] = input(i, row, column, width);
    run_tile(job.tile, in, width, y, kept, room);
    fresh = false;
  }
  // Columns [column, column + n) of a row.
  void columns(int64_t row, int64_t column, int64_t n) {
    for (int64_t j = column; j < column + n; j += kTileBlock) {
      const int64_t at = row * job.n + j, width = column + n - j < kTileBlock ? column + n - j : kTileBlock;
      block(row, j, width, job.y + at, job.kept == nullptr ? nullptr : job.kept + at);
    }
  }
  void normalise(int64_t row, const float* x, float* y) {
    float mean, inv;
    tile_statistics(job.norm, x, job.n, mean, inv);
    for (int64_t j = 0; j < job.n; j += kTileBlock) {
      const int64_t width = job.n - j < kTileBlock ? job.n - j : kTileBlock;
      const float* g = job.norm.gain < 0 ? nullptr : input(job.norm.gain, row, j, width);
      const float* b = job.norm.shift < 0 ? nullptr : input(job.norm.shift, row, j, width);
      tile_scale(x + j, mean, inv, g, b, y + j, width);
    }
  }
};

inline void run_job(const ProgramJob& job, const tessera::kernels::Parallel* parallel) {
  if (job.rows == 0 || job.n == 0) return;
  if (job.norm.kind == TileNorm::none) {
    // Blocks do not cross rows; a row may be shared by threads.
    parallel_for(parallel, job.rows * job.n, kTileGrain, [&](int64_t begin, int64_t end) {
      ProgramWorker worker(job);
      int64_t width;
      for (int64_t at = begin; at < end; at += width) {
        const int64_t row = at / job.n, column = at % job.n;
        width = job.n - column < end - at ? job.n - column : end - at;
        worker.columns(row, column, width);
      }
    });
    return;
  }
  parallel_for(parallel, job.rows, 1 + kTileGrain / job.n, [&](int64_t begin, int64_t end) {
    ProgramWorker worker(job);
    for (int64_t row = begin; row < end; ++row) {
      float* y = job.y + row * job.n;
      worker.columns(row, 0, job.n);
      worker.normalise(row, y, y);
    }
  });
}

// The program of `job`, which has one part and no norm, on rows [row, row + rows) and columns [column, column +
// columns) of its product, in place: [rows][pitch], at most kTileBlock elements.
TESSERA_OUTLINE void run_on_tile(const ProgramJob& job, float* product, int64_t rows, int64_t columns, int64_t pitch,
                                 int64_t row, int64_t column) {
  constexpr int kInputs = tessera::kernels::kMaxTileInputs;
  TileRoom room;
  TileGather gather;
  alignas(64) float side[kInputs][kTileBlock];
  const float* in[kInputs] = {product};
  for (int k = 0; k < job.operands.count; ++k) {
    in[1 + k] = side[k];
    if (job.operands.sources[k].scalar) {
      in[1 + k] = tile_operand(job.operands, k, 0, columns, gather, true);
      continue;
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* const to = side[k] + r * pitch;
      const float* const from = tile_operand(job.operands, k, (row + r) * job.n + column, columns, gather, false);
      if (columns == pitch) {
        for (int64_t j = 0; j < pitch; j += kLanes) store(to + j, load(from + j));
        continue;
      }
      memcpy(to, from, static_cast<size_t>(columns) * 4);
      for (int64_t j = columns; j < pitch; ++j) to[j] = 0;
    }
  }
  alignas(64) float kept[kTileBlock];
  run_tile(job.tile, in, rows * pitch, product, kept, room);
  for (int64_t r = 0; job.kept != nullptr && r < rows; ++r)
    memcpy(job.kept + (row + r) * job.n + column, kept + r * pitch, static_cast<size_t>(columns) * 4);
}

}  // namespace
