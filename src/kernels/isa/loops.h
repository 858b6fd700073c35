// Loops over strided operands: merges axes so that kernels see as few and as long ones as the strides allow.
#pragma once

#include "kernels/abi.h"

namespace {

// Bytes of an element; 0 for packed types under 8 bits and for strings.
inline int64_t element_bytes(uint8_t type) {
  using namespace tessera::kernels;
  switch (type) {
    case kF64:
    case kI64:
    case kU64:
      return 8;
    case kF32:
    case kI32:
    case kU32:
      return 4;
    case kF16:
    case kBF16:
    case kI16:
    case kU16:
      return 2;
    case kF4E2M1:
    case kI4:
    case kI2:
    case kU4:
    case kU2:
    case kString:
      return 0;
    default:
      return 1;
  }
}

inline int64_t element_count(const tessera::kernels::View& v) {
  int64_t n = 1;
  for (int a = 0; a < v.rank; ++a) n *= v.shape[a];
  return n;
}

// One shape and, for each of N operands, the strides with which it is walked (in elements).
template <int N>
struct Walk {
  int rank;
  int64_t shape[tessera::kernels::kMaxRank];
  int64_t stride[N][tessera::kernels::kMaxRank];
};

// The walk over `shape` of N views with the same shape, or broadcast to it (an axis of size 1 does not move): without
// axes of size 1, and with neighbours merged where every operand walks them as one. Has at least one axis.
template <int N>
inline Walk<N> make_walk(int rank, const int64_t* shape, const tessera::kernels::View* const (&views)[N]) {
  Walk<N> w;
  w.rank = 0;
  for (int a = 0; a < rank; ++a) {
    if (shape[a] == 1) continue;
    int64_t stride[N];
    for (int k = 0; k < N; ++k) {
      const int axis = a - (rank - views[k]->rank);
      stride[k] = axis < 0 || views[k]->shape[axis] == 1 ? 0 : views[k]->stride[axis];
    }
    const int last = w.rank - 1;
    bool merges = w.rank > 0;
    for (int k = 0; merges && k < N; ++k) merges = w.stride[k][last] == stride[k] * shape[a];
    const int at = merges ? last : w.rank++;
    w.shape[at] = merges ? w.shape[at] * shape[a] : shape[a];
    for (int k = 0; k < N; ++k) w.stride[k][at] = stride[k];
  }
  if (w.rank == 0) {
    w.rank = 1;
    w.shape[0] = 1;
    for (int k = 0; k < N; ++k) w.stride[k][0] = 1;
  }
  return w;
}

// The position of outer index `i` (row-major over the first `axes` axes) in each operand.
template <int N>
inline void walk_offsets(const Walk<N>& w, int axes, int64_t i, int64_t (&offset)[N]) {
  for (int k = 0; k < N; ++k) offset[k] = 0;
  for (int a = axes - 1; a >= 0; --a) {
    const int64_t at = i % w.shape[a];
    i /= w.shape[a];
    for (int k = 0; k < N; ++k) offset[k] += at * w.stride[k][a];
  }
}

// Runs f(begin, end) over [0, n) on the kernel's threads. f must not throw and is called concurrently.
template <class F>
inline void parallel_for(const tessera::kernels::Parallel* parallel, int64_t n, int64_t grain, const F& f) {
  if (n <= 0) return;
  if (parallel == nullptr) {
    f(int64_t{0}, n);
    return;
  }
  parallel->run(
      parallel->pool, n, grain,
      [](void* context, int64_t begin, int64_t end) { (*static_cast<const F*>(context))(begin, end); },
      const_cast<void*>(static_cast<const void*>(&f)));
}

}  // namespace
