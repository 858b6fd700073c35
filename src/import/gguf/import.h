// GGUF files of language models.
#pragma once

#include <string>

#include "import/transformer/source.h"

namespace tessera::gguf_import {

// E0402 for an architecture that is not known; else as gguf::File::open.
Result<transformer::Source> open(const std::string& path);

}  // namespace tessera::gguf_import
