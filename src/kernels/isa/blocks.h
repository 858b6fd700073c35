// Pointwise kernels: a driver that walks strided, broadcast operands of any type, and hands dense blocks that lie in L1
// to a function that only knows arrays.
#pragma once

#include "kernels/abi.h"
#include "kernels/isa/half.h"
#include "kernels/isa/loops.h"

namespace {

constexpr int64_t kBlock = 512;          // elements: three operands of 8 bytes and their f32 forms stay in a 32 KiB L1
constexpr int64_t kShortRow = 64;        // below it blocks cross rows: a call a row would cost more than the copy
constexpr int64_t kGrain = 16 * kBlock;  // elements a thread takes at least: a few microseconds

// out[i] = f(in[0][i], in[1][i], ...) for n dense elements; false when a value is not allowed.
using BlockFn = bool (*)(const void* const* in, void* out, int64_t n, const tessera::kernels::Args& args);

template <class T>
inline void gather_row(const T* in, T* out, int64_t n, int64_t stride) {
  if (stride == 0) {
    const T value = *in;
    for (int64_t i = 0; i < n; ++i) out[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = in[i * stride];
  }
}

TESSERA_OUTLINE void gather_run(const char* in, char* out, int64_t n, int64_t stride, int64_t bytes) {
  if (stride == 1) {
    memcpy(out, in, static_cast<size_t>(n * bytes));
  } else if (bytes == 4) {
    gather_row(reinterpret_cast<const uint32_t*>(in), reinterpret_cast<uint32_t*>(out), n, stride);
  } else if (bytes == 8) {
    gather_row(reinterpret_cast<const uint64_t*>(in), reinterpret_cast<uint64_t*>(out), n, stride);
  } else if (bytes == 2) {
    gather_row(reinterpret_cast<const uint16_t*>(in), reinterpret_cast<uint16_t*>(out), n, stride);
  } else {
    gather_row(reinterpret_cast<const uint8_t*>(in), reinterpret_cast<uint8_t*>(out), n, stride);
  }
}

// One operand as blocks see it.
struct Source {
  const char* data;
  int64_t bytes;  // an element
  bool dense;     // as the output: element i lies at i
  bool scalar;    // every element is the same
  uint8_t half;   // kF16 or kBF16: blocks get it as f32; 0 otherwise
};

// The elements [at, at + n) of operand k, dense: where they lie, or gathered into `buffer`.
template <int N>
TESSERA_OUTLINE const void* block_of(const Walk<N>& w, int k, const Source& s, int64_t at, int64_t n, char* buffer) {
  if (s.dense) return s.data + at * s.bytes;
  const int inner = w.rank - 1;
  const int64_t stride = w.stride[k][inner];
  int64_t row = at / w.shape[inner];
  int64_t column = at % w.shape[inner];
  for (int64_t done = 0; done < n;) {
    int64_t offset = column * stride;
    int64_t rest = row++;
    for (int a = inner - 1; a >= 0; --a) {
      offset += rest % w.shape[a] * w.stride[k][a];
      rest /= w.shape[a];
    }
    const int64_t run = w.shape[inner] - column < n - done ? w.shape[inner] - column : n - done;
    if (run == n && stride == 1) return s.data + offset * s.bytes;
    gather_run(s.data + offset * s.bytes, buffer + done * s.bytes, run, stride, s.bytes);
    done += run;
    column = 0;
  }
  return buffer;
}

inline void widen(uint8_t half, const void* in, float* out, int64_t n) {
  using namespace tessera::kernels;
  if (half == kF16)
    f16_block_to_f32(static_cast<const uint16_t*>(in), out, n);
  else
    bf16_block_to_f32(static_cast<const uint16_t*>(in), out, n);
}

inline uint8_t half_of(uint8_t type) {
  using namespace tessera::kernels;
  return type == kF16 || type == kBF16 ? type : 0;
}

// Runs f over the output and the first N operands. f16 and bf16 reach f as f32 when `halves`.
template <int N>
inline int run_blocks(const tessera::kernels::Args& args, BlockFn f, bool halves = true) {
  using namespace tessera::kernels;
  const View& out = args.out[0];
  const int64_t count = element_count(out);
  if (count == 0) return kDone;
  const View* views[N];
  for (int k = 0; k < N; ++k) views[k] = &args.in[k];
  const Walk<N> w = make_walk<N>(out.rank, out.shape, views);
  Source sources[N];
  for (int k = 0; k < N; ++k) {
    Source& s = sources[k];
    s.data = static_cast<const char*>(views[k]->data);
    s.bytes = element_bytes(views[k]->type);
    s.half = halves ? half_of(views[k]->type) : 0;
    s.dense = s.scalar = true;
    int64_t expected = 1;
    for (int a = w.rank - 1; a >= 0; --a) {
      s.dense = s.dense && w.stride[k][a] == expected;
      s.scalar = s.scalar && w.stride[k][a] == 0;
      expected *= w.shape[a];
    }
  }
  const uint8_t half_out = halves ? half_of(out.type) : 0;
  const int64_t out_bytes = element_bytes(out.type);
  const int64_t row = w.shape[w.rank - 1];
  bool flat = row < kShortRow;
  if (!flat) {
    flat = true;
    for (const Source& s : sources) flat = flat && (s.dense || s.scalar);
  }
  bool valid = true;
  parallel_for(args.parallel, count, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) char gathered[N][kBlock * 8];
    alignas(64) float wide[N + 1][kBlock];
    const void* in[N];
    for (int k = 0; k < N; ++k) {
      if (!sources[k].scalar) continue;
      gather_run(sources[k].data, gathered[k], kBlock, 0, sources[k].bytes);
      in[k] = gathered[k];
      if (sources[k].half != 0) {
        widen(sources[k].half, gathered[k], wide[k], kBlock);
        in[k] = wide[k];
      }
    }
    int64_t n;
    for (int64_t at = begin; at < end; at += n) {
      n = end - at < kBlock ? end - at : kBlock;
      if (!flat && row - at % row < n) n = row - at % row;
      for (int k = 0; k < N; ++k) {
        if (sources[k].scalar) continue;
        in[k] = block_of(w, k, sources[k], at, n, gathered[k]);
        if (sources[k].half == 0) continue;
        widen(sources[k].half, in[k], wide[k], n);
        in[k] = wide[k];
      }
      char* to = static_cast<char*>(out.data) + at * out_bytes;
      if (!f(in, half_out != 0 ? static_cast<void*>(wide[N]) : to, n, args)) {
        __atomic_store_n(&valid, false, __ATOMIC_RELAXED);
        return;
      }
      if (half_out == kF16)
        f32_block_to_f16(wide[N], reinterpret_cast<uint16_t*>(to), n);
      else if (half_out == kBF16)
        f32_block_to_bf16(wide[N], reinterpret_cast<uint16_t*>(to), n);
    }
  });
  return valid ? kDone : kValueInvalid;
}

// y[i] = f(x[i]) as vectors.
template <Vec (*F)(Vec)>
bool vector_block(const void* const* in, void* out, int64_t n, const tessera::kernels::Args&) {
  const float* x = static_cast<const float*>(in[0]);
  float* y = static_cast<float*>(out);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, F(load(x + i)));
  if (i < n) store_first(y + i, n - i, F(load_first(x + i, n - i, 1.f)));
  return true;
}

// y[i] = F::of(x[i], ...) as a loop that the compiler vectorises where it can.
template <class F, class T, class R = T>
bool unary_block(const void* const* in, void* out, int64_t n, const tessera::kernels::Args&) {
  const T* x = static_cast<const T*>(in[0]);
  R* y = static_cast<R*>(out);
  for (int64_t i = 0; i < n; ++i) y[i] = F::of(x[i]);
  return true;
}
template <class F, class T, class R = T>
bool binary_block(const void* const* in, void* out, int64_t n, const tessera::kernels::Args&) {
  const T* a = static_cast<const T*>(in[0]);
  const T* b = static_cast<const T*>(in[1]);
  R* y = static_cast<R*>(out);
  for (int64_t i = 0; i < n; ++i) y[i] = F::of(a[i], b[i]);
  return true;
}

}  // namespace
