// Reads bytes as a tokenizer.json, a zero byte, then a text: encodes it, and decodes what comes of it.
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera::text;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(all.find('\0'), size);
  const std::string_view text = zero < size ? all.substr(zero + 1) : "The d\xC3\xA9j\xC3\xA0 vu.\n 42 \xF0\x9F\x98\x80";
  const auto tokenizer = Tokenizer::from_json(all.substr(0, zero));
  if (!tokenizer) return 0;
  const auto encoding = tokenizer->encode(text, {.offsets = true, .file_limits = size % 2 == 0});
  if (!encoding) return 0;
  for (const Span& span : encoding->offsets)
    if (span.begin > span.end || span.end > text.size()) __builtin_trap();
  static_cast<void>(tokenizer->decode(encoding->ids));
  StreamDecoder stream(*tokenizer);
  std::string streamed;
  for (TokenId id : encoding->ids) streamed += stream.push(id);
  streamed += stream.finish();
  if (!tessera::is_valid_utf8(streamed)) __builtin_trap();
  return 0;
}
