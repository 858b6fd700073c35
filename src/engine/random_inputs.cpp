#include "engine/random_inputs.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/result.h"
#include "tensor/scalar.h"

namespace tessera::engine {
namespace {

constexpr int64_t kSmallest = 1;  // 0 is often padding
constexpr int64_t kLargest = 9;

// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In (0, 1].
  double uniform() { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }
  // Box and Muller 1958.
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform()); }

 private:
  uint64_t state_;
};

enum class Content { ones, zeros, positions, indices, normal };

Content content_of(const ValueInfo& info) {
  std::string name = info.name;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (info.dtype == DType::boolean || has("mask")) return Content::ones;
  if (is_float(info.dtype)) return Content::normal;
  if (has("token_type") || has("segment")) return Content::zeros;
  if (has("position")) return Content::positions;
  return Content::indices;
}

Status fill(const ValueInfo& info, uint64_t seed, Tensor& tensor) {
  // Inputs of one model differ although they share the seed.
  for (const char c : info.name) seed = seed * 31 + static_cast<unsigned char>(c);
  Random random(seed);
  const Content content = content_of(info);
  const int64_t row = tensor.rank() == 0 ? 1 : std::max<int64_t>(tensor.shape().back(), 1);
  void* data = tensor.mutable_data();
  for (int64_t i = 0; i < tensor.count(); ++i) {
    switch (content) {
      case Content::ones:
        encode(info.dtype, data, i, 1);
        break;
      case Content::zeros:
        encode(info.dtype, data, i, 0);
        break;
      case Content::positions:
        encode_int(info.dtype, data, i, i % row);
        break;
      case Content::indices:
        encode_int(info.dtype, data, i, kSmallest + static_cast<int64_t>(random.next() % kLargest));
        break;
      case Content::normal:
        encode(info.dtype, data, i, random.normal());
        break;
    }
  }
  return {};
}

}  // namespace

Result<Value> random_input(const ValueInfo& info, uint64_t seed, const Dims* shape) {
  if (info.kind != ValueInfo::Kind::tensor || info.dtype == DType::string)
    return fail(Code::unsupported_feature, "input '{}' is {}: random values are made for tensors of numbers only",
                info.name, info.type);
  const Dims& sizes = shape != nullptr ? *shape : info.sizes;
  if (shape == nullptr && !info.ranked)
    return fail(Code::shape_invalid, "the shape of input '{}' ({}) is not known: give random:SHAPE", info.name,
                info.type);
  for (size_t axis = 0; axis < sizes.size(); ++axis)
    if (sizes[axis] < 0)
      return fail(Code::shape_invalid,
                  "the size of axis {} of input '{}' ({}) is not known: give --dim {}=N or random:SHAPE", axis,
                  info.name, info.type, shape == nullptr ? info.shape[axis] : "NAME");
  TESSERA_ASSIGN(Tensor tensor, Tensor::make(info.dtype, sizes));
  TESSERA_TRY(fill(info, seed, tensor));
  return Value(std::move(tensor));
}

}  // namespace tessera::engine
