// The names and expressions are those that llama.cpp's converter writes and its vocabulary reads.
#include "text/pre_kinds.h"

#include <algorithm>

#include "base/result.h"
#include "text/scanners.h"

namespace tessera::text {
namespace {

constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kLineEnd = R"([\r\n])";
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr std::string_view kDeepSeek3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailing =
    R"('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{L}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Entry {
  std::vector<std::string_view> names;
  PreKind kind;
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> list = {
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {{kLlama3Expression}, true, true}},
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "jina-es", "jina-de", "gigachat", "jina-v2-es",
        "jina-v2-de", "a.x-4.0", "mellum", "exaone4", "granite-docling", "modern-bert"},
       {{kGpt2Expression}}},
      {{"jina-v1-en", "jina-v2-code", "roberta-bpe"}, {{kGpt2Expression}, false, true, true}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"},
       {{kDigit, kGpt2Expression}}},
      {{"qwen2", "stablelm2", "deepseek-r1-qwen", "megrez", "hunyuan", "solar-open"}, {{kQwen2Expression}}},
      {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {{kLlama3Expression}}},
      {{"gpt-4o", "llama4", "kanana2"}, {{kO200kExpression}}},
      {{"deepseek-v3", "hunyuan-dense"}, {{R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepSeek3Words}}},
      {{"deepseek-coder"}, {{kLineEnd, R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+", kDigit}}},
      {{"deepseek-llm"},
       {{kLineEnd, R"(\s?[\p{Lu}\p{Ll}\p{Lt}]+)", R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)",
         "[一-龥ࠀ-一가-퟿]+", R"(\p{N}+)"}}},
      {{"falcon"}, {{R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Expression, "[0-9][0-9][0-9]"}}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {{kBloom}}},
      {{"viking"}, {{kBloom, kDigit}}},
      {{"tekken"}, {{kTekken}, true}},
      {{"chameleon"},
       {{"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", R"(([\t\n]|    |  ))", kDigit,
         R"([\p{P}!-/:-@\[-`{-~])", kGpt2Expression},
        false,
        true,
        true}},
      {{"superbpe"}, {{R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {{kBailing}}},
      {{"seed-coder"}, {{kSeedCoder}}},
      {{"default", ""}, {{R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Expression, R"(\p{N}+)", "[0-9][0-9][0-9]"}}},
  };
  return list;
}

}  // namespace

Result<PreKind> find_pre_kind(std::string_view name) {
  for (const Entry& entry : entries())
    if (std::find(entry.names.begin(), entry.names.end(), name) != entry.names.end()) return entry.kind;
  return fail(Code::unsupported_feature, "tokenizer.ggml.pre is '{}', which is not known", name);
}

std::vector<std::string_view> pre_kind_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries()) names.push_back(entry.names.front());
  return names;
}

}  // namespace tessera::text
