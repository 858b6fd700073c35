// Arithmetic of two operands, and the integers' functions of one. Integers wrap modulo 2^bits.
#include <math.h>

#include "kernels/abi.h"
#include "kernels/isa/blocks.h"
#include "kernels/isa/export.h"

namespace {

using namespace tessera::kernels;

// Unsigned of the same width, but at least 32 bits, so that no promotion to int overflows.
template <class T>
struct Wrapping {
  using type = uint32_t;
};
template <>
struct Wrapping<int64_t> {
  using type = uint64_t;
};
template <>
struct Wrapping<uint64_t> {
  using type = uint64_t;
};
template <class T>
using Wrap = typename Wrapping<T>::type;
template <class T>
constexpr bool kSigned = static_cast<T>(-1) < static_cast<T>(0);
template <class T>
constexpr int kBits = static_cast<int>(sizeof(T) * 8);

struct add_of {
  static TESSERA_INLINE float of(float a, float b) { return a + b; }
  static TESSERA_INLINE double of(double a, double b) { return a + b; }
  template <class T>
  static TESSERA_INLINE T of(T a, T b) {
    return static_cast<T>(static_cast<Wrap<T>>(a) + static_cast<Wrap<T>>(b));
  }
};
struct sub_of {
  static TESSERA_INLINE float of(float a, float b) { return a - b; }
  static TESSERA_INLINE double of(double a, double b) { return a - b; }
  template <class T>
  static TESSERA_INLINE T of(T a, T b) {
    return static_cast<T>(static_cast<Wrap<T>>(a) - static_cast<Wrap<T>>(b));
  }
};
struct mul_of {
  static TESSERA_INLINE float of(float a, float b) { return a * b; }
  static TESSERA_INLINE double of(double a, double b) { return a * b; }
  template <class T>
  static TESSERA_INLINE T of(T a, T b) {
    return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(b));
  }
};
// NaN wins.
struct min_of {
  template <class T>
  static TESSERA_INLINE T of(T a, T b) {
    return a < b || a != a ? a : b;
  }
};
struct max_of {
  template <class T>
  static TESSERA_INLINE T of(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct div_of {
  static TESSERA_INLINE float of(float a, float b) { return a / b; }
  static TESSERA_INLINE double of(double a, double b) { return a / b; }
};
struct mod_of {
  static TESSERA_INLINE float of(float a, float b) {
    const float r = fmodf(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
  static TESSERA_INLINE double of(double a, double b) {
    const double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
};
struct fmod_of {
  static TESSERA_INLINE float of(float a, float b) { return fmodf(a, b); }
  static TESSERA_INLINE double of(double a, double b) { return fmod(a, b); }
};
struct pow_of {
  static TESSERA_INLINE float of(float a, float b) { return powf(a, b); }
  static TESSERA_INLINE double of(double a, double b) { return pow(a, b); }
  // A negative power is 1 / a^-n, truncated.
  template <class T>
  static TESSERA_INLINE T of(T a, T n) {
    if (kSigned<T> && n < 0) {
      if (a == static_cast<T>(-1)) return n % 2 == 0 ? static_cast<T>(1) : a;
      return a == 1 ? static_cast<T>(1) : static_cast<T>(0);
    }
    Wrap<T> result = 1, base = static_cast<Wrap<T>>(a);
    for (Wrap<T> rest = static_cast<Wrap<T>>(n); rest != 0; rest >>= 1) {
      if (rest & 1) result *= base;
      base *= base;
    }
    return static_cast<T>(result);
  }
};

// The integers' division can fail: of(a, b) with b not 0. The smallest divided by -1 wraps.
struct quotient_of {
  template <class T>
  static TESSERA_INLINE T of(T a, T b) {
    if (kSigned<T> && b == static_cast<T>(-1)) return static_cast<T>(Wrap<T>{0} - static_cast<Wrap<T>>(a));
    return static_cast<T>(a / b);
  }
};
struct remainder_of {
  template <class T>
  static TESSERA_INLINE T of(T a, T b) {
    return kSigned<T> && b == static_cast<T>(-1) ? static_cast<T>(0) : static_cast<T>(a % b);
  }
};
struct floor_mod_of {
  template <class T>
  static TESSERA_INLINE T of(T a, T b) {
    const T r = remainder_of::of(a, b);
    return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
  }
};
template <class F, class T>
bool division_block(const void* const* in, void* out, int64_t n, const Args&) {
  const T* a = static_cast<const T*>(in[0]);
  const T* b = static_cast<const T*>(in[1]);
  T* y = static_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) {
    if (b[i] == 0) return false;
    y[i] = F::of(a[i], b[i]);
  }
  return true;
}

struct and_of {
  template <class T>
  static TESSERA_INLINE T of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct or_of {
  template <class T>
  static TESSERA_INLINE T of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct xor_of {
  template <class T>
  static TESSERA_INLINE T of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
// Shifts by the type's width or more, or by less than 0, give 0 (to the right: the sign).
struct shift_left_of {
  template <class T>
  static TESSERA_INLINE T of(T a, T n) {
    if (static_cast<uint64_t>(n) >= kBits<T>) return 0;
    return static_cast<T>(static_cast<Wrap<T>>(a) << n);
  }
};
struct shift_right_of {
  template <class T>
  static TESSERA_INLINE T of(T a, T n) {
    if (static_cast<uint64_t>(n) >= kBits<T>) return static_cast<T>(a < 0 ? -1 : 0);
    return static_cast<T>(a >> n);
  }
};

struct neg_of {
  template <class T>
  static TESSERA_INLINE T of(T x) {
    return static_cast<T>(Wrap<T>{0} - static_cast<Wrap<T>>(x));
  }
};
struct abs_of {
  template <class T>
  static TESSERA_INLINE T of(T x) {
    return x < 0 ? neg_of::of(x) : x;
  }
};
struct sign_of {
  template <class T>
  static TESSERA_INLINE T of(T x) {
    return static_cast<T>((x > 0) - (x < 0));
  }
};
struct not_of {
  template <class T>
  static TESSERA_INLINE T of(T x) {
    return static_cast<T>(~x);
  }
};

// The block function for a type, from a template over the element type: Make<T>::fn.
template <template <class> class Make>
BlockFn for_int(uint8_t type) {
  switch (type) {
    case kI64:
      return Make<int64_t>::fn;
    case kI32:
      return Make<int32_t>::fn;
    case kI16:
      return Make<int16_t>::fn;
    case kI8:
      return Make<int8_t>::fn;
    case kU64:
      return Make<uint64_t>::fn;
    case kU32:
      return Make<uint32_t>::fn;
    case kU16:
      return Make<uint16_t>::fn;
    default:
      return Make<uint8_t>::fn;  // booleans too
  }
}
template <class F>
struct Binary {
  template <class T>
  struct Make {
    static constexpr BlockFn fn = binary_block<F, T>;
  };
};
template <class F>
struct Unary {
  template <class T>
  struct Make {
    static constexpr BlockFn fn = unary_block<F, T>;
  };
};
template <class F>
struct Division {
  template <class T>
  struct Make {
    static constexpr BlockFn fn = division_block<F, T>;
  };
};

template <class F>
int binary_float(const Args& args) noexcept {
  return run_blocks<2>(args, args.in[0].type == kF64 ? binary_block<F, double> : binary_block<F, float>);
}
template <class F>
int binary_int(const Args& args) noexcept {
  return run_blocks<2>(args, for_int<Binary<F>::template Make>(args.in[0].type));
}
template <class F>
int division_int(const Args& args) noexcept {
  return run_blocks<2>(args, for_int<Division<F>::template Make>(args.in[0].type));
}
template <class F>
int unary_int(const Args& args) noexcept {
  return run_blocks<1>(args, for_int<Unary<F>::template Make>(args.in[0].type));
}

}  // namespace

TESSERA_FAMILY(arithmetic, {"add_float", binary_float<add_of>, nullptr}, {"add_int", binary_int<add_of>, nullptr},
               {"sub_float", binary_float<sub_of>, nullptr}, {"sub_int", binary_int<sub_of>, nullptr},
               {"mul_float", binary_float<mul_of>, nullptr}, {"mul_int", binary_int<mul_of>, nullptr},
               {"div_float", binary_float<div_of>, nullptr}, {"div_int", division_int<quotient_of>, nullptr},
               {"mod_float", binary_float<mod_of>, nullptr}, {"mod_int", division_int<floor_mod_of>, nullptr},
               {"fmod_float", binary_float<fmod_of>, nullptr}, {"fmod_int", division_int<remainder_of>, nullptr},
               {"pow_float", binary_float<pow_of>, nullptr}, {"pow_int", binary_int<pow_of>, nullptr},
               {"min_float", binary_float<min_of>, nullptr}, {"min_int", binary_int<min_of>, nullptr},
               {"max_float", binary_float<max_of>, nullptr}, {"max_int", binary_int<max_of>, nullptr},
               {"bit_and", binary_int<and_of>, nullptr}, {"bit_or", binary_int<or_of>, nullptr},
               {"bit_xor", binary_int<xor_of>, nullptr}, {"shift_left", binary_int<shift_left_of>, nullptr},
               {"shift_right", binary_int<shift_right_of>, nullptr}, {"neg_int", unary_int<neg_of>, nullptr},
               {"abs_int", unary_int<abs_of>, nullptr}, {"sign_int", unary_int<sign_of>, nullptr},
               {"bit_not", unary_int<not_of>, nullptr})
