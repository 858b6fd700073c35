#include "import/huggingface/fields.h"

#include <cmath>

namespace tessera::huggingface {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;

std::optional<int64_t> as_integer(const nlohmann::json& value) {
  if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMost)) return std::nullopt;
    return std::abs(number) <= kMost ? std::optional(number) : std::nullopt;
  }
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (number != std::floor(number) || !(std::fabs(number) <= static_cast<double>(kMost))) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

const nlohmann::json* Fields::find(std::string_view key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void Fields::wrong(std::string_view key, std::string_view wanted) {
  fail_with(fail(Code::dtype_mismatch, "the field '{}' of {} is not {}", key, what_, wanted).value());
}

const nlohmann::json* Fields::need(std::string_view key, bool optional) {
  const nlohmann::json* value = find(key);
  if (value == nullptr && !optional) fail_with(fail(Code::unknown_name, "{} has no field '{}'", what_, key).value());
  return value;
}

int64_t Fields::integer(std::string_view key, std::optional<int64_t> otherwise) {
  const nlohmann::json* value = need(key, otherwise.has_value());
  if (value == nullptr) return otherwise.value_or(1);
  const std::optional<int64_t> number = as_integer(*value);
  if (!number) wrong(key, "an integer below 2^40");
  return number.value_or(otherwise.value_or(1));
}

double Fields::real(std::string_view key, std::optional<double> otherwise) {
  const nlohmann::json* value = need(key, otherwise.has_value());
  if (value == nullptr) return otherwise.value_or(1);
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  wrong(key, "a number");
  return otherwise.value_or(1);
}

bool Fields::flag(std::string_view key, bool otherwise) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  wrong(key, "true or false");
  return otherwise;
}

std::string Fields::text(std::string_view key, std::string_view otherwise) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::string(otherwise);
  if (value->is_string()) return value->get<std::string>();
  wrong(key, "a text");
  return std::string(otherwise);
}

std::vector<double> Fields::reals(std::string_view key) {
  std::vector<double> list;
  const nlohmann::json* value = find(key);
  if (value == nullptr) return list;
  for (const nlohmann::json& item : *value)
    if (item.is_number() && std::isfinite(item.get<double>())) list.push_back(item.get<double>());
  if (!value->is_array() || list.size() != value->size()) wrong(key, "a list of numbers");
  return list;
}

std::vector<std::string> Fields::texts(std::string_view key) {
  std::vector<std::string> list;
  const nlohmann::json* value = find(key);
  if (value == nullptr) return list;
  for (const nlohmann::json& item : *value)
    if (item.is_string()) list.push_back(item.get<std::string>());
  if (!value->is_array() || list.size() != value->size()) wrong(key, "a list of texts");
  return list;
}

std::vector<int64_t> Fields::integers(std::string_view key) {
  std::vector<int64_t> list;
  const nlohmann::json* value = find(key);
  if (value == nullptr) return list;
  const nlohmann::json one = nlohmann::json::array({*value});
  const nlohmann::json& items = value->is_array() ? *value : one;
  for (const nlohmann::json& item : items)
    if (const std::optional<int64_t> number = as_integer(item)) list.push_back(*number);
  if (list.size() != items.size()) wrong(key, "a list of integers");
  return list;
}

const nlohmann::json& Fields::object(std::string_view key) {
  static const nlohmann::json none = nlohmann::json::object();
  const nlohmann::json* value = find(key);
  if (value == nullptr) return none;
  if (value->is_object()) return *value;
  wrong(key, "an object");
  return none;
}

}  // namespace tessera::huggingface
