#include "engine/language.h"

#include <cstring>

#include "base/file.h"
#include "base/result.h"
#include "import/gguf/import.h"
#include "import/huggingface/import.h"

namespace tessera::engine {

namespace {

bool is_gguf(const std::string& path) {
  const Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path);
  return file && (*file)->size() >= 4 && std::memcmp((*file)->data(), "GGUF", 4) == 0;
}

}  // namespace

bool is_language_model(const std::string& path) { return huggingface::is_model_folder(path) || is_gguf(path); }

Result<transformer::Source> open_language_model(const std::string& path) {
  if (!is_language_model(path))
    return fail(Code::unknown_format, "'{}' is no folder with a config.json and no GGUF file", path);
  Result<transformer::Source> source = is_gguf(path) ? gguf_import::open(path) : huggingface::open(path);
  if (!source) return tl::unexpected<Error>(std::move(source.error()).within("loading '" + path + "'"));
  return source;
}

}  // namespace tessera::engine
