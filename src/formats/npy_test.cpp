#include "formats/npy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "base/file.h"
#include "base/test_folder.h"
#include "tensor/scalar.h"

namespace tessera {
namespace {

std::string npy(std::string_view dictionary, std::string_view data, int version = 1) {
  std::string file = "\x93NUMPY";
  file += {static_cast<char>(version), '\0'};
  const size_t n = dictionary.size();
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) file += static_cast<char>(n >> (8 * i));
  file += dictionary;
  file += data;
  return file;
}

std::string simple(std::string_view descr, std::string_view shape, std::string_view data) {
  return npy(fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}\n", descr, shape), data);
}

template <class T>
std::string bytes_of(std::vector<T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

Result<Tensor> npy_tensor(const std::string& file, std::optional<DType> expected = {}) {
  return parse_npy(std::as_bytes(std::span(file)), nullptr, expected);
}

std::vector<double> values_of(const Tensor& t) {
  std::vector<double> values(static_cast<size_t>(t.count()));
  decode_all(t.dtype(), t.data(), std::span<double>(values));
  return values;
}

TEST(Npy, ReadsEveryNumericTypeInBothByteOrders) {
  const std::pair<const char*, DType> types[] = {{"f8", DType::f64}, {"f4", DType::f32}, {"f2", DType::f16},
                                                 {"i8", DType::i64}, {"i4", DType::i32}, {"i2", DType::i16},
                                                 {"i1", DType::i8},  {"u8", DType::u64}, {"u4", DType::u32},
                                                 {"u2", DType::u16}, {"u1", DType::u8},  {"b1", DType::boolean}};
  for (auto [descr, type] : types) {
    Tensor t = *Tensor::make(type, {2, 1});
    encode(type, t.mutable_data(), 0, 1);
    std::string data(t.as<char>(), t.bytes());
    std::string swapped = data;
    const size_t size = data.size() / 2;
    for (size_t i = 0; i < data.size(); i += size) std::reverse(swapped.begin() + i, swapped.begin() + i + size);
    for (auto& [order, bytes] :
         {std::pair<std::string, std::string>{"<", data}, {">", swapped}, {"|", data}, {"=", data}}) {
      std::string file = simple(order + descr, "(2, 1)", bytes);
      auto got = npy_tensor(file);
      ASSERT_TRUE(got) << got.error().to_string();
      EXPECT_EQ(got->dtype(), type);
      EXPECT_EQ(got->shape(), (Dims{2, 1}));
      EXPECT_EQ(values_of(*got), (std::vector<double>{1, 0})) << order << descr;
    }
  }
}

TEST(Npy, ReadsAllVersionsAndWaysToWriteTheHeader) {
  const std::string data = bytes_of<int32_t>({5, 6});
  for (int version : {1, 2, 3}) {
    std::string file = npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }     \n", data, version);
    auto got = npy_tensor(file);
    ASSERT_TRUE(got) << got.error().to_string();
    EXPECT_EQ(values_of(*got), (std::vector<double>{5, 6}));
  }
  for (const char* header : {"{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<i4\"}",
                             "{'descr': '<i4', 'fortran_order': True, 'shape': (2L,)}"}) {
    auto got = npy_tensor(npy(header, data));
    ASSERT_TRUE(got) << got.error().to_string();
    EXPECT_EQ(got->shape(), (Dims{2}));
  }
  auto scalar = npy_tensor(simple("<i4", "()", data.substr(0, 4)));
  ASSERT_TRUE(scalar);
  EXPECT_EQ(scalar->rank(), 0);
  auto empty = npy_tensor(simple("<i4", "(3, 0)", ""));
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->shape(), (Dims{3, 0}));
}

TEST(Npy, TurnsColumnMajorIntoRowMajor) {
  // a[i][j][k] = 100 i + 10 j + k, stored with the first axis fastest.
  std::vector<int16_t> column;
  for (int k = 0; k < 4; ++k)
    for (int j = 0; j < 3; ++j)
      for (int i = 0; i < 2; ++i) column.push_back(static_cast<int16_t>(100 * i + 10 * j + k));
  auto got = npy_tensor(npy("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3, 4)}", bytes_of(column)));
  ASSERT_TRUE(got);
  for (int i = 0, at = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k) EXPECT_EQ(got->as<int16_t>()[at++], 100 * i + 10 * j + k);
}

TEST(Npy, BorrowsWhatIsInPlace) {
  alignas(64) char memory[256];
  std::string padded =
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}" + std::string(63, ' '), bytes_of<float>({1, 2}));
  ASSERT_EQ((padded.size() - 8) % 64, 0u);
  std::memcpy(memory, padded.data(), padded.size());
  auto keep = std::make_shared<int>(0);
  auto got = parse_npy(std::as_bytes(std::span(memory, padded.size())), keep);
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(got->data(), memory + padded.size() - 8);
  EXPECT_EQ(keep.use_count(), 2);
  std::memmove(memory + 1, memory, padded.size());
  auto copied = parse_npy(std::as_bytes(std::span(memory + 1, padded.size())), keep);
  ASSERT_TRUE(copied);
  EXPECT_EQ(keep.use_count(), 2);
  EXPECT_EQ(values_of(*copied), (std::vector<double>{1, 2}));
}

TEST(Npy, BooleansBecomeZeroOrOne) {
  auto got = npy_tensor(simple("|b1", "(3,)", std::string("\x00\x01\x80", 3)));
  ASSERT_TRUE(got);
  EXPECT_EQ(std::memcmp(got->data(), "\0\1\1", 3), 0);
}

TEST(Npy, RawBytesAreReadAsTheTypeThatIsWanted) {
  const std::string bf16 = simple("|V2", "(2,)", bytes_of<uint16_t>({0x3f80, 0xc000}));
  auto b = npy_tensor(bf16);
  ASSERT_TRUE(b);
  EXPECT_EQ(b->dtype(), DType::bf16);
  EXPECT_EQ(values_of(*b), (std::vector<double>{1, -2}));
  const std::string bytes = simple("<V1", "(3,)", "\x38\xb8\x01");
  auto f8 = npy_tensor(bytes, DType::f8e4m3fn);
  ASSERT_TRUE(f8);
  EXPECT_EQ(values_of(*f8), (std::vector<double>{1, -1, 0x1p-9}));
  EXPECT_EQ(npy_tensor(bytes).error().code, Code::unsupported_feature);
  EXPECT_EQ(npy_tensor(bytes, DType::f32).error().code, Code::unsupported_feature);
  auto i4 = npy_tensor(simple("|V1", "(3,)", "\x07\xff\xf8"), DType::i4);
  ASSERT_TRUE(i4);
  EXPECT_EQ(values_of(*i4), (std::vector<double>{7, -1, -8}));
}

TEST(Npy, PacksSmallIntegersAndChecksThem) {
  auto got = npy_tensor(simple("|i1", "(3,)", "\x07\xff\xf8"), DType::i4);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->dtype(), DType::i4);
  EXPECT_EQ(got->bytes(), 2u);
  EXPECT_EQ(values_of(*got), (std::vector<double>{7, -1, -8}));
  auto bad = npy_tensor(simple("|i1", "(2,)", "\x01\x08"), DType::i4);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Code::value_invalid);
  EXPECT_EQ(bad.error().message, "element 1 of the .npy array is 8, which i4 cannot hold");
  EXPECT_EQ(npy_tensor(simple("|u1", "(1,)", "\xff"), DType::i4).error().code, Code::value_invalid);
  // A type of whole bytes that is wanted does not change what the file holds.
  EXPECT_EQ(npy_tensor(simple("|i1", "(2,)", "ab"), DType::f32)->dtype(), DType::i8);
}

TEST(Npy, WrittenArraysReadBack) {
  TestFolder folder;
  for (int i = 0; i < kPlainTypeCount - 1; ++i) {
    DType type = static_cast<DType>(i);
    for (const Dims& shape : {Dims{}, Dims{5}, Dims{3, 1, 3}, Dims{0, 2}}) {
      Tensor t = *Tensor::make(type, shape);
      for (int64_t j = 0; j < t.count(); ++j) encode(type, t.mutable_data(), j, static_cast<double>(j % 3) - 1);
      ASSERT_NE(t.data(), nullptr);  // not of no elements either: memcmp takes no null
      std::string path = folder / "a.npy";
      auto written = write_npy(path, t);
      ASSERT_TRUE(written) << written.error().to_string();
      auto back = read_npy(path, type);
      ASSERT_TRUE(back) << back.error().to_string();
      EXPECT_EQ(back->dtype(), type);
      EXPECT_EQ(back->shape(), shape);
      EXPECT_EQ(std::memcmp(back->data(), t.data(), t.bytes()), 0) << name(type);
    }
  }
  EXPECT_EQ(folder.count(), 1u);
}

TEST(Npy, WritesWhatNumPyWrites) {
  TestFolder folder;
  const float data[2] = {1, 2};
  ASSERT_TRUE(write_npy(folder / "a.npy", Tensor::borrow(DType::f32, {2}, data)));
  std::string text = *read_file(folder / "a.npy", 1000);
  EXPECT_EQ(text.size(), 136u);
  EXPECT_EQ(text.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_EQ(text.substr(10, 58), "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } ");
  EXPECT_EQ(text[127], '\n');
  EXPECT_EQ(text.substr(128), bytes_of<float>({1, 2}));
}

TEST(Npy, RefusesWhatIsNoArray) {
  const std::string good = simple("<f4", "(2,)", bytes_of<float>({1, 2}));
  const std::pair<std::string, Code> bad[] = {
      {"", Code::file_malformed},
      {"PK\x03\x04 a zip", Code::file_malformed},
      {good.substr(0, 9), Code::file_truncated},
      {good.substr(0, 30), Code::file_truncated},
      {good.substr(0, good.size() - 1), Code::file_truncated},
      {good + "x", Code::file_malformed},
      {npy("{}", "", 4), Code::file_malformed},
      {npy("{}", ""), Code::file_malformed},
      {npy("{'descr': '<f4'", ""), Code::file_malformed},
      {npy("{'descr': '<f4", ""), Code::file_malformed},
      {npy("{'descr': '<f4', 'fortran_order': 1, 'shape': ()}", ""), Code::file_malformed},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}", ""), Code::file_malformed},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (a,)}", ""), Code::file_malformed},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", "abcd"), Code::file_malformed},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), 'more': ()}", "abcd"), Code::file_malformed},
      {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", ""), Code::unsupported_feature},
      {simple("|O", "(2,)", ""), Code::unsupported_feature},
      {simple("<c8", "(1,)", "12345678"), Code::unsupported_feature},
      {simple("<U3", "(1,)", "123456789012"), Code::unsupported_feature},
      {simple("<f16", "(1,)", "1234567890123456"), Code::unsupported_feature},
      {simple("<f4", "(-1,)", ""), Code::shape_invalid},
      {simple("<f4", "(4611686018427387904, 4)", "abcd"), Code::shape_invalid},
      {simple("<f4", "(99999999999999999999,)", "abcd"), Code::file_malformed},
      {simple("<f4", "(4611686018427387904,)", "abcd"), Code::file_truncated},
      {npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1099511627776, 4)}", "abcd"), Code::file_truncated},
  };
  for (const auto& [file, code] : bad) {
    auto got = npy_tensor(file);
    ASSERT_FALSE(got) << file;
    EXPECT_EQ(got.error().code, code) << got.error().to_string() << "\n" << file;
  }
  auto named = read_npy("no/such/file.npy");
  EXPECT_EQ(named.error().code, Code::file_not_found);
  EXPECT_EQ(write_npy("x.npy", Tensor::of_strings({1}, {"a"})).error().code, Code::unsupported_feature);
}

TEST(Npy, DamagedFilesGiveErrorsOrArrays) {
  std::mt19937 random(6);
  const std::string good = simple("<f4", "(2, 3)", std::string(24, 'a'));
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (int k = 0; k < 2; ++k)
      bad[random() % 80] = static_cast<char>(random() % 3 == 0 ? random() : 32 + random() % 95);
    static_cast<void>(npy_tensor(bad, static_cast<DType>(random() % kDTypeCount)));
  }
}

}  // namespace
}  // namespace tessera
