// Functions of one float operand: primitives and activations.
#include <math.h>

#include "kernels/abi.h"
#include "kernels/isa/activations.h"
#include "kernels/isa/blocks.h"
#include "kernels/isa/export.h"

namespace {

using namespace tessera::kernels;

// F32 serves f16 and bf16 too.
template <BlockFn F32, BlockFn F64>
int of_float(const Args& args) noexcept {
  return run_blocks<1>(args, args.in[0].type == kF64 ? F64 : F32);
}
template <BlockFn F32>
int of_f32(const Args& args) noexcept {
  return run_blocks<1>(args, F32);
}

// A function of C's library in both widths.
#define TESSERA_UNARY(name, expression)         \
  struct name##_of {                            \
    static TESSERA_INLINE float of(float x) {   \
      using T [[maybe_unused]] = float;         \
      return expression;                        \
    }                                           \
    static TESSERA_INLINE double of(double x) { \
      using T [[maybe_unused]] = double;        \
      return expression;                        \
    }                                           \
  };                                            \
  constexpr Fn name##_float = of_float<unary_block<name##_of, float>, unary_block<name##_of, double>>;

#define TESSERA_LIBRARY(name)                                      \
  struct name##_of {                                               \
    static TESSERA_INLINE float of(float x) { return name##f(x); } \
    static TESSERA_INLINE double of(double x) { return name(x); }  \
  };

#define TESSERA_LIBRARY_KERNEL(name) \
  TESSERA_LIBRARY(name)              \
  constexpr Fn name##_float = of_float<unary_block<name##_of, float>, unary_block<name##_of, double>>;

TESSERA_UNARY(neg, -x)
TESSERA_UNARY(abs, x < 0 ? -x : x + T(0))
TESSERA_UNARY(sign, x > 0 ? T(1) : x < 0 ? T(-1) : x)
TESSERA_UNARY(rsqrt, 1 / __builtin_sqrt(x))
TESSERA_LIBRARY_KERNEL(sqrt)
TESSERA_LIBRARY_KERNEL(sin)
TESSERA_LIBRARY_KERNEL(cos)
TESSERA_LIBRARY_KERNEL(tan)
TESSERA_LIBRARY_KERNEL(asin)
TESSERA_LIBRARY_KERNEL(acos)
TESSERA_LIBRARY_KERNEL(atan)
TESSERA_LIBRARY_KERNEL(sinh)
TESSERA_LIBRARY_KERNEL(cosh)
TESSERA_LIBRARY_KERNEL(asinh)
TESSERA_LIBRARY_KERNEL(acosh)
TESSERA_LIBRARY_KERNEL(atanh)
TESSERA_LIBRARY_KERNEL(floor)
TESSERA_LIBRARY_KERNEL(ceil)
TESSERA_LIBRARY_KERNEL(rint)
// Vectors in f32, the library in f64.
TESSERA_LIBRARY(exp)
TESSERA_LIBRARY(log)
TESSERA_LIBRARY(tanh)
TESSERA_LIBRARY(erf)
constexpr Fn exp_float = of_float<vector_block<vexp>, unary_block<exp_of, double>>;
constexpr Fn log_float = of_float<vector_block<vlog>, unary_block<log_of, double>>;
constexpr Fn tanh_float = of_float<vector_block<vtanh>, unary_block<tanh_of, double>>;
constexpr Fn erf_float = of_float<vector_block<verf>, unary_block<erf_of, double>>;

struct is_nan_of {
  template <class T>
  static TESSERA_INLINE uint8_t of(T x) {
    return x != x;
  }
};
constexpr Fn is_nan_float = of_float<unary_block<is_nan_of, float, uint8_t>, unary_block<is_nan_of, double, uint8_t>>;

template <class T>
bool is_inf_block(const void* const* in, void* out, int64_t n, const Args& args) {
  const bool positive = args.attrs[0].i != 0, negative = args.attrs[1].i != 0;
  const T* x = static_cast<const T*>(in[0]);
  uint8_t* y = static_cast<uint8_t*>(out);
  constexpr T kInf = static_cast<T>(__builtin_inf());
  for (int64_t i = 0; i < n; ++i) y[i] = (positive && x[i] == kInf) || (negative && x[i] == -kInf);
  return true;
}
constexpr Fn is_inf_float = of_float<is_inf_block<float>, is_inf_block<double>>;

bool hard_sigmoid_block(const void* const* in, void* out, int64_t n, const Args& args) {
  const float alpha = static_cast<float>(args.attrs[0].f), beta = static_cast<float>(args.attrs[1].f);
  const float* x = static_cast<const float*>(in[0]);
  float* y = static_cast<float*>(out);
  for (int64_t i = 0; i < n; ++i) {
    const float line = x[i] * alpha + beta;
    const float low = line < 0 ? 0 : line;
    y[i] = low > 1 ? 1 : low;
  }
  return true;
}

}  // namespace

TESSERA_FAMILY(
    pointwise, {"neg_float", neg_float, nullptr}, {"abs_float", abs_float, nullptr},
    {"sign_float", sign_float, nullptr}, {"exp_float", exp_float, nullptr}, {"log_float", log_float, nullptr},
    {"sqrt_float", sqrt_float, nullptr}, {"rsqrt_float", rsqrt_float, nullptr}, {"sin_float", sin_float, nullptr},
    {"cos_float", cos_float, nullptr}, {"tan_float", tan_float, nullptr}, {"asin_float", asin_float, nullptr},
    {"acos_float", acos_float, nullptr}, {"atan_float", atan_float, nullptr}, {"sinh_float", sinh_float, nullptr},
    {"cosh_float", cosh_float, nullptr}, {"tanh_float", tanh_float, nullptr}, {"asinh_float", asinh_float, nullptr},
    {"acosh_float", acosh_float, nullptr}, {"atanh_float", atanh_float, nullptr}, {"erf_float", erf_float, nullptr},
    {"floor_float", floor_float, nullptr}, {"ceil_float", ceil_float, nullptr}, {"round_float", rint_float, nullptr},
    {"is_nan_float", is_nan_float, nullptr}, {"is_inf_float", is_inf_float, nullptr},
    {"relu_f32", of_f32<vector_block<vrelu>>, nullptr}, {"sigmoid_f32", of_f32<vector_block<vsigmoid>>, nullptr},
    {"silu_f32", of_f32<vector_block<vsilu>>, nullptr}, {"gelu_f32", of_f32<vector_block<vgelu>>, nullptr},
    {"gelu_tanh_f32", of_f32<vector_block<vgelu_tanh>>, nullptr},
    {"softplus_f32", of_f32<vector_block<vsoftplus>>, nullptr},
    {"hard_sigmoid_f32", of_f32<hard_sigmoid_block>, nullptr},
    {"hard_swish_f32", of_f32<vector_block<vhard_swish>>, nullptr})
