// Weights in blocks and halves: decoding, lookups, and linear: y [*B, N] = x [*B, K] w [N, K]^T + b [N].
#include "kernels/abi.h"
#include "kernels/isa/decode.h"
#include "kernels/isa/export.h"
#include "kernels/isa/gemm.h"
#include "kernels/isa/quantize.h"

namespace {

using namespace tessera::kernels;

int dequantize(const Args& args) noexcept {
  const View& w = args.in[0];
  float* y = static_cast<float*>(args.out[0].data);
  constexpr int64_t kRun = 4096;  // elements of a task: a whole number of blocks of any type
  const int64_t count = element_count(w);
  parallel_for(args.parallel, ceil_div(count, kRun), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * kRun; i < end * kRun && i < count; i += kRun)
      decode_run(w.type, w.data, i, count - i < kRun ? count - i : kRun, y + i);
  });
  return kDone;
}

int round_to_int8(const Args& args) noexcept {
  const View& x = args.in[0];
  const float* in = static_cast<const float*>(x.data);
  float* out = static_cast<float*>(args.out[0].data);
  const int64_t k = x.shape[x.rank - 1], count = element_count(x);
  if (count == 0) return kDone;
  const bool twice = count / k <= args.attrs[0].i;
  parallel_for(args.parallel, count / k, 1 + 8192 / k, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t at = 0; at < k; at += kCodeBlock) {
        const int64_t n = k - at < kCodeBlock ? k - at : kCodeBlock;
        float block[kCodeBlock] = {};
        int8_t code[kCodeBlock];
        memcpy(block, in + row * k + at, static_cast<size_t>(n) * 4);
        const float scale = quantize_block(block, code);
        for (int64_t i = 0; i < n; ++i) out[row * k + at + i] = static_cast<float>(code[i]) * scale;
        if (!twice) continue;
        leave(block, code, scale);
        const float rest = quantize_block(block, code);
        for (int64_t i = 0; i < n; ++i) out[row * k + at + i] += static_cast<float>(code[i]) * rest;
      }
  });
  return kDone;
}

int embedding(const Args& args) noexcept {
  const View& w = args.in[0];
  const View& ids = args.in[1];
  float* y = static_cast<float*>(args.out[0].data);
  const int64_t rows = w.shape[0], width = w.shape[1], n = element_count(ids);
  bool valid = true;
  parallel_for(args.parallel, n, 1 + 8192 / (width + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t id =
          ids.type == kI64 ? static_cast<const int64_t*>(ids.data)[i] : static_cast<const int32_t*>(ids.data)[i];
      if (id < 0) id += rows;
      if (id < 0 || id >= rows) {
        __atomic_store_n(&valid, false, __ATOMIC_RELAXED);
        return;
      }
      decode_run(w.type, w.data, id * width, width, y + i * width);
    }
  });
  return valid ? kDone : kIndexOutOfRange;
}

struct DecodedRows {
  int64_t m, n, k;
  const float* x;
  const void* w;
  const float* bias;  // [n] or null
  float* y;
};
DecodedRows rows_of(const Args& args) {
  const View& x = args.in[0];
  const View& w = args.in[1];
  DecodedRows r = {1,
                   w.shape[0],
                   w.shape[1],
                   static_cast<const float*>(x.data),
                   w.data,
                   nullptr,
                   static_cast<float*>(args.out[0].data)};
  for (int i = 0; i + 1 < x.rank; ++i) r.m *= x.shape[i];
  if (args.n_in > 2 && args.in[2].present) r.bias = static_cast<const float*>(args.in[2].data);
  return r;
}

Products dequant_products(const DecodedRows& r) {
  Products p = {};
  p.m = r.m;
  p.n = r.n;
  p.k = r.k;
  p.a = {r.x, r.k, 1};
  p.b = {nullptr, r.k, 1};
  p.c = {r.y, r.n};
  p.batches = 1;
  p.batch.rank = 1;
  p.batch.shape[0] = 1;
  p.bias = r.bias;
  return p;
}

size_t dequant_linear_scratch(const Args& args) noexcept { return packed_scratch(dequant_products(rows_of(args))); }

// The panels of w are decoded as they are packed.
int dequant_linear(const Args& args) noexcept {
  const DecodedRows r = rows_of(args);
  const uint8_t type = args.in[1].type;
  const Stored unit = stored(type);
  const Products p = dequant_products(r);
  multiply_packed(p, {p.bias}, args.parallel, args.scratch, [&](int64_t, int64_t column, int64_t n, float* out) {
    // A few blocks of every column, so that both sides stay in L1.
    constexpr int64_t kSteps = 256;
    alignas(64) float decoded[kTileColumns * kSteps];
    for (int64_t k = 0; k < r.k; k += kSteps) {
      const int64_t steps = r.k - k < kSteps ? r.k - k : kSteps;
      for (int64_t j = 0; j < n; ++j)
        decode_run(type, static_cast<const char*>(r.w) + (column + j) * r.k / unit.elements * unit.bytes, k, steps,
                   decoded + j * kSteps);
      pack_panel({decoded, kSteps, 1}, n, steps, out + k * kTileColumns);
    }
  });
  return kDone;
}

}  // namespace

TESSERA_FAMILY(quant, {"dequantize", dequantize, nullptr}, {"round_to_int8", round_to_int8, nullptr},
               {"embedding", embedding, nullptr}, {"dequant_linear", dequant_linear, dequant_linear_scratch})
