// Texts to tokens and back.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "base/file.h"
#include "base/result.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/language.h"
#include "text/tokenizer.h"

namespace tessera::cli {
namespace {

constexpr size_t kMaxText = size_t{1} << 30;  // bytes

// Ids between commas or spaces.
Result<std::vector<text::TokenId>> parse_token_ids(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }, ',');
  const auto twice = [](char a, char b) { return a == ',' && b == ','; };
  text.erase(std::unique(text.begin(), text.end(), twice), text.end());
  if (text.starts_with(',')) text.erase(0, 1);
  if (text.ends_with(',')) text.pop_back();
  if (text.empty()) return std::vector<text::TokenId>();
  TESSERA_ASSIGN(const std::vector<int64_t> ids, parse_ids(text));
  for (int64_t id : ids)
    if (id < 0 || id > INT32_MAX) return fail(Code::usage, "{} is no token id", id);
  return std::vector<text::TokenId>(ids.begin(), ids.end());
}

Status decode(const text::Tokenizer& tokenizer, const std::string& text, const Arguments& arguments) {
  TESSERA_ASSIGN(const std::vector<text::TokenId> ids, parse_token_ids(text));
  for (text::TokenId id : ids)
    if (static_cast<size_t>(id) >= tokenizer.size())
      return fail(Code::value_invalid, "token {} is not one of the tokenizer's {}", id, tokenizer.size());
  const std::string decoded = tokenizer.decode(ids, {.skip_special = arguments.language.no_special});
  if (arguments.json)
    print_json({{"text", decoded}, {"ids", ids}});
  else
    say("{}\n", decoded);
  return {};
}

Status encode(const text::Tokenizer& tokenizer, const std::string& text, const Arguments& arguments) {
  const LanguageArguments& l = arguments.language;
  TESSERA_ASSIGN(const text::Encoding encoding, tokenizer.encode(text, {.frame = !l.no_special, .offsets = l.offsets}));
  if (arguments.json) {
    Json pieces = Json::array(), offsets = Json::array();
    for (text::TokenId id : encoding.ids) pieces.push_back(std::string(tokenizer.token(id)));
    for (const text::Span& span : encoding.offsets) offsets.push_back(std::vector<uint32_t>{span.begin, span.end});
    Json object{{"ids", encoding.ids}, {"pieces", std::move(pieces)}};
    if (l.offsets) object["offsets"] = std::move(offsets);
    print_json(object);
  } else if (l.offsets) {
    for (size_t i = 0; i < encoding.ids.size(); ++i)
      say("{}\t{}..{}\t{}\n", encoding.ids[i], encoding.offsets[i].begin, encoding.offsets[i].end,
          tokenizer.token(encoding.ids[i]));
  } else {
    say("{}\n", joined(encoding.ids, ","));
  }
  return {};
}

}  // namespace

Result<int> tokenize(const Arguments& arguments) {
  const LanguageArguments& l = arguments.language;
  if (!l.prompts.empty() && !l.file.empty()) return fail(Code::usage, "TEXT and --file exclude each other");
  TESSERA_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(arguments.subject));
  const auto tell = [&](const std::string& text) {
    return l.decode ? decode(tokenizer, text, arguments) : encode(tokenizer, text, arguments);
  };
  if (!l.file.empty()) {
    TESSERA_ASSIGN(const std::string text, read_file(l.file, kMaxText));
    TESSERA_TRY(tell(text));
  } else if (!l.prompts.empty()) {
    TESSERA_TRY(tell(l.prompts[0]));
  } else {
    for (std::string line; !stop_requested && std::getline(std::cin, line);) TESSERA_TRY(tell(line));
  }
  return 0;
}

}  // namespace tessera::cli
