// Tokenizers as the metadata of GGUF files.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace tessera::gguf {
class Writer;
}

namespace tessera::text {

// Writes the tokenizer of a model's folder, of BPE kind, for a model of `rows` tokens, with its chat templates; nothing
// where the folder has none. E0402 where GGUF has no word for how it cuts texts.
Status write_gguf_vocabulary(const std::string& folder, int64_t rows, gguf::Writer& writer);

}  // namespace tessera::text
