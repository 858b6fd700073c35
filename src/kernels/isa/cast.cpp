// cast: every block goes through one intermediate that holds the operand's values exactly (f32, f64 or 64-bit
// integers), so that floats round once.
#include <math.h>

#include "kernels/abi.h"
#include "kernels/isa/blocks.h"
#include "kernels/isa/export.h"

namespace {

using namespace tessera::kernels;

// The integer part modulo 2^64; 0 for NaN and infinities.
TESSERA_INLINE int64_t wrap(double x) {
  if (x > -0x1p63 && x < 0x1p63) return static_cast<int64_t>(x);
  if (!(__builtin_fabs(x) < __builtin_inf())) return 0;
  const uint64_t magnitude = static_cast<uint64_t>(fmod(__builtin_fabs(x), 0x1p64));
  return static_cast<int64_t>(x < 0 ? uint64_t{0} - magnitude : magnitude);
}

// A double that rounds to fewer than 53 bits as x does: what its low 11 bits would lose is kept as one bit.
TESSERA_INLINE double to_odd_f64(uint64_t x) {
  if (x < uint64_t{1} << 53) return static_cast<double>(static_cast<int64_t>(x));
  return static_cast<double>(static_cast<int64_t>((x >> 11) | ((x & 0x7ff) != 0 ? 1 : 0))) * 0x1p11;
}
TESSERA_INLINE double to_odd_f64(int64_t x) {
  return x < 0 ? -to_odd_f64(uint64_t{0} - static_cast<uint64_t>(x)) : to_odd_f64(static_cast<uint64_t>(x));
}

template <class From, class To>
void convert(const void* in, To* out, int64_t n) {
  const From* x = static_cast<const From*>(in);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<To>(x[i]);
}

// To f32, rounding once. f16 and bf16 blocks arrive as f32 already.
void to_f32(uint8_t type, const void* in, float* out, int64_t n) {
  switch (type) {
    case kF64:
      return convert<double>(in, out, n);
    case kI64:
      return convert<int64_t>(in, out, n);
    case kI32:
      return convert<int32_t>(in, out, n);
    case kI16:
      return convert<int16_t>(in, out, n);
    case kI8:
      return convert<int8_t>(in, out, n);
    case kU64:
      return convert<uint64_t>(in, out, n);
    case kU32:
      return convert<uint32_t>(in, out, n);
    case kU16:
      return convert<uint16_t>(in, out, n);
    case kU8:
    case kBool:
      return convert<uint8_t>(in, out, n);
    default:
      return convert<float>(in, out, n);
  }
}

void to_f64(uint8_t type, const void* in, double* out, int64_t n) {
  switch (type) {
    case kF64:
      return convert<double>(in, out, n);
    case kI64:
      return convert<int64_t>(in, out, n);
    case kI32:
      return convert<int32_t>(in, out, n);
    case kI16:
      return convert<int16_t>(in, out, n);
    case kI8:
      return convert<int8_t>(in, out, n);
    case kU64:
      return convert<uint64_t>(in, out, n);
    case kU32:
      return convert<uint32_t>(in, out, n);
    case kU16:
      return convert<uint16_t>(in, out, n);
    case kU8:
    case kBool:
      return convert<uint8_t>(in, out, n);
    default:
      return convert<float>(in, out, n);
  }
}

// To f32 such that rounding it to f16 or bf16 gives what rounding the operand itself would.
void to_odd_f32(uint8_t type, const void* in, float* out, int64_t n) {
  switch (type) {
    case kF64: {
      const double* x = static_cast<const double*>(in);
      for (int64_t i = 0; i < n; ++i) out[i] = f64_to_odd_f32(x[i]);
      return;
    }
    case kI64: {
      const int64_t* x = static_cast<const int64_t*>(in);
      for (int64_t i = 0; i < n; ++i) out[i] = f64_to_odd_f32(to_odd_f64(x[i]));
      return;
    }
    case kU64: {
      const uint64_t* x = static_cast<const uint64_t*>(in);
      for (int64_t i = 0; i < n; ++i) out[i] = f64_to_odd_f32(to_odd_f64(x[i]));
      return;
    }
    case kI32: {
      const int32_t* x = static_cast<const int32_t*>(in);
      for (int64_t i = 0; i < n; ++i) out[i] = f64_to_odd_f32(x[i]);
      return;
    }
    case kU32: {
      const uint32_t* x = static_cast<const uint32_t*>(in);
      for (int64_t i = 0; i < n; ++i) out[i] = f64_to_odd_f32(x[i]);
      return;
    }
    default:
      return to_f32(type, in, out, n);
  }
}

// To integers modulo 2^64.
void to_i64(uint8_t type, const void* in, int64_t* out, int64_t n) {
  switch (type) {
    case kF64: {
      const double* x = static_cast<const double*>(in);
      for (int64_t i = 0; i < n; ++i) out[i] = wrap(x[i]);
      return;
    }
    case kI64:
    case kU64:
      return convert<int64_t>(in, out, n);
    case kI32:
      return convert<int32_t>(in, out, n);
    case kI16:
      return convert<int16_t>(in, out, n);
    case kI8:
      return convert<int8_t>(in, out, n);
    case kU32:
      return convert<uint32_t>(in, out, n);
    case kU16:
      return convert<uint16_t>(in, out, n);
    case kU8:
    case kBool:
      return convert<uint8_t>(in, out, n);
    default: {
      const float* x = static_cast<const float*>(in);
      for (int64_t i = 0; i < n; ++i) out[i] = wrap(static_cast<double>(x[i]));
    }
  }
}

bool f32_block(const void* const* in, void* out, int64_t n, const Args& args) {
  to_f32(args.in[0].type, in[0], static_cast<float*>(out), n);
  return true;
}
bool f64_block(const void* const* in, void* out, int64_t n, const Args& args) {
  to_f64(args.in[0].type, in[0], static_cast<double*>(out), n);
  return true;
}
bool half_block(const void* const* in, void* out, int64_t n, const Args& args) {
  to_odd_f32(args.in[0].type, in[0], static_cast<float*>(out), n);
  return true;
}
bool bool_block(const void* const* in, void* out, int64_t n, const Args& args) {
  uint8_t* y = static_cast<uint8_t*>(out);
  const uint8_t type = args.in[0].type;
  if (type == kF64 || type == kF32 || type == kF16 || type == kBF16) {
    double wide[kBlock];
    to_f64(type, in[0], wide, n);
    for (int64_t i = 0; i < n; ++i) y[i] = wide[i] != 0;
  } else {
    int64_t wide[kBlock];
    to_i64(type, in[0], wide, n);
    for (int64_t i = 0; i < n; ++i) y[i] = wide[i] != 0;
  }
  return true;
}
template <class T>
bool int_block(const void* const* in, void* out, int64_t n, const Args& args) {
  int64_t wide[kBlock];
  to_i64(args.in[0].type, in[0], wide, n);
  convert<int64_t>(wide, static_cast<T*>(out), n);
  return true;
}

int cast(const Args& args) noexcept {
  switch (args.out[0].type) {
    case kF64:
      return run_blocks<1>(args, f64_block);
    case kF32:
      return run_blocks<1>(args, f32_block);
    case kF16:
    case kBF16:
      return run_blocks<1>(args, half_block);
    case kBool:
      return run_blocks<1>(args, bool_block);
    case kI64:
    case kU64:
      return run_blocks<1>(args, int_block<int64_t>);
    case kI32:
    case kU32:
      return run_blocks<1>(args, int_block<int32_t>);
    case kI16:
    case kU16:
      return run_blocks<1>(args, int_block<int16_t>);
    default:
      return run_blocks<1>(args, int_block<int8_t>);
  }
}

}  // namespace

TESSERA_FAMILY(cast, {"cast", cast, nullptr})
