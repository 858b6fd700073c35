#include "text/gguf_vocabulary.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "base/file.h"
#include "formats/gguf.h"
#include "text/json_fields.h"
#include "text/model.h"
#include "text/pre_kinds.h"
#include "text/scanners.h"
#include "text/sentencepiece.h"

namespace tessera::text {
namespace {

constexpr size_t kMaxVocabularyFile = size_t{1} << 30;
constexpr std::string_view kPre = "tokenizer.ggml.pre";

struct Listed {
  std::vector<std::string> tokens, merges;
  std::vector<float> scores;
  std::vector<int32_t> types;
  std::vector<std::string> expressions;  // that cut texts, as far as they are told by expressions
  bool bytes = false;                    // tokens are spelled in letters for bytes: the model "gpt2"
  bool space_prefix = false, remove_extra_whitespaces = false;

  explicit Listed(size_t rows) : tokens(rows), scores(rows), types(rows, static_cast<int32_t>(PieceType::unused)) {}
  Status put(uint64_t id, std::string_view token, PieceType type, float score = 0) {
    if (id >= tokens.size())
      return fail(Code::tokenizer_invalid, "token {} is past the model's {} rows", id, tokens.size());
    tokens[id] = token;
    types[id] = static_cast<int32_t>(type);
    scores[id] = score;
    return {};
  }
};

bool holds_type(const JsonValue& json, std::string_view key, std::string_view type) {
  const auto part = field(json, key);
  return part && simdjson::minify(*part).find(fmt::format("\"type\":\"{}\"", type)) != std::string::npos;
}

void list_expressions(const JsonValue& part, int depth, std::vector<std::string>& out) {
  constexpr int deepest = 8;
  if (const auto parts = field(part, "pretokenizers"); parts && depth < deepest)
    if (const auto list = as<simdjson::dom::array>(*parts, "pretokenizers", "an array"); list)
      for (const JsonValue inner : *list) list_expressions(inner, depth + 1, out);
  const auto kind = string_field(part, "type", "");
  const auto pattern = field(part, "pattern");
  if (kind == "Split" && pattern)
    if (const auto regex = string_field(*pattern, "Regex", ""); regex && !regex->empty()) out.emplace_back(*regex);
  if (kind == "Digits") out.emplace_back(R"(\p{N})");
  if (kind == "ByteLevel" && bool_field(part, "use_regex", true) == true) out.emplace_back(kGpt2Expression);
}

Status list_json(std::string_view text, Listed& out) {
  simdjson::dom::parser parser;
  TESSERA_ASSIGN(const JsonValue json, parse_json_text(parser, text, "the tokenizer"));
  const auto model = field(json, "model");
  const auto vocab = model ? field(*model, "vocab") : std::nullopt;
  if (!vocab) return fail(Code::file_malformed, "the tokenizer has no vocabulary");
  TESSERA_ASSIGN(const std::string_view kind, string_field(*model, "type", "BPE"));
  if (kind != "BPE") return fail(Code::unsupported_feature, "tokenizers of the type {} are not written as GGUF", kind);
  out.bytes = holds_type(json, "pre_tokenizer", "ByteLevel") || holds_type(json, "decoder", "ByteLevel");
  if (const auto part = field(json, "pre_tokenizer")) list_expressions(*part, 0, out.expressions);
  out.space_prefix = holds_type(json, "normalizer", "Prepend") || holds_type(json, "pre_tokenizer", "Metaspace");
  TESSERA_ASSIGN(const std::string_view unknown, string_field(*model, "unk_token", ""));
  TESSERA_ASSIGN(const auto object, as<simdjson::dom::object>(*vocab, "vocab", "an object"));
  for (const auto [token, id] : object) {
    TESSERA_ASSIGN(const uint64_t number, as<uint64_t>(id, token, "a number from 0"));
    const bool is_byte = !out.bytes && parse_byte_token(token) >= 0;
    TESSERA_TRY(out.put(number, token,
                        is_byte                                ? PieceType::byte
                        : !unknown.empty() && token == unknown ? PieceType::unknown
                                                               : PieceType::normal));
  }
  TESSERA_ASSIGN(const auto merges, array_field(*model, "merges", "the model"));
  std::unordered_map<std::string, float> ranks;  // of what merges make
  for (const JsonValue merge : merges) {
    std::string_view whole, left, right;
    if (merge.get(whole) == simdjson::SUCCESS) {
      const size_t space = std::min(whole.find(' ', 1), whole.size());
      left = whole.substr(0, space);
      right = whole.substr(std::min(space + 1, whole.size()));
    } else if (merge.at(0).get(left) != simdjson::SUCCESS || merge.at(1).get(right) != simdjson::SUCCESS) {
      return fail(Code::file_malformed, "merge {} is no pair of tokens", ranks.size());
    }
    const auto rank = static_cast<float>(out.bytes ? 0 : ranks.size());
    if (out.bytes)
      out.merges.push_back(std::string(left) + " " + std::string(right));
    else
      ranks.try_emplace(std::string(left) + std::string(right), -rank);
  }
  for (size_t id = 0; id < out.tokens.size(); ++id)
    if (const auto found = ranks.find(out.tokens[id]); found != ranks.end()) out.scores[id] = found->second;
  if (const auto added = field(json, "added_tokens")) {
    TESSERA_ASSIGN(const auto list, as<simdjson::dom::array>(*added, "added_tokens", "an array"));
    for (const JsonValue token : list) {
      TESSERA_ASSIGN(const uint32_t id, uint_field(token, "id", 0));
      TESSERA_ASSIGN(const std::string_view content, string_field(token, "content", ""));
      TESSERA_ASSIGN(const bool special, bool_field(token, "special", false));
      if (id < out.types.size() && out.types[id] == static_cast<int32_t>(PieceType::unknown)) continue;
      TESSERA_TRY(out.put(id, content, special ? PieceType::control : PieceType::user_defined));
    }
  }
  return {};
}

Status list_sentencepiece(std::string_view file, const Tokenizer& tokenizer, Listed& out) {
  TESSERA_ASSIGN(const SentencePieceModel model, parse_sentencepiece(file));
  if (model.kind != SentencePieceModel::Kind::bpe)
    return fail(Code::unsupported_feature, "SentencePiece models of another kind than BPE are not written as GGUF");
  out.space_prefix = model.add_dummy_prefix;
  out.remove_extra_whitespaces = model.remove_extra_whitespaces;
  for (size_t id = 0; id < model.pieces.size(); ++id)
    TESSERA_TRY(out.put(id, model.pieces[id], model.types[id], model.scores[id]));
  for (size_t id = model.pieces.size(); id < std::min(tokenizer.size(), out.tokens.size()); ++id) {
    const auto token = static_cast<TokenId>(id);
    if (!tokenizer.token(token).empty())
      TESSERA_TRY(out.put(id, tokenizer.token(token),
                          tokenizer.is_special(token) ? PieceType::control : PieceType::user_defined));
  }
  return {};
}

// Texts in which the known ways of cutting differ.
constexpr std::string_view kSamples[] = {
    "",
    "Hello, world! It's what they'll DON'T say: I'M 12345 and 3.14159, 2 a.m.",
    "  two  spaces   three\n\n\nlines \t tabs\r\n  end ",
    "for (int i = 0; i < n; ++i) {\n\treturn x->y[0] + 0xFF;\n}\n",
    "<div class=\"a\">&nbsp;</div> $5 + ~`^| != == ... ---- ////",
    "Fran\u00e7ais na\u00efve \u00dcber \u0416\u0438\u0437\u043d\u044c \u0391\u03b8\u03ae\u03bd\u03b1 "
    "\u05e9\u05dc\u05d5\u05dd "
    "\u0645\u0631\u062d\u0628\u0627",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f \uc548\ub155 "
    "\u0928\u092e\u0938\u094d\u0924\u0947 1\u00bd\u2460",
    "\U0001F600\U0001F468\u200D\U0001F469\u200D\U0001F467 \u2764\uFE0F\u00a0x\u3000y\u200b",
    "CamelCaseWords snake_case_words UPPER123lower 1st 2ND 1000000 0007",
    "a<think>b</think><|im_start|>c<s>d</s>",
};

Status check_same(const Tokenizer& wanted, const Tokenizer& made) {
  for (std::string_view sample : kSamples) {
    TESSERA_ASSIGN(const Encoding a, wanted.encode(sample));
    TESSERA_ASSIGN(const Encoding b, made.encode(sample));
    if (a.ids != b.ids)
      return fail(Code::unsupported_feature, "GGUF has no word for how the tokenizer cuts texts like '{}'", sample);
  }
  return {};
}

Result<Tokenizer> read_back(const gguf::Writer& writer, std::string& bytes) {
  TESSERA_ASSIGN(bytes, writer.head());
  TESSERA_ASSIGN(const gguf::File file, gguf::File::parse(std::as_bytes(std::span(bytes))));
  return Tokenizer::from_gguf(file);
}

void write_special(const Tokenizer& tokenizer, const Encoding& nothing, gguf::Writer& writer) {
  const SpecialTokens& special = tokenizer.special();
  for (const auto& [name, id] : {std::pair("bos", special.bos), std::pair("eos", special.eos),
                                 std::pair("unknown", special.unk), std::pair("padding", special.pad)})
    if (id) writer.set_u32(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<uint32_t>(*id));
  if (!special.end_of_turn.empty())
    writer.set_u32("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(special.end_of_turn[0]));
  writer.set_bool("tokenizer.ggml.add_bos_token", !nothing.ids.empty() && nothing.ids.front() == special.bos);
  writer.set_bool("tokenizer.ggml.add_eos_token", !nothing.ids.empty() && nothing.ids.back() == special.eos);
  for (const NamedTemplate& chat : tokenizer.chat_templates())
    writer.set_string(chat.name == "default" ? "tokenizer.chat_template" : "tokenizer.chat_template." + chat.name,
                      chat.source);
}

}  // namespace

Status write_gguf_vocabulary(const std::string& folder, int64_t rows, gguf::Writer& writer) {
  Result<Tokenizer> loaded = Tokenizer::load(folder);
  if (!loaded && loaded.error().code == Code::file_not_found) return {};
  if (!loaded) return tl::unexpected<Error>(std::move(loaded).error());
  const Tokenizer& tokenizer = *loaded;
  Listed listed(static_cast<size_t>(rows));
  const std::string json = folder + "/tokenizer.json", pieces = folder + "/tokenizer.model";
  const bool from_json = std::filesystem::exists(json);
  if (!from_json && !std::filesystem::exists(pieces))
    return fail(Code::unsupported_feature, "only tokenizer.json and tokenizer.model are written as GGUF");
  TESSERA_ASSIGN(const std::string text, read_file(from_json ? json : pieces, kMaxVocabularyFile));
  TESSERA_TRY(from_json ? list_json(text, listed) : list_sentencepiece(text, tokenizer, listed));
  for (size_t id = 0; id < listed.tokens.size(); ++id)
    if (listed.tokens[id].empty()) listed.tokens[id] = fmt::format("[PAD{}]", id);

  gguf::Writer own;  // the vocabulary alone, to be read back
  for (gguf::Writer* to : {&own, &writer}) {
    to->set_string("tokenizer.ggml.model", listed.bytes ? "gpt2" : "llama");
    to->set_strings("tokenizer.ggml.tokens", listed.tokens);
    to->set_i32s("tokenizer.ggml.token_type", listed.types);
    if (listed.bytes) {
      to->set_strings("tokenizer.ggml.merges", listed.merges);
    } else {
      to->set_f32s("tokenizer.ggml.scores", listed.scores);
      to->set_bool("tokenizer.ggml.add_space_prefix", listed.space_prefix);
      to->set_bool("tokenizer.ggml.remove_extra_whitespaces", listed.remove_extra_whitespaces);
    }
    TESSERA_ASSIGN(const Encoding nothing, tokenizer.encode(""));
    write_special(tokenizer, nothing, *to);
  }
  std::string bytes;
  if (!listed.bytes) {
    TESSERA_ASSIGN(const Tokenizer made, read_back(own, bytes));
    return check_same(tokenizer, made);
  }
  // Files name how texts are cut: the first name that gives what the tokenizer gives, those with its expressions first.
  Status same;
  std::vector<std::string_view> names = pre_kind_names();
  std::stable_partition(names.begin(), names.end(), [&](std::string_view name) {
    const Result<PreKind> kind = find_pre_kind(name);
    return kind && std::equal(kind->expressions.begin(), kind->expressions.end(), listed.expressions.begin(),
                              listed.expressions.end());
  });
  for (std::string_view name : names) {
    own.set_string(kPre, name);
    TESSERA_ASSIGN(const Tokenizer made, read_back(own, bytes));
    same = check_same(tokenizer, made);
    if (!same) continue;
    writer.set_string(kPre, name);
    return {};
  }
  return same;
}

}  // namespace tessera::text
