// Quantized weights: what the blocks of each type mean, exactly, and how values are rounded to them.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/dtype.h"
#include "tessera/error.h"
#include "tessera/tensor.h"

namespace tessera {

class ThreadPool;

// The values of whole blocks. Each is the exact value of the format, rounded once to f32. Memory need not be aligned.
void decode_blocks(DType type, const void* blocks, std::span<float> out);

// Rounds values, a whole number of blocks, to the type. Codes are the nearest under scales that are found block by
// block: as ggml's reference does for the linear types of 32 elements, by a least-squares search for all others. Values
// that are not finite make blocks of NaN.
void encode_blocks(DType type, std::span<const float> values, void* out);

// A copy of a tensor of floats or blocks in another such type. E0302 for other types, E0313 when the rows do not divide
// into blocks, E0503. `pool` null: one thread.
Result<Tensor> convert_weights(const Tensor& from, DType to, ThreadPool* pool = nullptr);

}  // namespace tessera
