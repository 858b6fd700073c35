// Comparisons, negation and selection.
#include "kernels/abi.h"
#include "kernels/isa/blocks.h"
#include "kernels/isa/export.h"

namespace {

using namespace tessera::kernels;

struct equal_of {
  template <class T>
  static TESSERA_INLINE uint8_t of(T a, T b) {
    return a == b;
  }
};
struct less_of {
  template <class T>
  static TESSERA_INLINE uint8_t of(T a, T b) {
    return a < b;
  }
};
struct less_equal_of {
  template <class T>
  static TESSERA_INLINE uint8_t of(T a, T b) {
    return a <= b;
  }
};
struct not_of {
  static TESSERA_INLINE uint8_t of(uint8_t x) { return x == 0; }
};

template <class F>
int compare(const Args& args) noexcept {
  switch (args.in[0].type) {
    case kF64:
      return run_blocks<2>(args, binary_block<F, double, uint8_t>);
    case kI64:
      return run_blocks<2>(args, binary_block<F, int64_t, uint8_t>);
    case kI32:
      return run_blocks<2>(args, binary_block<F, int32_t, uint8_t>);
    case kI16:
      return run_blocks<2>(args, binary_block<F, int16_t, uint8_t>);
    case kI8:
      return run_blocks<2>(args, binary_block<F, int8_t, uint8_t>);
    case kU64:
      return run_blocks<2>(args, binary_block<F, uint64_t, uint8_t>);
    case kU32:
      return run_blocks<2>(args, binary_block<F, uint32_t, uint8_t>);
    case kU16:
      return run_blocks<2>(args, binary_block<F, uint16_t, uint8_t>);
    case kU8:
    case kBool:
      return run_blocks<2>(args, binary_block<F, uint8_t, uint8_t>);
    default:
      return run_blocks<2>(args, binary_block<F, float, uint8_t>);
  }
}

int logical_not(const Args& args) noexcept { return run_blocks<1>(args, unary_block<not_of, uint8_t>); }

template <class T>
bool select_block(const void* const* in, void* out, int64_t n, const Args&) {
  const uint8_t* c = static_cast<const uint8_t*>(in[0]);
  const T* a = static_cast<const T*>(in[1]);
  const T* b = static_cast<const T*>(in[2]);
  T* y = static_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) y[i] = c[i] != 0 ? a[i] : b[i];
  return true;
}

int select(const Args& args) noexcept {
  switch (element_bytes(args.out[0].type)) {
    case 1:
      return run_blocks<3>(args, select_block<uint8_t>, false);
    case 2:
      return run_blocks<3>(args, select_block<uint16_t>, false);
    case 4:
      return run_blocks<3>(args, select_block<uint32_t>, false);
    default:
      return run_blocks<3>(args, select_block<uint64_t>, false);
  }
}

}  // namespace

TESSERA_FAMILY(compare, {"equal", compare<equal_of>, nullptr}, {"less", compare<less_of>, nullptr},
               {"less_equal", compare<less_equal_of>, nullptr}, {"logical_not", logical_not, nullptr},
               {"select", select, nullptr})
