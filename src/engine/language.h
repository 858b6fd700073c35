// Opening language models: folders and files of the formats that hold them.
#pragma once

#include <string>

#include "import/transformer/source.h"

namespace tessera::engine {

// Whether the path looks like a language model: a folder with a config.json, or a GGUF file.
bool is_language_model(const std::string& path);

// E0106 for what is none; errors name the path.
Result<transformer::Source> open_language_model(const std::string& path);

}  // namespace tessera::engine
