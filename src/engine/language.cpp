#include "engine/language.h"

#include "base/result.h"
#include "import/huggingface/import.h"

namespace tessera::engine {

bool is_language_model(const std::string& path) { return huggingface::is_model_folder(path); }

Result<transformer::Source> open_language_model(const std::string& path) {
  if (!is_language_model(path))
    return fail(Code::unknown_format, "'{}' is no folder with a config.json and no GGUF file", path);
  Result<transformer::Source> source = huggingface::open(path);
  if (!source) return tl::unexpected<Error>(std::move(source.error()).within("loading '" + path + "'"));
  return source;
}

}  // namespace tessera::engine
