#include "cli/input_spec.h"

#include <algorithm>
#include <charconv>

#include "base/result.h"
#include "base/strings.h"
#include "engine/random_inputs.h"
#include "engine/values.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kRandom = "random";

Result<Dims> parse_shape(std::string_view text, const std::string& spec) {
  Dims shape;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(",x"), text.size());
    int64_t size = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + end, size);
    if (error != std::errc() || stop != text.data() + end || size < 0)
      return fail(Code::usage, "--input {}: '{}' is not a size", spec, text.substr(0, end));
    shape.push_back(size);
    if (end + 1 == text.size()) return fail(Code::usage, "--input {}: a size is missing at the end", spec);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return shape;
}

Result<const ValueInfo*> find(const std::vector<ValueInfo>& inputs, std::string_view name) {
  for (const ValueInfo& info : inputs)
    if (info.name == name) return &info;
  std::vector<std::string> names;
  std::string all;
  for (const ValueInfo& info : inputs) {
    names.push_back(info.name);
    all += (all.empty() ? "'" : ", '") + info.name + "'";
  }
  Error error{Code::input_unknown, "the model has no input '" + std::string(name) + "'; it takes " + all};
  error.hint = did_you_mean(name, names);
  return tl::unexpected<Error>(std::move(error));
}

Result<Value> read_source(const std::string& source, const ValueInfo& info, const std::string& spec, uint64_t seed) {
  if (source == kRandom) return engine::random_input(info, seed);
  if (!source.starts_with("random:")) return engine::read_value(source, info);
  TESSERA_ASSIGN(const Dims shape, parse_shape(std::string_view(source).substr(kRandom.size() + 1), spec));
  return engine::random_input(info, seed, &shape);
}

}  // namespace

Result<std::vector<NamedValue>> read_inputs(const std::vector<ValueInfo>& inputs, std::span<const std::string> specs,
                                            uint64_t seed) {
  std::vector<NamedValue> values;
  for (const std::string& spec : specs) {
    // Names of inputs may hold '=': the longest one that the model has wins.
    size_t equals = spec.find('=');
    if (equals == std::string::npos || equals + 1 == spec.size())
      return fail(Code::usage, "--input {}: expected NAME=FILE.npy, NAME=FILE.pb, NAME=random or NAME=random:SHAPE",
                  spec);
    for (const ValueInfo& info : inputs)
      if (info.name.size() > equals && spec.starts_with(info.name + "=")) equals = info.name.size();
    TESSERA_ASSIGN(const ValueInfo* info, find(inputs, std::string_view(spec).substr(0, equals)));
    TESSERA_ASSIGN(Value value, read_source(spec.substr(equals + 1), *info, spec, seed));
    values.push_back({info->name, std::move(value)});
  }
  return values;
}

Status add_random_inputs(const std::vector<ValueInfo>& inputs, uint64_t seed, std::vector<NamedValue>& given) {
  for (const ValueInfo& info : inputs) {
    const bool has = std::any_of(given.begin(), given.end(), [&](const NamedValue& v) { return v.name == info.name; });
    if (has || info.kind == ValueInfo::Kind::optional) continue;
    TESSERA_ASSIGN(Value value, engine::random_input(info, seed));
    given.push_back({info.name, std::move(value)});
  }
  return {};
}

}  // namespace tessera::cli
