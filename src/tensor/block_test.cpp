#include "tensor/block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/scalar.h"

namespace tessera {
namespace {

std::vector<DType> block_types() {
  std::vector<DType> types;
  for (int t = kPlainTypeCount; t < kDTypeCount; ++t) types.push_back(static_cast<DType>(t));
  return types;
}

TEST(Block, SizesAndNames) {
  EXPECT_EQ(storage_bytes(DType::q4_k, 512), 288u);
  EXPECT_EQ(bits(DType::q4_k), 0);
  EXPECT_FALSE(is_float(DType::q8_0));
  EXPECT_FALSE(is_int(DType::q8_0));
  EXPECT_TRUE(Tensor::make(DType::q8_0, {3, 64}));
  EXPECT_EQ(Tensor::make(DType::q8_0, {64, 3}).error().code, Code::shape_invalid);
  EXPECT_EQ(Tensor::make(DType::q4_k, {32}).error().code, Code::shape_invalid);
  EXPECT_EQ(Tensor::make(DType::q4_k, {}).error().code, Code::shape_invalid);
  for (DType t : block_types()) {
    DType again;
    EXPECT_TRUE(parse_dtype(name(t), again) && again == t);
  }
}

// Byte i is (7 i i + 31 i + 11) mod 251, the scale 0.0123 and the minimum 0.0456 as f16. The values come from decoders
// that take one element's bits at a time from the format's description.
TEST(Block, DecodesAsPublished) {
  struct Vector {
    DType type;
    std::vector<size_t> halves;  // where the scale, and the minimum, stand
    std::vector<double> some;    // elements 0, 1, 15, 16, 17, 31; or 0, 17, 63, 64, 100, 127, 128, 171, 200, 255
    double sum;                  // of (i + 1) value i
  };
  const Vector vectors[] = {
      {DType::q8_0,
       {0},
       {1.242156982421875, -1.094573974609375, 0.627227783203125, 0.9346923828125, 1.414337158203125,
        1.512725830078125},
       -8.756591796875},
      {DType::q4_0,
       {0},
       {-0.036895751953125, -0.012298583984375, -0.061492919921875, -0.02459716796875, 0.02459716796875,
        -0.061492919921875},
       -9.433013916015625},
      {DType::q4_1,
       {0, 2},
       {0.131683349609375, 0.1685791015625, 0.082489013671875, 0.230072021484375, 0.107086181640625, 0.131683349609375},
       65.1505126953125},
      {DType::q5_0,
       {0},
       {0.07379150390625, -0.135284423828125, 0.135284423828125, 0.1475830078125, 0.0491943359375, -0.02459716796875},
       6.9364013671875},
      {DType::q5_1,
       {0, 2},
       {0.402252197265625, 0.34075927734375, 0.04559326171875, 0.19317626953125, 0.316162109375, 0.1685791015625},
       115.09506225585938},
      {DType::iq4_nl,
       {0},
       {-0.430450439453125, -0.12298583984375, -0.799407958984375, -0.27056884765625, 0.307464599609375,
        -0.799407958984375},
       -119.18557739257812},
      {DType::q2_k,
       {80, 82},
       {0.0, -0.099884033203125, -0.4559326171875, -0.51171875, -0.3995361328125, -0.120880126953125,
        -0.387237548828125, -0.033294677734375, -0.16796875, 0.314666748046875},
       -4699.687774658203},
      {DType::q3_k,
       {108},
       {-0.332061767578125, -0.12298583984375, -1.1806640625, 0.491943359375, -0.17218017578125, 0.36895751953125,
        0.66412353515625, -0.381256103515625, 0.0, 0.110687255859375},
       -1071.0098876953125},
      {DType::q4_k,
       {0, 2},
       {4.81866455078125, 6.847930908203125, 0.41461181640625, -0.1109619140625, 0.662628173828125, 0.662628173828125,
        2.267822265625, 0.038726806640625, 2.07696533203125, 2.701263427734375},
       62517.19873046875},
      {DType::q5_k,
       {0, 2},
       {5.495086669921875, 11.5828857421875, 7.44940185546875, -0.258544921875, 1.031585693359375, 0.170684814453125,
        -1.17578125, 5.0196533203125, 4.29071044921875, 1.373016357421875},
       165270.36749267578},
      {DType::q6_k,
       {208},
       {-15.27484130859375, 12.950408935546875, 20.108184814453125, 40.142578125, 3.96014404296875, 0.787109375,
        -16.590789794921875, 4.390594482421875, -4.3291015625, 30.992431640625},
       -20219.720672607422},
      {DType::iq4_xs,
       {0},
       {-7.637420654296875, 2.43511962890625, 0.602630615234375, 0.12298583984375, 2.97625732421875, 2.97625732421875,
        -34.36224365234375, -0.0491943359375, -5.103912353515625, 5.5589599609375},
       -9535.953063964844},
  };
  const std::vector<size_t> kShort = {0, 1, 15, 16, 17, 31}, kLong = {0, 17, 63, 64, 100, 127, 128, 171, 200, 255};
  EXPECT_EQ(std::size(vectors), block_types().size());
  for (const Vector& v : vectors) {
    const BlockSize size = block_size(v.type);
    std::vector<uint8_t> block(size.bytes);
    for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<uint8_t>((7 * i * i + 31 * i + 11) % 251);
    for (size_t h = 0; h < v.halves.size(); ++h)
      encode(DType::f16, block.data() + v.halves[h], 0, h == 0 ? 0.0123 : 0.0456);
    std::vector<float> values(size.elements);
    decode_blocks(v.type, block.data(), values);
    const std::vector<size_t>& at = size.elements == 32 ? kShort : kLong;
    for (size_t i = 0; i < at.size(); ++i)
      EXPECT_EQ(values[at[i]], static_cast<float>(v.some[i])) << name(v.type) << " element " << at[i];
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += static_cast<double>(values[i]) * static_cast<double>(i + 1);
    EXPECT_NEAR(sum, v.sum, 1e-9 * std::fabs(v.sum)) << name(v.type);
  }
}

// The error relative to the values, no more than that of llama.cpp's encoder on such values.
TEST(Block, EncodesNear) {
  struct Limit {
    DType type;
    double error;
  };
  const Limit limits[] = {{DType::q8_0, 0.0055}, {DType::q4_0, 0.0875},   {DType::q4_1, 0.0795},
                          {DType::q5_0, 0.0435}, {DType::q5_1, 0.0385},   {DType::q2_k, 0.2975},
                          {DType::q3_k, 0.1512}, {DType::q4_k, 0.0718},   {DType::q5_k, 0.0363},
                          {DType::q6_k, 0.0179}, {DType::iq4_nl, 0.0763}, {DType::iq4_xs, 0.0769}};
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(256 * 40), back(values.size());
  for (float& v : values) v = normal(random);
  for (const Limit& limit : limits) {
    std::vector<uint8_t> blocks(storage_bytes(limit.type, static_cast<int64_t>(values.size())));
    encode_blocks(limit.type, values, blocks.data());
    decode_blocks(limit.type, blocks.data(), back);
    double error = 0, all = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      error += std::pow(static_cast<double>(values[i] - back[i]), 2);
      all += std::pow(static_cast<double>(values[i]), 2);
    }
    EXPECT_LT(std::sqrt(error / all), limit.error) << name(limit.type);
    RecordProperty(std::string(name(limit.type)), std::to_string(std::sqrt(error / all)));
  }
}

TEST(Block, EncodesZeroesConstantsAndWhatIsNotFinite) {
  for (DType t : block_types()) {
    for (float value : {0.0f, 1.0f, -2.5f, 1e-30f, INFINITY, NAN}) {
      std::vector<float> values(256, 0.0f), back(256);
      std::fill(values.begin() + 3, values.end(), value);
      std::vector<uint8_t> blocks(storage_bytes(t, 256));
      encode_blocks(t, values, blocks.data());
      decode_blocks(t, blocks.data(), back);
      if (std::isfinite(value)) {
        EXPECT_NEAR(back[100], value, 0.14 * std::fabs(static_cast<double>(value)) + 1e-25) << name(t);
      } else {
        EXPECT_TRUE(std::isnan(back[5])) << name(t);
      }
    }
  }
}

TEST(Block, ConvertsWeights) {
  Tensor f32 = Tensor::make(DType::f32, {3, 256}).value();
  for (int64_t i = 0; i < f32.count(); ++i) f32.as<float>()[i] = std::sin(static_cast<float>(i));
  for (DType t : {DType::q8_0, DType::q6_k, DType::f16, DType::bf16}) {
    const auto there = convert_weights(f32, t);
    ASSERT_TRUE(there);
    const auto back = convert_weights(*there, DType::f32);
    ASSERT_TRUE(back);
    for (int64_t i = 0; i < f32.count(); ++i) EXPECT_NEAR(back->as<float>()[i], f32.as<float>()[i], 0.04) << name(t);
  }
  EXPECT_EQ(convert_weights(f32, DType::i8).error().code, Code::dtype_mismatch);
  EXPECT_EQ(convert_weights(f32.reshaped({256, 3}), DType::q8_0).error().code, Code::shape_invalid);
}

}  // namespace
}  // namespace tessera
