// Tokenizers of folders that hold a vocabulary alone: vocab.txt (WordPiece), vocab.json with merges.txt (byte-level
// BPE). What the files do not tell is the tokenizer's class's, as tokenizer_config.json names it.
#include <algorithm>
#include <span>

#include "base/result.h"
#include "text/json_fields.h"
#include "text/merge_reader.h"
#include "text/readers.h"
#include "text/scanners.h"

namespace tessera::text {
namespace {

using Role = std::pair<std::string_view, std::string_view>;  // and the token that plays it

// Calls take(line, number) with each line of a text that is not empty, without its end.
template <class Take>
Status each_line(std::string_view text, const Take& take) {
  for (uint64_t number = 0; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) TESSERA_TRY(take(line, number));
  }
  return {};
}

constexpr Role kBertRoles[] = {{"unk_token", "[UNK]"},
                               {"sep_token", "[SEP]"},
                               {"pad_token", "[PAD]"},
                               {"cls_token", "[CLS]"},
                               {"mask_token", "[MASK]"}};
// RoBERTa's; MPNet's but for the unknown.
constexpr Role kRobertaRoles[] = {{"bos_token", "<s>"},  {"eos_token", "</s>"},  {"cls_token", "<s>"},
                                  {"sep_token", "</s>"}, {"pad_token", "<pad>"}, {"mask_token", "<mask>"}};

bool begins_with_any(std::string_view name, std::initializer_list<std::string_view> starts) {
  return std::any_of(starts.begin(), starts.end(), [&](std::string_view s) { return name.starts_with(s); });
}

// Roles that the configuration leaves open are played by the class's own tokens, where the vocabulary has them.
void fill_roles(std::span<const Role> defaults, const Vocabulary& vocabulary, TokenizerConfig& config) {
  for (const auto& [role, content] : defaults) {
    if (config.find(role) != nullptr || vocabulary.find(content) == Vocabulary::kNone) continue;
    AddedToken token;
    token.content = content;
    token.special = true;
    token.lstrip = role == "mask_token" && content == "<mask>";
    config.special.push_back({std::string(role), std::move(token)});
  }
}

// Tokens that are found in the text as they are: those added to the vocabulary, and those with a role.
std::vector<AddedToken> added_tokens(const TokenizerConfig& config, const Vocabulary& vocabulary) {
  std::vector<AddedToken> added = config.added;
  for (const TokenizerConfig::Named& named : config.special) {
    const auto same = [&](const AddedToken& token) { return token.content == named.token.content; };
    const uint32_t id = vocabulary.find(named.token.content);
    const auto there = std::find_if(added.begin(), added.end(), same);
    if (there != added.end()) {
      there->special = true;
    } else if (id != Vocabulary::kNone) {
      added.push_back(named.token);
      added.back().id = id;
    }
  }
  return added;
}

std::optional<TokenId> id_of(const TokenizerConfig& config, const Vocabulary& vocabulary, std::string_view role) {
  const AddedToken* token = config.find(role);
  const uint32_t id = token != nullptr ? vocabulary.find(token->content) : Vocabulary::kNone;
  return id == Vocabulary::kNone ? std::nullopt : std::optional(static_cast<TokenId>(id));
}

}  // namespace

Status read_word_piece_files(std::string_view text, TokenizerConfig& config, TokenizerState& state) {
  const std::string_view name = config.tokenizer_class;
  const bool mpnet = name.starts_with("MPNet");
  const bool bert = name.empty() || name == "PreTrainedTokenizerFast" || name == "BertTokenizer" ||
                    name == "BertTokenizerFast" ||
                    begins_with_any(name, {"DistilBert", "Electra", "MobileBert", "ConvBert", "Lxmert", "DPR",
                                           "LayoutLMTokenizer", "SqueezeBert", "RetriBert"});
  if (!bert && !mpnet)
    return fail(Code::unsupported_feature, "how {} reads vocab.txt is not known: tokenizer.json is needed", name);
  Pipeline pipeline;
  pipeline.vocabulary = std::make_unique<Vocabulary>();
  Vocabulary& vocabulary = *pipeline.vocabulary;
  TESSERA_TRY(each_line(text, [&](std::string_view line, uint64_t id) { return vocabulary.add(line, id); }));
  constexpr Role kMpnetUnknown[] = {{"unk_token", "[UNK]"}};
  if (mpnet) fill_roles(kMpnetUnknown, vocabulary, config);
  fill_roles(mpnet ? std::span<const Role>(kRobertaRoles) : kBertRoles, vocabulary, config);
  WordPieceRules rules;
  const auto unknown = id_of(config, vocabulary, "unk_token");
  if (!unknown) return fail(Code::tokenizer_invalid, "the vocabulary has no token for the unknown");
  rules.unknown = static_cast<uint32_t>(*unknown);
  BertRules normalizer;
  normalizer.lowercase = config.lowercase.value_or(true);
  normalizer.strip_accents = config.strip_accents.value_or(normalizer.lowercase);
  normalizer.handle_chinese_chars = config.chinese_characters.value_or(true);
  pipeline.normalizer = make_bert(normalizer);
  pipeline.pre_tokenizer = make_bert_pre_tokenizer();
  pipeline.model = make_word_piece(vocabulary, std::move(rules));
  pipeline.decoder = make_word_piece_decoder("##", true);
  const auto cls = id_of(config, vocabulary, "cls_token"), sep = id_of(config, vocabulary, "sep_token");
  make_frame(cls, sep, sep, mpnet ? 0 : 1, state.frame);
  if (mpnet && sep) double_separator(*sep, state.frame);
  TESSERA_ASSIGN(pipeline.added, AddedTokens::make(added_tokens(config, vocabulary), pipeline.normalizer.get()));
  state.engine = make_pipeline_engine(std::move(pipeline));
  return {};
}

namespace {

Status read_vocabulary_file(std::string_view text, Vocabulary& vocabulary) {
  simdjson::dom::parser parser;
  TESSERA_ASSIGN(const JsonValue json, parse_json_text(parser, text, "vocab.json"));
  return read_vocabulary(json, vocabulary);
}

// A line holds a pair; the first may name the version instead.
Status read_merges_file(std::string_view text, const Vocabulary& vocabulary, MergeTable& merges) {
  MergeReader reader(vocabulary, merges, {}, false);
  TESSERA_TRY(each_line(text, [&](std::string_view line, uint64_t number) -> Status {
    if (number == 0 && line.starts_with("#version")) return {};
    return reader.add_line(line, 0, true);
  }));
  return reader.finish();
}

}  // namespace

Status read_byte_level_files(std::string_view vocab, std::string_view merges, TokenizerConfig& config,
                             TokenizerState& state) {
  const std::string_view name = config.tokenizer_class;
  const bool gpt2 = name.empty() || name == "PreTrainedTokenizerFast" || begins_with_any(name, {"GPT2", "CodeGen"});
  const bool roberta = begins_with_any(name, {"Roberta", "Bart", "Longformer", "LED"});
  const bool qwen = name.starts_with("Qwen2");
  if (!gpt2 && !roberta && !qwen)
    return fail(Code::unsupported_feature, "how {} reads vocab.json is not known: tokenizer.json is needed", name);
  Pipeline pipeline;
  pipeline.vocabulary = std::make_unique<Vocabulary>();
  Vocabulary& vocabulary = *pipeline.vocabulary;
  TESSERA_TRY(read_vocabulary_file(vocab, vocabulary));
  MergeTable table;
  TESSERA_TRY(read_merges_file(merges, vocabulary, table));
  const bool space_prefix = config.add_prefix_space.value_or(false);
  if (roberta) {
    constexpr Role kUnknown[] = {{"unk_token", "<unk>"}};
    fill_roles(kUnknown, vocabulary, config);
    fill_roles(kRobertaRoles, vocabulary, config);
    const auto cls = id_of(config, vocabulary, "cls_token"), sep = id_of(config, vocabulary, "sep_token");
    if (!cls || !sep) return fail(Code::tokenizer_invalid, "the vocabulary lacks the tokens around a text");
    make_frame(cls, sep, sep, 0, state.frame);
    double_separator(*sep, state.frame);
    state.frame.trim_offsets = true;
    state.frame.added_prefix_space = space_prefix;
  } else {
    constexpr Role kEnds[] = {{"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}};
    fill_roles(kEnds, vocabulary, config);
    const auto bos = id_of(config, vocabulary, "bos_token");
    if (config.add_bos.value_or(false) && bos) make_frame(bos, std::nullopt, bos, 0, state.frame);
  }
  if (qwen) {
    pipeline.normalizer = make_normal_form(NormalForm::nfc);
    std::vector<PreTokenizerPtr> parts;
    parts.push_back(make_split(Pattern::scanner(scan_qwen2), SplitBehavior::isolated, false));
    parts.push_back(make_byte_level_pre_tokenizer({space_prefix, false, false}));
    pipeline.pre_tokenizer = make_pre_tokenizer_sequence(std::move(parts));
  } else {
    pipeline.pre_tokenizer = make_byte_level_pre_tokenizer({space_prefix, true, false});
  }
  BpeRules rules;
  rules.takes_bytes = true;
  pipeline.model = make_bpe(vocabulary, std::move(table), std::move(rules));
  pipeline.decoder = make_byte_level_decoder();
  TESSERA_ASSIGN(pipeline.added, AddedTokens::make(added_tokens(config, vocabulary), pipeline.normalizer.get()));
  state.engine = make_pipeline_engine(std::move(pipeline));
  return {};
}

}  // namespace tessera::text
