#include "formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/result.h"
#include "base/strings.h"
#include "formats/json.h"

namespace tessera {
namespace {

// What the format's own reader allows: larger headers are an attack on memory.
constexpr uint64_t kMaxHeader = 100'000'000;
constexpr size_t kMaxRank = 16;

std::optional<DType> dtype_of(std::string_view text) {
  constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"F64", DType::f64},          {"F32", DType::f32},        {"F16", DType::f16},        {"BF16", DType::bf16},
      {"F8_E4M3", DType::f8e4m3fn}, {"F8_E5M2", DType::f8e5m2}, {"F8_E8M0", DType::f8e8m0}, {"I64", DType::i64},
      {"I32", DType::i32},          {"I16", DType::i16},        {"I8", DType::i8},          {"U64", DType::u64},
      {"U32", DType::u32},          {"U16", DType::u16},        {"U8", DType::u8},          {"BOOL", DType::boolean}};
  for (const auto& [name, type] : kTypes)
    if (name == text) return type;
  return std::nullopt;
}

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> range;
};

// Takes the header event by event, so that nothing is kept that the format does not have.
class Header final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> entries;
  std::string problem;

  bool null() override { return wrong("null"); }
  bool boolean(bool) override { return wrong("a boolean"); }
  bool number_integer(number_integer_t) override { return wrong("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return wrong("a fraction"); }
  bool binary(binary_t&) override { return wrong("binary data"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ == nullptr) return wrong("a number");
    if (list_->size() == kMaxRank) return wrong("a list of more than 16 numbers");
    list_->push_back(value);
    return true;
  }
  bool string(string_t& text) override {
    if (depth_ == 2 && metadata_) return true;
    if (depth_ != 2 || list_ != nullptr || field_ != "dtype") return wrong("a string");
    entries.back().dtype = text;
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ >= 2 || list_ != nullptr) return wrong("an object");
    ++depth_;
    return true;
  }
  bool key(string_t& text) override {
    if (depth_ == 1) {
      metadata_ = text == "__metadata__";
      if (!metadata_) entries.push_back({text, {}, {}, {}});
      return true;
    }
    field_ = text;
    return metadata_ || text == "dtype" || text == "shape" || text == "data_offsets" || wrong("'" + text + "'");
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || metadata_ || list_ != nullptr) return wrong("a list");
    if (field_ == "dtype") return wrong("a list");
    list_ = field_ == "shape" ? &entries.back().shape : &entries.back().range;
    if (!list_->empty()) return wrong("the same field twice");
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    problem = fmt::format("the header is no JSON from byte {} on", position);
    return false;
  }

 private:
  bool wrong(std::string_view what) {
    problem = entries.empty()
                  ? fmt::format("the header holds {} where it may not", what)
                  : fmt::format("the header's entry '{}' holds {} where it may not", entries.back().name, what);
    return false;
  }

  int depth_ = 0;
  bool metadata_ = false;
  std::string field_;
  std::vector<uint64_t>* list_ = nullptr;  // being filled
};

Result<Tensor> tensor_of(const Entry& entry, std::span<const std::byte> data, const std::shared_ptr<const void>& keep) {
  const std::optional<DType> type = dtype_of(entry.dtype);
  if (!type) return fail(Code::unsupported_feature, "tensor '{}' is of type '{}'", entry.name, entry.dtype);
  if (entry.range.size() != 2)
    return fail(Code::file_malformed, "tensor '{}' has {} data_offsets, not 2", entry.name, entry.range.size());
  const uint64_t begin = entry.range[0], end = entry.range[1];
  if (begin > end) return fail(Code::file_malformed, "tensor '{}' begins at {} and ends at {}", entry.name, begin, end);
  if (end > data.size())
    return fail(Code::file_truncated, "tensor '{}' ends at byte {} of {} bytes of data", entry.name, end, data.size());
  Dims shape;
  for (uint64_t size : entry.shape) {
    if (size > uint64_t{INT64_MAX}) return fail(Code::shape_invalid, "tensor '{}' has a size of {}", entry.name, size);
    shape.push_back(static_cast<int64_t>(size));
  }
  const Result<int64_t> count = element_count(shape);
  if (!count || *count > (int64_t{1} << 58))
    return fail(Code::shape_invalid, "tensor '{}' has more elements than any file", entry.name);
  if (storage_bytes(*type, *count) != end - begin)
    return fail(Code::file_malformed, "tensor '{}' takes {} bytes, but {}[{}] takes {}", entry.name, end - begin,
                entry.dtype, joined(shape, ", "), storage_bytes(*type, *count));
  return Tensor::borrow(*type, std::move(shape), data.data() + begin, keep);
}

Status check_overlaps(std::vector<Entry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.range < b.range; });
  for (size_t i = 1; i < entries.size(); ++i)
    if (entries[i].range[0] < entries[i - 1].range[1] && entries[i].range[0] < entries[i].range[1])
      return fail(Code::file_malformed, "tensor '{}' begins at {}, inside of tensor '{}', which ends at {}",
                  entries[i].name, entries[i].range[0], entries[i - 1].name, entries[i - 1].range[1]);
  return {};
}

// A file of the folder itself. A hub's cache keeps its files elsewhere and links to them.
Result<std::shared_ptr<const MappedFile>> open_part(const std::string& folder, const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    return fail(Code::path_escapes, "the index names the file '{}', which is no name in its folder", name);
  return MappedFile::open(folder + "/" + name);
}

Status add_file(const std::string& folder, const std::string& name, SafetensorsFolder& all) {
  TESSERA_ASSIGN(std::shared_ptr<const MappedFile> file, open_part(folder, name));
  Result<std::map<std::string, Tensor>> tensors = parse_safetensors(file->bytes(), file);
  if (!tensors) return tl::unexpected<Error>(std::move(tensors.error()).within("reading '" + file->path() + "'"));
  for (auto& [key, tensor] : *tensors)
    if (!all.tensors.emplace(key, std::move(tensor)).second)
      return fail(Code::duplicate_name, "tensor '{}' is in '{}' and in another file of the model", key, name);
  all.files.push_back(std::move(file));
  return {};
}

}  // namespace

Result<std::map<std::string, Tensor>> parse_safetensors(std::span<const std::byte> bytes,
                                                        std::shared_ptr<const void> keep) {
  if (bytes.size() < 8)
    return fail(Code::file_truncated, "the file has {} bytes, less than its first field", bytes.size());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  if (length > bytes.size() - 8)
    return fail(Code::file_truncated, "the header is said to take {} bytes, but {} follow", length, bytes.size() - 8);
  if (length > kMaxHeader)
    return fail(Code::file_malformed, "the header takes {} bytes, more than {}", length, kMaxHeader);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<size_t>(length));
  Header header;
  if (!nlohmann::json::sax_parse(text, &header))
    return fail(Code::file_malformed, "{}", header.problem.empty() ? "the header is no JSON object" : header.problem);
  const std::span<const std::byte> data = bytes.subspan(8 + static_cast<size_t>(length));
  std::map<std::string, Tensor> tensors;
  for (const Entry& entry : header.entries) {
    TESSERA_ASSIGN(Tensor tensor, tensor_of(entry, data, keep));
    if (!tensors.emplace(entry.name, std::move(tensor)).second)
      return fail(Code::file_malformed, "two tensors are named '{}'", entry.name);
  }
  TESSERA_TRY(check_overlaps(header.entries));
  return tensors;
}

Result<SafetensorsFolder> open_safetensors(const std::string& folder) {
  constexpr size_t kMaxIndex = size_t{64} << 20;
  SafetensorsFolder all;
  Result<std::string> text = read_file(folder + "/model.safetensors.index.json", kMaxIndex);
  if (!text) {
    if (text.error().code != Code::file_not_found) return tl::unexpected<Error>(std::move(text.error()));
    TESSERA_TRY(add_file(folder, "model.safetensors", all));
    return all;
  }
  TESSERA_ASSIGN(const Json index, parse_json(*text, "model.safetensors.index.json"));
  const Json* map = index.find("weight_map");
  if (map == nullptr || map->members() == nullptr)
    return fail(Code::file_malformed, "model.safetensors.index.json has no object 'weight_map'");
  std::vector<std::string> files;
  for (const auto& [name, file] : *map->members()) {
    if (file.text() == nullptr)
      return fail(Code::file_malformed, "model.safetensors.index.json names no file for tensor '{}'", name);
    files.push_back(*file.text());
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  for (const std::string& file : files) TESSERA_TRY(add_file(folder, file, all));
  for (const auto& [name, file] : *map->members())
    if (!all.tensors.contains(name))
      return fail(Code::unknown_name, "tensor '{}' is not in '{}', where the index says it is", name, *file.text());
  return all;
}

}  // namespace tessera
