#include "engine/options.h"

#include <algorithm>
#include <charconv>

#include "base/result.h"
#include "formats/json.h"

namespace tessera::engine {
namespace {

Result<int64_t> parse_size(std::string_view text, std::string_view whole) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    return fail(Code::usage, "--dim {}: '{}' is not a size", whole, text);
  return value;
}

// Reads one entry of the file into the options.
class Reader {
 public:
  explicit Reader(OptionsFile& file) : file_(file) {}

  Status read(const std::string& key, const Json& value) {
    tessera::CompileOptions& o = file_.compile;
    if (key == "optimisation") return integer(key, value, 0, 3, o.optimisation);
    if (key == "strict") return boolean(key, value, o.strict);
    if (key == "approximate") return boolean(key, value, o.approximate);
    if (key == "exact_activations") return boolean(key, value, o.exact_activations);
    if (key == "reuse_memory") return boolean(key, value, o.reuse_memory);
    if (key == "stop_after") return integer(key, value, int64_t{0}, INT64_MAX, o.stop_after);
    if (key == "fold_elements") return integer(key, value, int64_t{0}, INT64_MAX, o.fold_elements);
    if (key == "disable") return names(key, value, o.disable);
    if (key == "passes") return names(key, value, o.passes);
    if (key == "precision") {
      if (value.list() != nullptr) return o.precision = value.dump(), Status();
      return text(key, value, o.precision);
    }
    if (key == "rules") return text(key, value, file_.rule_files.emplace_back());
    if (key == "dims") return dims(value);
    return fail(Code::usage,
                "the options have no '{}'; there are approximate, dims, disable, exact_activations, fold_elements, "
                "optimisation, passes, precision, reuse_memory, rules, stop_after, strict",
                key);
  }

 private:
  static Status wrong(std::string_view key, const Json& value, std::string_view wanted) {
    return fail(Code::usage, "the option '{}' is {}, not {}", key, value.dump(), wanted);
  }
  template <class T>
  static Status integer(std::string_view key, const Json& value, T least, T most, T& to) {
    const int64_t* number = value.integer();
    if (number == nullptr || *number < least || *number > most)
      return wrong(key, value, fmt::format("a whole number from {} to {}", least, most));
    to = static_cast<T>(*number);
    return {};
  }
  static Status boolean(std::string_view key, const Json& value, bool& to) {
    if (value.truth() == nullptr) return wrong(key, value, "true or false");
    to = *value.truth();
    return {};
  }
  static Status text(std::string_view key, const Json& value, std::string& to) {
    if (value.text() == nullptr) return wrong(key, value, "a text");
    to = *value.text();
    return {};
  }
  static Status names(std::string_view key, const Json& value, std::vector<std::string>& to) {
    if (value.list() == nullptr) return wrong(key, value, "a list of names");
    for (const Json& name : *value.list()) TESSERA_TRY(text(key, name, to.emplace_back()));
    return {};
  }
  Status dims(const Json& value) {
    if (value.members() == nullptr) return wrong("dims", value, "an object of sizes by name");
    for (const auto& [name, size] : *value.members()) {
      std::string range = size.text() != nullptr ? *size.text() : size.dump();
      if (size.list() != nullptr) {
        range = "bucket:";
        for (const Json& one : *size.list()) range += (range.back() == ':' ? "" : ",") + one.dump();
      }
      TESSERA_ASSIGN(DimRange dim, parse_dim(name + "=" + range));
      file_.dims.push_back(std::move(dim));
    }
    return {};
  }

  OptionsFile& file_;
};

}  // namespace

Result<DimRange> parse_dim(std::string_view text) {
  constexpr std::string_view kBucket = "bucket:";
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0)
    return fail(Code::usage, "--dim {}: expected NAME=N, NAME=LO..HI or NAME=bucket:N,N,...", text);
  std::string_view range = text.substr(equals + 1);
  DimRange dim{std::string(text.substr(0, equals)), 0, 0};
  if (range.starts_with(kBucket)) {
    for (range.remove_prefix(kBucket.size());;) {
      const size_t comma = range.find(',');
      TESSERA_ASSIGN(const int64_t size, parse_size(range.substr(0, comma), text));
      dim.sizes.push_back(size);
      if (comma == std::string_view::npos) break;
      range.remove_prefix(comma + 1);
    }
    std::sort(dim.sizes.begin(), dim.sizes.end());
    dim.sizes.erase(std::unique(dim.sizes.begin(), dim.sizes.end()), dim.sizes.end());
    dim.lo = dim.sizes.front();
    dim.hi = dim.sizes.back();
    return dim;
  }
  const size_t dots = range.find("..");
  TESSERA_ASSIGN(dim.lo, parse_size(range.substr(0, dots), text));
  dim.hi = dim.lo;
  if (dots != std::string_view::npos) {
    TESSERA_ASSIGN(dim.hi, parse_size(range.substr(dots + 2), text));
  }
  if (dim.lo > dim.hi) return fail(Code::usage, "--dim {}: {} is greater than {}", text, dim.lo, dim.hi);
  return dim;
}

Result<OptionsFile> parse_options(std::string_view text) {
  const Result<Json> json = parse_json(text, "the text");
  if (!json) return fail(Code::usage, "the options are no JSON: {}", json.error().message);
  if (json->members() == nullptr) return fail(Code::usage, "the options are {}, not an object", json->kind());
  OptionsFile file;
  Reader reader(file);
  for (const auto& [key, value] : *json->members()) TESSERA_TRY(reader.read(key, value));
  return file;
}

std::string text_of(const tessera::CompileOptions& o) {
  // A field that is missing here would give plans to options that they were not made for.
  const auto& [optimisation, strict, exact_activations, approximate, rules, precision, disable, stop_after, passes,
               fold_elements, reuse_memory] = o;
  return Json::array({optimisation, strict, exact_activations, approximate, rules, precision, disable, stop_after,
                      passes, fold_elements, reuse_memory})
      .dump();
}

std::string text_of(const DimRange& dim) { return Json::array({dim.name, dim.lo, dim.hi, dim.sizes}).dump(); }

}  // namespace tessera::engine
