// dot: y [*B, M, N] = a [*B, M, K] b [*B, N, K]^T, and linear: y [*B, N] = x [*B, K] w [N, K]^T + b [N].
#include "kernels/abi.h"
#include "kernels/isa/blocks.h"
#include "kernels/isa/export.h"
#include "kernels/isa/linear_call.h"

namespace {

using namespace tessera::kernels;

// A view of the leading axes only.
View leading(const View& v, int axes) {
  View lead = v;
  lead.rank = static_cast<uint8_t>(axes);
  return lead;
}

Products dot_products(const Args& args) {
  const View& a = args.in[0];
  const View& b = args.in[1];
  const View& y = args.out[0];
  const int lead = y.rank - 2;
  Products p;
  p.m = y.shape[lead];
  p.n = y.shape[lead + 1];
  p.k = a.shape[a.rank - 1];
  p.a = {static_cast<const float*>(a.data), a.stride[a.rank - 2], a.stride[a.rank - 1]};
  p.b = {static_cast<const float*>(b.data), b.stride[b.rank - 2], b.stride[b.rank - 1]};
  p.c = {static_cast<float*>(y.data), p.n};
  const View lead_a = leading(a, a.rank - 2), lead_b = leading(b, b.rank - 2);
  const View* const views[] = {&lead_a, &lead_b};
  p.batch = make_walk(lead, y.shape, views);
  p.batches = 1;
  for (int i = 0; i < lead; ++i) p.batches *= y.shape[i];
  p.c_step = p.m * p.n;
  p.bias = nullptr;
  // Batches that share b and follow each other in a are more rows of one product.
  if (p.batch.rank == 1 && p.batches > 1 && p.batch.stride[1][0] == 0 && p.batch.stride[0][0] == p.m * p.a.row) {
    p.m *= p.batches;
    p.batches = 1;
    p.batch.shape[0] = 1;
  }
  return p;
}

size_t dot_scratch(const Args& args) noexcept { return products_scratch(dot_products(args)); }
int dot_f32(const Args& args) noexcept {
  multiply(dot_products(args), args.parallel, args.scratch);
  return kDone;
}

size_t linear_scratch(const Args& args) noexcept { return products_scratch(linear_products(args)); }
int linear_f32(const Args& args) noexcept {
  multiply(linear_products(args), args.parallel, args.scratch);
  return kDone;
}

size_t linear_packed_size(const PackArgs& args) noexcept {
  return static_cast<size_t>(packed_size(args.operand->shape[0], args.operand->shape[1])) * 4;
}
void linear_pack(const PackArgs& args, void* out) noexcept {
  const View& w = *args.operand;
  pack_panels({static_cast<const float*>(w.data), w.stride[0], w.stride[1]}, w.shape[0], w.shape[1], args.parallel,
              static_cast<float*>(out));
}
size_t linear_rows_scratch(const Args& args) noexcept { return rows_scratch(linear_products(args)); }
// b has been packed.
void multiply_linear(const Products& p, const ProgramJob* program, const Args& args) {
  if (p.m == 0 || p.n == 0) return;
  const Epilogue epilogue = {p.bias, program};
  multiply_columns(p, 0, 1, 0, p.n, p.b.data, 0, static_cast<float*>(args.scratch), epilogue, args.parallel);
}
int linear_packed_f32(const Args& args) noexcept {
  multiply_linear(linear_products(args), nullptr, args);
  return kDone;
}

size_t fused_linear_scratch(const Args& args) noexcept { return rounded(linear_scratch(args)) + parts_bytes(args); }
int fused_linear_f32(const Args& args) noexcept {
  return fused_linear(args, linear_scratch(args), false,
                      [&](const Products& p, const ProgramJob*) { multiply(p, args.parallel, args.scratch); });
}
size_t fused_linear_packed_scratch(const Args& args) noexcept {
  return rounded(linear_rows_scratch(args)) + parts_bytes(args);
}
int fused_linear_packed_f32(const Args& args) noexcept {
  return fused_linear(args, linear_rows_scratch(args), true,
                      [&](const Products& p, const ProgramJob* program) { multiply_linear(p, program, args); });
}

// Every other type: T as stored, S to accumulate in. Four rows by 64 columns of accumulators stay in L1.
template <class T, class S>
struct Plain {
  static S read(T x) { return static_cast<S>(x); }
  static T write(S x) { return static_cast<T>(x); }
};
struct F16 {
  static float read(uint16_t x) { return f16_to_f32(x); }
  static uint16_t write(float x) { return f32_to_f16(x); }
};
struct BF16 {
  static float read(uint16_t x) { return bf16_to_f32(x); }
  static uint16_t write(float x) { return f32_to_bf16(x); }
};

template <class T, class S, class Convert>
int dot_any(const Args& args) {
  constexpr int64_t kRows = 4, kColumns = 64, kSteps = 64;
  const Products p = dot_products(args);  // its pointers are of T: only shapes and strides are used
  if (p.m == 0 || p.n == 0 || p.batches == 0) return kDone;
  const T* a = static_cast<const T*>(args.in[0].data);
  const T* b = static_cast<const T*>(args.in[1].data);
  T* y = static_cast<T*>(args.out[0].data);
  const int64_t bands = ceil_div(p.m, 16 * kRows), parts = ceil_div(p.n, kColumns);
  parallel_for(args.parallel, p.batches * bands * parts, 1, [&](int64_t begin, int64_t end) {
    S columns[kSteps][kColumns];
    S sums[16 * kRows][kColumns];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t product = i / (bands * parts);
      int64_t at[2];
      walk_offsets(p.batch, p.batch.rank, product, at);
      const int64_t row = i / parts % bands * 16 * kRows, column = i % parts * kColumns;
      const int64_t m = p.m - row < 16 * kRows ? p.m - row : 16 * kRows;
      const int64_t n = p.n - column < kColumns ? p.n - column : kColumns;
      for (auto& line : sums)
        for (S& sum : line) sum = 0;
      for (int64_t k = 0; k < p.k; k += kSteps) {
        const int64_t steps = p.k - k < kSteps ? p.k - k : kSteps;
        for (int64_t x = 0; x < steps; ++x)
          for (int64_t j = 0; j < kColumns; ++j)
            columns[x][j] =
                j < n ? Convert::read(b[at[1] + (column + j) * p.b.row + (k + x) * p.b.column]) : static_cast<S>(0);
        for (int64_t r = 0; r < m; ++r)
          for (int64_t x = 0; x < steps; ++x) {
            const S v = Convert::read(a[at[0] + (row + r) * p.a.row + (k + x) * p.a.column]);
            for (int64_t j = 0; j < kColumns; ++j) sums[r][j] += v * columns[x][j];
          }
      }
      for (int64_t r = 0; r < m; ++r)
        for (int64_t j = 0; j < n; ++j)
          y[product * p.c_step + (row + r) * p.n + column + j] = Convert::write(sums[r][j]);
    }
  });
  return kDone;
}

int dot_any_type(const Args& args) noexcept {
  switch (args.out[0].type) {
    case kF64:
      return dot_any<double, double, Plain<double, double>>(args);
    case kF16:
      return dot_any<uint16_t, float, F16>(args);
    case kBF16:
      return dot_any<uint16_t, float, BF16>(args);
    // Modulo 2^bits the sign of the product does not matter.
    case kI64:
    case kU64:
      return dot_any<uint64_t, uint64_t, Plain<uint64_t, uint64_t>>(args);
    case kI32:
    case kU32:
      return dot_any<uint32_t, uint32_t, Plain<uint32_t, uint32_t>>(args);
    case kI16:
    case kU16:
      return dot_any<uint16_t, uint32_t, Plain<uint16_t, uint32_t>>(args);
    default:
      return dot_any<uint8_t, uint32_t, Plain<uint8_t, uint32_t>>(args);
  }
}

}  // namespace

TESSERA_FAMILY(matmul, {"dot_f32", dot_f32, dot_scratch}, {"dot_any", dot_any_type, nullptr},
               {"linear_f32", linear_f32, linear_scratch},
               {"linear_packed_f32", linear_packed_f32, linear_rows_scratch, linear_packed_size, linear_pack},
               {"fused_linear_f32", fused_linear_f32, fused_linear_scratch},
               {"fused_linear_packed_f32", fused_linear_packed_f32, fused_linear_packed_scratch, linear_packed_size,
                linear_pack})
