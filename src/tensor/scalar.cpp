#include "tensor/scalar.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/result.h"

namespace tessera {
namespace {

// What the codes with the largest exponent, and negative zero, mean in a format.
enum class Special {
  ieee,    // largest exponent: infinity, or NaN when the mantissa is not 0
  fn,      // only all ones is NaN; no infinity
  fnuz,    // only the code of -0 is NaN; no infinity, no -0
  finite,  // neither NaN nor infinity
};

// A float of sign, exponent and mantissa in at most 16 bits.
struct Format {
  int exponent;  // bits
  int mantissa;  // bits
  int bias;
  Special special;
};

constexpr int kDoubleMantissa = 52;
constexpr int kDoubleBias = 1023;
constexpr uint64_t kDoubleFraction = (uint64_t{1} << kDoubleMantissa) - 1;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

constexpr double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + kDoubleBias) << kDoubleMantissa);
}

template <Format F>
double decode_small(uint32_t code) {
  constexpr uint32_t kSign = 1u << (F.exponent + F.mantissa);
  constexpr uint32_t kTop = (1u << F.exponent) - 1;
  constexpr uint32_t kFraction = (1u << F.mantissa) - 1;
  const uint64_t sign = static_cast<uint64_t>((code & kSign) != 0) << 63;
  const uint32_t exponent = (code >> F.mantissa) & kTop;
  const uint32_t fraction = code & kFraction;
  const uint64_t wide = static_cast<uint64_t>(fraction) << (kDoubleMantissa - F.mantissa);
  if constexpr (F.special == Special::ieee) {
    // Infinity keeps fraction 0; NaN keeps its payload, so that every code survives a round trip.
    if (exponent == kTop) return std::bit_cast<double>(sign | (uint64_t{0x7ff} << kDoubleMantissa) | wide);
  } else if constexpr (F.special == Special::fn) {
    if ((code & (kSign - 1)) == kSign - 1) return sign != 0 ? -kNan : kNan;
  } else if constexpr (F.special == Special::fnuz) {
    if (code == kSign) return -kNan;
  }
  if (exponent == 0) {
    const double magnitude = fraction * power_of_two(1 - F.bias - F.mantissa);
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint64_t rebiased = exponent + static_cast<uint64_t>(kDoubleBias - F.bias);
  return std::bit_cast<double>(sign | (rebiased << kDoubleMantissa) | wide);
}

// Shifts a value below 2^54 right by 0 < shift < 64, rounding to nearest, ties to even. Free of branches: which way a
// value rounds cannot be predicted.
uint64_t shift_right_to_even(uint64_t value, int shift) {
  const uint64_t odd = (value >> shift) & 1;
  return (value + (uint64_t{1} << (shift - 1)) - 1 + odd) >> shift;
}

template <Format F>
uint32_t encode_small(double value, bool saturate) {
  constexpr uint32_t kSign = 1u << (F.exponent + F.mantissa);
  constexpr uint32_t kTop = ((1u << F.exponent) - 1) << F.mantissa;
  constexpr uint32_t kLargest = F.special == Special::ieee ? kTop - 1
                                : F.special == Special::fn ? kSign - 2
                                                           : kSign - 1;
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint32_t sign = (bits >> 63) != 0 ? kSign : 0;
  const int exponent = static_cast<int>((bits >> kDoubleMantissa) & 0x7ff) - kDoubleBias;
  const uint64_t fraction = bits & kDoubleFraction;

  if (exponent == 0x7ff - kDoubleBias && fraction != 0) {
    if constexpr (F.special == Special::ieee) {
      uint32_t payload = static_cast<uint32_t>(fraction >> (kDoubleMantissa - F.mantissa));
      if (payload == 0) payload = 1u << (F.mantissa - 1);
      return sign | kTop | payload;
    }
    if constexpr (F.special == Special::fn) return sign | (kSign - 1);
    return kSign;  // fnuz's NaN; -0 of a format that has no NaN
  }

  // The magnitude is significand * 2^(exponent - 52). In units of the target's last place at that exponent (or at its
  // smallest one, for subnormals), the rounded significand's leading 1 adds itself to the exponent field.
  constexpr int kSmallestExponent = 1 - F.bias;
  const uint64_t significand = exponent == -kDoubleBias ? 0 : fraction | (uint64_t{1} << kDoubleMantissa);
  const int target = exponent < kSmallestExponent ? kSmallestExponent : exponent;
  const int shift = kDoubleMantissa - F.mantissa + (target - exponent);
  const uint64_t rounded = shift > kDoubleMantissa + 2 ? 0 : shift_right_to_even(significand, shift);
  uint32_t code = (static_cast<uint32_t>(target - kSmallestExponent) << F.mantissa) + static_cast<uint32_t>(rounded);
  if (code > kLargest) {
    if constexpr (F.special == Special::ieee) {
      code = saturate ? kLargest : kTop;
    } else if constexpr (F.special == Special::fn) {
      code = saturate ? kLargest : kSign - 1;
    } else if constexpr (F.special == Special::fnuz) {
      if (!saturate) return kSign;
      code = kLargest;
    } else {
      code = kLargest;
    }
  }
  if constexpr (F.special == Special::fnuz) return code == 0 ? 0 : sign | code;
  return sign | code;
}

// OCP Microscaling 1.0: code c is 2^(c - 127); 255 is NaN. There is no zero and no sign.
constexpr int kE8m0Bias = 127;
constexpr uint8_t kE8m0Largest = 254;
constexpr uint8_t kE8m0Nan = 255;

double decode_e8m0(uint8_t code) { return code == kE8m0Nan ? kNan : power_of_two(code - kE8m0Bias); }

uint8_t encode_e8m0(double value, Rounding rounding) {
  if (std::isnan(value)) return kE8m0Nan;
  if (value < power_of_two(-kE8m0Bias)) return rounding.saturate ? 0 : kE8m0Nan;
  if (value > power_of_two(kE8m0Largest - kE8m0Bias)) return rounding.saturate ? kE8m0Largest : kE8m0Nan;
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t fraction = bits & kDoubleFraction;
  const int floor = static_cast<int>(bits >> kDoubleMantissa) - kDoubleBias + kE8m0Bias;
  const bool up = rounding.e8m0 == E8m0Round::up        ? fraction != 0
                  : rounding.e8m0 == E8m0Round::nearest ? fraction > kDoubleFraction / 2
                                                        : false;
  return static_cast<uint8_t>(floor + up);
}

// The integer part modulo 2^64; 0 for NaN and infinities.
uint64_t wrap(double value) {
  constexpr double kTwo63 = 9223372036854775808.0;
  if (value > -kTwo63 && value < kTwo63) return static_cast<uint64_t>(static_cast<int64_t>(value));
  if (!std::isfinite(value)) return 0;
  // Past 2^63 a double is an integer, and fmod is exact.
  const uint64_t magnitude = static_cast<uint64_t>(std::fmod(std::fabs(value), 2 * kTwo63));
  return value < 0 ? uint64_t{0} - magnitude : magnitude;
}

// The double nearest below in magnitude, its last bit set when that lost something ("round to odd"): rounding it once
// more to at most 51 bits gives what rounding the integer itself would.
double to_odd(Int128 value) {
  const bool negative = value < 0;
  __extension__ unsigned __int128 magnitude = static_cast<unsigned __int128>(value);
  if (negative) magnitude = 0 - magnitude;
  if (magnitude >> (kDoubleMantissa + 1) == 0) return static_cast<double>(static_cast<int64_t>(value));
  int shift = 0;
  bool lost = false;
  while ((magnitude >> shift) >> (kDoubleMantissa + 1) != 0) lost |= ((magnitude >> shift++) & 1) != 0;
  const double kept =
      std::ldexp(static_cast<double>(static_cast<uint64_t>(magnitude >> shift) | (lost ? 1 : 0)), shift);
  return negative ? -kept : kept;
}

template <int kBits, bool kSigned>
struct PackedInt {
  static constexpr bool kIsInt = true;
  static constexpr int kStoredBits = kBits;
  using Stored = uint8_t;
  static Int128 to_int(uint8_t code) {
    if constexpr (kSigned) return static_cast<int8_t>(code << (8 - kBits)) >> (8 - kBits);
    return code;
  }
  static uint8_t from_int(uint64_t value) { return value & ((1u << kBits) - 1); }
};

template <class T>
struct WholeInt {
  static constexpr bool kIsInt = true;
  static constexpr int kStoredBits = 8 * sizeof(T);
  using Stored = T;
  static Int128 to_int(T value) { return value; }
  static T from_int(uint64_t value) { return static_cast<T>(value); }
};

struct Boolean {
  static constexpr bool kIsInt = true;
  static constexpr int kStoredBits = 8;
  using Stored = uint8_t;
  static Int128 to_int(uint8_t value) { return value != 0; }
};

template <Format F, bool kMaySaturate>
struct SmallFloat {
  static constexpr bool kIsInt = false;
  static constexpr int kStoredBits = 1 + F.exponent + F.mantissa;
  using Stored = std::conditional_t<kStoredBits <= 8, uint8_t, uint16_t>;
  static double to_double(Stored code) { return decode_small<F>(code); }
  static Stored from_double(double value, Rounding r) {
    return static_cast<Stored>(encode_small<F>(value, kMaySaturate && r.saturate));
  }
};

struct E8m0 {
  static constexpr bool kIsInt = false;
  static constexpr int kStoredBits = 8;
  using Stored = uint8_t;
  static double to_double(uint8_t code) { return decode_e8m0(code); }
  static uint8_t from_double(double value, Rounding r) { return encode_e8m0(value, r); }
};

template <class T>
struct NativeFloat {
  static constexpr bool kIsInt = false;
  static constexpr int kStoredBits = 8 * sizeof(T);
  using Stored = T;
  static double to_double(T value) { return value; }
  static T from_double(double value, Rounding) { return static_cast<T>(value); }
};

constexpr Format kF16 = {5, 10, 15, Special::ieee};
constexpr Format kBf16 = {8, 7, 127, Special::ieee};
constexpr Format kE4m3fn = {4, 3, 7, Special::fn};
constexpr Format kE4m3fnuz = {4, 3, 8, Special::fnuz};
constexpr Format kE5m2 = {5, 2, 15, Special::ieee};
constexpr Format kE5m2fnuz = {5, 2, 16, Special::fnuz};
constexpr Format kE2m1 = {2, 1, 1, Special::finite};

// Calls f with the codec of the type.
template <class F>
auto with_codec(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f(NativeFloat<double>());
    case DType::f32:
      return f(NativeFloat<float>());
    case DType::f16:
      return f(SmallFloat<kF16, false>());
    case DType::bf16:
      return f(SmallFloat<kBf16, false>());
    case DType::f8e4m3fn:
      return f(SmallFloat<kE4m3fn, true>());
    case DType::f8e4m3fnuz:
      return f(SmallFloat<kE4m3fnuz, true>());
    case DType::f8e5m2:
      return f(SmallFloat<kE5m2, true>());
    case DType::f8e5m2fnuz:
      return f(SmallFloat<kE5m2fnuz, true>());
    case DType::f8e8m0:
      return f(E8m0());
    case DType::f4e2m1:
      return f(SmallFloat<kE2m1, true>());
    case DType::i64:
      return f(WholeInt<int64_t>());
    case DType::i32:
      return f(WholeInt<int32_t>());
    case DType::i16:
      return f(WholeInt<int16_t>());
    case DType::i8:
      return f(WholeInt<int8_t>());
    case DType::i4:
      return f(PackedInt<4, true>());
    case DType::i2:
      return f(PackedInt<2, true>());
    case DType::u64:
      return f(WholeInt<uint64_t>());
    case DType::u32:
      return f(WholeInt<uint32_t>());
    case DType::u16:
      return f(WholeInt<uint16_t>());
    case DType::u8:
      return f(WholeInt<uint8_t>());
    case DType::u4:
      return f(PackedInt<4, false>());
    case DType::u2:
      return f(PackedInt<2, false>());
    case DType::boolean:
      return f(Boolean());
    default:
      break;
  }
  check_failed(__FILE__, __LINE__, "strings and blocks have no scalar value");
}

template <class C>
typename C::Stored load(const void* data, int64_t index) {
  if constexpr (C::kStoredBits < 8) {
    constexpr int kPerByte = 8 / C::kStoredBits;
    const uint8_t byte = static_cast<const uint8_t*>(data)[index / kPerByte];
    return (byte >> (index % kPerByte * C::kStoredBits)) & ((1 << C::kStoredBits) - 1);
  } else {
    typename C::Stored stored;
    std::memcpy(&stored, static_cast<const char*>(data) + index * static_cast<int64_t>(sizeof stored), sizeof stored);
    return stored;
  }
}

template <class C>
void store(void* data, int64_t index, typename C::Stored stored) {
  if constexpr (C::kStoredBits < 8) {
    constexpr int kPerByte = 8 / C::kStoredBits;
    uint8_t& byte = static_cast<uint8_t*>(data)[index / kPerByte];
    const int shift = static_cast<int>(index % kPerByte) * C::kStoredBits;
    byte = static_cast<uint8_t>((byte & ~(((1 << C::kStoredBits) - 1) << shift)) | (stored << shift));
  } else {
    std::memcpy(static_cast<char*>(data) + index * static_cast<int64_t>(sizeof stored), &stored, sizeof stored);
  }
}

template <class C>
double to_double(typename C::Stored stored) {
  if constexpr (C::kIsInt)
    return static_cast<double>(C::to_int(stored));
  else
    return C::to_double(stored);
}

template <class C>
Int128 to_int(typename C::Stored stored) {
  if constexpr (C::kIsInt)
    return C::to_int(stored);
  else
    return static_cast<int64_t>(wrap(C::to_double(stored)));
}

template <class C>
typename C::Stored from_double(double value, Rounding rounding) {
  if constexpr (std::is_same_v<C, Boolean>)
    return value != 0;
  else if constexpr (C::kIsInt)
    return C::from_int(wrap(value));
  else
    return C::from_double(value, rounding);
}

template <class C>
typename C::Stored from_int(Int128 value, Rounding rounding) {
  if constexpr (std::is_same_v<C, Boolean>)
    return value != 0;
  else if constexpr (C::kIsInt)
    return C::from_int(static_cast<uint64_t>(value));
  else if constexpr (std::is_same_v<C, NativeFloat<double>>)
    return static_cast<double>(value);
  else
    return C::from_double(to_odd(value), rounding);
}

}  // namespace

double decode(DType dtype, const void* data, int64_t index) {
  return with_codec(dtype, [&]<class C>(C) { return to_double<C>(load<C>(data, index)); });
}

Int128 decode_int(DType dtype, const void* data, int64_t index) {
  return with_codec(dtype, [&]<class C>(C) { return to_int<C>(load<C>(data, index)); });
}

void encode(DType dtype, void* data, int64_t index, double value, Rounding rounding) {
  with_codec(dtype, [&]<class C>(C) { store<C>(data, index, from_double<C>(value, rounding)); });
}

void encode_int(DType dtype, void* data, int64_t index, Int128 value, Rounding rounding) {
  with_codec(dtype, [&]<class C>(C) { store<C>(data, index, from_int<C>(value, rounding)); });
}

double round_to(DType dtype, double value) {
  return with_codec(dtype, [&]<class C>(C) { return to_double<C>(from_double<C>(value, {})); });
}

void decode_all(DType dtype, const void* data, std::span<double> out) {
  with_codec(dtype, [&]<class C>(C) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = to_double<C>(load<C>(data, static_cast<int64_t>(i)));
  });
}

void decode_all(DType dtype, const void* data, std::span<Int128> out) {
  with_codec(dtype, [&]<class C>(C) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = to_int<C>(load<C>(data, static_cast<int64_t>(i)));
  });
}

void encode_all(DType dtype, void* data, std::span<const double> values, Rounding rounding) {
  with_codec(dtype, [&]<class C>(C) {
    for (size_t i = 0; i < values.size(); ++i)
      store<C>(data, static_cast<int64_t>(i), from_double<C>(values[i], rounding));
  });
}

void encode_all(DType dtype, void* data, std::span<const Int128> values, Rounding rounding) {
  with_codec(dtype, [&]<class C>(C) {
    for (size_t i = 0; i < values.size(); ++i)
      store<C>(data, static_cast<int64_t>(i), from_int<C>(values[i], rounding));
  });
}

}  // namespace tessera
