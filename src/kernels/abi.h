// What crosses the boundary between the runtime and an instruction set's kernels: plain data, C headers only, so that
// an object compiled for a wider instruction set leaves no inline function behind that the linker could prefer
// elsewhere.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tessera::kernels {

constexpr int kMaxRank = 12;  // windows of a 3-d convolution have nine axes

// The element types, numbered as tessera::DType.
// clang-format off
enum Type : uint8_t {
  kF64, kF32, kF16, kBF16, kF8E4M3FN, kF8E4M3FNUZ, kF8E5M2, kF8E5M2FNUZ, kF8E8M0, kF4E2M1,
  kI64, kI32, kI16, kI8, kI4, kI2, kU64, kU32, kU16, kU8, kU4, kU2, kBool, kString,
};
// clang-format on

// A tensor as a kernel sees it. Strides are in elements, may be 0 (broadcast) or negative. An absent optional operand
// has data == nullptr and rank 0 and `present` 0; an empty tensor may have data == nullptr with `present` 1.
struct View {
  void* data;
  uint8_t type;
  uint8_t rank;
  uint8_t present;
  int64_t shape[kMaxRank];
  int64_t stride[kMaxRank];
};

// One attribute of the operator, in the order in which its OpDef declares them.
struct Attr {
  int64_t i;            // integers, booleans, element types, and the index of a word in its list of words
  double f;             // floats
  const int64_t* list;  // lists of integers
  int32_t length;
};

// Bytes of the caches of one core, for the sizes of blocks. They change speed, never results.
struct Caches {
  int64_t l1 = 32 << 10;
  int64_t l2 = 512 << 10;
};

// Splits [0, n) over threads in chunks of at least `grain` and calls body(context, begin, end) for each. Chunks depend
// only on n and grain, never on the number of threads. Returns when all are done. May be called only from the kernel's
// own thread.
struct Parallel {
  void* pool;
  int threads;
  void (*run)(void* pool, int64_t n, int64_t grain, void (*body)(void* context, int64_t begin, int64_t end),
              void* context);
  Caches caches = {};
};

struct Args {
  const View* in;
  int n_in;
  const View* out;  // memory of the outputs, allocated; results must not overlap operands unless the table allows it
  int n_out;
  const Attr* attrs;
  int n_attrs;
  const Parallel* parallel;
  void* scratch;  // 64-byte aligned, of the size that the kernel's scratch function asked for
};

// 0 when done; otherwise an error the executor turns into a coded one.
enum Failure : int { kDone = 0, kIndexOutOfRange = 1, kValueInvalid = 2 };

using Fn = int (*)(const Args&) noexcept;
// Bytes of scratch that a call with these views needs (data pointers are null).
using ScratchFn = size_t (*)(const Args&) noexcept;

// A constant operand to be laid out once as its kernel wants to read it: an operand whose layout in the table is
// `packed`. A call then sees the operand's shape, row-major strides, and the packed bytes as its data.
struct PackArgs {
  const View* operand;  // any strides; its data need not be aligned to its elements, as it may lie in a file
  int index;            // which operand of the kernel it is
  const Attr* attrs;    // those of the step
  int n_attrs;
  const Parallel* parallel;  // null: one thread
};
// Bytes of the packed operand; depends on its shape, its type and the attributes only (its data may be null).
using PackedSizeFn = size_t (*)(const PackArgs&) noexcept;
// Writes all of them. `out` is 64-byte aligned and zeroed.
using PackFn = void (*)(const PackArgs&, void* out) noexcept;

// One kernel of a family. `scratch` is null when it needs none, the other two when no operand is packed.
struct KernelEntry {
  const char* name;  // as in table.def
  Fn fn;
  ScratchFn scratch;
  PackedSizeFn packed_size = nullptr;
  PackFn pack = nullptr;
};

// What an object of one family and one instruction set exports.
struct FamilyTable {
  const char* isa;  // the set that the compiler was told to use, from its own macros
  int count;
  const KernelEntry* entries;
};

}  // namespace tessera::kernels
