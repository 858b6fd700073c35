// conv and fused_conv in f32, over one to three spatial axes: rows of y straight from rows of x where a group has few
// channels, else products with the windows of x as columns.
#include "kernels/isa/conv_rows.h"
#include "kernels/isa/export.h"
#include "kernels/isa/gemm.h"

namespace {

Conv conv_of(const Args& args) {
  const View& x = args.in[0];
  const View& w = args.in[1];
  const View& y = args.out[0];
  Conv c;
  c.w = windows_of(x, y, w.shape + 2, args.attrs);
  c.images = x.shape[0];
  c.groups = args.attrs[4].i;
  c.channels = w.shape[1];
  c.rows = w.shape[0] / c.groups;
  c.x = static_cast<const float*>(x.data);
  c.weights = static_cast<const float*>(w.data);
  c.bias = args.n_in > 2 && args.in[2].present ? static_cast<const float*>(args.in[2].data) : nullptr;
  c.y = static_cast<float*>(y.data);
  return c;
}

// y [rows, outputs] = weights [rows, taps] columns [taps, outputs] for each image and group.
Products products_of(const Conv& c) {
  Products p;
  p.m = c.rows;
  p.n = c.w.outputs;
  p.k = c.channels * c.w.taps;
  p.a = {c.weights, p.k, 1};
  p.b = {nullptr, 1, p.n};
  p.c = {c.y, p.n};
  p.batch.rank = 2;
  p.batch.shape[0] = c.images;
  p.batch.shape[1] = c.groups;
  p.batch.stride[0][0] = 0;
  p.batch.stride[0][1] = p.m * p.k;
  p.batch.stride[1][0] = p.batch.stride[1][1] = 1;  // every product has columns of its own
  p.batches = c.images * c.groups;
  p.c_step = p.m * p.n;
  p.bias = nullptr;
  return p;
}

// Few products a tap: packing windows would cost more than they do.
bool has_few_products(const Conv& c) { return c.channels * c.rows <= 4; }
bool takes_rows(const Conv& c) { return has_few_products(c) && rows_plan(c).columns > 0; }

// Every window is one element: x is the matrix of columns.
bool is_pointwise(const Windows& w) {
  for (int a = 0; a < kSpatial; ++a)
    if (w.kernel[a] != 1 || w.stride[a] != 1 || w.low[a] != 0 || w.out[a] != w.in[a]) return false;
  return true;
}

// Columns of a tile whose windows start on one line of x.
struct Piece {
  int64_t column, n;
  int64_t plane, line, place;  // where the first of them starts
};

// Windows [column, column + n) of a group's channels, as [channel, tap][kTileColumns].
void pack_windows(const Conv& c, int64_t product, int64_t column, int64_t n, float* out) {
  const Windows& w = c.w;
  const float* x = c.x + product * c.channels * w.inputs;
  if (is_pointwise(w)) return pack_panel({x + column, 1, w.inputs}, n, c.channels, out);
  Piece pieces[kTileColumns];
  int count = 0;
  for (int64_t j = 0; j < n; j += pieces[count++].n) {
    const int64_t o = column + j, place = o % w.out[2];
    pieces[count] = {j, least(n - j, w.out[2] - place), o / (w.out[1] * w.out[2]) * w.stride[0] - w.low[0],
                     o / w.out[2] % w.out[1] * w.stride[1] - w.low[1], place * w.stride[2] - w.low[2]};
  }
  for (int64_t channel = 0; channel < c.channels; ++channel, x += w.inputs)
    for (int64_t d = 0; d < w.kernel[0]; ++d)
      for (int64_t h = 0; h < w.kernel[1]; ++h)
        for (int64_t v = 0; v < w.kernel[2]; ++v, out += kTileColumns) {
          for (int i = 0; i < count; ++i) {
            const Piece& piece = pieces[i];
            float* const to = out + piece.column;
            const int64_t plane = piece.plane + d * w.dilation[0], line = piece.line + h * w.dilation[1];
            if (plane < 0 || plane >= w.in[0] || line < 0 || line >= w.in[1]) {
              for (int64_t j = 0; j < piece.n; ++j) to[j] = 0;
              continue;
            }
            const float* const row = x + (plane * w.in[1] + line) * w.in[2];
            const int64_t first = piece.place + v * w.dilation[2], last = first + (piece.n - 1) * w.stride[2];
            if (first < 0 || last >= w.in[2])
              part_of_row(row, w.in[2], first, w.stride[2], piece.n, to);
            else if (w.stride[2] == 1)
              for (int64_t j = 0; j < piece.n; ++j) to[j] = row[first + j];
            else
              for (int64_t j = 0; j < piece.n; ++j) to[j] = row[first + j * w.stride[2]];
          }
          for (int64_t j = n; j < kTileColumns; ++j) out[j] = 0;
        }
}

size_t conv_scratch(const Args& args) noexcept {
  const Conv c = conv_of(args);
  return takes_rows(c) ? 0 : packed_scratch(products_of(c));
}

// What fused_conv adds comes as a program over the rows of y [images * channels, outputs].
void convolve(const Conv& c, const ProgramJob& program, const Args& args) {
  if (takes_rows(c)) return conv_all_rows(c, rows_plan(c), program, args.parallel);
  Epilogue epilogue;
  epilogue.row_bias = c.bias;
  epilogue.row_period = c.groups * c.rows;
  if (program.tile.steps > 0) epilogue.program = &program;
  multiply_packed(
      products_of(c), epilogue, args.parallel, args.scratch,
      [&](int64_t product, int64_t column, int64_t n, float* out) { pack_windows(c, product, column, n, out); });
}

int conv(const Args& args) noexcept {
  if (element_count(args.out[0]) > 0) convolve(conv_of(args), ProgramJob(), args);
  return kDone;
}

// The first operands and attributes are those of conv.
int fused_conv(const Args& args) noexcept {
  if (element_count(args.out[0]) == 0) return kDone;
  const Conv c = conv_of(args);
  const int more = args.n_in > 3 ? args.n_in - 3 : 0;
  ProgramJob job;
  job.parts = 1;
  job.tile = tile_code(args.attrs + 5, 1 + more);
  job.operands = tile_operands(args.out[0], args.in + 3, more);
  job.rows = c.images * c.groups * c.rows;
  job.n = c.w.outputs;
  job.y = c.y;
  job.product = c.y;
  convolve(c, job, args);
  return kDone;
}

}  // namespace

TESSERA_FAMILY(conv, {"conv_f32", conv, conv_scratch}, {"fused_conv_f32", fused_conv, conv_scratch})
