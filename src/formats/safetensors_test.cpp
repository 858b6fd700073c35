#include "formats/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/test_folder.h"

namespace tessera {
namespace {

std::string file_of(const std::string& header, size_t data, uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data, '\1');
}
std::string file_of(const std::string& header, size_t data) { return file_of(header, data, header.size()); }

Result<std::map<std::string, Tensor>> tensors_of(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), nullptr);
}

TEST(Safetensors, ReadsTensors) {
  const std::string bytes = file_of(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]},)"
      R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"e":{"dtype":"U8","shape":[0,5],"data_offsets":[4,4]}} )",
      10);
  const auto tensors = tensors_of(bytes);
  ASSERT_TRUE(tensors) << tensors.error().to_string();
  ASSERT_EQ(tensors->size(), 3u);
  EXPECT_EQ(tensors->at("a").shape(), (Dims{1, 2}));
  EXPECT_EQ(tensors->at("b").dtype(), DType::bf16);
  EXPECT_EQ(tensors->at("b").rank(), 0);
  EXPECT_EQ(tensors->at("e").count(), 0);
}

TEST(Safetensors, RefusesWhatLies) {
  struct Case {
    std::string bytes;
    Code code;
    std::string_view says;
  };
  const auto one = [](std::string_view entry, size_t data = 8) {
    return file_of(fmt::format(R"({{"a":{}}})", entry), data);
  };
  const std::string deep = std::string(100000, '[');
  const Case cases[] = {
      {"1234", Code::file_truncated, "4 bytes"},
      {file_of("{}", 0, ~uint64_t{0}), Code::file_truncated, "18446744073709551615"},
      {file_of("{}", 0, ~uint64_t{0} - 7), Code::file_truncated, "2 follow"},
      {file_of("", 0), Code::file_malformed, "no JSON"},
      {file_of("[]", 0), Code::file_malformed, "a list"},
      {file_of(deep, 0), Code::file_malformed, "a list"},
      {file_of(R"({"a":{"dtype":{"x":)", 0), Code::file_malformed, "an object"},
      {one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), Code::file_malformed, "begins at 8"},
      {one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,9]})"), Code::file_truncated, "byte 9 of 8"},
      {one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), Code::file_malformed, "takes 12"},
      {one(R"({"dtype":"F32","shape":[2]})"), Code::file_malformed, "0 data_offsets"},
      {one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,9]})"), Code::file_malformed, "3 data_offsets"},
      {one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), Code::file_malformed, "negative"},
      {one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})"), Code::shape_invalid, "elements"},
      {one(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})"), Code::shape_invalid, "size"},
      {one(R"({"dtype":"X7","shape":[2],"data_offsets":[0,8]})"), Code::unsupported_feature, "'X7'"},
      {file_of(
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
           8),
       Code::file_malformed, "inside of tensor 'a'"},
      {file_of(
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           8),
       Code::file_malformed, "two tensors"},
  };
  for (const Case& c : cases) {
    const auto tensors = tensors_of(c.bytes);
    ASSERT_FALSE(tensors) << c.says;
    EXPECT_EQ(tensors.error().code, c.code) << tensors.error().to_string();
    EXPECT_NE(tensors.error().message.find(c.says), std::string::npos) << tensors.error().message;
  }
}

TEST(Safetensors, OpensShards) {
  TestFolder folder;
  folder.put("one.safetensors", file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2));
  folder.put("two.safetensors", file_of(R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3));
  const auto index = [&](std::string_view map) {
    folder.put("model.safetensors.index.json", fmt::format(R"({{"weight_map":{}}})", map));
    return open_safetensors(folder.path());
  };
  const auto good = index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  ASSERT_TRUE(good) << good.error().to_string();
  EXPECT_EQ(good->tensors.size(), 2u);
  EXPECT_EQ(index(R"({"a":"two.safetensors"})").error().code, Code::unknown_name);
  EXPECT_EQ(index(R"({"a":"../one.safetensors"})").error().code, Code::path_escapes);
  EXPECT_EQ(index(R"({"a":1})").error().code, Code::file_malformed);
  EXPECT_EQ(index(R"([])").error().code, Code::file_malformed);
}

}  // namespace
}  // namespace tessera
