#include "tensor/block.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/result.h"
#include "tensor/block_codes.h"
#include "tensor/scalar.h"

namespace tessera {
namespace {

int index_of(DType type) { return static_cast<int>(type) - kPlainTypeCount; }

float half(uint16_t bits) { return static_cast<float>(decode(DType::f16, &bits, 0)); }

template <class Format>
void decode_one(const uint8_t* block, float* out) {
  constexpr BlockForm form = Format::kForm;
  BlockCodes codes;
  Format::unpack(block, codes);
  const float d = half(codes.d), minimum = half(codes.minimum);
  for (int g = 0; g < form.elements / form.group; ++g) {
    const float scale = d * static_cast<float>(codes.multiplier[g]);
    const float shift = form.shifts ? minimum * static_cast<float>(codes.minimum_multiplier[g]) : 0.0f;
    for (int i = g * form.group; i < (g + 1) * form.group; ++i) {
      const float value = scale * static_cast<float>(codes.code[i] - form.centre);
      out[i] = form.shifts ? value + shift : value;
    }
  }
}

}  // namespace

void decode_blocks(DType type, const void* blocks, std::span<float> out) {
  const BlockSize size = block_size(type);
  TESSERA_CHECK(is_block(type) && out.size() % size.elements == 0);
  with_block_format(index_of(type), [&]<class Format>(Format) {
    const auto* at = static_cast<const uint8_t*>(blocks);
    for (size_t i = 0; i < out.size(); i += size.elements, at += size.bytes) decode_one<Format>(at, out.data() + i);
  });
}

Result<Tensor> convert_weights(const Tensor& from, DType to) {
  const auto convertible = [](DType t) { return is_block(t) || (is_float(t) && bits(t) >= 16); };
  if (!convertible(from.dtype()) || !convertible(to))
    return fail(Code::dtype_mismatch, "weights of {} cannot be stored as {}", name(from.dtype()), name(to));
  TESSERA_ASSIGN(Tensor made, Tensor::make(to, from.shape()));
  // Some rows at a time: 64 Ki elements are a whole number of blocks of any type.
  constexpr int64_t kChunk = int64_t{1} << 16;
  std::vector<float> values;
  std::vector<double> wide;
  const auto at = [](const Tensor& t, int64_t element) {
    return static_cast<const std::byte*>(t.data()) + storage_bytes(t.dtype(), element);
  };
  for (int64_t begin = 0; begin < from.count(); begin += kChunk) {
    const auto n = static_cast<size_t>(std::min(kChunk, from.count() - begin));
    values.resize(n);
    wide.resize(n);
    if (is_block(from.dtype())) {
      decode_blocks(from.dtype(), at(from, begin), values);
      if (!is_block(to)) std::copy(values.begin(), values.end(), wide.begin());
    } else {
      decode_all(from.dtype(), at(from, begin), wide);
      for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(wide[i]);
    }
    void* out = const_cast<std::byte*>(at(made, begin));
    if (is_block(to)) {
      encode_blocks(to, values, out);
    } else {
      encode_all(to, out, wide);
    }
  }
  return made;
}

}  // namespace tessera
