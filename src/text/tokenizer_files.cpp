// Which files make a tokenizer.
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/result.h"
#include "text/readers.h"

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

Result<Tokenizer> load_path(const std::string& path) {
  if (is_folder(path)) {
    if (const std::string json = path + "/tokenizer.json"; is_file(json)) return load_json(json, path);
    return fail(Code::file_not_found, "'{}' has no tokenizer.json", path);
  }
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

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer, std::string_view config) {
  TokenizerConfig read;
  if (!config.empty()) TESSERA_TRY(read_tokenizer_config(config, read));
  TokenizerState state;
  TESSERA_TRY(read_tokenizer_json(tokenizer, state));
  return finish(std::move(state), std::move(read));
}

}  // namespace tessera::text
