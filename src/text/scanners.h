// Hand-written equivalents of the expressions that cut text for byte-level models: each returns where the piece that
// begins at `at` ends. tokenizer_json.cpp and gguf name the expressions; the tests compare them with PCRE2.
#pragma once

#include "text/regex.h"

namespace tessera::text {

// GPT-2's. The ByteLevel pre-tokenizer's own has the spaces of ECMAScript, as the reference of its tests: with U+FEFF
// and without U+0085.
size_t scan_gpt2(std::string_view text, size_t at);
size_t scan_gpt2_ecma(std::string_view text, size_t at);
// cl100k as Llama 3 writes it, numbers of up to three digits; Qwen 2's takes one digit.
size_t scan_llama3(std::string_view text, size_t at);
size_t scan_qwen2(std::string_view text, size_t at);
// GPT-4o's, which cuts words between cases.
size_t scan_o200k(std::string_view text, size_t at);

inline constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kO200kExpression =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace tessera::text
