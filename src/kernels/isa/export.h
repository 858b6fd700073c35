// The one symbol that an instruction set's object exports. A family's source is compiled once for each instruction set
// with TESSERA_ISA naming it; it includes this header, kernels/abi.h, other headers of this folder, and C headers only,
// keeps everything else in an anonymous namespace, and ends with
//
//   TESSERA_FAMILY(copy, {"copy", copy, nullptr})
#pragma once

#include "kernels/abi.h"

// What the compiler's own macros say, so that a table cannot claim an instruction set that its code does not use.
#if defined(__AVX512BF16__) && defined(__AVX512VNNI__)
#define TESSERA_COMPILED_ISA "avx512_bf16"
#elif defined(__AVX512F__)
#define TESSERA_COMPILED_ISA "avx512"
#elif defined(__AVX2__)
#define TESSERA_COMPILED_ISA "avx2"
#elif defined(__aarch64__)
#define TESSERA_COMPILED_ISA "neon"
#else
#define TESSERA_COMPILED_ISA "baseline"
#endif

#define TESSERA_SYMBOL_(family, isa) tessera_##family##_##isa
#define TESSERA_SYMBOL(family, isa) TESSERA_SYMBOL_(family, isa)

#define TESSERA_FAMILY(family, ...)                                                              \
  namespace {                                                                                    \
  constexpr tessera::kernels::KernelEntry kEntries[] = {__VA_ARGS__};                            \
  }                                                                                              \
  extern "C" {                                                                                   \
  extern const tessera::kernels::FamilyTable TESSERA_SYMBOL(family, TESSERA_ISA);                \
  const tessera::kernels::FamilyTable TESSERA_SYMBOL(family, TESSERA_ISA) = {                    \
      TESSERA_COMPILED_ISA, static_cast<int>(sizeof(kEntries) / sizeof(kEntries[0])), kEntries}; \
  }
