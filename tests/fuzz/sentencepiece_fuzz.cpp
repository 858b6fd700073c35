// Reads bytes as a SentencePiece model, and encodes texts with it.
#include "text/sentencepiece.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera::text;
  auto model = parse_sentencepiece({reinterpret_cast<const char*>(data), size});
  if (!model) return 0;
  const auto engine = make_sentencepiece_engine(std::move(*model));
  if (!engine) return 0;
  for (const std::string_view text : {"  The d\xC3\xA9j\xC3\xA0  vu aab.\n", "\xE2\x96\x81 \xF0\x9F\x98\x80 ", ""}) {
    std::vector<ModelToken> tokens;
    if (!(*engine)->encode({text, true, true}, tokens)) continue;
    std::vector<uint32_t> ids;
    for (const ModelToken& token : tokens) {
      if (token.span.begin > token.span.end || token.span.end > text.size()) __builtin_trap();
      ids.push_back(token.id);
    }
    static_cast<void>((*engine)->decode(ids));
  }
  return 0;
}
