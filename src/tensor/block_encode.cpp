// Rounding weights to blocks: scales are searched for, codes are the nearest, bits go where the format wants them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/result.h"
#include "tensor/block.h"
#include "tensor/block_codes.h"
#include "tensor/scalar.h"

namespace tessera {
namespace {

uint16_t to_half(float value) {
  uint16_t bits;
  encode(DType::f16, &bits, 0, static_cast<double>(value));
  return bits;
}
float of_half(uint16_t bits) { return static_cast<float>(decode(DType::f16, &bits, 0)); }

// To the nearest integer, ties to even, for |x| below 2^22.
float nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

template <class Format>
constexpr bool kLooksUp = std::is_same_v<Format, Block_iq4_nl> || std::is_same_v<Format, Block_iq4_xs>;

// x is about scale * code + minimum.
struct Line {
  float scale = 0, minimum = 0;
};

constexpr int kTrials = 12;          // scales that are tried on each side of the one that spans the values
constexpr float kTrialStep = 0.08f;  // in codes
constexpr int kWays = 28;            // all of them, and some more: whole vectors of four, eight or sixteen
constexpr float kNothing = 1e-20f;   // far below what a scale in f16 can give back
static_assert(kWays >= 2 * kTrials + 1);
// One number a trial. Loops over them stand inside those over values, so that they become vectors.
using Ways = std::array<float, kWays>;

float extreme_of(std::span<const float> x) {
  float extreme = 0;
  for (float v : x)
    if (std::fabs(v) > std::fabs(extreme)) extreme = v;
  return extreme;
}

// The inverse scales at which `end` is the code of `extreme`, or up to kTrials steps away.
Ways inverses(float end, float step, float extreme) {
  Ways out;
  for (int t = 0; t < kWays; ++t) out[t] = (end + static_cast<float>(t - kTrials) * step) / extreme;
  return out;
}

// Under which of the scales codes err least, and by how much x is more than they. `code` rounds a value to its code.
template <class Code>
Line fit_scale(std::span<const float> x, const Ways& inverse, const Code& code) {
  Ways xq = {}, qq = {};
  for (float v : x)
    for (int t = 0; t < kWays; ++t) {
      const float q = code(v * inverse[t]);
      xq[t] += v * q;
      qq[t] += q * q;
    }
  Line best;
  float best_gain = -1;
  for (int t = 0; t < kWays; ++t) {
    // With the scale xq / qq the error is sum(x^2) - xq^2 / qq.
    if (qq[t] > 0 && xq[t] * xq[t] > best_gain * qq[t]) {
      best_gain = xq[t] * xq[t] / qq[t];
      best.scale = xq[t] / qq[t];
    }
  }
  return best;
}

// The scale for codes in [-2^(bits-1), 2^(bits-1)) with the least squared error.
Line fit_symmetric(std::span<const float> x, int bits) {
  const float low = -static_cast<float>(1 << (bits - 1)), high = -low - 1, extreme = extreme_of(x);
  if (std::fabs(extreme) < kNothing) return {};
  return fit_scale(x, inverses(low, kTrialStep, extreme),
                   [=](float v) { return nearest(std::min(std::max(v, low), high)); });
}

// The scale and a minimum of at most 0 for codes in [0, 2^bits) with the least squared error.
Line fit_shifted(std::span<const float> x, int bits) {
  const auto [least, most] = std::minmax_element(x.begin(), x.end());
  const float low = std::min(*least, 0.0f), high = *most, top = static_cast<float>((1 << bits) - 1);
  if (high - low < kNothing) return {0, low};
  const auto n = static_cast<float>(x.size());
  const auto code = [top](float v) { return nearest(std::min(std::max(v, 0.0f), top)); };
  const Ways inverse = inverses(top, kTrialStep, high - low);
  Ways q1 = {}, q2 = {}, xq = {};
  float x1 = 0;
  for (float v : x) {
    x1 += v;
    for (int t = 0; t < kWays; ++t) {
      const float q = code((v - low) * inverse[t]);
      q1[t] += q;
      q2[t] += q * q;
      xq[t] += v * q;
    }
  }
  // Where a trial gives no line, the one that spans the values stands in.
  Ways scale, minimum, per_code, error = {};
  for (int t = 0; t < kWays; ++t) {
    const float determinant = n * q2[t] - q1[t] * q1[t];
    Line line = {(n * xq[t] - x1 * q1[t]) / determinant, (q2[t] * x1 - q1[t] * xq[t]) / determinant};
    if (line.minimum > 0) line = {xq[t] / q2[t], 0};
    if (!(determinant > 0) || !(line.scale > 0)) line = {(high - low) / top, low};
    scale[t] = line.scale;
    minimum[t] = line.minimum;
    per_code[t] = 1.0f / line.scale;
  }
  for (float v : x)
    for (int t = 0; t < kWays; ++t) {
      const float off = scale[t] * code((v - minimum[t]) * per_code[t]) + minimum[t] - v;
      error[t] += off * off;
    }
  const auto best = static_cast<size_t>(std::min_element(error.begin(), error.end()) - error.begin());
  return {scale[best], minimum[best]};
}

int8_t nearest_iq4(float value) {
  int8_t best = kIq4Values[0];
  for (int8_t candidate : kIq4Values)
    if (std::fabs(value - static_cast<float>(candidate)) < std::fabs(value - static_cast<float>(best)))
      best = candidate;
  return best;
}

// Of whole numbers from -128 to 127.
constexpr std::array<int8_t, 256> kNearestIq4 = [] {
  std::array<int8_t, 256> table{};
  for (int value = -128; value < 128; ++value) {
    int8_t best = kIq4Values[0];
    for (int8_t candidate : kIq4Values) {
      const int off = value - candidate, least = value - best;
      if (off * off < least * least) best = candidate;
    }
    table[static_cast<size_t>(value + 128)] = best;
  }
  return table;
}();

// The scale for codes that are looked up, with the least squared error.
Line fit_lookup(std::span<const float> x) {
  constexpr float kStep = 1.5f;  // in units of the table, whose ends are 14 and 23 apart from their neighbours
  const float extreme = extreme_of(x);
  if (std::fabs(extreme) < kNothing) return {};
  return fit_scale(x, inverses(static_cast<float>(kIq4Values[0]), kStep, extreme), [](float v) {
    const auto place = static_cast<int>(nearest(std::min(std::max(v, -128.0f), 127.0f))) + 128;
    return static_cast<float>(kNearestIq4[static_cast<size_t>(place)]);
  });
}

// What the types of 32 elements do: one look at the extremes, as ggml's reference does.
Line fit_small(std::span<const float> x, const BlockForm& form) {
  if (form.shifts) {
    const auto [least, most] = std::minmax_element(x.begin(), x.end());
    return {(*most - *least) / static_cast<float>((1 << form.bits) - 1), *least};
  }
  const float extreme = extreme_of(x);
  if (form.bits == 8) return {std::fabs(extreme) / 127.0f, 0};
  return {extreme / -static_cast<float>(1 << (form.bits - 1)), 0};
}

// Signed codes under the scales that the block really has.
template <class Format>
void choose_codes(std::span<const float> x, BlockCodes& out) {
  constexpr BlockForm form = Format::kForm;
  constexpr float low = form.bits == 8 ? -127.0f : 0.0f;
  constexpr float high = form.bits == 8 ? 127.0f : static_cast<float>((1 << form.bits) - 1);
  const float d = of_half(out.d), minimum = of_half(out.minimum);
  for (int g = 0; g < form.elements / form.group; ++g) {
    const float scale = d * static_cast<float>(out.multiplier[g]);
    const float shift = form.shifts ? minimum * static_cast<float>(out.minimum_multiplier[g]) : 0.0f;
    const float divisor = scale == 0 ? HUGE_VALF : scale;  // then all codes are 0
    for (int i = g * form.group; i < (g + 1) * form.group; ++i) {
      const float code = (x[static_cast<size_t>(i)] - shift) / divisor;
      if constexpr (kLooksUp<Format>) {
        out.code[i] = nearest_iq4(code);
      } else {
        const float centred = code + static_cast<float>(form.centre);
        out.code[i] = static_cast<int8_t>(nearest(std::min(std::max(centred, low), high)));
      }
    }
  }
}

// Multipliers in [low, high] of one f16 for all groups.
uint16_t share(std::span<const float> scales, int low, int high, int8_t* multipliers) {
  float extreme = 0;
  for (float s : scales)
    if (std::fabs(s) > std::fabs(extreme)) extreme = s;
  const uint16_t d = to_half(low < 0 ? extreme / static_cast<float>(low) : extreme / static_cast<float>(high));
  const float shared = of_half(d);
  for (size_t g = 0; g < scales.size(); ++g)
    multipliers[g] = static_cast<int8_t>(std::clamp(shared == 0 ? 0.0f : std::nearbyint(scales[g] / shared),
                                                    static_cast<float>(low), static_cast<float>(high)));
  return d;
}

// Bits to their places: the inverse of each format's unpack.
void put_half(uint8_t* at, uint16_t bits) { std::memcpy(at, &bits, 2); }

void join_nibbles(const int8_t* low, const int8_t* high, int n, uint8_t* out) {
  for (int i = 0; i < n; ++i) out[i] = static_cast<uint8_t>((low[i] & 15) | high[i] << 4);
}
void set_bit(uint8_t* bytes, int i, int bit) { bytes[i / 8] = static_cast<uint8_t>(bytes[i / 8] | bit << (i % 8)); }

void join_crumbs(const int8_t* code, int shift, uint8_t* bytes) {
  for (int i = 0; i < 256; ++i)
    bytes[i / 128 * 32 + i % 32] =
        static_cast<uint8_t>(bytes[i / 128 * 32 + i % 32] | (code[i] >> shift & 3) << (2 * (i / 32 % 4)));
}

int iq4_index(int8_t value) {
  return static_cast<int>(std::find(std::begin(kIq4Values), std::end(kIq4Values), value) - std::begin(kIq4Values));
}

void pack(Block_q8_0, const BlockCodes& c, uint8_t* b) {
  put_half(b, c.d);
  std::memcpy(b + 2, c.code, 32);
}
void pack(Block_q4_0, const BlockCodes& c, uint8_t* b) {
  put_half(b, c.d);
  join_nibbles(c.code, c.code + 16, 16, b + 2);
}
void pack(Block_q4_1, const BlockCodes& c, uint8_t* b) {
  put_half(b, c.d);
  put_half(b + 2, c.minimum);
  join_nibbles(c.code, c.code + 16, 16, b + 4);
}
void pack(Block_q5_0, const BlockCodes& c, uint8_t* b) {
  put_half(b, c.d);
  join_nibbles(c.code, c.code + 16, 16, b + 6);
  for (int i = 0; i < 32; ++i) set_bit(b + 2, i, c.code[i] >> 4 & 1);
}
void pack(Block_q5_1, const BlockCodes& c, uint8_t* b) {
  put_half(b, c.d);
  put_half(b + 2, c.minimum);
  join_nibbles(c.code, c.code + 16, 16, b + 8);
  for (int i = 0; i < 32; ++i) set_bit(b + 4, i, c.code[i] >> 4 & 1);
}
void pack_iq4(const int8_t* code, uint8_t* out) {
  for (int i = 0; i < 16; ++i) out[i] = static_cast<uint8_t>(iq4_index(code[i]) | iq4_index(code[i + 16]) << 4);
}
void pack(Block_iq4_nl, const BlockCodes& c, uint8_t* b) {
  put_half(b, c.d);
  pack_iq4(c.code, b + 2);
}
void pack(Block_iq4_xs, const BlockCodes& c, uint8_t* b) {
  put_half(b, c.d);
  uint16_t high = 0;
  for (int g = 0; g < 8; ++g) {
    const int scale = c.multiplier[g] + 32;
    b[4 + g / 2] = static_cast<uint8_t>(b[4 + g / 2] | (scale & 15) << (4 * (g % 2)));
    high = static_cast<uint16_t>(high | (scale >> 4) << (2 * g));
    pack_iq4(c.code + 32 * g, b + 8 + 16 * g);
  }
  put_half(b + 2, high);
}
void pack(Block_q2_k, const BlockCodes& c, uint8_t* b) {
  for (int g = 0; g < 16; ++g) b[g] = static_cast<uint8_t>(c.multiplier[g] | -c.minimum_multiplier[g] << 4);
  join_crumbs(c.code, 0, b + 16);
  put_half(b + 80, c.d);
  put_half(b + 82, c.minimum);
}
void pack(Block_q3_k, const BlockCodes& c, uint8_t* b) {
  for (int i = 0; i < 256; ++i) b[i % 32] = static_cast<uint8_t>(b[i % 32] | (c.code[i] >> 2 & 1) << (i / 32));
  join_crumbs(c.code, 0, b + 32);
  uint8_t* scales = b + 96;
  for (int g = 0; g < 16; ++g) {
    const int scale = c.multiplier[g] + 32;
    scales[g % 8] = static_cast<uint8_t>(scales[g % 8] | (scale & 15) << (4 * (g / 8)));
    scales[8 + g % 4] = static_cast<uint8_t>(scales[8 + g % 4] | (scale >> 4) << (2 * (g / 4)));
  }
  put_half(b + 108, c.d);
}
void pack_pairs(const BlockCodes& c, uint8_t* b) {
  for (int g = 0; g < 4; ++g) {
    const int scale = c.multiplier[g + 4], minimum = -c.minimum_multiplier[g + 4];
    b[g] = static_cast<uint8_t>(c.multiplier[g] | (scale >> 4) << 6);
    b[g + 4] = static_cast<uint8_t>(-c.minimum_multiplier[g] | (minimum >> 4) << 6);
    b[g + 8] = static_cast<uint8_t>((scale & 15) | minimum << 4);
  }
}
void pack(Block_q4_k, const BlockCodes& c, uint8_t* b) {
  put_half(b, c.d);
  put_half(b + 2, c.minimum);
  pack_pairs(c, b + 4);
  for (int j = 0; j < 4; ++j) join_nibbles(c.code + 64 * j, c.code + 64 * j + 32, 32, b + 16 + 32 * j);
}
void pack(Block_q5_k, const BlockCodes& c, uint8_t* b) {
  put_half(b, c.d);
  put_half(b + 2, c.minimum);
  pack_pairs(c, b + 4);
  for (int i = 0; i < 256; ++i)
    b[16 + i % 32] = static_cast<uint8_t>(b[16 + i % 32] | (c.code[i] >> 4 & 1) << (i / 32));
  for (int j = 0; j < 4; ++j) join_nibbles(c.code + 64 * j, c.code + 64 * j + 32, 32, b + 48 + 32 * j);
}
void pack(Block_q6_k, const BlockCodes& c, uint8_t* b) {
  for (int half = 0; half < 2; ++half) join_nibbles(c.code + 128 * half, c.code + 128 * half + 64, 64, b + 64 * half);
  join_crumbs(c.code, 4, b + 128);
  std::memcpy(b + 192, c.multiplier, 16);
  put_half(b + 208, c.d);
}

// The range of a format's multipliers and of its minima's.
struct Multipliers {
  int low, high, minima;
};
constexpr Multipliers multipliers(Block_q2_k) { return {0, 15, 15}; }
constexpr Multipliers multipliers(Block_q3_k) { return {-32, 31, 0}; }
constexpr Multipliers multipliers(Block_q4_k) { return {0, 63, 63}; }
constexpr Multipliers multipliers(Block_q5_k) { return {0, 63, 63}; }
constexpr Multipliers multipliers(Block_q6_k) { return {-128, 127, 0}; }
constexpr Multipliers multipliers(Block_iq4_xs) { return {-32, 31, 0}; }

template <class Format>
void encode_one(std::span<const float> x, uint8_t* out) {
  constexpr BlockForm form = Format::kForm;
  constexpr bool lookup = kLooksUp<Format>;
  BlockCodes codes = {};
  if constexpr (form.elements == 32) {
    const Line line = lookup ? fit_lookup(x) : fit_small(x, form);
    codes.d = to_half(line.scale);
    codes.minimum = to_half(line.minimum);
    codes.multiplier[0] = codes.minimum_multiplier[0] = 1;
  } else {
    constexpr Multipliers range = multipliers(Format());
    constexpr size_t groups = form.elements / form.group;
    std::array<float, groups> scales, minima;
    for (size_t g = 0; g < groups; ++g) {
      const auto group = x.subspan(g * form.group, form.group);
      const Line line = form.shifts ? fit_shifted(group, form.bits)
                        : lookup    ? fit_lookup(group)
                                    : fit_symmetric(group, form.bits);
      scales[g] = line.scale;
      minima[g] = -line.minimum;
    }
    codes.d = share(scales, range.low, range.high, codes.multiplier);
    if (form.shifts) {
      codes.minimum = share(minima, 0, range.minima, codes.minimum_multiplier);
      for (int8_t& m : codes.minimum_multiplier) m = static_cast<int8_t>(-m);
    }
  }
  choose_codes<Format>(x, codes);
  std::memset(out, 0, form.bytes);
  pack(Format(), codes, out);
}

}  // namespace

void encode_blocks(DType type, std::span<const float> values, void* out) {
  const BlockSize size = block_size(type);
  TESSERA_CHECK(is_block(type) && values.size() % size.elements == 0);
  with_block_format(static_cast<int>(type) - kPlainTypeCount, [&]<class Format>(Format) {
    std::array<float, Format::kForm.elements> block;
    for (size_t i = 0; i < values.size() / size.elements; ++i) {
      std::copy_n(values.data() + i * size.elements, size.elements, block.begin());
      float poison = 0;
      for (float v : block) poison += v - v;
      if (!(poison == 0)) block.fill(0);
      uint8_t* at = static_cast<uint8_t*>(out) + i * size.bytes;
      encode_one<Format>(block, at);
      if (!(poison == 0)) {
        BlockCodes codes;
        Format::unpack(at, codes);
        codes.d = 0x7e00;  // NaN
        std::memset(at, 0, size.bytes);
        pack(Format(), codes, at);
      }
    }
  });
}

}  // namespace tessera
