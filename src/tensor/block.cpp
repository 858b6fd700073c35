#include "tensor/block.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
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

Result<Tensor> convert_weights(const Tensor& from, DType to, ThreadPool* pool) {
  const auto convertible = [](DType t) { return is_block(t) || (is_float(t) && bits(t) >= 16); };
  if (!convertible(from.dtype()) || !convertible(to))
    return fail(Code::dtype_mismatch, "weights of {} cannot be stored as {}", name(from.dtype()), name(to));
  TESSERA_ASSIGN(Tensor made, Tensor::make(to, from.shape()));
  // Runs of 16 Ki elements are a whole number of blocks of any type.
  constexpr int64_t kRun = int64_t{1} << 14;
  const auto at = [](const Tensor& t, int64_t element) {
    return static_cast<const std::byte*>(t.data()) + storage_bytes(t.dtype(), element);
  };
  auto convert = [&](int64_t first, int64_t last) {
    std::vector<float> values;
    std::vector<double> wide;
    for (int64_t begin = first * kRun; begin < std::min(last * kRun, from.count()); begin += kRun) {
      values.resize(static_cast<size_t>(std::min(kRun, from.count() - begin)));
      wide.resize(values.size());
      if (is_block(from.dtype())) {
        decode_blocks(from.dtype(), at(from, begin), values);
        std::copy(values.begin(), values.end(), wide.begin());
      } else {
        decode_all(from.dtype(), at(from, begin), wide);
        std::transform(wide.begin(), wide.end(), values.begin(), [](double v) { return static_cast<float>(v); });
      }
      void* out = const_cast<std::byte*>(at(made, begin));
      if (is_block(to)) {
        encode_blocks(to, values, out);
      } else {
        encode_all(to, out, wide);
      }
    }
  };
  const int64_t runs = (from.count() + kRun - 1) / kRun;
  if (pool == nullptr) {
    convert(0, runs);
  } else {
    pool->parallel_for(runs, 1, convert);
  }
  return made;
}

}  // namespace tessera
