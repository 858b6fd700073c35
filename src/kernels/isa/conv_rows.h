// Convolutions of few channels a group: rows of y straight from rows of x, which are copied once between zeros and
// parted by the stride of the last axis, so that what a tap adds to a row of y is one run of vectors.
#pragma once

#include "kernels/isa/program.h"
#include "kernels/isa/windows.h"

namespace {

struct Conv {
  Windows w;
  int64_t images, groups, channels, rows;  // channels and rows (outputs) of one group
  const float* x;
  const float* weights;
  const float* bias;
  float* y;
};

// How y is cut: rows by columns that one task makes from rows of x in its room.
struct RowsPlan {
  int64_t columns;  // of y; 0 where x does not fit
  int64_t band;     // rows of y
  int64_t phase;    // floats of a row of x whose places are equal modulo the stride
  int64_t lines;    // rows of x for a band, of each channel and plane
};
constexpr int64_t kRowsRoom = 12 << 10;  // floats, on the stack of a thread: in L2, and most of it in L1
constexpr int64_t kRowsTaps = 256;       // of all channels together
constexpr int kRowVectors = 8;           // independent sums that hide the latency of multiply-adds

inline RowsPlan rows_plan(const Conv& c) {
  const Windows& w = c.w;
  RowsPlan plan = {};
  if (c.channels * w.taps == 0 || c.channels * w.taps > kRowsTaps) return plan;
  const int64_t reach = (w.kernel[1] - 1) * w.dilation[1] + 1, lists = c.channels * w.kernel[0] * w.stride[2];
  const int64_t tail = (w.kernel[2] - 1) * w.dilation[2] / w.stride[2];
  const int64_t most = (kRowsRoom / lists / reach - tail) / kLanes * kLanes;
  const int64_t whole = ceil_div(w.out[2], kLanes) * kLanes;
  if (most < least(whole, kRowVectors * kLanes)) return plan;
  plan.columns = least(most, whole);
  plan.phase = plan.columns + tail;
  plan.band = least(w.out[1], (kRowsRoom / lists / plan.phase - reach) / w.stride[1] + 1);
  plan.lines = (plan.band - 1) * w.stride[1] + reach;
  return plan;
}

// Places first, first + stride, ... of a row of `n`, `count` of them; zeros outside.
inline void part_of_row(const float* row, int64_t n, int64_t first, int64_t stride, int64_t count, float* out) {
  // Divisions take longer than a row does.
  const auto steps = [&](int64_t places) { return stride == 1 ? places : ceil_div(places, stride); };
  const int64_t last = first >= n ? 0 : least(steps(n - first), count);
  const int64_t from = first >= 0 ? 0 : least(steps(-first), last);
  for (int64_t j = 0; j < from; ++j) out[j] = 0;
  if (stride == 1)
    memcpy(out + from, row + first + from, static_cast<size_t>(last - from) * sizeof *out);
  else
    for (int64_t j = from; j < last; ++j) out[j] = row[first + j * stride];
  for (int64_t j = last; j < count; ++j) out[j] = 0;
}

// One tap of a row of y.
struct RowTap {
  const float* x;
  float weight;
};

// V vectors of y, of which `n` elements are stored.
template <int V>
TESSERA_OUTLINE void sum_taps(const RowTap* taps, int64_t count, int64_t at, float start, float* y, int64_t n) {
  Vec sums[V];
#pragma GCC unroll 8
  for (int i = 0; i < V; ++i) sums[i] = splat(start);
  for (int64_t t = 0; t < count; ++t) {
    const Vec weight = splat(taps[t].weight);
    const float* const x = taps[t].x + at;
#pragma GCC unroll 8
    for (int i = 0; i < V; ++i) sums[i] = fma(weight, load(x + i * kLanes), sums[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < V; ++i) {
    if (n >= (i + 1) * kLanes)
      store(y + i * kLanes, sums[i]);
    else if (n > i * kLanes)
      store_first(y + i * kLanes, n - i * kLanes, sums[i]);
  }
}
inline void sum_row(const RowTap* taps, int64_t count, float start, float* y, int64_t n) {
  constexpr decltype(&sum_taps<1>) kBySize[kRowVectors] = {sum_taps<1>, sum_taps<2>, sum_taps<3>, sum_taps<4>,
                                                           sum_taps<5>, sum_taps<6>, sum_taps<7>, sum_taps<8>};
  const int64_t vectors = ceil_div(n, kLanes);
  const Split parts = {vectors, ceil_div(vectors, kRowVectors)};
  for (int64_t i = 0; i < parts.parts; ++i) {
    const int64_t at = parts.begin(i) * kLanes;
    kBySize[parts.length(i) - 1](taps, count, at, start, y + at, n - at);
  }
}

// Where the taps of a line find the place of their first window.
struct TapShifts {
  int64_t at[kRowsTaps];
  TapShifts(const Windows& w, const RowsPlan& plan) {
    for (int64_t v = 0; v < w.kernel[2]; ++v) {
      const int64_t shift = v * w.dilation[2];
      at[v] = shift % w.stride[2] * plan.phase + shift / w.stride[2];
    }
  }
};

// The rows [band, band_end) of plane a of y [image, m], columns [left, right).
struct RowsTask {
  int64_t image, m;
  int64_t plane, band, band_end;
  int64_t left, right;
};
inline void conv_rows(const Conv& c, const RowsPlan& plan, const int64_t* shifts, const RowsTask& task, float* room) {
  const Windows& w = c.w;
  const float* const x = c.x + (task.image * c.groups + task.m / c.rows) * c.channels * w.inputs;
  const float* const weights = c.weights + task.m * c.channels * w.taps;
  const Span planes = taps_inside(w, 0, task.plane, 0, w.in[0]);
  const int64_t top = task.band * w.stride[1] - w.low[1], line_floats = plan.phase * w.stride[2];
  const int64_t lines = (task.band_end - 1 - task.band) * w.stride[1] + (w.kernel[1] - 1) * w.dilation[1] + 1;
  const auto line_of = [&](int64_t channel, int64_t d, int64_t line) {
    return room + ((channel * w.kernel[0] + d) * plan.lines + line) * line_floats;
  };
  for (int64_t channel = 0; channel < c.channels; ++channel)
    for (int64_t d = planes.first; d < planes.last; ++d) {
      const int64_t plane = task.plane * w.stride[0] - w.low[0] + d * w.dilation[0];
      const float* const from = x + channel * w.inputs + plane * w.in[1] * w.in[2];
      for (int64_t line = 0; line < lines; ++line)
        if (top + line >= 0 && top + line < w.in[1])
          for (int64_t f = 0; f < w.stride[2]; ++f)
            part_of_row(from + (top + line) * w.in[2], w.in[2], task.left * w.stride[2] - w.low[2] + f, w.stride[2],
                        plan.phase, line_of(channel, d, line) + f * plan.phase);
    }
  RowTap taps[kRowsTaps];
  for (int64_t b = task.band; b < task.band_end; ++b) {
    const Span inside = taps_inside(w, 1, b, 0, w.in[1]);
    int64_t count = 0;
    for (int64_t channel = 0; channel < c.channels; ++channel)
      for (int64_t d = planes.first; d < planes.last; ++d)
        for (int64_t h = inside.first; h < inside.last; ++h) {
          const float* const line = line_of(channel, d, (b - task.band) * w.stride[1] + h * w.dilation[1]);
          const float* const weight = weights + ((channel * w.kernel[0] + d) * w.kernel[1] + h) * w.kernel[2];
          for (int64_t v = 0; v < w.kernel[2]; ++v) taps[count++] = {line + shifts[v], weight[v]};
        }
    float* const y =
        c.y + (task.image * c.groups * c.rows + task.m) * w.outputs + (task.plane * w.out[1] + b) * w.out[2];
    sum_row(taps, count, c.bias == nullptr ? 0 : c.bias[task.m], y + task.left, task.right - task.left);
  }
}

// All rows of y. The program runs on what a task has made.
inline void conv_all_rows(const Conv& c, const RowsPlan& plan, const ProgramJob& program,
                          const tessera::kernels::Parallel* parallel) {
  const Windows& w = c.w;
  const int64_t channels = c.groups * c.rows;
  const Split bands = {w.out[1], ceil_div(w.out[1], plan.band)};
  const int64_t parts = ceil_div(w.out[2], plan.columns);
  const int64_t tasks = c.images * channels * w.out[0] * bands.parts * parts;
  const int64_t work = least(w.out[2], plan.columns) * plan.band * w.taps * c.channels;
  const TapShifts shifts(w, plan);
  parallel_for(parallel, tasks, 1 + 65536 / (work + 1), [&](int64_t begin, int64_t end) {
    alignas(64) float room[kRowsRoom];
    ProgramWorker worker(program);
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i;
      RowsTask task;
      task.left = rest % parts * plan.columns;
      task.right = least(task.left + plan.columns, w.out[2]);
      rest /= parts;
      task.band = bands.begin(rest % bands.parts);
      task.band_end = bands.begin(rest % bands.parts + 1);
      rest /= bands.parts;
      task.plane = rest % w.out[0];
      rest /= w.out[0];
      task.m = rest % channels;
      task.image = rest / channels;
      conv_rows(c, plan, shifts.at, task, room);
      if (program.tile.steps == 0) continue;
      const int64_t rows = parts == 1 ? 1 : task.band_end - task.band;  // of what lies in one piece
      const int64_t length = (task.right - task.left) * (task.band_end - task.band) / rows;
      for (int64_t r = 0; r < rows; ++r)
        worker.columns(task.image * channels + task.m, (task.plane * w.out[1] + task.band + r) * w.out[2] + task.left,
                       length);
    }
  });
}

}  // namespace
