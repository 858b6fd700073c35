#include "bench/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "ops/tile.h"
#include "ops/weights.h"

namespace tessera::bench {
namespace {

double bytes_of(DType t, int64_t count) { return static_cast<double>(storage_bytes(t, count)); }

// A product of m rows: what limits few of them is the reading of the weights.
void bound_product(Case& c, DType w, int64_t m, int64_t k, int64_t n, Limit peak) {
  constexpr int64_t kFew = 8;
  const double weights = bytes_of(w, n * k);
  c.limit = m <= kFew ? Limit::read : peak;
  c.work = m <= kFew ? weights : 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  c.sets = m <= kFew ? std::max(12, static_cast<int>(200e6 / weights)) : 1;
  c.result = {m, n};
  c.m = m, c.n = n, c.k = k;
}

// x [m, k] w [n, k]^T. Weights of 16 bits meet x of 32, and bf16 ones its rounded halves.
Case linear(DType w, int64_t m, int64_t k, int64_t n) {
  Case c = {"linear", fmt::format("{}x{}x{}", m, k, n)};
  c.operands = {{DType::f32, {m, k}, false, 0}, {w, {n, k}, true, 1}};
  c.tolerance = 1e-5;
  bound_product(c, w, m, k, n, w == DType::bf16 ? Limit::bf16_peak : Limit::f32_peak);
  return c;
}
// The same, and bias, gelu and a residual on the tile.
Case fused(DType w, int64_t m, int64_t k, int64_t n) {
  Case c = linear(w, m, k, n);
  c.op = "fused_linear";
  c.shape += "+bias+gelu+add";
  c.operands.push_back({DType::f32, {n}, false, 1});
  c.operands.push_back({DType::f32, {m, n}, false, 0});
  const std::vector<ops::TileStep> steps = {{ops::tile_op(ops::gelu_op), {0, -1, -1}},
                                            {ops::tile_op(ops::add_op), {2, 1, -1}}};
  c.attrs = {int64_t{1}, ops::encode_tile(steps), int64_t{-1}, int64_t{0}, int64_t{-1}, int64_t{-1}, 1e-5};
  c.checked = {{17, 96}, {200, 96}, {200}, {17, 200}, {17, 200}};
  c.m = 0;  // no peer does it
  return c;
}
Case integer(int64_t m, int64_t k, int64_t n) {
  Case c = {"linear_integer", fmt::format("{}x{}x{}", m, k, n)};
  c.operands = {{DType::u8, {m, k}, false, 0}, {DType::i8, {n, k}, true, 1}};
  c.result_type = DType::i32;
  bound_product(c, DType::i8, m, k, n, Limit::int8_peak);
  return c;
}
// Few rows are rounded twice, as in compiled models.
Case quantized(DType w, int64_t m, int64_t k, int64_t n) {
  Case c = {"quant_linear", fmt::format("{}x{}x{}", m, k, n)};
  c.operands = {{DType::f32, {m, k}, false, 0}, {w, {n, k}, true, 1}};
  c.attrs = {m <= ops::kFineRows ? ops::kFineRows : int64_t{0}};
  c.tolerance = 1e-5;
  bound_product(c, w, m, k, n, Limit::int8_peak);
  if (m > ops::kFineRows) c.checked = {{17, k}, {33, k}, {17, 33}};
  c.m = 0;
  return c;
}

// Multiply-adds of pairs of tokens, `seen` of them, in both products.
Case attention(DType type, int64_t heads, int64_t t, int64_t d, std::optional<int64_t> window, bool causal) {
  Case c = {"attention", fmt::format("{}x{}x{}{}", heads, t, d, causal ? " causal" : "")};
  if (window) c.shape += fmt::format(" window {}", *window);
  c.operands = {{type, {1, heads, t, d}}, {type, {1, heads, t, d}}, {type, {1, heads, t, d}}};
  const auto dims = [](bool given, int64_t value) { return given ? Shape{value} : Shape{}; };
  c.attrs = {1 / std::sqrt(static_cast<double>(d)),
             dims(causal, 0),
             0.0,
             dims(window.has_value(), 1 - window.value_or(0)),
             -std::numeric_limits<double>::infinity(),
             false};
  c.limit = type == DType::bf16 ? Limit::bf16_peak : Limit::f32_peak;
  const double pairs = window   ? static_cast<double>(t) * static_cast<double>(*window)
                       : causal ? static_cast<double>(t) * static_cast<double>(t + 1) / 2
                                : static_cast<double>(t) * static_cast<double>(t);
  c.work = 4 * pairs * static_cast<double>(heads * d);
  c.tolerance = type == DType::f32 ? 1e-5 : 1e-2;
  c.result = {1, heads, t, d};
  c.result_type = type;
  const Dims small = {1, 2, 257, d};
  c.checked = {small, small, small, small};
  return c;
}

// One token each of `batch` sequences over `keys` tokens in pages.
Case decode(DType type, int64_t batch, int64_t keys) {
  constexpr int64_t kHeads = 32, kGroups = 8, kSize = 128, kPage = 64;  // as the engine has them
  const auto operands = [&](int64_t b, int64_t s) {
    Operand starts{DType::i64, {b + 1}}, table{DType::i64, {b, s / kPage}}, lengths{DType::i64, {b}};
    for (int64_t i = 0; i <= b; ++i) starts.values.push_back(i);
    for (int64_t i = 0; i < b * (s / kPage); ++i) table.values.push_back(i);
    lengths.values.assign(static_cast<size_t>(b), s);
    const Dims rows = {b * s / kPage, kGroups, kPage, kSize}, each = {b * s / kPage, kGroups, kPage, 1};
    std::vector<Operand> all = {{DType::f32, {b, kHeads, kSize}}, {type, rows}, {type, rows}, starts, table, lengths};
    if (type != DType::i8) return all;
    all.push_back({.present = false});
    for (int i = 0; i < 2; ++i) all.push_back({.type = DType::f32, .shape = each, .most = 0.02});
    return all;
  };
  Case c = {"ragged_attention", fmt::format("{}x{}x{}/{}x{}", batch, keys, kHeads, kGroups, kSize)};
  c.operands = operands(batch, keys);
  c.attrs = {1 / std::sqrt(static_cast<double>(kSize)), 0.0, int64_t{-1}, int64_t{-1}};
  c.limit = Limit::read;
  c.work = 2 * bytes_of(type, batch * keys * kGroups * kSize);
  if (type == DType::i8) c.work += 2 * bytes_of(DType::f32, batch * keys * kGroups);
  c.tolerance = 1e-4;
  c.result = {batch, kHeads, kSize};
  return c;
}

// Filters of `taps` by `taps` with zeros around (1-D where height is 0), each over channels / groups channels.
Case conv(int64_t channels, int64_t outputs, int64_t height, int64_t width, int64_t taps, int64_t stride,
          int64_t groups) {
  const auto dims = [&](std::vector<int64_t> lead, int64_t h, int64_t w) {
    if (height > 0) lead.push_back(h);
    lead.push_back(w);
    return lead;
  };
  const int64_t around = taps / 2;
  const auto count = [&](int64_t n) { return (n + 2 * around - taps) / stride + 1; };
  Case c = {"conv", fmt::format("{}x{}x{}{}{}", channels, outputs,
                                height > 0 ? fmt::format("{}x{} {}x{}", height, width, taps, taps)
                                           : fmt::format("{} {}", width, taps),
                                stride > 1 ? fmt::format(" stride {}", stride) : "", groups > 1 ? " depthwise" : "")};
  const auto operands = [&](int64_t in, int64_t out, int64_t h, int64_t w) -> std::vector<Dims> {
    return {dims({1, in}, h, w), dims({out, in / groups}, taps, taps), dims({1, out}, count(h), count(w))};
  };
  const std::vector<Dims> shapes = operands(channels, outputs, height, width);
  c.operands = {{DType::f32, shapes[0]}, {DType::f32, shapes[1]}};
  c.result = shapes[2];
  const auto each = [&](int64_t value) { return dims({}, value, value); };
  c.attrs = {each(stride), each(1), each(around), each(around), groups};
  double positions = 1;
  for (size_t i = 2; i < c.result.size(); ++i) positions *= static_cast<double>(c.result[i]);
  const double all_taps = static_cast<double>(height > 0 ? taps * taps : taps);
  c.limit = Limit::f32_peak;
  c.work = 2 * positions * all_taps * static_cast<double>(outputs * channels / groups);
  c.tolerance = 1e-5;
  // Groups are as many as channels: those that are checked keep them.
  c.checked = groups > 1 ? operands(channels, outputs, 5, 19) : operands(24, 40, 5, 37);
  return c;
}

// Rows of heads that are turned, with tables of cosines and sines: one a token for all heads.
Case rope(const char* op, int64_t interleaved) {
  constexpr int64_t kTokens = 2048, kHeads = 32, kSize = 128;
  const bool rotary = op == std::string("rotary");
  Case c = {op, fmt::format("{}x{}x{}{}", kTokens, kHeads, kSize, interleaved != 0 ? " interleaved" : "")};
  const Dims table = rotary ? Dims{kTokens, 1, kSize} : Dims{kTokens, kSize / 2};
  c.operands = {{DType::f32, {kTokens, kHeads, kSize}}, {DType::f32, table}, {DType::f32, table}};
  c.attrs = {interleaved};
  c.limit = Limit::copy;
  c.work = 2 * bytes_of(DType::f32, kTokens * kHeads * kSize);
  c.tolerance = 1e-5;
  c.result = {kTokens, kHeads, kSize};
  const Dims few = {3, 2, kSize}, few_rows = rotary ? Dims{3, 1, kSize} : Dims{3, kSize / 2};
  c.checked = {few, few_rows, few_rows, few};
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

std::string Case::types() const {
  std::string text;
  for (const Operand& o : operands)
    if (o.values.empty() && text.find(name(o.type)) == std::string::npos)
      text += (text.empty() ? "" : ",") + std::string(name(o.type));
  return text;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto each_product = [&](const auto& add) {
    for (int64_t size : {1024, 2048}) add(size, size, size);
    for (int64_t k : {768, 3072})
      for (int64_t n : {768, 3072}) add(int64_t{128}, k, n);
    add(int64_t{512}, int64_t{4096}, int64_t{4096});
  };
  for (DType w : {DType::f32, DType::bf16, DType::f16}) {
    each_product([&](int64_t m, int64_t k, int64_t n) { all.push_back(linear(w, m, k, n)); });
    each_product([&](int64_t m, int64_t k, int64_t n) { all.push_back(fused(w, m, k, n)); });
  }
  each_product([&](int64_t m, int64_t k, int64_t n) { all.push_back(integer(m, k, n)); });
  for (int64_t m : {1, 4, 8}) {
    for (int64_t n : {4096, 11008}) {
      if (m > 1 && n > 4096) continue;
      for (DType w : {DType::f32, DType::bf16, DType::f16}) all.push_back(linear(w, m, 4096, n));
      all.push_back(integer(m, 4096, n));
      for (DType w : {DType::q8_0, DType::q4_0, DType::q4_k, DType::q6_k}) all.push_back(quantized(w, m, 4096, n));
    }
  }
  for (DType w : {DType::q8_0, DType::q4_0, DType::q4_k, DType::q6_k}) all.push_back(quantized(w, 512, 2048, 5632));
  all.push_back(linear(DType::bf16, 512, 2048, 5632));
  for (DType t : {DType::f32, DType::bf16}) {
    for (int64_t tokens : {512, 1024, 4096}) all.push_back(attention(t, 12, tokens, 64, {}, false));
    all.push_back(attention(t, 12, 4096, 64, {}, true));
    all.push_back(attention(t, 12, 8192, 64, 512, true));
    all.push_back(attention(t, 12, 8192, 64, {}, false));
  }
  for (int64_t tokens : {16384, 32768}) all.push_back(attention(DType::f32, 8, tokens, 64, {}, true));
  for (DType t : {DType::f32, DType::f16, DType::bf16, DType::i8})
    for (int64_t batch : {1, 8}) all.push_back(decode(t, batch, 8192));
  for (const char* op : {"softmax", "gelu", "gelu_tanh", "relu", "silu"})
    all.push_back(
        rows(op, op[1] == 'o' ? std::vector<ir::AttrValue>{int64_t{-1}} : std::vector<ir::AttrValue>{}, 8192, 4096, 0));
  all.push_back(rows("softmax", {int64_t{-1}}, 8192, 4096, 0));
  all.back().in_place = true;
  all.back().shape += " in place";
  all.push_back(rows("layer_norm", {int64_t{1}, 1e-5}, 8192, 4096, 2));
  all.back().more_results = {{8192, 1}, {8192, 1}};
  all.push_back(rows("rms_norm", {int64_t{1}, 1e-6}, 8192, 4096, 1));
  for (const char* op : {"rotary", "rope"})
    for (int64_t interleaved : {0, 1}) all.push_back(rope(op, interleaved));
  // Of PP-OCRv4's recogniser, for a line of 48 by 320, and of Whisper-base's encoder.
  for (const auto& [channels, height, width] :
       {std::tuple<int64_t, int64_t, int64_t>{32, 24, 160}, {64, 24, 160}, {128, 12, 160}, {256, 6, 160}})
    all.push_back(conv(channels, channels, height, width, 3, 1, channels));
  for (const auto& [channels, height, width] :
       {std::tuple<int64_t, int64_t, int64_t>{32, 24, 160}, {64, 12, 160}, {128, 6, 160}, {256, 3, 160}})
    all.push_back(conv(channels, 2 * channels, height, width, 1, 1, 1));
  all.push_back(conv(80, 512, 0, 3000, 3, 1, 1));
  all.push_back(conv(512, 512, 0, 3000, 3, 2, 1));
  return all;
}

std::vector<Ratio> ratios() {
  std::vector<Ratio> all;
  for (const char* type : {"f32", "bf16"}) {
    all.push_back({Ratio::time, "attention", type, "12x4096x64 causal", "12x4096x64", 0.55});
    all.push_back({Ratio::time, "attention", type, "12x8192x64 causal window 512", "12x8192x64", 0.10});
  }
  all.push_back({Ratio::scratch, "attention", "f32", "8x32768x64 causal", "8x16384x64 causal", 2.1});
  struct Few {
    const char *op, *types;
    double four, eight;
  };
  for (const Few& f :
       {Few{"linear", "f32", 1.1, 1.2}, Few{"linear", "f32,bf16", 1.1, 1.2}, Few{"linear_integer", "u8,i8", 1.1, 1.35},
        Few{"quant_linear", "f32,q8_0", 1.2, 1.5}, Few{"quant_linear", "f32,q4_0", 1.4, 2.0},
        Few{"quant_linear", "f32,q4_k", 1.5, 2.5}, Few{"quant_linear", "f32,q6_k", 1.5, 2.5}})
    for (const auto& [m, most] : {std::pair{4, f.four}, std::pair{8, f.eight}})
      all.push_back({Ratio::time, f.op, f.types, fmt::format("{}x4096x4096", m), "1x4096x4096", most});
  return all;
}

}  // namespace tessera::bench
