// What the bits of each element type mean: exact decoding to double or integer, and encoding that rounds once.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/dtype.h"

namespace tessera {

__extension__ typedef __int128 Int128;  // holds every i64 and u64

// How a float8e8m0, which has no fraction, takes a value between two powers of two. ONNX Cast's round_mode.
enum class E8m0Round : uint8_t { up, down, nearest };  // nearest: a tie goes up

// What ONNX Cast lets the model choose. All other rounding is to nearest, ties to even.
struct Rounding {
  // Only for the float8 types: a value past the largest becomes the largest; without it, infinity or NaN.
  bool saturate = true;
  E8m0Round e8m0 = E8m0Round::up;
};

// The functions below take any type but string and block types (see tensor/block.h), and index elements, not bytes:
// element 1 of an i4 tensor is the high half of its first byte. Memory need not be aligned.

// The element's value, exact for every type but i64 and u64 past 2^53, which round. Booleans are 0 and 1.
double decode(DType dtype, const void* data, int64_t index);
// The element's value, exact for integers and booleans; floats truncate toward zero and wrap to 64 bits, NaN is 0.
Int128 decode_int(DType dtype, const void* data, int64_t index);

// Stores the nearest representable value. f32, f16 and bf16 overflow to infinity; f4e2m1 to its largest value, and it
// stores NaN as -0, having none. f8e8m0 takes values below its smallest (all negatives too) as that, or NaN when not
// saturating. Integers truncate toward zero and wrap modulo 2^bits, NaN and infinities to 0. Booleans: value != 0.
void encode(DType dtype, void* data, int64_t index, double value, Rounding rounding = {});
// The same from an integer: integers wrap modulo 2^bits, floats round once (never through double).
void encode_int(DType dtype, void* data, int64_t index, Int128 value, Rounding rounding = {});

// The value after storing and loading it.
double round_to(DType dtype, double value);

// All elements at once: out[i] = decode(dtype, data, i), and so on.
void decode_all(DType dtype, const void* data, std::span<double> out);
void decode_all(DType dtype, const void* data, std::span<Int128> out);
void encode_all(DType dtype, void* data, std::span<const double> values, Rounding rounding = {});
void encode_all(DType dtype, void* data, std::span<const Int128> values, Rounding rounding = {});

}  // namespace tessera
