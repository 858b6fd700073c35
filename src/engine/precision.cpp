#include "engine/precision.h"

#include <optional>

#include "base/result.h"
#include "formats/json.h"

namespace tessera::engine {
namespace {

constexpr std::string_view kWords = "keep, bf16, f16 or int8-dynamic";

std::optional<passes::Precision> word(std::string_view text) {
  if (text == "keep") return passes::Precision::keep;
  if (text == "bf16") return passes::Precision::bf16;
  if (text == "f16") return passes::Precision::f16;
  if (text == "int8-dynamic") return passes::Precision::int8_dynamic;
  return std::nullopt;
}

Result<passes::PrecisionRule> parse_rule(const Json& json, size_t index) {
  if (json.members() == nullptr) return fail(Code::usage, "precision rule {} is {}, not an object", index, json.kind());
  passes::PrecisionRule rule;
  bool given = false;
  for (const auto& [key, value] : *json.members()) {
    if (value.text() == nullptr)
      return fail(Code::usage, "'{}' of precision rule {} is {}, not a text", key, index, value.kind());
    const std::string& text = *value.text();
    if (key == "kind") {
      rule.kind = text;
    } else if (key == "name") {
      rule.name = text;
    } else if (key == "precision") {
      const std::optional<passes::Precision> precision = word(text);
      if (!precision) return fail(Code::usage, "precision rule {} asks for '{}', not {}", index, text, kWords);
      rule.precision = *precision;
      given = true;
    } else {
      return fail(Code::usage, "precision rule {} has '{}', but only kind, name and precision are known", index, key);
    }
  }
  if (!given) return fail(Code::usage, "precision rule {} does not say which precision", index);
  return rule;
}

}  // namespace

Result<PrecisionPolicy> parse_precision(std::string_view text) {
  PrecisionPolicy policy;
  if (text.empty() || text == "keep") return policy;
  if (text == "strict") {
    policy.strict = true;
    return policy;
  }
  if (const std::optional<passes::Precision> precision = word(text)) {
    policy.rules.push_back({"", "", *precision});
    return policy;
  }
  const Result<Json> json = parse_json(text, "the text");
  if (!json || json->list() == nullptr)
    return fail(Code::usage, "a precision is {}, strict, or a JSON array of rules; this is neither: '{}'", kWords,
                text.substr(0, 40));
  for (size_t i = 0; i < json->list()->size(); ++i) {
    TESSERA_ASSIGN(passes::PrecisionRule rule, parse_rule((*json->list())[i], i));
    policy.rules.push_back(std::move(rule));
  }
  return policy;
}

}  // namespace tessera::engine
