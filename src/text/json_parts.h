// The components of a tokenizer.json, from its JSON. E0402 for types that Tessera does not know. Included only by
// sources of this folder.
#pragma once

#include "text/decoder.h"
#include "text/frame.h"
#include "text/json_fields.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"

namespace tessera::text {

Result<NormalizerPtr> read_normalizer(const JsonValue& json);
// `bytes_last`: a ByteLevel that stands last leaves bytes as they are, for a model that takes them; `takes_bytes` tells
// whether there is one.
struct ReadPreTokenizer {
  PreTokenizerPtr part;
  bool takes_bytes = false;
};
Result<ReadPreTokenizer> read_pre_tokenizer(const JsonValue& json, bool bytes_last);
Result<DecoderPtr> read_decoder(const JsonValue& json);
Result<Frame> read_frame(const JsonValue& json);
Result<Truncation> read_truncation(const JsonValue& json);
Result<Padding> read_padding(const JsonValue& json);

}  // namespace tessera::text
