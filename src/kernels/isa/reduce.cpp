// Reductions over any axes, argmax and argmin, running sums and products. Every type is computed as double or as 64-bit
// integer, which hold it exactly: blocks are read into an array of those first.
#include "kernels/abi.h"
#include "kernels/isa/export.h"
#include "kernels/isa/half.h"
#include "kernels/isa/loops.h"

namespace {

using namespace tessera::kernels;

constexpr int64_t kBlock = 256;   // elements read at once: 2 KiB of L1
constexpr int64_t kColumns = 64;  // outputs folded side by side
constexpr int kParts = 8;         // partial results of a row: independent, and whole vectors

bool is_real(uint8_t type) { return type == kF64 || type == kF32 || type == kF16 || type == kBF16; }

template <class T, class A>
void read_as(const void* data, int64_t at, int64_t stride, int64_t n, A* out) {
  const T* x = static_cast<const T*>(data) + at;
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<A>(x[i]);
  else
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<A>(x[i * stride]);
}

void read(uint8_t type, const void* data, int64_t at, int64_t stride, int64_t n, double* out) {
  if (type == kF64) return read_as<double>(data, at, stride, n, out);
  if (type == kF32) return read_as<float>(data, at, stride, n, out);
  const uint16_t* x = static_cast<const uint16_t*>(data) + at;
  for (int64_t i = 0; i < n; ++i) {
    const float value = type == kF16 ? f16_to_f32(x[i * stride]) : bf16_to_f32(x[i * stride]);
    out[i] = static_cast<double>(value);
  }
}
// u64 wraps: right for sums and products. `flip` below makes its order that of i64.
void read(uint8_t type, const void* data, int64_t at, int64_t stride, int64_t n, int64_t* out) {
  switch (type) {
    case kI64:
    case kU64:
      return read_as<int64_t>(data, at, stride, n, out);
    case kI32:
      return read_as<int32_t>(data, at, stride, n, out);
    case kI16:
      return read_as<int16_t>(data, at, stride, n, out);
    case kI8:
      return read_as<int8_t>(data, at, stride, n, out);
    case kU32:
      return read_as<uint32_t>(data, at, stride, n, out);
    case kU16:
      return read_as<uint16_t>(data, at, stride, n, out);
    default:
      return read_as<uint8_t>(data, at, stride, n, out);
  }
}

void write(uint8_t type, void* out, int64_t i, double x) {
  switch (type) {
    case kF64:
      static_cast<double*>(out)[i] = x;
      return;
    case kF32:
      static_cast<float*>(out)[i] = static_cast<float>(x);
      return;
    case kF16:
      static_cast<uint16_t*>(out)[i] = f32_to_f16(f64_to_odd_f32(x));
      return;
    default:
      static_cast<uint16_t*>(out)[i] = f32_to_bf16(f64_to_odd_f32(x));
  }
}
void write(uint8_t type, void* out, int64_t i, int64_t x) {
  switch (element_bytes(type)) {
    case 8:
      static_cast<int64_t*>(out)[i] = x;
      return;
    case 4:
      static_cast<uint32_t*>(out)[i] = static_cast<uint32_t>(x);
      return;
    case 2:
      static_cast<uint16_t*>(out)[i] = static_cast<uint16_t>(x);
      return;
    default:
      static_cast<uint8_t*>(out)[i] = static_cast<uint8_t>(x);
  }
}

TESSERA_INLINE double flip(double x, uint8_t) { return x; }
TESSERA_INLINE int64_t flip(int64_t x, uint8_t type) { return type == kU64 ? x ^ INT64_MIN : x; }

// The smallest and largest that a type holds, in flipped order.
double lowest(uint8_t, double) { return -__builtin_inf(); }
double highest(uint8_t, double) { return __builtin_inf(); }
int64_t lowest(uint8_t type, int64_t) {
  switch (type) {
    case kI64:
    case kU64:
      return INT64_MIN;
    case kI32:
      return INT32_MIN;
    case kI16:
      return INT16_MIN;
    case kI8:
      return INT8_MIN;
    default:
      return 0;
  }
}
int64_t highest(uint8_t type, int64_t) {
  switch (type) {
    case kI64:
    case kU64:
      return INT64_MAX;
    case kI32:
      return INT32_MAX;
    case kI16:
      return INT16_MAX;
    case kI8:
      return INT8_MAX;
    case kU32:
      return UINT32_MAX;
    case kU16:
      return UINT16_MAX;
    case kU8:
      return UINT8_MAX;
    default:
      return 1;  // a boolean
  }
}

TESSERA_INLINE double wrapping_add(double a, double b) { return a + b; }
TESSERA_INLINE int64_t wrapping_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
TESSERA_INLINE double wrapping_mul(double a, double b) { return a * b; }
TESSERA_INLINE int64_t wrapping_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

struct Sum {
  static constexpr bool kOrders = false;
  template <class A>
  static A start(uint8_t) {
    return 0;
  }
  template <class A>
  static TESSERA_INLINE A of(A a, A b) {
    return wrapping_add(a, b);
  }
};
struct Product {
  static constexpr bool kOrders = false;
  template <class A>
  static A start(uint8_t) {
    return 1;
  }
  template <class A>
  static TESSERA_INLINE A of(A a, A b) {
    return wrapping_mul(a, b);
  }
};
// NaN wins, met first or later.
struct Max {
  static constexpr bool kOrders = true;
  template <class A>
  static A start(uint8_t type) {
    return lowest(type, A{});
  }
  template <class A>
  static TESSERA_INLINE A of(A a, A b) {
    return a > b || a != a ? a : b;
  }
};
struct Min {
  static constexpr bool kOrders = true;
  template <class A>
  static A start(uint8_t type) {
    return highest(type, A{});
  }
  template <class A>
  static TESSERA_INLINE A of(A a, A b) {
    return a < b || a != a ? a : b;
  }
};

// A block of x, flipped where the operation compares.
template <class Op, class A>
void read_block(const View& x, int64_t at, int64_t stride, int64_t n, A* out) {
  read(x.type, x.data, at, stride, n, out);
  if (Op::kOrders && x.type == kU64)
    for (int64_t i = 0; i < n; ++i) out[i] = flip(out[i], x.type);
}

// The axes of a reduction apart: those kept, which the dense output walks, and those folded. Neighbours merge where x
// walks them as one.
struct Axes {
  Walk<1> kept, folded;
};
Axes split_axes(const View& x, const Attr& axes) {
  bool folds[kMaxRank] = {};
  for (int i = 0; i < axes.length; ++i) folds[axes.list[i] < 0 ? axes.list[i] + x.rank : axes.list[i]] = true;
  View kept = x, folded = x;
  kept.rank = folded.rank = 0;
  for (int a = 0; a < x.rank; ++a) {
    View& to = folds[a] ? folded : kept;
    to.shape[to.rank] = x.shape[a];
    to.stride[to.rank++] = x.stride[a];
  }
  const View* const kept_views[] = {&kept};
  const View* const folded_views[] = {&folded};
  return {make_walk(kept.rank, kept.shape, kept_views), make_walk(folded.rank, folded.shape, folded_views)};
}

// n elements of x from `at` on, in kParts interleaved parts.
template <class Op, class A>
A fold_run(const View& x, int64_t at, int64_t stride, int64_t n) {
  A block[kBlock], parts[kParts];
  for (A& part : parts) part = Op::template start<A>(x.type);
  for (int64_t done = 0; done < n; done += kBlock) {
    const int64_t width = n - done < kBlock ? n - done : kBlock;
    read_block<Op>(x, at + done * stride, stride, width, block);
    int64_t i = 0;
    for (; i + kParts <= width; i += kParts)
      for (int j = 0; j < kParts; ++j) parts[j] = Op::of(parts[j], block[i + j]);
    for (; i < width; ++i) parts[0] = Op::of(parts[0], block[i]);
  }
  for (int width = kParts / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) parts[j] = Op::of(parts[j], parts[j + width]);
  return parts[0];
}

template <class Op, class A>
int fold(const Args& args) {
  const View& x = args.in[0];
  const View& out = args.out[0];
  const int64_t count = element_count(out);
  if (count == 0) return kDone;
  const Axes axes = split_axes(x, args.attrs[0]);
  int64_t length = 1;
  for (int a = 0; a < axes.folded.rank; ++a) length *= axes.folded.shape[a];
  const int inner = axes.folded.rank - 1, last = axes.kept.rank - 1;
  const int64_t run = axes.folded.shape[inner], step = axes.folded.stride[0][inner];
  const int64_t runs = length == 0 ? 0 : length / run;
  // Where outputs lie closer in x than the elements of one do, several are folded together.
  const int64_t pitch = axes.kept.stride[0][last];
  const bool side_by_side = step != 1 && pitch == 1 && axes.kept.shape[last] > 1;
  parallel_for(args.parallel, count, 1 + 16384 / (length + 1), [&](int64_t begin, int64_t end) {
    A sums[kColumns], row[kColumns];
    int64_t width;
    for (int64_t at = begin; at < end; at += width) {
      int64_t offset[1];
      walk_offsets(axes.kept, axes.kept.rank, at, offset);
      width = 1;
      if (side_by_side) {
        const int64_t rest = axes.kept.shape[last] - at % axes.kept.shape[last];
        width = rest < end - at ? rest : end - at;
        width = width < kColumns ? width : kColumns;
      }
      for (int64_t j = 0; j < width; ++j) sums[j] = Op::template start<A>(x.type);
      for (int64_t r = 0; r < runs; ++r) {
        int64_t folded[1];
        walk_offsets(axes.folded, inner, r, folded);
        const int64_t first = offset[0] + folded[0];
        if (!side_by_side) {
          sums[0] = Op::of(sums[0], fold_run<Op, A>(x, first, step, run));
          continue;
        }
        for (int64_t k = 0; k < run; ++k) {
          read_block<Op>(x, first + k * step, 1, width, row);
          for (int64_t j = 0; j < width; ++j) sums[j] = Op::of(sums[j], row[j]);
        }
      }
      for (int64_t j = 0; j < width; ++j)
        write(out.type, out.data, at + j, Op::kOrders ? flip(sums[j], x.type) : sums[j]);
    }
  });
  return kDone;
}
template <class Op>
int reduce(const Args& args) noexcept {
  return is_real(args.in[0].type) ? fold<Op, double>(args) : fold<Op, int64_t>(args);
}

// x as [outer][n][inner] around the axis of the first attribute.
struct Around {
  int64_t outer = 1, n = 1, inner = 1;
  Around(const View& x, const Attr& attr) {
    const int axis = static_cast<int>(attr.i < 0 ? attr.i + x.rank : attr.i);
    for (int a = 0; a < axis; ++a) outer *= x.shape[a];
    n = x.shape[axis];
    for (int a = axis + 1; a < x.rank; ++a) inner *= x.shape[a];
  }
  // Where row i starts.
  int64_t first(int64_t i) const { return i / inner * n * inner + i % inner; }
};

// A later one replaces the best when it compares better: NaN never does, and is never replaced.
template <bool Largest, class A>
int search(const Args& args) {
  const View& x = args.in[0];
  const Around s(x, args.attrs[0]);
  const bool last = args.attrs[1].i != 0;
  int64_t* y = static_cast<int64_t*>(args.out[0].data);
  if (s.outer * s.inner == 0) return kDone;
  if (s.n == 0) return kValueInvalid;
  parallel_for(args.parallel, s.outer * s.inner, 1 + 8192 / s.n, [&](int64_t begin, int64_t end) {
    A block[kBlock];
    for (int64_t i = begin; i < end; ++i) {
      A best{};
      for (int64_t done = 0; done < s.n; done += kBlock) {
        const int64_t width = s.n - done < kBlock ? s.n - done : kBlock;
        read_block<Max>(x, s.first(i) + done * s.inner, s.inner, width, block);
        for (int64_t k = 0; k < width; ++k) {
          const A value = block[k];
          if (done + k == 0 || (Largest ? value > best : value < best) || (last && value == best)) {
            best = value;
            y[i] = done + k;
          }
        }
      }
    }
  });
  return kDone;
}
template <bool Largest>
int arg_extremum(const Args& args) noexcept {
  return is_real(args.in[0].type) ? search<Largest, double>(args) : search<Largest, int64_t>(args);
}

template <class Op, class A>
int run_along(const Args& args) {
  const View& x = args.in[0];
  const View& out = args.out[0];
  const Around s(x, args.attrs[0]);
  const bool exclusive = args.attrs[1].i != 0, reverse = args.attrs[2].i != 0;
  if (s.n == 0 || s.outer * s.inner == 0) return kDone;
  const int64_t step = reverse ? -s.inner : s.inner;
  parallel_for(args.parallel, s.outer * s.inner, 1 + 8192 / s.n, [&](int64_t begin, int64_t end) {
    A block[kBlock];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = s.first(i) + (reverse ? (s.n - 1) * s.inner : 0);
      A total = Op::template start<A>(x.type);
      for (int64_t done = 0; done < s.n; done += kBlock) {
        const int64_t width = s.n - done < kBlock ? s.n - done : kBlock;
        read(x.type, x.data, first + done * step, step, width, block);
        for (int64_t k = 0; k < width; ++k) {
          const A next = Op::of(total, block[k]);
          write(out.type, out.data, first + (done + k) * step, exclusive ? total : next);
          total = next;
        }
      }
    }
  });
  return kDone;
}
template <class Op>
int running(const Args& args) noexcept {
  return is_real(args.in[0].type) ? run_along<Op, double>(args) : run_along<Op, int64_t>(args);
}

}  // namespace

TESSERA_FAMILY(reduce, {"reduce_sum", reduce<Sum>, nullptr}, {"reduce_prod", reduce<Product>, nullptr},
               {"reduce_max", reduce<Max>, nullptr}, {"reduce_min", reduce<Min>, nullptr},
               {"argmax", arg_extremum<true>, nullptr}, {"argmin", arg_extremum<false>, nullptr},
               {"cumsum", running<Sum>, nullptr}, {"cumprod", running<Product>, nullptr})
