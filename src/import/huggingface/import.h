// Folders as Hugging Face's libraries write them: config.json, model.safetensors or its shards.
#pragma once

#include <string>

#include "import/transformer/source.h"

namespace tessera::huggingface {

// Whether `path` is a folder with a config.json.
bool is_model_folder(const std::string& path);

// E0402 for an architecture, or a form of one, that is not known; else as open_safetensors.
Result<transformer::Source> open(const std::string& folder);

}  // namespace tessera::huggingface
