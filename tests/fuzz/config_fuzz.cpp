// Reads bytes as the config.json of a model.
#include "formats/json.h"
#include "import/huggingface/families.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const auto json = parse_json({reinterpret_cast<const char*>(data), size}, "config.json");
  if (!json || json->members() == nullptr) return 0;
  huggingface::Fields fields(*json, "config.json");
  const auto family = huggingface::find_family(fields.text("model_type", ""));
  if (!family) return 0;
  transformer::Config config;
  (*family)->read(fields, config);
  if (fields.status()) static_cast<void>(transformer::check(config));
  return 0;
}
