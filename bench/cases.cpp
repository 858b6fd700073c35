#include "bench/cases.h"

#include <fmt/format.h>

namespace tessera::bench {
namespace {

double bytes_of(DType t, int64_t count) { return static_cast<double>(storage_bytes(t, count)); }

// x [m, k] w [n, k]^T, of x's type.
Case linear(DType x, DType w, int64_t m, int64_t k, int64_t n) {
  Case c = {"linear", fmt::format("{}x{}x{}", m, k, n)};
  c.operands = {{x, {m, k}, false, 0}, {w, {n, k}, true, 1}};
  const double operations = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const double weights = bytes_of(w, n * k);
  // Few rows read the weights once; their number of operations is no limit.
  const bool memory = m <= 8;
  c.limit = memory ? Limit::read : x == DType::bf16 ? Limit::bf16_peak : Limit::f32_peak;
  c.work = memory ? weights : operations;
  c.sets = memory ? 12 : 1;
  c.tolerance = x == DType::f32 ? 1e-5 : 1e-2;
  c.result = {m, n};
  c.m = m, c.n = n, c.k = k;
  return c;
}

Case rows(const char* op, std::vector<ir::AttrValue> attrs, int64_t m, int64_t n, int vectors) {
  Case c = {op, fmt::format("{}x{}", m, n)};
  c.operands = {{DType::f32, {m, n}, false, 0}};
  for (int i = 0; i < vectors; ++i) c.operands.push_back({DType::f32, {n}});
  c.attrs = std::move(attrs);
  c.limit = Limit::copy;
  c.work = 2 * bytes_of(DType::f32, m * n);
  c.tolerance = 1e-5;
  c.result = {m, n};
  return c;
}

}  // namespace

std::vector<Case> cases() {
  constexpr DType f32 = DType::f32;
  return {
      linear(f32, f32, 1024, 1024, 1024), linear(f32, f32, 2048, 2048, 2048),
      linear(f32, f32, 128, 768, 768),    linear(f32, f32, 128, 768, 3072),
      linear(f32, f32, 128, 3072, 768),   linear(f32, f32, 128, 3072, 3072),
      linear(f32, f32, 512, 4096, 4096),  linear(f32, f32, 1, 4096, 4096),
      linear(f32, f32, 1, 4096, 11008),   linear(f32, f32, 4, 4096, 4096),
      linear(f32, f32, 8, 4096, 4096),    rows("softmax", {int64_t{-1}}, 8192, 4096, 0),
      rows("gelu", {}, 8192, 4096, 0),    rows("relu", {}, 8192, 4096, 0),
  };
}

}  // namespace tessera::bench
