// tokenizer.json, as the tokenizers library of Hugging Face writes it.
#include <algorithm>

#include "text/json_parts.h"
#include "text/merge_reader.h"
#include "text/readers.h"

namespace tessera::text {
namespace {

tl::unexpected<Error> not_in_vocabulary(std::string_view what, std::string_view token) {
  return fail(Code::tokenizer_invalid, "{} '{}' is not in the vocabulary", what, token);
}

Status read_model_vocabulary(const JsonValue& model, Vocabulary& vocabulary) {
  const auto vocab = field(model, "vocab");
  if (!vocab) return fail(Code::file_malformed, "the model has no 'vocab'");
  return read_vocabulary(*vocab, vocabulary);
}

Result<std::optional<uint32_t>> read_unknown(const JsonValue& model, const Vocabulary& vocabulary) {
  TESSERA_ASSIGN(const std::string_view token, string_field(model, "unk_token", ""));
  if (token.empty()) return std::optional<uint32_t>();
  const uint32_t id = vocabulary.find(token);
  if (id == Vocabulary::kNone) return not_in_vocabulary("the unknown token", token);
  return std::optional(id);
}

// A merge is "left right", or [left, right] in newer files.
Status read_merges(const JsonValue& model, const Vocabulary& vocabulary, std::string_view prefix, MergeTable& merges) {
  TESSERA_ASSIGN(const auto list, array_field(model, "merges", "the model"));
  merges.reserve(list.size());
  MergeReader reader(vocabulary, merges, prefix, false);
  size_t count = 0;
  for (const JsonValue merge : list) {
    if (merge.is_string()) {
      TESSERA_TRY(reader.add_line(std::string_view(merge), 0, true));
    } else {
      JsonValue a, b;
      std::string_view left, right;
      if (!merge.is_array() || merge.at(0).get(a) != simdjson::SUCCESS || merge.at(1).get(b) != simdjson::SUCCESS ||
          a.get(left) != simdjson::SUCCESS || b.get(right) != simdjson::SUCCESS)
        return fail(Code::file_malformed, "merge {} is no pair of tokens", count);
      TESSERA_TRY(reader.add(left, right));
    }
    ++count;
  }
  return reader.finish();
}

Status read_bpe(const JsonValue& model, bool takes_bytes, Pipeline& pipeline) {
  Vocabulary& vocabulary = *pipeline.vocabulary;
  TESSERA_TRY(read_model_vocabulary(model, vocabulary));
  if (const auto dropout = field(model, "dropout")) {
    double value = 1;
    if (dropout->get(value) != simdjson::SUCCESS || value != 0)
      return fail(Code::unsupported_feature, "the model's dropout is set: its tokens would be random");
  }
  BpeRules rules;
  TESSERA_ASSIGN(const std::string_view prefix, string_field(model, "continuing_subword_prefix", ""));
  TESSERA_ASSIGN(const std::string_view suffix, string_field(model, "end_of_word_suffix", ""));
  rules.continuing_prefix = prefix;
  rules.word_suffix = suffix;
  TESSERA_ASSIGN(rules.unknown, read_unknown(model, vocabulary));
  TESSERA_ASSIGN(rules.fuse_unknown, bool_field(model, "fuse_unk", false));
  TESSERA_ASSIGN(rules.byte_fallback, bool_field(model, "byte_fallback", false));
  TESSERA_ASSIGN(rules.ignore_merges, bool_field(model, "ignore_merges", false));
  rules.takes_bytes = takes_bytes;
  MergeTable merges;
  TESSERA_TRY(read_merges(model, vocabulary, prefix, merges));
  if (!suffix.empty() && pipeline.decoder) {
    // The mark of a word's end is a blank in a text; CLIP's decoder leaves it.
    std::vector<DecoderPtr> parts;
    parts.push_back(std::move(pipeline.decoder));
    parts.push_back(make_replace_decoder(Pattern::literal(std::string(suffix)), " "));
    pipeline.decoder = make_decoder_sequence(std::move(parts));
  }
  pipeline.model = make_bpe(vocabulary, std::move(merges), std::move(rules));
  return {};
}

Status read_word_piece(const JsonValue& model, Pipeline& pipeline) {
  TESSERA_TRY(read_model_vocabulary(model, *pipeline.vocabulary));
  WordPieceRules rules;
  TESSERA_ASSIGN(const std::string_view prefix, string_field(model, "continuing_subword_prefix", "##"));
  rules.continuing_prefix = prefix;
  TESSERA_ASSIGN(rules.max_characters, uint_field(model, "max_input_chars_per_word", 100));
  TESSERA_ASSIGN(const std::string_view unknown, string_field(model, "unk_token", "[UNK]"));
  rules.unknown = pipeline.vocabulary->find(unknown);
  if (rules.unknown == Vocabulary::kNone) return not_in_vocabulary("the unknown token", unknown);
  pipeline.model = make_word_piece(*pipeline.vocabulary, std::move(rules));
  return {};
}

// [["token", score], ...]
Status read_unigram(const JsonValue& model, Pipeline& pipeline) {
  TESSERA_ASSIGN(const auto list, array_field(model, "vocab", "the model"));
  UnigramRules rules;
  pipeline.vocabulary->reserve(list.size(), list.size() * 8);
  for (const JsonValue item : list) {
    JsonValue token, score;
    std::string_view text;
    double value = 0;
    if (!item.is_array() || item.at(0).get(token) != simdjson::SUCCESS || item.at(1).get(score) != simdjson::SUCCESS ||
        token.get(text) != simdjson::SUCCESS || score.get(value) != simdjson::SUCCESS)
      return fail(Code::file_malformed, "entry {} of the vocabulary is no pair of a token and its score",
                  rules.scores.size());
    TESSERA_TRY(pipeline.vocabulary->add(text, rules.scores.size()));
    rules.scores.push_back(value);
  }
  if (field(model, "unk_id")) {
    TESSERA_ASSIGN(rules.unknown, uint_field(model, "unk_id", 0));
    if (*rules.unknown >= rules.scores.size())
      return fail(Code::tokenizer_invalid, "unk_id is {}, but the vocabulary has {} tokens", *rules.unknown,
                  rules.scores.size());
  }
  TESSERA_ASSIGN(rules.byte_fallback, bool_field(model, "byte_fallback", false));
  pipeline.model = make_unigram(*pipeline.vocabulary, std::move(rules));
  return {};
}

Status read_word_level(const JsonValue& model, Pipeline& pipeline) {
  TESSERA_TRY(read_model_vocabulary(model, *pipeline.vocabulary));
  TESSERA_ASSIGN(const auto unknown, read_unknown(model, *pipeline.vocabulary));
  pipeline.model = make_word_level(*pipeline.vocabulary, unknown);
  return {};
}

// Older files do not name the model's type.
Result<std::string_view> model_type(const JsonValue& model) {
  TESSERA_ASSIGN(const std::string_view type, string_field(model, "type", ""));
  if (!type.empty()) return type;
  const auto vocab = field(model, "vocab");
  if (field(model, "merges")) return "BPE";
  if (vocab && vocab->is_array()) return "Unigram";
  if (field(model, "continuing_subword_prefix")) return "WordPiece";
  return "WordLevel";
}

Result<std::vector<AddedToken>> read_added_tokens(const JsonValue& json) {
  std::vector<AddedToken> tokens;
  if (!field(json, "added_tokens")) return tokens;
  TESSERA_ASSIGN(const auto list, array_field(json, "added_tokens", "the tokenizer"));
  for (const JsonValue item : list) {
    AddedToken token;
    TESSERA_ASSIGN(const std::string_view content, string_field(item, "content", ""));
    if (!field(item, "id")) return fail(Code::file_malformed, "the added token '{}' has no id", content);
    token.content = content;
    TESSERA_ASSIGN(token.id, uint_field(item, "id", 0));
    TESSERA_ASSIGN(token.special, bool_field(item, "special", false));
    TESSERA_ASSIGN(token.single_word, bool_field(item, "single_word", false));
    TESSERA_ASSIGN(token.lstrip, bool_field(item, "lstrip", false));
    TESSERA_ASSIGN(token.rstrip, bool_field(item, "rstrip", false));
    TESSERA_ASSIGN(token.normalized, bool_field(item, "normalized", !token.special));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace

Status read_vocabulary(const JsonValue& json, Vocabulary& vocabulary) {
  TESSERA_ASSIGN(const auto object, as<simdjson::dom::object>(json, "vocab", "an object"));
  size_t bytes = 0, tokens = 0;
  for (const auto [token, id] : object) {
    bytes += token.size();
    ++tokens;
  }
  vocabulary.reserve(tokens, bytes);
  for (const auto [token, id] : object) {
    uint64_t number = 0;
    if (id.get(number) != simdjson::SUCCESS)
      return fail(Code::file_malformed, "the id of the token '{}' is {}", token, json_type(id));
    TESSERA_TRY(vocabulary.add(token, number));
  }
  return {};
}

Status read_tokenizer_json(std::string_view text, TokenizerState& state) {
  simdjson::dom::parser parser;
  TESSERA_ASSIGN(const JsonValue json, parse_json_text(parser, text, "the tokenizer"));
  const auto model = field(json, "model");
  if (!model) return fail(Code::file_malformed, "the tokenizer has no 'model'");
  TESSERA_ASSIGN(const std::string_view type, model_type(*model));

  Pipeline pipeline;
  pipeline.vocabulary = std::make_unique<Vocabulary>();
  bool takes_bytes = false;
  if (const auto part = field(json, "normalizer")) {
    TESSERA_ASSIGN(pipeline.normalizer, read_normalizer(*part));
  }
  if (const auto part = field(json, "pre_tokenizer")) {
    // Words of BPE that carry marks at their ends are spelled in letters.
    TESSERA_ASSIGN(const std::string_view prefix, string_field(*model, "continuing_subword_prefix", ""));
    TESSERA_ASSIGN(const std::string_view suffix, string_field(*model, "end_of_word_suffix", ""));
    TESSERA_ASSIGN(const bool byte_fallback, bool_field(*model, "byte_fallback", false));
    const bool plain = type == "BPE" && prefix.empty() && suffix.empty() && !byte_fallback;
    TESSERA_ASSIGN(ReadPreTokenizer read, read_pre_tokenizer(*part, plain));
    pipeline.pre_tokenizer = std::move(read.part);
    takes_bytes = read.takes_bytes;
  }
  if (const auto part = field(json, "decoder")) {
    TESSERA_ASSIGN(pipeline.decoder, read_decoder(*part));
  }
  if (type == "BPE") {
    TESSERA_TRY(read_bpe(*model, takes_bytes, pipeline));
  } else if (type == "WordPiece") {
    TESSERA_TRY(read_word_piece(*model, pipeline));
  } else if (type == "Unigram") {
    TESSERA_TRY(read_unigram(*model, pipeline));
  } else if (type == "WordLevel") {
    TESSERA_TRY(read_word_level(*model, pipeline));
  } else {
    return fail(Code::unsupported_feature, "the tokenizer's model has the type '{}', which is not known", type);
  }
  TESSERA_ASSIGN(std::vector<AddedToken> added, read_added_tokens(json));
  TESSERA_ASSIGN(pipeline.added, AddedTokens::make(std::move(added), pipeline.normalizer.get()));

  if (const auto part = field(json, "post_processor")) {
    TESSERA_ASSIGN(state.frame, read_frame(*part));
  }
  if (const auto part = field(json, "truncation")) {
    TESSERA_ASSIGN(state.truncation, read_truncation(*part));
  }
  if (const auto part = field(json, "padding")) {
    TESSERA_ASSIGN(state.padding, read_padding(*part));
  }
  state.engine = make_pipeline_engine(std::move(pipeline));
  return {};
}

}  // namespace tessera::text
