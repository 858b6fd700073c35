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
  parallel_for(args.parallel, count / k, 1 + 8192 / k, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t at = 0; at < k; at += kCodeBlock) {
        const int64_t n = k - at < kCodeBlock ? k - at : kCodeBlock;
        float block[kCodeBlock] = {};
        int8_t code[kCodeBlock];
        memcpy(block, in + row * k + at, static_cast<size_t>(n) * 4);
        const float scale = quantize_block(block, code);
        for (int64_t i = 0; i < n; ++i) out[row * k + at + i] = static_cast<float>(code[i]) * scale;
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

struct Rows {
  int64_t m, n, k;
  const float* x;
  const void* w;
  const float* bias;  // [n] or null
  float* y;
};
Rows rows_of(const Args& args) {
  const View& x = args.in[0];
  const View& w = args.in[1];
  Rows r = {1,
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

Products dequant_products(const Rows& r) {
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

// y = x w^T + b with the panels of w decoded as they are packed.
void multiply_decoded(const Rows& r, uint8_t type, const Args& args, void* scratch) {
  const Stored unit = stored(type);
  multiply_packed(dequant_products(r), args.parallel, scratch, [&](int64_t, int64_t column, int64_t n, float* out) {
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
}

size_t dequant_linear_scratch(const Args& args) noexcept { return packed_scratch(dequant_products(rows_of(args))); }
int dequant_linear(const Args& args) noexcept {
  multiply_decoded(rows_of(args), args.in[1].type, args, args.scratch);
  return kDone;
}

// x rounded to bf16 [m, k], as f32, before what the product itself needs.
size_t rounded_bytes(const Rows& r) { return static_cast<size_t>(ceil_div(r.m * r.k, 16) * 64); }
size_t bf16_linear_scratch(const Args& args) noexcept {
  return rounded_bytes(rows_of(args)) + dequant_linear_scratch(args);
}
int bf16_linear(const Args& args) noexcept {
  Rows r = rows_of(args);
  float* rounded = static_cast<float*>(args.scratch);
  parallel_for(args.parallel, r.m * r.k, 8192, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) rounded[i] = bf16_to_f32(f32_to_bf16(r.x[i]));
  });
  r.x = rounded;
  multiply_decoded(r, kBF16, args, static_cast<char*>(args.scratch) + rounded_bytes(r));
  return kDone;
}

// Rows of x as codes [m, k], a scale for each 32 [m, k / 32], and sums of codes for each 16 [m, k / 16].
struct Codes {
  int8_t* code;
  float* scale;
  int32_t* sum;
};
constexpr int64_t kSumBlock = 16;
size_t codes_bytes(const Rows& r) {
  return static_cast<size_t>(r.m * (r.k + r.k / kCodeBlock * 4 + r.k / kSumBlock * 4));
}

Codes quantize_rows(const Rows& r, const Args& args) {
  Codes c;
  c.code = static_cast<int8_t*>(args.scratch);
  c.scale = reinterpret_cast<float*>(c.code + r.m * r.k);
  c.sum = reinterpret_cast<int32_t*>(c.scale + r.m * (r.k / kCodeBlock));
  const int64_t blocks = r.m * (r.k / kCodeBlock);
  parallel_for(args.parallel, blocks, 256, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      int8_t* code = c.code + b * kCodeBlock;
      c.scale[b] = quantize_block(r.x + b * kCodeBlock, code);
      for (int64_t s = 0; s < kCodeBlock / kSumBlock; ++s) {
        int32_t sum = 0;
        for (int64_t i = 0; i < kSumBlock; ++i) sum += code[s * kSumBlock + i];
        c.sum[b * (kCodeBlock / kSumBlock) + s] = sum;
      }
    }
  });
  return c;
}

template <int kGroup>
TESSERA_INLINE int32_t dot_codes(const int8_t* a, const int8_t* b) {
  int32_t sum = 0;
  for (int i = 0; i < kGroup; ++i) sum += a[i] * b[i];
  return sum;
}

// Row n of w against rows [0, m) of x, at most kRowsAtOnce.
constexpr int64_t kRowsAtOnce = 16;
template <class Format>
void dot_row(const Rows& r, const Codes& c, int64_t row, int64_t m, int64_t n) {
  constexpr BlockForm form = Format::kForm;
  float sums[kRowsAtOnce] = {};
  const uint8_t* block = static_cast<const uint8_t*>(r.w) + n * (r.k / form.elements) * form.bytes;
  for (int64_t k = 0; k < r.k; k += form.elements, block += form.bytes) {
    BlockCodes codes;
    Format::unpack(block, codes);
    const float d = f16_to_f32(codes.d), minimum = f16_to_f32(codes.minimum);
    for (int64_t i = 0; i < m; ++i) {
      const int64_t at = (row + i) * r.k + k;
      for (int g = 0; g < form.elements / form.group; ++g) {
        int32_t total = c.sum[(at + g * form.group) / kSumBlock];
        if (form.group == 32) total += c.sum[(at + g * form.group) / kSumBlock + 1];
        const int32_t product =
            dot_codes<form.group>(codes.code + g * form.group, c.code + at + g * form.group) - form.centre * total;
        float term = d * static_cast<float>(codes.multiplier[g]) * static_cast<float>(product);
        if (form.shifts) term += minimum * static_cast<float>(codes.minimum_multiplier[g]) * static_cast<float>(total);
        sums[i] += term * c.scale[(at + g * form.group) / kCodeBlock];
      }
    }
  }
  for (int64_t i = 0; i < m; ++i) r.y[(row + i) * r.n + n] = sums[i] + (r.bias == nullptr ? 0 : r.bias[n]);
}

size_t quant_linear_scratch(const Args& args) noexcept { return codes_bytes(rows_of(args)); }
int quant_linear(const Args& args) noexcept {
  const Rows r = rows_of(args);
  if (r.m == 0 || r.n == 0) return kDone;
  const Codes c = quantize_rows(r, args);
  const int64_t bands = ceil_div(r.m, kRowsAtOnce);
  with_block_format(args.in[1].type - kString - 1, [&]<class Format>(Format) {
    parallel_for(args.parallel, bands * r.n, 1 + 8192 / (r.k + 1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / r.n * kRowsAtOnce;
        dot_row<Format>(r, c, row, r.m - row < kRowsAtOnce ? r.m - row : kRowsAtOnce, i % r.n);
      }
    });
  });
  return kDone;
}

}  // namespace

TESSERA_FAMILY(quant, {"dequantize", dequantize, nullptr}, {"round_to_int8", round_to_int8, nullptr},
               {"embedding", embedding, nullptr}, {"dequant_linear", dequant_linear, dequant_linear_scratch},
               {"bf16_linear", bf16_linear, bf16_linear_scratch}, {"quant_linear", quant_linear, quant_linear_scratch})
