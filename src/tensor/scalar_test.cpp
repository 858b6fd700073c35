#include "tensor/scalar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace tessera {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

constexpr DType kSmallFloats[] = {DType::f16,    DType::bf16,       DType::f8e4m3fn, DType::f8e4m3fnuz,
                                  DType::f8e5m2, DType::f8e5m2fnuz, DType::f4e2m1};

double decode_code(DType t, uint16_t code) { return decode(t, &code, 0); }

uint16_t encode_code(DType t, double value, Rounding rounding = {}) {
  uint16_t code = 0;
  encode(t, &code, 0, value, rounding);
  return code;
}

int code_count(DType t) { return 1 << bits(t); }

// The finite values of a type, ascending, each with its code; -0 is left out.
std::vector<std::pair<double, uint16_t>> finite_values(DType t) {
  std::vector<std::pair<double, uint16_t>> values;
  for (int c = 0; c < code_count(t); ++c) {
    double v = decode_code(t, static_cast<uint16_t>(c));
    if (std::isfinite(v) && !(v == 0 && std::signbit(v))) values.push_back({v, static_cast<uint16_t>(c)});
  }
  std::sort(values.begin(), values.end());
  return values;
}

// The value as the textbook reads a code's fields.
double textbook(int exponent_bits, int mantissa_bits, int bias, uint32_t code) {
  int sign = (code >> (exponent_bits + mantissa_bits)) & 1;
  int exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  double fraction = std::ldexp(code & ((1u << mantissa_bits) - 1), -mantissa_bits);
  double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return sign != 0 ? -magnitude : magnitude;
}

TEST(Scalar, DecodesEveryCodeAsTheFormatsSay) {
  for (uint32_t c = 0; c < 65536; ++c) {
    double f16 = decode_code(DType::f16, static_cast<uint16_t>(c));
    if ((c & 0x7c00) == 0x7c00)
      EXPECT_TRUE((c & 0x3ff) != 0 ? std::isnan(f16) : std::isinf(f16)) << c;
    else
      EXPECT_EQ(f16, textbook(5, 10, 15, c)) << c;
    float bf16 = std::bit_cast<float>(c << 16);
    double got = decode_code(DType::bf16, static_cast<uint16_t>(c));
    if (std::isnan(bf16))
      EXPECT_TRUE(std::isnan(got)) << c;
    else
      EXPECT_EQ(got, bf16) << c;
  }
  for (uint32_t c = 0; c < 256; ++c) {
    uint16_t code = static_cast<uint16_t>(c);
    double fn = decode_code(DType::f8e4m3fn, code), fnuz = decode_code(DType::f8e4m3fnuz, code);
    double e5m2 = decode_code(DType::f8e5m2, code), e5m2fnuz = decode_code(DType::f8e5m2fnuz, code);
    if ((c & 0x7f) == 0x7f)
      EXPECT_TRUE(std::isnan(fn));
    else
      EXPECT_EQ(fn, textbook(4, 3, 7, c)) << c;
    if ((c & 0x7c) == 0x7c)
      EXPECT_TRUE((c & 3) != 0 ? std::isnan(e5m2) : std::isinf(e5m2)) << c;
    else
      EXPECT_EQ(e5m2, textbook(5, 2, 15, c)) << c;
    if (c == 0x80) {
      EXPECT_TRUE(std::isnan(fnuz) && std::isnan(e5m2fnuz));
    } else {
      EXPECT_EQ(fnuz, textbook(4, 3, 8, c)) << c;
      EXPECT_EQ(e5m2fnuz, textbook(5, 2, 16, c)) << c;
    }
    double e8m0 = decode_code(DType::f8e8m0, code);
    if (c == 255)
      EXPECT_TRUE(std::isnan(e8m0));
    else
      EXPECT_EQ(e8m0, std::ldexp(1, static_cast<int>(c) - 127));
  }
  const double f4[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (uint16_t c = 0; c < 8; ++c) {
    EXPECT_EQ(decode_code(DType::f4e2m1, c), f4[c]);
    EXPECT_EQ(decode_code(DType::f4e2m1, c | 8), -f4[c]);
  }
}

TEST(Scalar, EveryCodeSurvivesARoundTrip) {
  for (DType t : kSmallFloats) {
    for (int c = 0; c < code_count(t); ++c) {
      uint16_t code = static_cast<uint16_t>(c);
      double value = decode_code(t, code);
      // NaNs too: they keep sign and payload.
      EXPECT_EQ(encode_code(t, value, {.saturate = false}), code) << name(t) << " " << c;
    }
  }
  for (uint16_t c = 0; c < 256; ++c) EXPECT_EQ(encode_code(DType::f8e8m0, decode_code(DType::f8e8m0, c)), c);
}

TEST(Scalar, RoundsToNearestEven) {
  for (DType t : kSmallFloats) {
    auto values = finite_values(t);
    for (size_t i = 0; i + 1 < values.size(); ++i) {
      auto [a, a_code] = values[i];
      auto [b, b_code] = values[i + 1];
      double middle = (a + b) / 2;  // exact: both have few bits
      double even = (a_code & 1) == 0 ? a : b;
      EXPECT_EQ(round_to(t, middle), even) << name(t) << " " << a << " " << b;
      EXPECT_EQ(round_to(t, std::nextafter(middle, -kInf)), a) << name(t) << " " << a << " " << b;
      EXPECT_EQ(round_to(t, std::nextafter(middle, kInf)), b) << name(t) << " " << a << " " << b;
    }
  }
}

TEST(Scalar, RandomDoublesRoundToTheirNearestNeighbour) {
  std::mt19937_64 random(1);
  for (DType t : kSmallFloats) {
    auto values = finite_values(t);
    std::uniform_real_distribution<double> pick(values.front().first, values.back().first);
    for (int i = 0; i < 2000; ++i) {
      double x = pick(random) * std::ldexp(1, -static_cast<int>(random() % 20));
      auto above = std::lower_bound(values.begin(), values.end(), x, [](auto& v, double y) { return v.first < y; });
      double got = round_to(t, x);
      double best = above->first;
      if (above != values.begin() && x < (above->first + (above - 1)->first) / 2) best = (above - 1)->first;
      EXPECT_EQ(got, best) << name(t) << " " << x;
    }
  }
}

TEST(Scalar, RoundsOnceNotThroughFloat) {
  // Just above the middle of 1 and 1 + 2^-10; in float it is the middle itself, which would go to even.
  EXPECT_EQ(round_to(DType::f16, 1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-10);
  EXPECT_EQ(round_to(DType::bf16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
  EXPECT_EQ(round_to(DType::f32, 1 + 0x1p-24 + 0x1p-50), 1 + 0x1p-23);
}

TEST(Scalar, OverflowFollowsTheFormatAndSaturation) {
  const Rounding free = {.saturate = false};
  EXPECT_EQ(round_to(DType::f32, 1e39), kInf);
  EXPECT_EQ(round_to(DType::f16, 65519.99), 65504);
  EXPECT_EQ(round_to(DType::f16, 65520), kInf);
  EXPECT_EQ(round_to(DType::f16, -1e300), -kInf);
  EXPECT_EQ(round_to(DType::bf16, 3.4e38), kInf);
  EXPECT_EQ(encode_code(DType::f8e4m3fn, 1e6), 0x7e);
  EXPECT_EQ(encode_code(DType::f8e4m3fn, -kInf), 0xfe);
  EXPECT_EQ(encode_code(DType::f8e4m3fn, 1e6, free), 0x7f);
  EXPECT_EQ(encode_code(DType::f8e4m3fn, -kInf, free), 0xff);
  EXPECT_EQ(encode_code(DType::f8e4m3fn, 464, free), 0x7e);  // the middle past 448 rounds to even, which is 448
  EXPECT_EQ(encode_code(DType::f8e4m3fn, 464.001, free), 0x7f);
  EXPECT_EQ(encode_code(DType::f8e5m2, kInf), 0x7b);
  EXPECT_EQ(encode_code(DType::f8e5m2, kInf, free), 0x7c);
  EXPECT_EQ(encode_code(DType::f8e5m2, -1e9, free), 0xfc);
  for (DType t : {DType::f8e4m3fnuz, DType::f8e5m2fnuz}) {
    EXPECT_EQ(encode_code(t, kInf), 0x7f);
    EXPECT_EQ(encode_code(t, -1e9), 0xff);
    EXPECT_EQ(encode_code(t, kInf, free), 0x80);
    EXPECT_EQ(encode_code(t, kNan), 0x80);
    EXPECT_EQ(encode_code(t, -0.0), 0);
    EXPECT_EQ(encode_code(t, -1e-30), 0);
  }
  EXPECT_EQ(encode_code(DType::f4e2m1, kInf), 7);
  EXPECT_EQ(encode_code(DType::f4e2m1, -100), 15);
  EXPECT_EQ(encode_code(DType::f4e2m1, kNan), 8);
  EXPECT_EQ(encode_code(DType::f8e4m3fn, -kNan) & 0x7f, 0x7f);
  EXPECT_EQ(encode_code(DType::f8e5m2, kNan), 0x7e);
  EXPECT_EQ(encode_code(DType::f16, kNan), 0x7e00);
  EXPECT_EQ(encode_code(DType::bf16, kNan), 0x7fc0);
  EXPECT_EQ(encode_code(DType::f16, -0.0), 0x8000);
  EXPECT_EQ(encode_code(DType::f16, 5e-324), 0);
}

TEST(Scalar, E8m0RoundsByItsModeAndSaturates) {
  const DType t = DType::f8e8m0;
  auto with = [&](double v, E8m0Round mode, bool saturate = true) { return encode_code(t, v, {saturate, mode}); };
  EXPECT_EQ(with(1.25, E8m0Round::up), 128);
  EXPECT_EQ(with(1.25, E8m0Round::down), 127);
  EXPECT_EQ(with(1.25, E8m0Round::nearest), 127);
  EXPECT_EQ(with(1.5, E8m0Round::nearest), 128);
  EXPECT_EQ(with(1.75, E8m0Round::down), 127);
  EXPECT_EQ(with(2, E8m0Round::up), 128);
  EXPECT_EQ(with(0, E8m0Round::up), 0);
  EXPECT_EQ(with(-3, E8m0Round::up), 0);
  EXPECT_EQ(with(kInf, E8m0Round::up), 254);
  EXPECT_EQ(with(kNan, E8m0Round::up), 255);
  EXPECT_EQ(with(0, E8m0Round::nearest, false), 255);
  EXPECT_EQ(with(kInf, E8m0Round::nearest, false), 255);
  EXPECT_EQ(with(0x1p127, E8m0Round::nearest, false), 254);
  EXPECT_EQ(with(0x1p-127, E8m0Round::nearest, false), 0);
}

TEST(Scalar, IntegersTruncateAndWrap) {
  EXPECT_EQ(round_to(DType::i8, 200.9), -56);
  EXPECT_EQ(round_to(DType::i8, -1.9), -1);
  EXPECT_EQ(round_to(DType::u8, -1), 255);
  EXPECT_EQ(round_to(DType::u4, -9), 7);
  EXPECT_EQ(round_to(DType::i4, 9), -7);
  EXPECT_EQ(round_to(DType::i2, -3), 1);
  EXPECT_EQ(round_to(DType::u2, 7), 3);
  EXPECT_EQ(round_to(DType::i32, 4294967296.0 + 5), 5);
  EXPECT_EQ(round_to(DType::u64, 0x1p63), 0x1p63);
  EXPECT_EQ(round_to(DType::i64, 0x1p63), -0x1p63);
  EXPECT_EQ(round_to(DType::u64, -0x1p63 * 1.5), 0x1p63 / 2);
  EXPECT_EQ(round_to(DType::i64, kNan), 0);
  EXPECT_EQ(round_to(DType::i32, kInf), 0);
  EXPECT_EQ(round_to(DType::boolean, 0.1), 1);
  EXPECT_EQ(round_to(DType::boolean, -0.0), 0);
  EXPECT_EQ(round_to(DType::boolean, kNan), 1);
}

TEST(Scalar, PackedElementsStartInTheLowBitsAndKeepTheirNeighbours) {
  uint8_t bytes[2] = {0, 0};
  for (int i = 0; i < 3; ++i) encode(DType::i4, bytes, i, -1 - i);
  EXPECT_EQ(bytes[0], 0xef);
  EXPECT_EQ(bytes[1], 0x0d);
  encode(DType::i4, bytes, 0, 7);
  EXPECT_EQ(bytes[0], 0xe7);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(decode(DType::i4, bytes, i), i == 0 ? 7 : -1 - i);
  uint8_t twos[2] = {0xff, 0};
  for (int i = 0; i < 5; ++i) encode(DType::u2, twos, i, i);
  EXPECT_EQ(twos[0], 0b11100100);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(decode(DType::u2, twos, i), i % 4);
}

TEST(Scalar, Exact64BitIntegers) {
  int64_t low = INT64_MIN, odd = (int64_t{1} << 53) + 1;
  uint64_t high = UINT64_MAX;
  EXPECT_TRUE(decode_int(DType::i64, &low, 0) == Int128{INT64_MIN});
  EXPECT_TRUE(decode_int(DType::i64, &odd, 0) == Int128{(int64_t{1} << 53) + 1});
  EXPECT_TRUE(decode_int(DType::u64, &high, 0) == Int128{UINT64_MAX});
  uint64_t out = 0;
  encode_int(DType::u64, &out, 0, Int128{UINT64_MAX} + 3);
  EXPECT_EQ(out, 2u);
  encode_int(DType::u64, &out, 0, Int128{-1});
  EXPECT_EQ(out, UINT64_MAX);
  int8_t small = 0;
  encode_int(DType::i8, &small, 0, Int128{-129});
  EXPECT_EQ(small, 127);
  float f = -2.9f;
  EXPECT_TRUE(decode_int(DType::f32, &f, 0) == Int128{-2});
}

TEST(Scalar, IntegersToFloatsRoundOnce) {
  // 2^60 + 2^36 is the middle of two floats and 2^60 + 2^52 of two bf16; one more must round up, though a double loses
  // it.
  float f = 0;
  encode_int(DType::f32, &f, 0, (Int128{1} << 60) + (Int128{1} << 36) + 1);
  EXPECT_EQ(f, 0x1p60f + 0x1p37f);
  encode_int(DType::f32, &f, 0, (Int128{1} << 60) + (Int128{1} << 36));
  EXPECT_EQ(f, 0x1p60f);
  uint16_t b = 0;
  encode_int(DType::bf16, &b, 0, -((Int128{1} << 60) + (Int128{1} << 52) + 1));
  EXPECT_EQ(decode(DType::bf16, &b, 0), -(0x1p60 + 0x1p53));
  std::mt19937_64 random(2);
  for (int i = 0; i < 20000; ++i) {
    int64_t v = static_cast<int64_t>(random()) >> (random() % 64);
    encode_int(DType::f32, &f, 0, v);
    ASSERT_EQ(f, static_cast<float>(v)) << v;
  }
}

TEST(Scalar, BulkFormsAgreeWithSingleOnes) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(0, 40);
  std::vector<double> values(37);
  for (double& v : values) v = normal(random);
  values[5] = kNan;
  values[6] = kInf;
  for (int i = 0; i < kPlainTypeCount - 1; ++i) {
    DType t = static_cast<DType>(i);
    std::vector<uint8_t> one(storage_bytes(t, 37)), all(one.size());
    for (int j = 0; j < 37; ++j) encode(t, one.data(), j, values[j]);
    encode_all(t, all.data(), std::span<const double>(values));
    EXPECT_EQ(one, all) << name(t);
    std::vector<double> back(37);
    std::vector<Int128> ints(37);
    decode_all(t, all.data(), std::span<double>(back));
    decode_all(t, all.data(), std::span<Int128>(ints));
    for (int j = 0; j < 37; ++j) {
      double want = decode(t, all.data(), j);
      EXPECT_EQ(std::memcmp(&back[j], &want, sizeof want), 0) << name(t);
      EXPECT_TRUE(ints[j] == decode_int(t, all.data(), j)) << name(t);
    }
    std::vector<uint8_t> again(all.size());
    encode_all(t, again.data(), std::span<const Int128>(ints));
    if (is_int(t) || t == DType::boolean) {
      EXPECT_EQ(again, all) << name(t);
    }
  }
}

}  // namespace
}  // namespace tessera
