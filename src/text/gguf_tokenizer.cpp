// Tokenizers in the metadata of GGUF files: models "llama" and "t5" (SentencePiece), "gpt2" (byte-level BPE), "bert".
#include <algorithm>

#include "base/result.h"
#include "formats/gguf.h"
#include "text/merge_reader.h"
#include "text/pre_kinds.h"
#include "text/readers.h"
#include "text/sentencepiece.h"

namespace tessera::text {
namespace {

constexpr std::string_view kKeyTokens = "tokenizer.ggml.tokens";

// The lists that all models share, of equal length.
struct Lists {
  std::vector<std::string_view> tokens;
  std::vector<float> scores;
  std::vector<PieceType> types;
};

Result<Lists> read_lists(const gguf::File& file) {
  Lists lists;
  TESSERA_ASSIGN(lists.tokens, file.strings(kKeyTokens));
  const size_t count = lists.tokens.size();
  if (count == 0 || count > Vocabulary::kMaxIds)
    return fail(Code::tokenizer_invalid, "the vocabulary has {} tokens", count);
  lists.scores.resize(count);
  lists.types.assign(count, PieceType::normal);
  if (file.has("tokenizer.ggml.scores")) {
    TESSERA_ASSIGN(lists.scores, file.reals("tokenizer.ggml.scores"));
    if (lists.scores.size() != count)
      return fail(Code::tokenizer_invalid, "there are {} tokens but {} scores", count, lists.scores.size());
  }
  if (!file.has("tokenizer.ggml.token_type")) return lists;
  TESSERA_ASSIGN(const std::vector<int64_t> types, file.integers("tokenizer.ggml.token_type"));
  if (types.size() != count)
    return fail(Code::tokenizer_invalid, "there are {} tokens but {} types", count, types.size());
  for (size_t i = 0; i < count; ++i) {
    if (types[i] < 0 || types[i] > 6) return fail(Code::tokenizer_invalid, "token {} has the type {}", i, types[i]);
    lists.types[i] = types[i] == 0 ? PieceType::normal : static_cast<PieceType>(types[i]);
  }
  return lists;
}

// What is found in the text as it is: control tokens, and with `user_defined` those of that type.
std::vector<AddedToken> added_tokens(const Lists& lists, bool user_defined) {
  std::vector<AddedToken> added;
  for (uint32_t id = 0; id < lists.tokens.size(); ++id) {
    const bool control = lists.types[id] == PieceType::control || lists.types[id] == PieceType::unknown;
    if (!control && !(user_defined && lists.types[id] == PieceType::user_defined)) continue;
    AddedToken token;
    token.content = lists.tokens[id];
    token.id = id;
    token.special = control;
    if (!token.content.empty() && is_valid_utf8(token.content)) added.push_back(std::move(token));
  }
  return added;
}

Result<std::optional<TokenId>> id_of(const gguf::File& file, std::string_view name, size_t count) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  if (!file.has(key)) return std::optional<TokenId>();
  TESSERA_ASSIGN(const int64_t id, file.integer(key));
  // Files write -1 or 2^32 - 1 for none.
  if (id < 0 || id == UINT32_MAX) return std::optional<TokenId>();
  if (static_cast<uint64_t>(id) >= count)
    return fail(Code::tokenizer_invalid, "{} is {}, but the vocabulary has {} tokens", key, id, count);
  return std::optional(static_cast<TokenId>(id));
}

Status read_special(const gguf::File& file, size_t count, SpecialTokens& special) {
  TESSERA_ASSIGN(special.bos, id_of(file, "bos", count));
  TESSERA_ASSIGN(special.eos, id_of(file, "eos", count));
  TESSERA_ASSIGN(special.unk, id_of(file, "unknown", count));
  TESSERA_ASSIGN(special.pad, id_of(file, "padding", count));
  TESSERA_ASSIGN(special.cls, id_of(file, "cls", count));
  TESSERA_ASSIGN(special.mask, id_of(file, "mask", count));
  TESSERA_ASSIGN(special.sep, id_of(file, "seperator", count));  // as the format spells it
  if (!special.sep) {
    TESSERA_ASSIGN(special.sep, id_of(file, "separator", count));
  }
  for (std::string_view name : {"eot", "eom"}) {
    TESSERA_ASSIGN(const auto id, id_of(file, name, count));
    if (id && id != special.eos) special.end_of_turn.push_back(*id);
  }
  return {};
}

Status read_templates(const gguf::File& file, TokenizerState& state) {
  constexpr std::string_view key = "tokenizer.chat_template";
  for (const auto& [name, value] : file.metadata()) {
    if (!name.starts_with(key) || value.type != gguf::ValueType::string) continue;
    TESSERA_ASSIGN(const std::string_view text, file.string(name));
    if (name == key) {
      state.chat_templates.insert(state.chat_templates.begin(), {"default", std::string(text)});
    } else if (name[key.size()] == '.') {
      state.chat_templates.push_back({std::string(name.substr(key.size() + 1)), std::string(text)});
    }
  }
  return {};
}

Status read_sentencepiece_engine(const gguf::File& file, Lists lists, bool unigram, TokenizerState& state) {
  SentencePieceModel model;
  model.kind = unigram ? SentencePieceModel::Kind::unigram : SentencePieceModel::Kind::bpe;
  model.added = added_tokens(lists, false);
  model.pieces.assign(lists.tokens.begin(), lists.tokens.end());
  model.scores = std::move(lists.scores);
  model.types = std::move(lists.types);
  model.byte_fallback = true;
  model.unk = state.special.unk;
  TESSERA_ASSIGN(model.add_dummy_prefix, file.boolean("tokenizer.ggml.add_space_prefix", true));
  TESSERA_ASSIGN(model.remove_extra_whitespaces, file.boolean("tokenizer.ggml.remove_extra_whitespaces", unigram));
  if (const gguf::Value* map = file.find("tokenizer.ggml.precompiled_charsmap")) {
    if (!map->is_array() || (map->element != gguf::ValueType::u8 && map->element != gguf::ValueType::i8))
      return fail(Code::file_malformed, "tokenizer.ggml.precompiled_charsmap is {}", map->describe());
    TESSERA_ASSIGN(model.charsmap,
                   Charsmap::parse({reinterpret_cast<const char*>(map->payload.data()), map->payload.size()}));
  }
  TESSERA_ASSIGN(state.engine, make_sentencepiece_engine(std::move(model)));
  return {};
}

Result<MergeTable> read_merges(const gguf::File& file, const Vocabulary& vocabulary) {
  MergeTable merges;
  TESSERA_ASSIGN(const std::vector<std::string_view> list, file.strings("tokenizer.ggml.merges"));
  merges.reserve(list.size());
  // A merge of tokens that the vocabulary lacks never fires. Tokens may begin with a space.
  MergeReader reader(vocabulary, merges, {}, true);
  for (const std::string_view merge : list) TESSERA_TRY(reader.add_line(merge, 1, false));
  TESSERA_TRY(reader.finish());
  return merges;
}

Result<PreKind> read_bpe_engine(const gguf::File& file, const Lists& lists, TokenizerState& state) {
  Pipeline pipeline;
  pipeline.vocabulary = std::make_unique<Vocabulary>();
  pipeline.vocabulary->reserve(lists.tokens.size(), lists.tokens.size() * 8);
  for (size_t id = 0; id < lists.tokens.size(); ++id)
    if (!lists.tokens[id].empty()) TESSERA_TRY(pipeline.vocabulary->add(lists.tokens[id], id));
  TESSERA_ASSIGN(const std::string_view name, file.string("tokenizer.ggml.pre", "default"));
  TESSERA_ASSIGN(PreKind kind, find_pre_kind(name));
  std::vector<PreTokenizerPtr> parts;
  for (std::string_view expression : kind.expressions) {
    TESSERA_ASSIGN(Pattern pattern, Pattern::regex(expression));
    parts.push_back(make_split(std::move(pattern), SplitBehavior::isolated, false));
  }
  TESSERA_ASSIGN(const bool space_prefix, file.boolean("tokenizer.ggml.add_space_prefix", false));
  parts.push_back(make_byte_level_pre_tokenizer({space_prefix, false, false}));
  pipeline.pre_tokenizer = make_pre_tokenizer_sequence(std::move(parts));
  TESSERA_ASSIGN(MergeTable merges, read_merges(file, *pipeline.vocabulary));
  BpeRules rules;
  rules.takes_bytes = true;
  rules.ignore_merges = kind.ignore_merges;
  pipeline.model = make_bpe(*pipeline.vocabulary, std::move(merges), std::move(rules));
  pipeline.decoder = make_byte_level_decoder();
  TESSERA_ASSIGN(pipeline.added, AddedTokens::make(added_tokens(lists, true), nullptr));
  state.engine = make_pipeline_engine(std::move(pipeline));
  return kind;
}

// Tokens that begin a word are written "▁word", others as they are: the reverse of BERT's own spelling.
Status read_bert_engine(const Lists& lists, TokenizerState& state) {
  constexpr std::string_view begins_word = "\xE2\x96\x81";
  Pipeline pipeline;
  pipeline.vocabulary = std::make_unique<Vocabulary>();
  for (size_t id = 0; id < lists.tokens.size(); ++id) {
    std::string_view token = lists.tokens[id];
    std::string spelled;
    const bool plain =
        lists.types[id] != PieceType::normal || (token.starts_with('[') && token.ends_with(']') && token.size() > 2);
    if (token.starts_with(begins_word)) {
      spelled = token.substr(begins_word.size());
    } else {
      spelled = (plain ? "" : "##") + std::string(token);
    }
    if (!spelled.empty()) TESSERA_TRY(pipeline.vocabulary->add(spelled, id));
  }
  WordPieceRules rules;
  rules.unknown = state.special.unk ? static_cast<uint32_t>(*state.special.unk) : pipeline.vocabulary->find("[UNK]");
  if (rules.unknown == Vocabulary::kNone)
    return fail(Code::tokenizer_invalid, "the vocabulary has no token for the unknown");
  pipeline.normalizer = make_bert({});
  pipeline.pre_tokenizer = make_bert_pre_tokenizer();
  pipeline.model = make_word_piece(*pipeline.vocabulary, std::move(rules));
  pipeline.decoder = make_word_piece_decoder("##", true);
  std::vector<AddedToken> added = added_tokens(lists, true);
  TESSERA_ASSIGN(pipeline.added, AddedTokens::make(std::move(added), nullptr));
  state.engine = make_pipeline_engine(std::move(pipeline));
  return {};
}

}  // namespace

void make_frame(std::optional<TokenId> before, std::optional<TokenId> behind, std::optional<TokenId> between,
                int32_t second_type, Frame& frame) {
  using Kind = FramePart::Kind;
  const auto put = [](std::vector<FramePart>& parts, std::optional<TokenId> id, int32_t type) {
    if (id) parts.push_back({Kind::inserted, type, {static_cast<uint32_t>(*id)}});
  };
  frame.single.clear();
  put(frame.single, before, 0);
  frame.single.push_back({Kind::first});
  put(frame.single, behind, 0);
  frame.pair = frame.single;
  if (!behind) put(frame.pair, between, second_type);
  frame.pair.push_back({Kind::second, second_type});
  put(frame.pair, behind, second_type);
}

void double_separator(TokenId separator, Frame& frame) {
  const auto second = std::find_if(frame.pair.begin(), frame.pair.end(),
                                   [](const FramePart& part) { return part.kind == FramePart::Kind::second; });
  frame.pair.insert(second, {FramePart::Kind::inserted, 0, {static_cast<uint32_t>(separator)}});
}

Status read_gguf_tokenizer(const gguf::File& file, TokenizerState& state) {
  TESSERA_ASSIGN(const std::string_view model, file.string("tokenizer.ggml.model"));
  TESSERA_ASSIGN(Lists lists, read_lists(file));
  TESSERA_TRY(read_special(file, lists.tokens.size(), state.special));
  bool add_bos = false, add_eos = false;
  SpecialTokens& special = state.special;
  if (model == "llama" || model == "t5") {
    add_bos = model == "llama";
    add_eos = model == "t5";
    TESSERA_TRY(read_sentencepiece_engine(file, std::move(lists), model == "t5", state));
  } else if (model == "gpt2") {
    TESSERA_ASSIGN(const PreKind kind, read_bpe_engine(file, lists, state));
    add_bos = kind.add_bos;
    add_eos = kind.add_sep;
  } else if (model == "bert") {
    TESSERA_TRY(read_bert_engine(lists, state));
    add_bos = add_eos = true;
    const auto otherwise = [&](std::optional<TokenId>& id, std::optional<TokenId> second, std::string_view token) {
      const uint32_t found = state.engine->find(token);
      if (!id)
        id = second ? second : found != Vocabulary::kNone ? std::optional(static_cast<TokenId>(found)) : std::nullopt;
    };
    otherwise(special.cls, special.bos, "[CLS]");
    otherwise(special.sep, special.eos, "[SEP]");
    otherwise(special.mask, std::nullopt, "[MASK]");
  } else {
    return fail(Code::unsupported_feature, "tokenizer.ggml.model is '{}', which is not known", model);
  }
  TESSERA_ASSIGN(add_bos, file.boolean("tokenizer.ggml.add_bos_token", add_bos));
  TESSERA_ASSIGN(add_eos, file.boolean("tokenizer.ggml.add_eos_token", add_eos));
  const bool bert = model == "bert";
  const auto before = bert ? special.cls : special.bos;
  const auto behind = bert ? special.sep : special.eos;
  make_frame(add_bos ? before : std::nullopt, add_eos ? behind : std::nullopt, before, bert ? 1 : 0, state.frame);
  if (!special.unk && state.engine->unknown()) special.unk = static_cast<TokenId>(*state.engine->unknown());
  return read_templates(file, state);
}

}  // namespace tessera::text
