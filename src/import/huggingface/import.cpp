#include "import/huggingface/import.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "import/huggingface/families.h"

namespace tessera::huggingface {
namespace {

using transformer::Config;
using transformer::Key;
using transformer::Part;
using transformer::Pooling;

constexpr size_t kMaxConfig = size_t{16} << 20;

class FolderWeights final : public transformer::Weights {
 public:
  FolderWeights(SafetensorsFolder folder, const Family& family) : folder_(std::move(folder)), family_(family) {
    for (std::string_view prefix : family.prefixes) {
      prefix_ = prefix;
      if (folder_.tensors.contains(name({Part::tokens}))) return;
    }
    prefix_ = family.prefixes[0];
  }

  std::string name(const Key& key) const override { return stem(key) + (key.bias ? ".bias" : ".weight"); }

  Result<Tensor> get(const Key& key) const override {
    for (const std::string& text : {name(key), stem(key) + (key.bias ? ".beta" : ".gamma")})  // TensorFlow's words
      if (const auto found = folder_.tensors.find(text); found != folder_.tensors.end()) return found->second;
    return fail(Code::unknown_name, "the model has no tensor '{}'", name(key));
  }
  bool has(const Key& key) const { return get(key).has_value(); }

 private:
  std::string stem(const Key& key) const {
    const auto found = std::find_if(family_.names.begin(), family_.names.end(),
                                    [&](const PartName& name) { return name.part == key.part; });
    if (found == family_.names.end()) return fmt::format("part {} of {}", static_cast<int>(key.part), family_.type);
    std::string text;
    if (found->text[0] != '^') text = prefix_;
    for (char c : found->text) {
      if (c == '#')
        text += std::to_string(key.layer);
      else if (c == '@')
        text += std::to_string(key.expert);
      else if (c != '^')
        text += c;
    }
    return text;
  }

  SafetensorsFolder folder_;
  const Family& family_;
  std::string_view prefix_;
};

Result<Json> read_object(const std::string& folder, const std::string& name) {
  TESSERA_ASSIGN(const std::string text, read_file(folder + "/" + name, kMaxConfig));
  TESSERA_ASSIGN(Json json, parse_json(text, name));
  if (json.members() == nullptr) return fail(Code::file_malformed, "{} is no JSON object", name);
  return json;
}

// Ids that end a text; generation_config.json may add some.
Status read_ids(const std::string& folder, Fields& fields, Config& c) {
  c.bos = fields.integer("bos_token_id", -1);
  c.pad = fields.integer("pad_token_id", -1);
  c.eos = fields.integers("eos_token_id");
  const Result<Json> generation = read_object(folder, "generation_config.json");
  if (!generation)
    return generation.error().code == Code::file_not_found ? Status() : tl::unexpected(generation.error());
  Fields more(*generation, "generation_config.json");
  for (int64_t id : more.integers("eos_token_id"))
    if (std::find(c.eos.begin(), c.eos.end(), id) == c.eos.end()) c.eos.push_back(id);
  return more.status();
}

// What sentence-transformers stores beside a model: modules.json names the steps after it.
Status read_pooling(const std::string& folder, transformer::Source& source) {
  source.pooling = source.config.decoder ? Pooling::last : Pooling::mean;
  if (const Result<Json> limits = read_object(folder, "sentence_bert_config.json")) {
    Fields fields(*limits, "sentence_bert_config.json");
    source.longest = std::max<int64_t>(fields.integer("max_seq_length", 0), 0);
    TESSERA_TRY(fields.status());
  } else if (limits.error().code != Code::file_not_found) {
    return tl::unexpected(limits.error());
  }
  const Result<std::string> text = read_file(folder + "/modules.json", kMaxConfig);
  if (!text) return {};
  TESSERA_ASSIGN(const Json modules, parse_json(*text, "modules.json"));
  if (modules.list() == nullptr) return fail(Code::file_malformed, "modules.json is no list");
  for (const Json& module : *modules.list()) {
    Fields fields(module, "modules.json");
    if (module.members() == nullptr) return fail(Code::file_malformed, "modules.json holds what is no object");
    const std::string type = fields.text("type", ""), path = fields.text("path", "");
    if (type.ends_with(".Normalize")) source.normalised = true;
    if (type.ends_with(".Dense"))
      return fail(Code::unsupported_feature, "modules.json asks for a dense layer behind the pooling");
    if (!type.ends_with(".Pooling")) continue;
    TESSERA_ASSIGN(const std::string inside, resolve_inside(folder, path + "/config.json"));
    TESSERA_ASSIGN(const Json json, read_object(inside.substr(0, inside.rfind('/')), "config.json"));
    Fields pooling(json, path + "/config.json");
    // Vectors of several kinds would be joined.
    int modes = 0, known = 0;
    for (const auto& [key, value] : *json.members())
      modes += key.starts_with("pooling_mode_") && pooling.flag(key, false) ? 1 : 0;
    for (const auto& [key, kind] :
         {std::pair("pooling_mode_cls_token", Pooling::cls), std::pair("pooling_mode_lasttoken", Pooling::last),
          std::pair("pooling_mode_mean_tokens", Pooling::mean)}) {
      if (!pooling.flag(key, false)) continue;
      source.pooling = kind;
      ++known;
    }
    TESSERA_TRY(pooling.status());
    if (modes != 1 || known != 1)
      return fail(Code::unsupported_feature, "{}/config.json asks for other than one of mean, cls and last pooling",
                  path);
  }
  return {};
}

}  // namespace

bool is_model_folder(const std::string& path) {
  struct stat info;
  return ::stat((path + "/config.json").c_str(), &info) == 0;
}

Result<transformer::Source> open(const std::string& folder) {
  TESSERA_ASSIGN(const Json json, read_object(folder, "config.json"));
  Fields fields(json, "config.json");
  transformer::Source source;
  Config& config = source.config;
  config.architecture = fields.text("model_type", "");
  TESSERA_TRY(fields.status());
  TESSERA_ASSIGN(const Family* family, find_family(config.architecture));
  if (fields.find("quantization_config") != nullptr)
    return fail(Code::unsupported_feature, "the model is quantized in a way that config.json describes");
  family->read(fields, config);
  TESSERA_TRY(read_ids(folder, fields, config));
  TESSERA_TRY(fields.status());
  TESSERA_TRY(transformer::check(config));
  TESSERA_ASSIGN(SafetensorsFolder files, open_safetensors(folder));
  auto weights = std::make_shared<FolderWeights>(std::move(files), *family);
  config.pooler = !config.decoder && weights->has({Part::pooler});
  source.weights = std::move(weights);
  TESSERA_TRY(read_pooling(folder, source));
  return source;
}

}  // namespace tessera::huggingface
