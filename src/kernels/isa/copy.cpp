// copy: a strided operand, its elements written densely in row-major order (under a shape of equal count). Moves bytes,
// so one kernel serves every type of 8 bits or more. dims: a list of sizes as a tensor.
#include <string.h>

#include "kernels/abi.h"
#include "kernels/isa/export.h"
#include "kernels/isa/loops.h"

namespace {

using namespace tessera::kernels;

constexpr int64_t kGrainBytes =
    32 * 1024;                 // a core copies this from L2 in about a microsecond, the cost of a fork-join
constexpr int64_t kTile = 16;  // elements a side: a line of 4-byte elements read and written whole

// out [rows, columns] dense, in[r * row_stride + c * column_stride].
template <class T>
void copy_plane(const T* in, T* out, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    const int64_t r1 = r0 + kTile < rows ? r0 + kTile : rows;
    for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
      const int64_t c1 = c0 + kTile < columns ? c0 + kTile : columns;
      for (int64_t r = r0; r < r1; ++r)
        for (int64_t c = c0; c < c1; ++c) out[r * columns + c] = in[r * row_stride + c * column_stride];
    }
  }
}

template <class T>
void copy_row(const T* in, T* out, int64_t n, int64_t stride) {
  if (stride == 1) {
    memcpy(out, in, static_cast<size_t>(n) * sizeof(T));
  } else if (stride == 0) {
    const T value = *in;
    for (int64_t i = 0; i < n; ++i) out[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = in[i * stride];
  }
}

template <class T>
void copy_walk(const Walk<1>& w, const T* in, T* out, const Parallel* parallel) {
  const int inner = w.rank - 1;
  const int64_t n = w.shape[inner];
  const int64_t stride = w.stride[0][inner];
  constexpr int64_t kGrain = kGrainBytes / static_cast<int64_t>(sizeof(T));
  if (w.rank == 1) {
    parallel_for(parallel, n, kGrain,
                 [&](int64_t begin, int64_t end) { copy_row(in + begin * stride, out + begin, end - begin, stride); });
    return;
  }
  const int64_t m = w.shape[inner - 1];
  // The two innermost axes go in square tiles when the operand runs along the outer one of them: a transpose.
  if (stride != 1 && stride != 0 && w.stride[0][inner - 1] == 1) {
    int64_t planes = 1;
    for (int a = 0; a < inner - 1; ++a) planes *= w.shape[a];
    const int64_t bands = (m + kTile - 1) / kTile;
    parallel_for(parallel, planes * bands, 1 + kGrain / (kTile * n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t offset[1];
        walk_offsets(w, inner - 1, i / bands, offset);
        const int64_t row = i % bands * kTile;
        const int64_t rows = m - row < kTile ? m - row : kTile;
        copy_plane(in + offset[0] + row, out + (i / bands * m + row) * n, rows, n, 1, stride);
      }
    });
    return;
  }
  int64_t rows = m;
  for (int a = 0; a < inner - 1; ++a) rows *= w.shape[a];
  parallel_for(parallel, rows, 1 + kGrain / n, [&](int64_t begin, int64_t end) {
    int64_t offset[1];
    int64_t row = begin % m;
    walk_offsets(w, inner, begin, offset);
    for (int64_t i = begin; i < end; ++i) {
      copy_row(in + offset[0], out + i * n, n, stride);
      offset[0] += w.stride[0][inner - 1];
      if (++row == m) {
        row = 0;
        walk_offsets(w, inner, i + 1 < rows ? i + 1 : i, offset);
      }
    }
  });
}

int copy(const Args& args) noexcept {
  const View& in = args.in[0];
  const View& out = args.out[0];
  if (element_count(out) == 0) return kDone;
  const View* const views[] = {&in};
  const Walk<1> w = make_walk(in.rank, in.shape, views);
  switch (element_bytes(out.type)) {
    case 1:
      copy_walk(w, static_cast<const uint8_t*>(in.data), static_cast<uint8_t*>(out.data), args.parallel);
      break;
    case 2:
      copy_walk(w, static_cast<const uint16_t*>(in.data), static_cast<uint16_t*>(out.data), args.parallel);
      break;
    case 4:
      copy_walk(w, static_cast<const uint32_t*>(in.data), static_cast<uint32_t*>(out.data), args.parallel);
      break;
    case 8:
      copy_walk(w, static_cast<const uint64_t*>(in.data), static_cast<uint64_t*>(out.data), args.parallel);
      break;
    default:
      return kValueInvalid;
  }
  return kDone;
}

int dims(const Args& args) noexcept {
  const Attr& sizes = args.attrs[0];
  if (sizes.length > 0) memcpy(args.out[0].data, sizes.list, static_cast<size_t>(sizes.length) * sizeof(int64_t));
  return kDone;
}

}  // namespace

TESSERA_FAMILY(copy, {"copy", copy, nullptr}, {"dims", dims, nullptr})
