// tokenizer_config.json, special_tokens_map.json and added_tokens.json of Hugging Face folders.
#include <algorithm>

#include "text/json_fields.h"
#include "text/readers.h"

namespace tessera::text {
namespace {

constexpr std::string_view kRoles[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                       "cls_token", "sep_token", "mask_token"};

// "text", or an object with the token's flags.
Result<AddedToken> read_token(const JsonValue& json, std::string_view role) {
  AddedToken token;
  token.special = true;
  if (json.is_string()) {
    TESSERA_ASSIGN(const std::string_view text, as<std::string_view>(json, role, "a string"));
    token.content = text;
    return token;
  }
  TESSERA_ASSIGN(const std::string_view content, string_field(json, "content", ""));
  token.content = content;
  TESSERA_ASSIGN(token.special, bool_field(json, "special", true));
  TESSERA_ASSIGN(token.single_word, bool_field(json, "single_word", false));
  TESSERA_ASSIGN(token.lstrip, bool_field(json, "lstrip", false));
  TESSERA_ASSIGN(token.rstrip, bool_field(json, "rstrip", false));
  TESSERA_ASSIGN(token.normalized, bool_field(json, "normalized", false));
  return token;
}

// A template's text, or a list of {"name", "template"}.
Status read_chat_templates(const JsonValue& json, TokenizerConfig& config) {
  if (json.is_string()) {
    TESSERA_ASSIGN(const std::string_view text, as<std::string_view>(json, "chat_template", "a string"));
    config.chat_templates.push_back({"default", std::string(text)});
    return {};
  }
  TESSERA_ASSIGN(const auto list, as<simdjson::dom::array>(json, "chat_template", "a string or an array"));
  for (const JsonValue item : list) {
    TESSERA_ASSIGN(const std::string_view name, string_field(item, "name", "default"));
    TESSERA_ASSIGN(const std::string_view text, string_field(item, "template", ""));
    config.chat_templates.push_back({std::string(name), std::string(text)});
  }
  return {};
}

Status read_optional_bool(const JsonValue& json, std::string_view key, std::optional<bool>& out) {
  if (const auto value = field(json, key); value && value->is_bool()) {
    TESSERA_ASSIGN(out, as<bool>(*value, key, "a boolean"));
  }
  return {};
}

// {"32000": {"content": ...}} or {"text": 32000}.
Status read_added(const JsonValue& json, TokenizerConfig& config) {
  TESSERA_ASSIGN(const auto object, as<simdjson::dom::object>(json, "added_tokens", "an object"));
  for (const auto [key, value] : object) {
    AddedToken token;
    uint64_t id = 0;
    if (value.is_object()) {
      TESSERA_ASSIGN(token, read_token(value, key));
      TESSERA_ASSIGN(token.special, bool_field(value, "special", false));
      for (char c : key)
        id = c >= '0' && c <= '9' && id < Vocabulary::kMaxIds ? id * 10 + uint64_t(c - '0') : UINT64_MAX / 16;
    } else {
      token.content = key;
      TESSERA_ASSIGN(id, as<uint64_t>(value, key, "a number from 0"));
    }
    if (id >= Vocabulary::kMaxIds)
      return fail(Code::tokenizer_invalid, "the added token '{}' has the id '{}'", token.content, key);
    token.id = static_cast<uint32_t>(id);
    config.added.push_back(std::move(token));
  }
  return {};
}

}  // namespace

const AddedToken* TokenizerConfig::find(std::string_view role) const {
  for (const Named& named : special)
    if (named.role == role) return &named.token;
  return nullptr;
}

Status read_tokenizer_config(std::string_view text, TokenizerConfig& config) {
  simdjson::dom::parser parser;
  TESSERA_ASSIGN(const JsonValue json, parse_json_text(parser, text, "the tokenizer's configuration"));
  for (std::string_view role : kRoles) {
    const auto value = field(json, role);
    if (!value || (!value->is_string() && !value->is_object()) || config.find(role) != nullptr) continue;
    TESSERA_ASSIGN(AddedToken token, read_token(*value, role));
    if (!token.content.empty()) config.special.push_back({std::string(role), std::move(token)});
  }
  if (const auto value = field(json, "chat_template")) TESSERA_TRY(read_chat_templates(*value, config));
  if (const auto value = field(json, "added_tokens_decoder")) TESSERA_TRY(read_added(*value, config));
  if (const auto value = field(json, "tokenizer_class"); value && value->is_string()) {
    TESSERA_ASSIGN(const std::string_view name, string_field(json, "tokenizer_class", ""));
    config.tokenizer_class = name;
  }
  if (const auto value = field(json, "src_lang"); value && value->is_string()) {
    TESSERA_ASSIGN(const std::string_view language, string_field(json, "src_lang", ""));
    config.source_language = language;
  }
  TESSERA_TRY(read_optional_bool(json, "add_bos_token", config.add_bos));
  TESSERA_TRY(read_optional_bool(json, "add_eos_token", config.add_eos));
  TESSERA_TRY(read_optional_bool(json, "do_lower_case", config.lowercase));
  TESSERA_TRY(read_optional_bool(json, "add_prefix_space", config.add_prefix_space));
  TESSERA_TRY(read_optional_bool(json, "strip_accents", config.strip_accents));
  TESSERA_TRY(read_optional_bool(json, "tokenize_chinese_chars", config.chinese_characters));
  return {};
}

Status read_added_tokens_file(std::string_view text, TokenizerConfig& config) {
  simdjson::dom::parser parser;
  TESSERA_ASSIGN(const JsonValue json, parse_json_text(parser, text, "added_tokens.json"));
  return read_added(json, config);
}

void name_special_tokens(const TokenizerConfig& config, TokenizerState& state) {
  const auto id = [&](std::string_view role, std::optional<TokenId>& out) {
    const AddedToken* token = config.find(role);
    if (token == nullptr || out) return;
    const uint32_t found = state.engine->find(token->content);
    if (found != Vocabulary::kNone) out = static_cast<TokenId>(found);
  };
  SpecialTokens& special = state.special;
  id("bos_token", special.bos);
  id("eos_token", special.eos);
  id("unk_token", special.unk);
  id("pad_token", special.pad);
  id("cls_token", special.cls);
  id("sep_token", special.sep);
  id("mask_token", special.mask);
  if (!special.unk && state.engine->unknown()) special.unk = static_cast<TokenId>(*state.engine->unknown());
}

}  // namespace tessera::text
