// What npm_test.py compares with the references, and measures.
//   text_driver encode TOKENIZER            each line of stdin is a text in hexadecimal: ids, text again, as JSON
//   text_driver render TEMPLATE CONTEXT...  a chat template over JSON files: a JSON string or null each
//   text_driver speed TOKENIZER FILE        processor seconds to load and MB/s to encode, the best of five
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tessera::text {
namespace {

constexpr size_t kMaxFile = size_t{1} << 28;

std::string from_hex(std::string_view digits) {
  const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(value(digits[i]) * 16 + value(digits[i + 1]));
  return bytes;
}

int report(const Error& error) {
  std::fputs((error.to_string() + "\n").c_str(), stderr);
  return 1;
}

// Also checks what must hold of any text: spans lie in it, and streaming says the same as decoding at once.
int encode(const std::string& path) {
  const auto tokenizer = Tokenizer::load(path);
  if (!tokenizer) return report(tokenizer.error());
  for (std::string line; std::getline(std::cin, line);) {
    const std::string text = from_hex(line);
    const auto encoding = tokenizer->encode(text, {.frame = false, .offsets = true});
    if (!encoding) return report(encoding.error());
    for (const Span& span : encoding->offsets) {
      if (span.begin > span.end || span.end > text.size()) return report({Code::internal, line});
    }
    const std::string decoded = tokenizer->decode(encoding->ids, {.skip_special = false});
    StreamDecoder stream(*tokenizer, {.skip_special = false});
    std::string streamed;
    for (TokenId id : encoding->ids) streamed += stream.push(id);
    streamed += stream.finish();
    if (streamed != decoded) return report({Code::internal, "streamed text differs: " + line});
    std::puts(nlohmann::json{{"ids", encoding->ids}, {"text", decoded}}.dump().c_str());
  }
  return 0;
}

int render(const std::string& path, char** contexts, int count) {
  const auto source = read_file(path, kMaxFile);
  if (!source) return report(source.error());
  const auto parsed = ChatTemplate::parse(*source);
  if (!parsed) return report(parsed.error());
  for (int i = 0; i < count; ++i) {
    const auto text = read_file(contexts[i], kMaxFile);
    const auto context = text ? Value::parse_json(*text) : Result<Value>(tl::unexpected<Error>(text.error()));
    if (!context) return report(context.error());
    const auto rendered = parsed->render(*context);
    if (!rendered) std::fputs((rendered.error().to_string() + "\n").c_str(), stderr);
    std::puts((rendered ? nlohmann::json(*rendered) : nlohmann::json()).dump().c_str());
  }
  return 0;
}

int speed(const std::string& path, const std::string& file) {
  const auto text = read_file(file, kMaxFile);
  if (!text) return report(text.error());
  double load = 1e9, encode = 1e9;
  // Of this thread: others may keep the machine busy.
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const auto seconds = [&](auto work) {
    const double begin = now();
    work();
    return now() - begin;
  };
  size_t tokens = 0;
  for (int run = 0; run < 5; ++run) {
    Result<Tokenizer> tokenizer = tl::unexpected<Error>(Error{});
    load = std::min(load, seconds([&] { tokenizer = Tokenizer::load(path); }));
    if (!tokenizer) return report(tokenizer.error());
    encode = std::min(encode, seconds([&] {
                        const auto encoding = tokenizer->encode(*text, {.frame = false});
                        tokens = encoding ? encoding->ids.size() : 0;
                      }));
  }
  std::puts(nlohmann::json{
      {"load_s", load}, {"encode_mb_per_s", static_cast<double>(text->size()) / encode / 1e6}, {"tokens", tokens}}
                .dump()
                .c_str());
  return 0;
}

}  // namespace
}  // namespace tessera::text

int main(int count, char** arguments) {
  const std::string_view mode = count > 2 ? arguments[1] : "";
  if (mode == "encode") return tessera::text::encode(arguments[2]);
  if (mode == "render") return tessera::text::render(arguments[2], arguments + 3, count - 3);
  if (mode == "speed" && count > 3) return tessera::text::speed(arguments[2], arguments[3]);
  std::fputs("usage: text_driver encode|render|speed PATH ...\n", stderr);
  return 2;
}
