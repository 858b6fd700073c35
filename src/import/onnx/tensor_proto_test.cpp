#include "import/onnx/tensor_proto.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/test_folder.h"
#include "import/onnx/value_proto.h"
#include "tensor/scalar.h"

namespace tessera::onnx {
namespace {

using protobuf::Writer;

Bytes bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }

Writer header(DataType type, std::vector<int64_t> dims, std::string_view name = "w") {
  Writer t;
  for (int64_t d : dims) t.int64(1, d);
  t.int64(2, static_cast<int64_t>(type));
  t.string(8, name);
  return t;
}

Result<Tensor> read_tensor(const std::string& message, const TensorSource& source = {}) {
  TensorProto proto;
  if (auto status = parse(protobuf::Reader(bytes_of(message)), proto); !status)
    return tl::unexpected(std::move(status).error());
  return to_tensor(proto, source);
}

std::vector<double> values_of(const Tensor& t) {
  std::vector<double> values(static_cast<size_t>(t.count()));
  decode_all(t.dtype(), t.data(), std::span<double>(values));
  return values;
}

void expect_error(const Result<Tensor>& r, Code code) {
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, code) << r.error().to_string();
  EXPECT_NE(r.error().to_string().find("'w'"), std::string::npos) << r.error().to_string();
}

TEST(TensorProto, EveryTypeKeepsItsNumber) {
  for (int i = 0; i < kPlainTypeCount; ++i) {
    DType t = static_cast<DType>(i);
    EXPECT_EQ(dtype_of(static_cast<int32_t>(data_type_of(t))), t);
  }
  EXPECT_EQ(data_type_of(DType::f32), DataType::f32);
  EXPECT_EQ(static_cast<int>(data_type_of(DType::i2)), 26);
  EXPECT_FALSE(dtype_of(0));
  EXPECT_FALSE(dtype_of(14));
  EXPECT_FALSE(dtype_of(27));
  EXPECT_FALSE(dtype_of(-1));
}

TEST(TensorProto, BorrowsAlignedBytesAndCopiesOthers) {
  const float data[4] = {1, 2, 3, 4};
  auto owner = std::make_shared<int>(0);
  alignas(8) std::byte memory[24];
  std::memcpy(memory + 4, data, 16);
  TensorProto proto;
  proto.name = "w";
  proto.dims = {2, 2};
  proto.data_type = 1;
  proto.raw_data = Bytes(memory + 4, 16);
  auto aligned = to_tensor(proto, {.file = owner});
  ASSERT_TRUE(aligned);
  EXPECT_EQ(aligned->data(), memory + 4);
  EXPECT_EQ(owner.use_count(), 2);
  std::memcpy(memory + 5, data, 16);
  proto.raw_data = Bytes(memory + 5, 16);
  auto copied = to_tensor(proto, {.file = owner});
  ASSERT_TRUE(copied);
  EXPECT_EQ(values_of(*copied), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(owner.use_count(), 2);
  auto unaligned = to_tensor(proto, {.file = owner, .unaligned = true});
  ASSERT_TRUE(unaligned);
  EXPECT_EQ(unaligned->data(), memory + 5);
  EXPECT_EQ(values_of(*unaligned), (std::vector<double>{1, 2, 3, 4}));
}

TEST(TensorProto, ReadsTypedData) {
  struct {
    DataType type;
    uint32_t field;
    std::vector<int64_t> stored;
    std::vector<double> values;
  } const cases[] = {
      {DataType::i32, 5, {-5, 1 << 30}, {-5, 1 << 30}},
      {DataType::i16, 5, {-5, 300}, {-5, 300}},
      {DataType::i8, 5, {-5, 100}, {-5, 100}},
      {DataType::u16, 5, {65535, 3}, {65535, 3}},
      {DataType::u8, 5, {255, 3}, {255, 3}},
      {DataType::boolean, 5, {1, 0}, {1, 0}},
      {DataType::f16, 5, {0x3c00, 0xc000}, {1, -2}},
      {DataType::bf16, 5, {0x3f80, 0xc000}, {1, -2}},
      {DataType::f8e4m3fn, 5, {0x38, 0xb8}, {1, -1}},
      {DataType::f8e5m2fnuz, 5, {0x40, 0xc0}, {1, -1}},
      {DataType::f8e8m0, 5, {127, 128}, {1, 2}},
      {DataType::i4, 5, {0xf1, 0x07}, {1, -1, 7}},
      {DataType::u4, 5, {0xf1, 0x07}, {1, 15, 7}},
      {DataType::f4e2m1, 5, {0xa2}, {1, -1}},
      {DataType::i2, 5, {0xe4, 0x01}, {0, 1, -2, -1, 1}},
      {DataType::u2, 5, {0xe4}, {0, 1, 2}},
      {DataType::i64, 7, {INT64_MIN, 7}, {-0x1p63, 7}},
      {DataType::u64, 11, {-1, 7}, {0x1p64, 7}},
      {DataType::u32, 11, {4294967295, 7}, {4294967295, 7}},
  };
  for (const auto& c : cases) {
    for (bool packed : {false, true}) {
      Writer t = header(c.type, {static_cast<int64_t>(c.values.size())});
      if (packed)
        t.packed(c.field, c.stored);
      else
        for (int64_t v : c.stored) t.int64(c.field, v);
      std::string message = t.take();
      auto got = read_tensor(message);
      ASSERT_TRUE(got) << got.error().to_string();
      EXPECT_EQ(values_of(*got), c.values) << static_cast<int>(c.type);
    }
  }
  Writer f = header(DataType::f32, {3});
  f.packed(4, std::vector<float>{1, 2});
  f.float32(4, 3);
  EXPECT_EQ(values_of(*read_tensor(f.result())), (std::vector<double>{1, 2, 3}));
  Writer d = header(DataType::f64, {2});
  const double doubles[1] = {0.1};
  d.bytes(10, std::as_bytes(std::span(doubles)));
  d.float64(10, 0.2);
  EXPECT_EQ(values_of(*read_tensor(d.result())), (std::vector<double>{0.1, 0.2}));
}

TEST(TensorProto, ReadsStringsScalarsAndEmptyTensors) {
  Writer s = header(DataType::string, {2});
  s.string(6, "a");
  s.string(6, "");
  auto strings = read_tensor(s.result());
  ASSERT_TRUE(strings);
  EXPECT_EQ(strings->strings(), (std::vector<std::string>{"a", ""}));
  Writer scalar = header(DataType::f32, {});
  scalar.float32(4, 2.5f);
  auto one = read_tensor(scalar.result());
  ASSERT_TRUE(one);
  EXPECT_EQ(one->rank(), 0);
  EXPECT_EQ(values_of(*one), (std::vector<double>{2.5}));
  for (bool raw : {false, true}) {
    Writer empty = header(DataType::i64, {3, 0});
    if (raw) empty.string(9, "");
    auto none = read_tensor(empty.result());
    ASSERT_TRUE(none) << none.error().to_string();
    EXPECT_EQ(none->count(), 0);
  }
}

TEST(TensorProto, BooleansBecomeZeroOrOne) {
  Writer t = header(DataType::boolean, {3});
  t.string(9, std::string("\x02\x00\xff", 3));
  auto got = read_tensor(t.result());
  ASSERT_TRUE(got);
  EXPECT_EQ(std::memcmp(got->data(), "\x01\x00\x01", 3), 0);
}

TEST(TensorProto, RefusesDataThatDoesNotFit) {
  for (auto [dims, bytes] : {std::pair<std::vector<int64_t>, size_t>{{2, 3}, 20},
                             {{2, 3}, 28},
                             {{}, 0},
                             {{int64_t{1} << 40, 1 << 20}, 16},
                             {{0}, 4}}) {
    Writer t = header(DataType::f32, dims);
    t.string(9, std::string(bytes, '\0'));
    expect_error(read_tensor(t.result()), Code::model_malformed);
  }
  Writer few = header(DataType::i64, {3});
  few.int64(7, 1);
  expect_error(read_tensor(few.result()), Code::model_malformed);
  Writer many = header(DataType::f32, {1});
  many.packed(4, std::vector<float>{1, 2, 3});
  expect_error(read_tensor(many.result()), Code::model_malformed);
  Writer huge = header(DataType::f32, {int64_t{1} << 61});
  huge.float32(4, 1);
  expect_error(read_tensor(huge.result()), Code::model_malformed);
  Writer strings = header(DataType::string, {int64_t{1} << 60});
  expect_error(read_tensor(strings.result()), Code::model_malformed);
  Writer large = header(DataType::u8, {1});
  large.int64(5, 256);
  expect_error(read_tensor(large.result()), Code::model_malformed);
  Writer wide = header(DataType::u32, {1});
  wide.int64(11, int64_t{1} << 32);
  expect_error(read_tensor(wide.result()), Code::model_malformed);
  Writer torn = header(DataType::f64, {1});
  torn.string(10, "1234567");
  expect_error(read_tensor(torn.result()), Code::model_malformed);
  Writer wrong = header(DataType::f32, {2, 3});
  wrong.string(9, std::string(20, '\0'));
  EXPECT_EQ(read_tensor(wrong.result()).error().message,
            "tensor 'w' of type f32 and shape [2, 3] cannot have 20 bytes of data");
}

TEST(TensorProto, RefusesImpossibleShapesAndTypes) {
  expect_error(read_tensor(header(DataType::f32, {-1}).result()), Code::shape_invalid);
  expect_error(read_tensor(header(DataType::f32, {INT64_MAX, INT64_MAX}).result()), Code::shape_invalid);
  expect_error(read_tensor(header(DataType::f32, std::vector<int64_t>(65, 1)).result()), Code::shape_invalid);
  expect_error(read_tensor(header(DataType::complex64, {1}).result()), Code::unsupported_feature);
  expect_error(read_tensor(header(DataType::undefined, {1}).result()), Code::model_malformed);
  expect_error(read_tensor(header(static_cast<DataType>(99), {1}).result()), Code::model_malformed);
  Writer segment, segmented = header(DataType::f32, {1});
  segmented.message(3, segment);
  expect_error(read_tensor(segmented.result()), Code::unsupported_feature);
}

std::string external(std::vector<std::pair<std::string, std::string>> entries, DataType type = DataType::f32) {
  Writer t = header(type, {2});
  for (auto& [key, value] : entries) {
    Writer e;
    e.string(1, key);
    e.string(2, value);
    t.message(13, e);
  }
  t.int64(14, 1);
  return t.take();
}

TEST(TensorProto, ReadsExternalDataInsideTheFolderOnly) {
  TestFolder folder;
  const float data[4] = {1, 2, 3, 4};
  std::string bytes(reinterpret_cast<const char*>(data), sizeof data);
  folder.put("model/sub/w.bin", bytes);
  folder.put("secret.bin", bytes);
  std::filesystem::create_symlink("../secret.bin", folder / "model/link.bin");
  ExternalFiles files(folder / "model");
  TensorSource source{.external = &files};
  auto got = read_tensor(external({{"location", "sub/w.bin"}, {"offset", "4"}, {"length", "8"}}), source);
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(values_of(*got), (std::vector<double>{2, 3}));
  auto rest = read_tensor(external({{"location", "sub/w.bin"}, {"offset", "8"}, {"checksum", "abc"}}), source);
  ASSERT_TRUE(rest);
  EXPECT_EQ(values_of(*rest), (std::vector<double>{3, 4}));

  using Entries = std::vector<std::pair<std::string, std::string>>;
  const std::pair<Entries, Code> bad[] = {
      {{{"location", "../secret.bin"}}, Code::path_escapes},
      {{{"location", folder / "secret.bin"}}, Code::path_escapes},
      {{{"location", "link.bin"}}, Code::path_escapes},
      {{{"location", "absent.bin"}}, Code::file_not_found},
      {{}, Code::model_malformed},
      {{{"location", "sub/w.bin"}, {"offset", "12"}}, Code::file_truncated},
      {{{"location", "sub/w.bin"}, {"offset", "18446744073709551615"}}, Code::file_truncated},
      {{{"location", "sub/w.bin"}, {"offset", "18446744073709551616"}}, Code::model_malformed},
      {{{"location", "sub/w.bin"}, {"offset", "-4"}}, Code::model_malformed},
      {{{"location", "sub/w.bin"}, {"offset", ""}}, Code::model_malformed},
      {{{"location", "sub/w.bin"}, {"length", "8x"}}, Code::model_malformed},
      {{{"location", "sub/w.bin"}, {"length", "4"}}, Code::model_malformed},
  };
  for (const auto& [entries, code] : bad) expect_error(read_tensor(external(entries), source), code);
  expect_error(read_tensor(external({{"location", "sub/w.bin"}}), {}), Code::model_malformed);
  expect_error(read_tensor(external({{"location", "sub/w.bin"}}, DataType::string), source), Code::model_malformed);
}

std::string sparse(std::vector<int64_t> dims, std::vector<int64_t> index_dims, std::vector<int64_t> indices,
                   std::vector<float> data) {
  Writer values = header(DataType::f32, {static_cast<int64_t>(data.size())});
  values.packed(4, data);
  Writer index = header(DataType::i64, index_dims, "i");
  index.packed(7, indices);
  Writer s;
  s.message(1, values);
  s.message(2, index);
  s.packed(3, dims);
  return s.take();
}

Result<Tensor> read_sparse(const std::string& message) {
  SparseTensorProto proto;
  if (auto status = parse(protobuf::Reader(bytes_of(message)), proto); !status)
    return tl::unexpected(std::move(status).error());
  return to_dense(proto, {});
}

TEST(TensorProto, DensifiesSparseTensors) {
  for (const std::string& message :
       {sparse({2, 3}, {2}, {1, 5}, {7, 8}), sparse({2, 3}, {2, 2}, {0, 1, 1, 2}, {7, 8})}) {
    auto got = read_sparse(message);
    ASSERT_TRUE(got) << got.error().to_string();
    EXPECT_EQ(got->shape(), (Dims{2, 3}));
    EXPECT_EQ(values_of(*got), (std::vector<double>{0, 7, 0, 0, 0, 8}));
  }
  auto none = read_sparse(sparse({2, 2}, {0}, {}, {}));
  ASSERT_TRUE(none);
  EXPECT_EQ(values_of(*none), (std::vector<double>(4, 0)));
}

TEST(TensorProto, RefusesBadSparseTensors) {
  expect_error(read_sparse(sparse({2, 3}, {2}, {5, 1}, {7, 8})), Code::model_malformed);
  expect_error(read_sparse(sparse({2, 3}, {2}, {1, 1}, {7, 8})), Code::model_malformed);
  expect_error(read_sparse(sparse({2, 3}, {2}, {1, 6}, {7, 8})), Code::index_out_of_range);
  expect_error(read_sparse(sparse({2, 3}, {2, 2}, {0, 1, -1, 2}, {7, 8})), Code::index_out_of_range);
  expect_error(read_sparse(sparse({2, 3}, {2, 1}, {0, 1}, {7, 8})), Code::model_malformed);
  expect_error(read_sparse(sparse({2, 3}, {3}, {0, 1, 2}, {7, 8})), Code::model_malformed);
  expect_error(read_sparse(sparse({0, 3}, {1}, {0}, {7})), Code::model_malformed);
  expect_error(read_sparse(sparse({int64_t{1} << 20, int64_t{1} << 20}, {1}, {0}, {7})), Code::out_of_memory);
  expect_error(read_sparse(sparse({-2, 3}, {1}, {0}, {7})), Code::shape_invalid);
}

TEST(TensorProto, WrittenTensorsReadBack) {
  for (int i = 0; i < kPlainTypeCount - 1; ++i) {
    DType type = static_cast<DType>(i);
    Tensor t = *Tensor::make(type, {3, 3});
    for (int j = 0; j < 9; ++j) encode(type, t.mutable_data(), j, j % 2);
    std::string message = serialize(t, "w");
    auto back = read_tensor(message);
    ASSERT_TRUE(back) << back.error().to_string();
    EXPECT_EQ(back->dtype(), type);
    EXPECT_EQ(back->shape(), t.shape());
    EXPECT_EQ(values_of(*back), values_of(t));
  }
  Tensor s = Tensor::of_strings({2}, {"x", "yz"});
  EXPECT_EQ(read_tensor(serialize(s, ""))->strings(), s.strings());
}

TEST(ValueProto, WrittenValuesReadBack) {
  Tensor t = *Tensor::make(DType::i16, {2});
  Sequence sequence{DType::i16, {Value(t), Value(t)}};
  Optional full{std::make_shared<const Value>(sequence)};
  std::string file = serialize(Value(full), "o");
  auto back = parse_value(bytes_of(file), ValueKind::optional, DType::f32, {});
  ASSERT_TRUE(back) << back.error().to_string();
  ASSERT_TRUE(back->optional() && back->optional()->value);
  const Sequence* inner = back->optional()->value->sequence();
  ASSERT_TRUE(inner);
  EXPECT_EQ(inner->element, DType::i16);
  EXPECT_EQ(inner->items.size(), 2u);
  std::string none = serialize(Value(Optional{}), "o");
  EXPECT_EQ(none, std::string("\x0a\x01o\x10\x00", 5));
  auto empty = parse_value(bytes_of(none), ValueKind::optional, DType::f32, {});
  ASSERT_TRUE(empty);
  EXPECT_FALSE(empty->optional()->value);
  std::string list = serialize(Value(Sequence{DType::u8, {}}), "s");
  auto no_items = parse_value(bytes_of(list), ValueKind::sequence, DType::u8, {});
  ASSERT_TRUE(no_items);
  EXPECT_EQ(no_items->sequence()->element, DType::u8);
}

TEST(ValueProto, EmptyInnerSequencesFitAnyOthers) {
  Sequence inner{DType::i16, {Value(*Tensor::make(DType::i16, {2}))}}, none{DType::i16, {}};
  std::string file = serialize(Value(Sequence{DType::i16, {Value(none), Value(inner), Value(none)}}), "");
  auto back = parse_value(bytes_of(file), ValueKind::sequence, DType::i16, {});
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(back->sequence()->element, DType::i16);
  EXPECT_EQ(back->sequence()->items.size(), 3u);
}

TEST(ValueProto, RefusesMixedSequencesMapsAndEmptyPromises) {
  Writer mixed, map, promise, nothing;
  mixed.string(3, serialize(*Tensor::make(DType::i16, {2}), ""));
  mixed.string(3, serialize(*Tensor::make(DType::f32, {2}), ""));
  map.message(6, nothing);
  promise.int64(2, 1);
  auto code = [](const std::string& file, ValueKind kind) {
    return parse_value(bytes_of(file), kind, DType::f32, {}).error().code;
  };
  EXPECT_EQ(code(mixed.result(), ValueKind::sequence), Code::model_malformed);
  EXPECT_EQ(code(map.result(), ValueKind::sequence), Code::unsupported_feature);
  EXPECT_EQ(code(promise.result(), ValueKind::optional), Code::model_malformed);
  std::string deep;
  for (int i = 0; i < 1000; ++i) {
    Writer w;
    w.string(5, deep);
    deep = w.take();
  }
  EXPECT_EQ(code(deep, ValueKind::sequence), Code::file_malformed);
}

}  // namespace
}  // namespace tessera::onnx
