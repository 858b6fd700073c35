// concat, pad, gather and scatter, iota, top_k: elements move, so most kernels see only their size.
#include "kernels/abi.h"
#include "kernels/isa/blocks.h"
#include "kernels/isa/export.h"

namespace {

using namespace tessera::kernels;

constexpr int64_t kGrainBytes = 32 * 1024;  // as copy's: about a microsecond of a core

inline bool in_range(int64_t& index, int64_t size) {
  if (index < 0) index += size;
  return index >= 0 && index < size;
}
inline int64_t index_at(const View& v, int64_t i) {
  return v.type == kI64 ? static_cast<const int64_t*>(v.data)[i] : static_cast<const int32_t*>(v.data)[i];
}
inline int axis_of(int64_t axis, int rank) { return static_cast<int>(axis < 0 ? axis + rank : axis); }

// Moves bytes of one size, inlined for those of the elements.
TESSERA_INLINE void move_bytes(char* to, const char* from, int64_t bytes) {
  if (bytes == 4)
    memcpy(to, from, 4);
  else if (bytes == 8)
    memcpy(to, from, 8);
  else
    memcpy(to, from, static_cast<size_t>(bytes));
}

template <class T>
void spread_row(const char* in, char* out, int64_t n, int64_t in_stride, int64_t out_stride) {
  const T* from = reinterpret_cast<const T*>(in);
  T* to = reinterpret_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) to[i * out_stride] = from[i * in_stride];
}

// in, of any strides, into a box of the dense `out` at element `origin`, whose strides are `steps`.
void copy_into(const View& in, const View& out, int64_t origin, const Parallel* parallel) {
  const int64_t count = element_count(in);
  if (count == 0) return;
  View box = in;
  for (int a = 0; a < in.rank; ++a) box.stride[a] = out.stride[a];
  const View* const views[] = {&in, &box};
  const Walk<2> w = make_walk(in.rank, in.shape, views);
  const int64_t bytes = element_bytes(out.type);
  const char* from = static_cast<const char*>(in.data);
  char* to = static_cast<char*>(out.data) + origin * bytes;
  const int inner = w.rank - 1;
  const int64_t n = w.shape[inner];
  // Long rows are cut, so that one of them still has work for every thread.
  const int64_t piece = kGrainBytes / bytes;
  const int64_t pieces = (n + piece - 1) / piece;
  const int64_t rows = count / n;
  parallel_for(parallel, rows * pieces, 1 + kGrainBytes / (bytes * n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t at[2];
      walk_offsets(w, inner, i / pieces, at);
      const int64_t first = i % pieces * piece;
      const int64_t width = n - first < piece ? n - first : piece;
      const char* source = from + (at[0] + first * w.stride[0][inner]) * bytes;
      char* target = to + (at[1] + first * w.stride[1][inner]) * bytes;
      if (w.stride[1][inner] == 1)
        gather_run(source, target, width, w.stride[0][inner], bytes);
      else if (bytes == 1)
        spread_row<uint8_t>(source, target, width, w.stride[0][inner], w.stride[1][inner]);
      else if (bytes == 2)
        spread_row<uint16_t>(source, target, width, w.stride[0][inner], w.stride[1][inner]);
      else if (bytes == 4)
        spread_row<uint32_t>(source, target, width, w.stride[0][inner], w.stride[1][inner]);
      else
        spread_row<uint64_t>(source, target, width, w.stride[0][inner], w.stride[1][inner]);
    }
  });
}

int concat(const Args& args) noexcept {
  const View& out = args.out[0];
  const int axis = axis_of(args.attrs[0].i, out.rank);
  int64_t origin = 0;
  for (int k = 0; k < args.n_in; ++k) {
    copy_into(args.in[k], out, origin, args.parallel);
    origin += args.in[k].shape[axis] * out.stride[axis];
  }
  return kDone;
}

int pad(const Args& args) noexcept {
  const View& out = args.out[0];
  const int64_t count = element_count(out);
  if (count == 0) return kDone;
  const int64_t bytes = element_bytes(out.type);
  const bool valued = args.n_in > 1 && args.in[1].present;
  const uint64_t zero = 0;
  const char* value = valued ? static_cast<const char*>(args.in[1].data) : reinterpret_cast<const char*>(&zero);
  parallel_for(args.parallel, count, kGrainBytes / bytes, [&](int64_t begin, int64_t end) {
    gather_run(value, static_cast<char*>(out.data) + begin * bytes, end - begin, 0, bytes);
  });
  int64_t origin = 0;
  for (int a = 0; a < out.rank; ++a) {
    const int64_t low = args.attrs[0].list[a], high = args.attrs[1].list[a];
    if (low < 0 || high < 0) return kValueInvalid;
    origin += low * out.stride[a];
  }
  copy_into(args.in[0], out, origin, args.parallel);
  return kDone;
}

int gather(const Args& args) noexcept {
  const View& x = args.in[0];
  const View& index = args.in[1];
  const int axis = axis_of(args.attrs[0].i, x.rank);
  int64_t outer = 1, bytes = element_bytes(x.type);
  for (int a = 0; a < axis; ++a) outer *= x.shape[a];
  for (int a = axis + 1; a < x.rank; ++a) bytes *= x.shape[a];
  const int64_t size = x.shape[axis], rows = element_count(index);
  const char* from = static_cast<const char*>(x.data);
  char* to = static_cast<char*>(args.out[0].data);
  // Checked also where nothing is read, so that an index is either right or wrong whatever the other sizes are.
  for (int64_t i = 0; i < rows; ++i)
    if (int64_t at = index_at(index, i); !in_range(at, size)) return kIndexOutOfRange;
  if (bytes == 0) return kDone;
  parallel_for(args.parallel, outer * rows, 1 + kGrainBytes / (bytes + 8), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t at = index_at(index, i % rows);
      in_range(at, size);
      move_bytes(to + i * bytes, from + (i / rows * size + at) * bytes, bytes);
    }
  });
  return kDone;
}

// Where element i of `index` points in x when it replaces the coordinate along `axis`; -1 when out of range.
int64_t element_address(const View& x, const View& index, int axis, int64_t i) {
  int64_t rest = i, address = 0;
  for (int a = index.rank - 1; a >= 0; --a) {
    const int64_t at = rest % index.shape[a];
    rest /= index.shape[a];
    if (a != axis) address += at * x.stride[a];
  }
  int64_t at = index_at(index, i);
  return in_range(at, x.shape[axis]) ? address + at * x.stride[axis] : -1;
}
bool inside(const View& index, const View& x, int axis) {
  for (int a = 0; a < x.rank; ++a)
    if (a != axis && index.shape[a] > x.shape[a]) return false;
  return true;
}

int gather_elements(const Args& args) noexcept {
  const View& x = args.in[0];
  const View& index = args.in[1];
  const int axis = axis_of(args.attrs[0].i, x.rank);
  const int64_t count = element_count(index), bytes = element_bytes(x.type);
  if (count == 0) return kDone;
  if (!inside(index, x, axis)) return kValueInvalid;
  bool valid = true;
  parallel_for(args.parallel, count, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t address = element_address(x, index, axis, i);
      if (address < 0) {
        __atomic_store_n(&valid, false, __ATOMIC_RELAXED);
        return;
      }
      move_bytes(static_cast<char*>(args.out[0].data) + i * bytes, static_cast<const char*>(x.data) + address * bytes,
                 bytes);
    }
  });
  return valid ? kDone : kIndexOutOfRange;
}

// Points of gather_nd and scatter_nd: `index` [*B, *I, K] behind `batch` shared axes addresses slices of x.
struct Points {
  int64_t count = 1;  // points
  int64_t k;          // coordinates of one
  int64_t slice = 1;  // elements behind them
  int64_t shared;     // points of one batch
  Points(const View& x, const View& index, int64_t batch) {
    k = index.shape[index.rank - 1];
    for (int a = 0; a + 1 < index.rank; ++a) count *= index.shape[a];
    for (int64_t a = batch + k; a < x.rank; ++a) slice *= x.shape[a];
    int64_t batches = 1;
    for (int64_t a = 0; a < batch; ++a) batches *= x.shape[a];
    shared = batches == 0 ? 1 : count / batches;
  }
};
// -1 when out of range.
int64_t point_address(const View& x, const View& index, const Points& p, int64_t batch, int64_t i) {
  int64_t address = 0, rest = i / (p.shared == 0 ? 1 : p.shared);
  for (int64_t a = batch - 1; a >= 0; --a) {
    address += rest % x.shape[a] * x.stride[a];
    rest /= x.shape[a];
  }
  for (int64_t j = 0; j < p.k; ++j) {
    int64_t at = index_at(index, i * p.k + j);
    if (!in_range(at, x.shape[batch + j])) return -1;
    address += at * x.stride[batch + j];
  }
  return address;
}

int gather_nd(const Args& args) noexcept {
  const View& x = args.in[0];
  const View& index = args.in[1];
  const int64_t batch = args.attrs[0].i;
  const Points p(x, index, batch);
  const int64_t bytes = p.slice * element_bytes(x.type);
  bool valid = true;
  parallel_for(args.parallel, p.count, 1 + kGrainBytes / (bytes + 8), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t address = point_address(x, index, p, batch, i);
      if (address < 0) {
        __atomic_store_n(&valid, false, __ATOMIC_RELAXED);
        return;
      }
      if (bytes != 0)
        move_bytes(static_cast<char*>(args.out[0].data) + i * bytes,
                   static_cast<const char*>(x.data) + address * element_bytes(x.type), bytes);
    }
  });
  return valid ? kDone : kIndexOutOfRange;
}

// How written elements combine with what is there, in the order of the operators' attribute.
enum Reduction : int64_t { kNone, kAdd, kMul, kMin, kMax };

template <class T>
T combine(int64_t how, T old, T update) {
  switch (how) {
    case kAdd:
      return static_cast<T>(old + update);
    case kMul:
      return static_cast<T>(old * update);
    case kMin:
      return old < update || old != old ? old : update;
    default:
      return old > update || old != old ? old : update;
  }
}
template <class T>
void combine_run(int64_t how, void* to, const void* from, int64_t at, int64_t first, int64_t n) {
  T* y = static_cast<T*>(to) + at;
  const T* x = static_cast<const T*>(from) + first;
  for (int64_t i = 0; i < n; ++i) y[i] = combine(how, y[i], x[i]);
}
// n updates from element `first` on, into y from element `at` on.
void apply(uint8_t type, int64_t how, void* y, const void* updates, int64_t at, int64_t first, int64_t n) {
  const int64_t bytes = element_bytes(type);
  if (how == kNone) {
    move_bytes(static_cast<char*>(y) + at * bytes, static_cast<const char*>(updates) + first * bytes, n * bytes);
    return;
  }
  switch (type) {
    case kF64:
      return combine_run<double>(how, y, updates, at, first, n);
    case kF32:
      return combine_run<float>(how, y, updates, at, first, n);
    case kF16:
    case kBF16: {
      uint16_t* to = static_cast<uint16_t*>(y) + at;
      const uint16_t* from = static_cast<const uint16_t*>(updates) + first;
      for (int64_t i = 0; i < n; ++i)
        to[i] = type == kF16 ? f32_to_f16(combine(how, f16_to_f32(to[i]), f16_to_f32(from[i])))
                             : f32_to_bf16(combine(how, bf16_to_f32(to[i]), bf16_to_f32(from[i])));
      return;
    }
    // Sums and products wrap: computed unsigned. Extrema need the sign.
    case kI64:
      if (how == kMin || how == kMax) return combine_run<int64_t>(how, y, updates, at, first, n);
      return combine_run<uint64_t>(how, y, updates, at, first, n);
    case kU64:
      return combine_run<uint64_t>(how, y, updates, at, first, n);
    case kI32:
      if (how == kMin || how == kMax) return combine_run<int32_t>(how, y, updates, at, first, n);
      return combine_run<uint32_t>(how, y, updates, at, first, n);
    case kU32:
      return combine_run<uint32_t>(how, y, updates, at, first, n);
    case kI16:
      return combine_run<int16_t>(how, y, updates, at, first, n);
    case kU16: {
      uint16_t* to = static_cast<uint16_t*>(y) + at;
      const uint16_t* from = static_cast<const uint16_t*>(updates) + first;
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint16_t>(combine<uint32_t>(how, to[i], from[i]));
      return;
    }
    case kI8:
      return combine_run<int8_t>(how, y, updates, at, first, n);
    case kU8:
      return combine_run<uint8_t>(how, y, updates, at, first, n);
    default:  // booleans: a sum is "or"
      return combine_run<uint8_t>(how == kAdd ? kMax : how, y, updates, at, first, n);
  }
}

void start_from(const Args& args) {
  const View& x = args.in[0];
  const View& y = args.out[0];
  if (x.data != y.data && element_count(y) != 0) copy_into(x, y, 0, args.parallel);
}

// Updates go in order on one thread: several may meet in one element.
int scatter_elements(const Args& args) noexcept {
  const View& index = args.in[1];
  const View& y = args.out[0];
  const int axis = axis_of(args.attrs[0].i, y.rank);
  const int64_t count = element_count(index);
  start_from(args);
  if (count != 0 && !inside(index, y, axis)) return kValueInvalid;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t address = element_address(y, index, axis, i);
    if (address < 0) return kIndexOutOfRange;
    apply(y.type, args.attrs[1].i, y.data, args.in[2].data, address, i, 1);
  }
  return kDone;
}

int scatter_nd(const Args& args) noexcept {
  const View& index = args.in[1];
  const View& y = args.out[0];
  const Points p(y, index, 0);
  start_from(args);
  for (int64_t i = 0; i < p.count; ++i) {
    const int64_t address = point_address(y, index, p, 0, i);
    if (address < 0) return kIndexOutOfRange;
    if (p.slice != 0) apply(y.type, args.attrs[0].i, y.data, args.in[2].data, address, i * p.slice, p.slice);
  }
  return kDone;
}

void put_index(uint8_t type, void* out, int64_t i, int64_t value) {
  switch (type) {
    case kF64:
      static_cast<double*>(out)[i] = static_cast<double>(value);
      return;
    case kF32:
      static_cast<float*>(out)[i] = static_cast<float>(value);
      return;
    case kF16:
      static_cast<uint16_t*>(out)[i] = f32_to_f16(f64_to_odd_f32(static_cast<double>(value)));
      return;
    case kBF16:
      static_cast<uint16_t*>(out)[i] = f32_to_bf16(f64_to_odd_f32(static_cast<double>(value)));
      return;
    case kI64:
    case kU64:
      static_cast<int64_t*>(out)[i] = value;
      return;
    case kI32:
    case kU32:
      static_cast<uint32_t*>(out)[i] = static_cast<uint32_t>(value);
      return;
    case kI16:
    case kU16:
      static_cast<uint16_t*>(out)[i] = static_cast<uint16_t>(value);
      return;
    case kBool:
      static_cast<uint8_t*>(out)[i] = value != 0;
      return;
    default:
      static_cast<uint8_t*>(out)[i] = static_cast<uint8_t>(value);
  }
}

int iota(const Args& args) noexcept {
  const View& out = args.out[0];
  const int64_t count = element_count(out);
  if (count == 0) return kDone;
  int64_t n = 1, inner = 1;
  if (out.rank > 0) {
    const int axis = axis_of(args.attrs[1].i, out.rank);
    n = out.shape[axis];
    for (int a = axis + 1; a < out.rank; ++a) inner *= out.shape[a];
  }
  parallel_for(args.parallel, count, 8192, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) put_index(out.type, out.data, i, i / inner % n);
  });
  return kDone;
}

// The k best of each row [n] as a heap of their indices, the worst on top, in the memory of the result.
template <class Read>
int select_top(const Args& args, const Read& read) {
  const View& x = args.in[0];
  const bool largest = args.attrs[1].i != 0;
  const int axis = axis_of(args.attrs[0].i, x.rank);
  int64_t outer = 1, inner = 1;
  const int64_t n = x.shape[axis], k = args.out[0].shape[axis], bytes = element_bytes(x.type);
  for (int a = 0; a < axis; ++a) outer *= x.shape[a];
  for (int a = axis + 1; a < x.rank; ++a) inner *= x.shape[a];
  if (k < 0 || k > n) return kValueInvalid;
  if (k == 0) return kDone;
  parallel_for(args.parallel, outer * inner, 1 + 2048 / n, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first = row / inner * n * inner + row % inner;
      const int64_t to = row / inner * k * inner + row % inner;
      int64_t* heap = static_cast<int64_t*>(args.out[1].data) + to;
      // NaN counts as the largest; equal ones stand by index.
      const auto before = [&](int64_t a, int64_t b) {
        const auto va = read(first + a * inner), vb = read(first + b * inner);
        const bool nan_a = va != va, nan_b = vb != vb;
        if (nan_a != nan_b) return nan_a == largest;
        if (nan_a || va == vb) return a < b;
        return largest ? va > vb : va < vb;
      };
      const auto sink = [&](int64_t at, int64_t size) {
        const int64_t held = heap[at * inner];
        for (int64_t child; (child = 2 * at + 1) < size; at = child) {
          if (child + 1 < size && before(heap[child * inner], heap[(child + 1) * inner])) ++child;
          if (!before(held, heap[child * inner])) break;
          heap[at * inner] = heap[child * inner];
        }
        heap[at * inner] = held;
      };
      for (int64_t i = 0; i < k; ++i) heap[i * inner] = i;
      for (int64_t i = k / 2; i-- > 0;) sink(i, k);
      for (int64_t i = k; i < n; ++i) {
        if (!before(i, heap[0])) continue;
        heap[0] = i;
        sink(0, k);
      }
      for (int64_t size = k; size-- > 1;) {
        const int64_t worst = heap[0];
        heap[0] = heap[size * inner];
        heap[size * inner] = worst;
        sink(0, size);
      }
      for (int64_t i = 0; i < k; ++i)
        move_bytes(static_cast<char*>(args.out[0].data) + (to + i * inner) * bytes,
                   static_cast<const char*>(x.data) + (first + heap[i * inner] * inner) * bytes, bytes);
    }
  });
  return kDone;
}
template <class T>
int select_top_of(const Args& args) {
  const T* x = static_cast<const T*>(args.in[0].data);
  return select_top(args, [=](int64_t i) { return x[i]; });
}

int top_k(const Args& args) noexcept {
  // k is the size of the result; its tensor must say the same.
  const View& wanted = args.in[1];
  const View& out = args.out[0];
  if (static_cast<const int64_t*>(wanted.data)[0] != out.shape[axis_of(args.attrs[0].i, out.rank)])
    return kValueInvalid;
  const uint16_t* half = static_cast<const uint16_t*>(args.in[0].data);
  switch (args.in[0].type) {
    case kF64:
      return select_top_of<double>(args);
    case kF32:
      return select_top_of<float>(args);
    case kF16:
      return select_top(args, [=](int64_t i) { return f16_to_f32(half[i]); });
    case kBF16:
      return select_top(args, [=](int64_t i) { return bf16_to_f32(half[i]); });
    case kI64:
      return select_top_of<int64_t>(args);
    case kI32:
      return select_top_of<int32_t>(args);
    case kI16:
      return select_top_of<int16_t>(args);
    case kI8:
      return select_top_of<int8_t>(args);
    case kU64:
      return select_top_of<uint64_t>(args);
    case kU32:
      return select_top_of<uint32_t>(args);
    case kU16:
      return select_top_of<uint16_t>(args);
    default:
      return select_top_of<uint8_t>(args);
  }
}

}  // namespace

TESSERA_FAMILY(move, {"concat", concat, nullptr}, {"pad", pad, nullptr}, {"gather", gather, nullptr},
               {"gather_elements", gather_elements, nullptr}, {"gather_nd", gather_nd, nullptr},
               {"scatter_elements", scatter_elements, nullptr}, {"scatter_nd", scatter_nd, nullptr},
               {"iota", iota, nullptr}, {"top_k", top_k, nullptr})
