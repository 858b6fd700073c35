#include "import/huggingface/fields.h"

#include <cmath>
#include <span>

namespace tessera::huggingface {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;

std::optional<int64_t> as_integer(const Json& value) {
  const std::optional<double> number = value.number();
  if (!number || *number != std::floor(*number) || !(std::fabs(*number) <= static_cast<double>(kMost)))
    return std::nullopt;
  return static_cast<int64_t>(*number);
}

}  // namespace

const Json* Fields::find(std::string_view key) const {
  const Json* found = object_.find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

void Fields::wrong(std::string_view key, std::string_view wanted) {
  fail_with(fail(Code::dtype_mismatch, "the field '{}' of {} is not {}", key, what_, wanted).value());
}

const Json* Fields::need(std::string_view key, bool optional) {
  const Json* value = find(key);
  if (value == nullptr && !optional) fail_with(fail(Code::unknown_name, "{} has no field '{}'", what_, key).value());
  return value;
}

int64_t Fields::integer(std::string_view key, std::optional<int64_t> otherwise) {
  const Json* value = need(key, otherwise.has_value());
  if (value == nullptr) return otherwise.value_or(1);
  const std::optional<int64_t> number = as_integer(*value);
  if (!number) wrong(key, "an integer below 2^40");
  return number.value_or(otherwise.value_or(1));
}

double Fields::real(std::string_view key, std::optional<double> otherwise) {
  const Json* value = need(key, otherwise.has_value());
  if (value == nullptr) return otherwise.value_or(1);
  if (const std::optional<double> number = value->number(); number && std::isfinite(*number)) return *number;
  wrong(key, "a number");
  return otherwise.value_or(1);
}

bool Fields::flag(std::string_view key, bool otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->truth() != nullptr) return *value->truth();
  wrong(key, "true or false");
  return otherwise;
}

std::string Fields::text(std::string_view key, std::string_view otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return std::string(otherwise);
  if (value->text() != nullptr) return *value->text();
  wrong(key, "a text");
  return std::string(otherwise);
}

std::vector<double> Fields::reals(std::string_view key) {
  std::vector<double> list;
  const Json* value = find(key);
  if (value == nullptr) return list;
  if (value->list() == nullptr) return wrong(key, "a list of numbers"), list;
  for (const Json& item : *value->list())
    if (const std::optional<double> number = item.number(); number && std::isfinite(*number)) list.push_back(*number);
  if (list.size() != value->list()->size()) wrong(key, "a list of numbers");
  return list;
}

std::vector<std::string> Fields::texts(std::string_view key) {
  std::vector<std::string> list;
  const Json* value = find(key);
  if (value == nullptr) return list;
  if (value->list() == nullptr) return wrong(key, "a list of texts"), list;
  for (const Json& item : *value->list())
    if (item.text() != nullptr) list.push_back(*item.text());
  if (list.size() != value->list()->size()) wrong(key, "a list of texts");
  return list;
}

std::vector<int64_t> Fields::integers(std::string_view key) {
  std::vector<int64_t> list;
  const Json* value = find(key);
  if (value == nullptr) return list;
  const std::span<const Json> items =
      value->list() != nullptr ? std::span<const Json>(*value->list()) : std::span(value, 1);
  for (const Json& item : items)
    if (const std::optional<int64_t> number = as_integer(item)) list.push_back(*number);
  if (list.size() != items.size()) wrong(key, "a list of integers");
  return list;
}

const Json& Fields::object(std::string_view key) {
  static const Json none = Json::object();
  const Json* value = find(key);
  if (value == nullptr) return none;
  if (value->members() != nullptr) return *value;
  wrong(key, "an object");
  return none;
}

}  // namespace tessera::huggingface
