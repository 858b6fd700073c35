// Which files make a tokenizer.
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/result.h"
#include "formats/gguf.h"
#include "text/fairseq.h"

namespace tessera::text {
namespace {

constexpr size_t kMaxFile = size_t{1} << 30;  // bytes; the largest tokenizer.json known has some 40 MB
constexpr size_t kMaxConfig = size_t{64} << 20;

bool is_folder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool is_file(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Reads `folder`'s file `name` with `read`, where it is there.
template <class Read>
Status read_beside(const std::string& folder, const char* name, Read read) {
  const std::string path = folder + "/" + name;
  if (!is_file(path)) return {};
  TESSERA_ASSIGN(const std::string text, read_file(path, kMaxConfig));
  if (Status status = read(text); !status)
    return tl::unexpected<Error>(std::move(status).error().within(fmt::format("reading '{}'", path)));
  return {};
}

Status read_configs(const std::string& folder, TokenizerConfig& config) {
  const auto as_config = [&](std::string_view text) { return read_tokenizer_config(text, config); };
  TESSERA_TRY(read_beside(folder, "tokenizer_config.json", as_config));
  TESSERA_TRY(read_beside(folder, "special_tokens_map.json", as_config));
  TESSERA_TRY(read_beside(folder, "added_tokens.json",
                          [&](std::string_view text) { return read_added_tokens_file(text, config); }));
  // A template in a file of its own stands for the one in the configuration.
  return read_beside(folder, "chat_template.jinja", [&](std::string_view text) -> Status {
    std::erase_if(config.chat_templates, [](const NamedTemplate& named) { return named.name == "default"; });
    config.chat_templates.insert(config.chat_templates.begin(), {"default", std::string(text)});
    return {};
  });
}

Result<Tokenizer> finish(TokenizerState state, TokenizerConfig config) {
  name_special_tokens(config, state);
  if (state.chat_templates.empty()) state.chat_templates = std::move(config.chat_templates);
  return Tokenizer(std::move(state));
}

Result<Tokenizer> load_json(const std::string& path, const std::string& folder) {
  TESSERA_ASSIGN(const auto file, MappedFile::open(path));
  if (file->size() > kMaxFile) return fail(Code::file_malformed, "'{}' has {} bytes", path, file->size());
  TokenizerConfig config;
  TESSERA_TRY(read_configs(folder, config));
  TokenizerState state;
  TESSERA_TRY(read_tokenizer_json(file->text(), state));
  return finish(std::move(state), std::move(config));
}

// The special tokens that a configuration names, with the ids that the model has for them.
std::vector<AddedToken> added_by(const TokenizerConfig& config, const SentencePieceModel& model) {
  std::vector<AddedToken> added = config.added;
  for (const TokenizerConfig::Named& named : config.special) {
    const auto same = [&](const AddedToken& token) { return token.content == named.token.content; };
    if (std::any_of(added.begin(), added.end(), same)) continue;
    const auto piece = std::find(model.pieces.begin(), model.pieces.end(), named.token.content);
    if (piece == model.pieces.end()) continue;
    added.push_back(named.token);
    added.back().id = static_cast<uint32_t>(piece - model.pieces.begin());
    added.back().special = true;
  }
  return added;
}

// Classes that prepare a text, or surround it, in ways of their own, which a .model file does not tell.
constexpr std::string_view kOwnWays[] = {"Albert",  "Barthez",  "BigBird",     "Deberta", "Ernie",  "FNet",
                                         "M2M100",  "Marian",   "Nllb",        "Pegasus", "PLBart", "Reformer",
                                         "RemBert", "Seamless", "Speech2Text", "XGLM",    "XLNet"};

// The frame is the model's class's: a .model file does not tell.
void frame_sentencepiece(const TokenizerConfig& config, TokenizerState& state) {
  const std::string_view name = config.tokenizer_class;
  const SpecialTokens& special = state.special;
  const bool llama = name.starts_with("Llama") || name.starts_with("CodeLlama") || name.starts_with("Gemma");
  const bool t5 = name.starts_with("T5") || name.starts_with("MT5");
  const bool bos = config.add_bos.value_or(llama), eos = config.add_eos.value_or(t5);
  make_frame(bos ? special.bos : std::nullopt, eos ? special.eos : std::nullopt, bos ? special.bos : std::nullopt,
             llama ? 1 : 0, state.frame);
}

Result<Tokenizer> load_sentencepiece(const std::string& path, const std::string& folder) {
  TESSERA_ASSIGN(const auto file, MappedFile::open(path));
  TokenizerConfig config;
  TESSERA_TRY(read_configs(folder, config));
  TESSERA_ASSIGN(SentencePieceModel model, parse_sentencepiece(file->text()));
  const std::string_view name = config.tokenizer_class;
  for (std::string_view own : kOwnWays)
    if (name.starts_with(own))
      return fail(Code::unsupported_feature, "how {} prepares texts is not known: tokenizer.json is needed", name);
  TokenizerState state;
  if (const FairseqKind* kind = find_fairseq(name)) {
    TESSERA_TRY(to_fairseq(*kind, config.source_language, model, state));
  } else {
    model.added = added_by(config, model);
    state.special.bos = model.bos;
    state.special.eos = model.eos;
    state.special.unk = model.unk;
    state.special.pad = model.pad;
    frame_sentencepiece(config, state);
  }
  TESSERA_ASSIGN(state.engine, make_sentencepiece_engine(std::move(model)));
  return finish(std::move(state), std::move(config));
}

Result<Tokenizer> load_word_piece(const std::string& path, const std::string& folder) {
  TESSERA_ASSIGN(const std::string text, read_file(path, kMaxConfig));
  TokenizerConfig config;
  TESSERA_TRY(read_configs(folder, config));
  TokenizerState state;
  TESSERA_TRY(read_word_piece_files(text, config, state));
  return finish(std::move(state), std::move(config));
}

Result<Tokenizer> load_byte_level(const std::string& folder) {
  TESSERA_ASSIGN(const std::string vocab, read_file(folder + "/vocab.json", kMaxConfig));
  TESSERA_ASSIGN(const std::string merges, read_file(folder + "/merges.txt", kMaxConfig));
  TokenizerConfig config;
  TESSERA_TRY(read_configs(folder, config));
  TokenizerState state;
  TESSERA_TRY(read_byte_level_files(vocab, merges, config, state));
  return finish(std::move(state), std::move(config));
}

Result<Tokenizer> load_gguf(const std::string& path) {
  TESSERA_ASSIGN(const gguf::File file, gguf::File::open(path));
  return Tokenizer::from_gguf(file);
}

constexpr const char* kSentencePieceNames[] = {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"};

Result<Tokenizer> load_path(const std::string& path) {
  if (is_folder(path)) {
    if (const std::string json = path + "/tokenizer.json"; is_file(json)) return load_json(json, path);
    for (const char* name : kSentencePieceNames)
      if (const std::string model = path + "/" + name; is_file(model)) return load_sentencepiece(model, path);
    if (is_file(path + "/vocab.json") && is_file(path + "/merges.txt")) return load_byte_level(path);
    if (const std::string vocab = path + "/vocab.txt"; is_file(vocab)) return load_word_piece(vocab, path);
    return fail(Code::file_not_found,
                "'{}' has no tokenizer: neither tokenizer.json, a SentencePiece model, vocab.json with merges.txt nor "
                "vocab.txt",
                path);
  }
  TESSERA_ASSIGN(const auto file, MappedFile::open(path));
  const std::string_view text = file->text();
  if (text.starts_with("GGUF")) return load_gguf(path);
  if (path.ends_with(".txt")) return load_word_piece(path, folder_of(path));
  // A SentencePiece model begins with the field of its first piece; JSON with a brace, perhaps behind spaces.
  if (text.starts_with('\n') && text.size() > 2 && text.substr(1, 8).find('\n') != std::string_view::npos &&
      !path.ends_with(".json"))
    return load_sentencepiece(path, folder_of(path));
  return load_json(path, folder_of(path));
}

}  // namespace

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  Result<Tokenizer> tokenizer = load_path(path);
  if (!tokenizer)
    return tl::unexpected<Error>(
        std::move(tokenizer).error().within(fmt::format("loading the tokenizer of '{}'", path)));
  return tokenizer;
}

Result<Tokenizer> Tokenizer::from_gguf(const gguf::File& file) {
  TokenizerState state;
  TESSERA_TRY(read_gguf_tokenizer(file, state));
  return Tokenizer(std::move(state));
}

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer, std::string_view config) {
  TokenizerConfig read;
  if (!config.empty()) TESSERA_TRY(read_tokenizer_config(config, read));
  TokenizerState state;
  TESSERA_TRY(read_tokenizer_json(tokenizer, state));
  return finish(std::move(state), std::move(read));
}

}  // namespace tessera::text
