#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/test_folder.h"

namespace tessera::gguf {
namespace {

// Writes a file's bytes field by field, lies included.
struct Raw {
  std::string bytes = "GGUF";
  template <class T>
  Raw& put(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Raw& u32(uint32_t value) { return put(value); }
  Raw& u64(uint64_t value) { return put(value); }
  Raw& text(std::string_view value) {
    u64(value.size());
    bytes += value;
    return *this;
  }
  Raw& head(uint64_t tensors, uint64_t entries, uint32_t version = 3) { return u32(version).u64(tensors).u64(entries); }
  Raw& entry(std::string_view key, ValueType type) { return text(key).u32(static_cast<uint32_t>(type)); }
  Raw& array(std::string_view key, ValueType element, uint64_t count) {
    return entry(key, ValueType::array).u32(static_cast<uint32_t>(element)).u64(count);
  }
  // A tensor of one axis.
  Raw& tensor(std::string_view name, uint64_t size, uint64_t offset, uint32_t type = 0) {
    return text(name).u32(1).u64(size).u32(type).u64(offset);
  }
  Raw& data(size_t size, size_t alignment = 32) {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment + size);
    return *this;
  }
};

Result<File> parse(const std::string& bytes) { return File::parse(std::as_bytes(std::span(bytes))); }

std::string code_of(const Result<File>& file) { return file ? "fine" : code_name(file.error().code); }

TEST(Gguf, ReadsEveryTypeOfMetadata) {
  Raw raw;
  raw.head(0, 14);
  raw.entry("u8", ValueType::u8).put<uint8_t>(200);
  raw.entry("i8", ValueType::i8).put<int8_t>(-3);
  raw.entry("u16", ValueType::u16).put<uint16_t>(60000);
  raw.entry("i16", ValueType::i16).put<int16_t>(-300);
  raw.entry("u32", ValueType::u32).put<uint32_t>(4000000000u);
  raw.entry("i32", ValueType::i32).put<int32_t>(-70000);
  raw.entry("f32", ValueType::f32).put(0.5f);
  raw.entry("bool", ValueType::boolean).put<uint8_t>(1);
  raw.entry("string", ValueType::string).text("héllo");
  raw.entry("u64", ValueType::u64).put(~uint64_t{0});
  raw.entry("i64", ValueType::i64).put(int64_t{-5});
  raw.entry("f64", ValueType::f64).put(0.25);
  raw.array("words", ValueType::string, 2).text("a").text("");
  raw.array("nested", ValueType::array, 2);
  raw.u32(static_cast<uint32_t>(ValueType::i32)).u64(2).put<int32_t>(7).put<int32_t>(8);
  raw.u32(static_cast<uint32_t>(ValueType::string)).u64(1).text("x");
  const auto file = parse(raw.bytes);
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(file->integer("u8").value(), 200);
  EXPECT_EQ(file->integer("i8").value(), -3);
  EXPECT_EQ(file->integer("u16").value(), 60000);
  EXPECT_EQ(file->integer("i16").value(), -300);
  EXPECT_EQ(file->integer("u32").value(), 4000000000);
  EXPECT_EQ(file->integer("i32").value(), -70000);
  EXPECT_EQ(file->real("f32").value(), 0.5);
  EXPECT_EQ(file->real("f64").value(), 0.25);
  EXPECT_EQ(file->real("i32").value(), -70000.0);
  EXPECT_TRUE(file->boolean("bool").value());
  EXPECT_EQ(file->string("string").value(), "héllo");
  EXPECT_EQ(file->integer("i64").value(), -5);
  EXPECT_EQ(file->integers("u8").value(), std::vector<int64_t>{200});
  EXPECT_EQ(file->strings("words").value(), (std::vector<std::string_view>{"a", ""}));
  const auto nested = items(*file->find("nested"));
  ASSERT_TRUE(nested);
  ASSERT_EQ(nested->size(), 2u);
  EXPECT_EQ((*nested)[0].describe(), "array of 2 i32");
  EXPECT_EQ((*nested)[1].describe(), "array of 1 string");

  EXPECT_EQ(file->integer("u64").error().code, Code::value_invalid);
  EXPECT_EQ(file->integer("string").error().code, Code::dtype_mismatch);
  EXPECT_EQ(file->integer("bool").error().code, Code::dtype_mismatch);
  EXPECT_EQ(file->integer("words").error().code, Code::dtype_mismatch);
  EXPECT_EQ(file->integers("words").error().code, Code::dtype_mismatch);
  EXPECT_EQ(file->strings("u8").error().code, Code::dtype_mismatch);
  EXPECT_EQ(file->reals("nested").error().code, Code::dtype_mismatch);
  EXPECT_EQ(file->string("missing").error().code, Code::unknown_name);
  EXPECT_EQ(file->integer("missing", 9).value(), 9);
  EXPECT_EQ(file->integer("string", 9).error().code, Code::dtype_mismatch);
}

TEST(Gguf, RefusesWhatLies) {
  struct Case {
    const char* what;
    Raw raw;
    const char* code;
  };
  const uint64_t huge = ~uint64_t{0};
  Raw not_gguf, deep;
  not_gguf.bytes = "GGML0000000000000000000";
  deep.head(0, 1).array("deep", ValueType::array, 1);
  for (int i = 0; i < 1000; ++i) deep.u32(static_cast<uint32_t>(ValueType::array)).u64(1);
  const Case cases[] = {
      {"empty", Raw{""}, "E0103"},
      {"other magic", not_gguf, "E0104"},
      {"big-endian", Raw().head(0, 0, 0x03000000), "E0104"},
      {"version 1", Raw().head(0, 0, 1), "E0104"},
      {"version 4", Raw().head(0, 0, 4), "E0104"},
      {"nothing in it", Raw().head(0, 0), "fine"},
      {"version 2", Raw().head(0, 0, 2), "fine"},
      {"more entries than bytes", Raw().head(0, huge), "E0103"},
      {"more tensors than bytes", Raw().head(huge, 0), "E0103"},
      {"key longer than the file", Raw().head(0, 1).u64(huge - 7), "E0103"},
      {"unknown type", Raw().head(0, 1).text("k").u32(13).u64(0), "E0104"},
      {"string longer than the file", Raw().head(0, 1).entry("k", ValueType::string).u64(huge), "E0103"},
      {"array whose size wraps", Raw().head(0, 1).array("k", ValueType::u64, huge / 8 + 2).u64(0), "E0103"},
      {"array of strings past the end", Raw().head(0, 1).array("k", ValueType::string, 2).text("a"), "E0103"},
      {"array of unknown type", Raw().head(0, 1).array("k", static_cast<ValueType>(99), 1).u64(0), "E0104"},
      {"arrays nested without end", deep, "E0104"},
      {"key twice",
       Raw().head(0, 2).entry("k", ValueType::u8).put<uint8_t>(1).entry("k", ValueType::u8).put<uint8_t>(1), "E0203"},
      {"alignment 0", Raw().head(0, 1).entry("general.alignment", ValueType::u32).u32(0), "E0104"},
      {"alignment 24", Raw().head(0, 1).entry("general.alignment", ValueType::u32).u32(24), "E0104"},
      {"alignment a string", Raw().head(0, 1).entry("general.alignment", ValueType::string).text("x"), "E0302"},
      {"alignment 64",
       Raw().head(1, 1).entry("general.alignment", ValueType::u32).u32(64).tensor("t", 4, 64).data(80, 64), "fine"},
      {"tensor", Raw().head(1, 0).tensor("t", 4, 0).data(16), "fine"},
      {"tensor of no elements", Raw().head(1, 0).tensor("t", 0, 0).data(0), "fine"},
      {"tensor past the end", Raw().head(1, 0).tensor("t", 4, 0).data(15), "E0103"},
      {"tensor without data", Raw().head(1, 0).tensor("t", 4, 0), "E0103"},
      {"offset past the end", Raw().head(1, 0).tensor("t", 4, 1 << 20).data(16), "E0103"},
      {"offset that wraps", Raw().head(1, 0).tensor("t", 8, huge - 31).data(64), "E0103"},
      {"offset off the alignment", Raw().head(1, 0).tensor("t", 4, 4).data(64), "E0104"},
      {"tensors that overlap", Raw().head(2, 0).tensor("a", 16, 0).tensor("b", 4, 32).data(64), "E0104"},
      {"the same bytes twice", Raw().head(2, 0).tensor("a", 4, 0).tensor("b", 4, 0).data(64), "E0104"},
      {"tensor twice", Raw().head(2, 0).tensor("a", 4, 0).tensor("a", 4, 32).data(64), "E0203"},
      {"size past 2^62", Raw().head(1, 0).tensor("t", huge, 0).data(16), "E0313"},
      {"count that wraps",
       Raw().head(1, 0).text("t").u32(2).u64(uint64_t{1} << 32).u64(uint64_t{1} << 32).u32(0).u64(0).data(16), "E0313"},
      {"bytes that wrap", Raw().head(1, 0).tensor("t", uint64_t{1} << 62, 0, 28).data(16), "E0313"},
      {"many axes", Raw().head(1, 0).text("t").u32(9).data(200), "E0104"},
      {"axes without end", Raw().head(1, 0).text("t").u32(0xffffffff).data(200), "E0104"},
      {"unknown tensor type", Raw().head(1, 0).tensor("t", 32, 0, 4).data(64), "E0104"},
      {"row of half a block", Raw().head(1, 0).tensor("t", 16, 0, 8).data(64), "E0313"},
      {"row of a block", Raw().head(1, 0).tensor("t", 32, 0, 8).data(34), "fine"},
  };
  for (const Case& c : cases) {
    const auto file = parse(c.raw.bytes);
    EXPECT_EQ(code_of(file), c.code) << c.what << (file ? "" : ": " + file.error().to_string());
  }
}

TEST(Gguf, EveryPrefixIsRefused) {
  Raw raw;
  raw.head(1, 2).entry("name", ValueType::string).text("x");
  raw.array("list", ValueType::array, 1).u32(static_cast<uint32_t>(ValueType::u16)).u64(1).put<uint16_t>(1);
  raw.tensor("t", 4, 0).data(16);
  ASSERT_TRUE(parse(raw.bytes));
  for (size_t size = 0; size < raw.bytes.size(); ++size)
    EXPECT_EQ(code_of(parse(raw.bytes.substr(0, size))), "E0103") << size;
}

TEST(Gguf, WritesWhatItReads) {
  TestFolder folder;
  const std::string path = folder / "a.gguf";
  Tensor weights = Tensor::make(DType::f32, {2, 3}).value();
  for (int i = 0; i < 6; ++i) weights.as<float>()[i] = static_cast<float>(i);
  Writer writer;
  writer.set_string("general.architecture", "llama");
  writer.set_u32("llama.block_count", 1);
  writer.set_u32("llama.block_count", 2);
  writer.set_i64("long", -1);
  writer.set_f32("eps", 0.5f);
  writer.set_bool("flag", true);
  writer.set_strings("tokens", std::vector<std::string>{"a", "b\0c", ""});
  writer.set_i32s("types", std::vector<int32_t>{1, -2});
  writer.set_f32s("scores", std::vector<float>{0.5f});
  writer.add("w", GgmlType::F32, {2, 3}, [&] { return Result<Tensor>(weights); });
  writer.add("v", GgmlType::F32, {6}, [&] { return Result<Tensor>(weights.reshaped({6})); });
  ASSERT_TRUE(writer.write(path, 64));
  const auto file = File::open(path);
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->alignment(), 64u);
  EXPECT_EQ(file->string("general.architecture").value(), "llama");
  EXPECT_EQ(file->integer("llama.block_count").value(), 2);
  EXPECT_EQ(file->integers("types").value(), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(file->reals("scores").value(), std::vector<float>{0.5f});
  EXPECT_EQ(file->strings("tokens").value().size(), 3u);
  const TensorInfo* info = file->find_tensor("w");
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->shape, (Dims{2, 3}));
  const auto read = file->tensor(*info);
  ASSERT_TRUE(read);
  EXPECT_EQ(std::memcmp(read->data(), weights.data(), weights.bytes()), 0);

  // Copied entry by entry and tensor by tensor, a file stays what it is.
  Writer again;
  for (const auto& [key, value] : file->metadata()) again.set(key, value);
  for (const TensorInfo& t : file->tensors())
    again.add(std::string(t.name), t.type, t.shape, [&file, &t] { return file->tensor(t); });
  ASSERT_TRUE(again.write(folder / "b.gguf", 64));
  EXPECT_EQ(read_file(path, 1 << 20).value(), read_file(folder / "b.gguf", 1 << 20).value());

  Writer wrong;
  wrong.add("w", GgmlType::F32, {7}, [&] { return Result<Tensor>(weights); });
  EXPECT_EQ(wrong.write(path).error().code, Code::shape_mismatch);
  Writer twice;
  twice.add("w", GgmlType::F32, {6}, [&] { return Result<Tensor>(weights); });
  twice.add("w", GgmlType::F32, {6}, [&] { return Result<Tensor>(weights); });
  EXPECT_EQ(twice.write(path).error().code, Code::duplicate_name);
  EXPECT_TRUE(File::open(path)) << "a failed write left the file as it was";
}

TEST(Gguf, ReadsRealFiles) {
  const std::string folder = "../shared/data/gguf-quants";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const auto file = File::open(entry.path().string());
    ASSERT_TRUE(file) << file.error().to_string();
    EXPECT_EQ(file->string("general.architecture").value(), "llama");
    EXPECT_NE(file->find_tensor("token_embd.weight"), nullptr);
    ++files;
  }
  EXPECT_EQ(files, 15);
}

}  // namespace
}  // namespace tessera::gguf
