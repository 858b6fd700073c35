// What happens to a tile of finished sums while it is in L1: pointwise steps, then the store.
#pragma once

#include "kernels/isa/program.h"
#include "kernels/isa/tile.h"

namespace {

static_assert(kTileRows * kTileColumns <= kTileBlock);

struct Epilogue {
  const float* bias = nullptr;          // [N]
  const ProgramJob* program = nullptr;  // of one part, without a norm
  const float* row_bias = nullptr;      // [row_period], again and again down the rows
  int64_t row_period = 1;
};

// Sums of rows [row, row + rows) and columns [column, column + columns) of the product, as [rows][kTileColumns].
struct FinishedTile {
  float* sums;
  int64_t rows, columns;
  int64_t row, column;  // row: of all products together
};

// The tile through the steps to c, whose rows are `stride` apart.
inline void finish_tile(const Epilogue& e, const FinishedTile& tile, float* c, int64_t stride) {
  float* sums = tile.sums;
  alignas(64) float part[kTileColumns];
  for (float& x : part) x = -0.f;  // which added changes nothing
  const float* bias = part;
  if (e.bias != nullptr) {
    bias = e.bias + tile.column;
    if (tile.columns < kTileColumns) {
      memcpy(part, bias, static_cast<size_t>(tile.columns) * 4);
      bias = part;
    }
  }
  const bool whole = tile.columns == kTileColumns, stores = whole && e.program == nullptr;
  float* to = stores ? c : sums;
  const int64_t step = stores ? stride : kTileColumns;
  if (stores || e.bias != nullptr || e.row_bias != nullptr)
    for (int64_t r = 0; r < tile.rows; ++r) {
      const Vec more = splat(e.row_bias == nullptr ? -0.f : e.row_bias[(tile.row + r) % e.row_period]);
      for (int64_t v = 0; v < kTileColumns; v += kLanes)
        store(to + r * step + v, load(sums + r * kTileColumns + v) + load(bias + v) + more);
    }
  if (stores) return;
  if (e.program != nullptr) run_on_tile(*e.program, sums, tile.rows, tile.columns, kTileColumns, tile.row, tile.column);
  for (int64_t r = 0; r < tile.rows; ++r, c += stride, sums += kTileColumns) {
    if (whole)
      for (int64_t v = 0; v < kTileColumns; v += kLanes) store(c + v, load(sums + v));
    else
      memcpy(c, sums, static_cast<size_t>(tile.columns) * 4);
  }
}

}  // namespace
