#include "cli/language.h"

#include <algorithm>
#include <charconv>

#include "base/result.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "engine/encoder.h"
#include "engine/language.h"
#include "formats/npy.h"

namespace tessera::cli {
namespace {

using transformer::Pooling;

Json matrix(const Tensor& tensor) {
  Json rows = Json::array();
  for (int64_t i = 0; i < tensor.shape()[0]; ++i) {
    Json row = Json::array();
    for (int64_t j = 0; j < tensor.shape()[1]; ++j) row.push_back(tensor.as<float>()[i * tensor.shape()[1] + j]);
    rows.push_back(std::move(row));
  }
  return rows;
}

Status tell(const Arguments& arguments, const Tensor& tensor, std::string_view what) {
  if (!arguments.output.empty()) TESSERA_TRY(write_npy(arguments.output, tensor));
  if (arguments.json) {
    Json object{{"shape", tensor.shape()}};
    if (arguments.output.empty())
      object[std::string(what)] = matrix(tensor);
    else
      object["file"] = arguments.output;
    print_json(object);
  } else if (!arguments.output.empty()) {
    say("{}: f32[{}, {}] -> {}\n", what, tensor.shape()[0], tensor.shape()[1], arguments.output);
  } else {
    for (int64_t i = 0; i < tensor.shape()[0]; ++i) {
      for (int64_t j = 0; j < tensor.shape()[1]; ++j)
        say("{}{:.6g}", j == 0 ? "" : " ", tensor.as<float>()[i * tensor.shape()[1] + j]);
      say("\n");
    }
  }
  return {};
}

Pooling pooling_of(std::string_view text, Pooling otherwise) {
  constexpr std::pair<std::string_view, Pooling> kKinds[] = {
      {"none", Pooling::none}, {"mean", Pooling::mean}, {"cls", Pooling::cls}, {"last", Pooling::last}};
  for (const auto& [name, pooling] : kKinds)
    if (name == text) return pooling;
  return otherwise;
}

}  // namespace

Result<std::vector<int64_t>> parse_ids(std::string_view text) {
  std::vector<int64_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int64_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (next != end && *next != ',')) break;
    ids.push_back(id);
    at = next == end ? end : next + 1;
    if (at == end && next != end) break;  // a comma at the end
    if (at == end) return ids;
  }
  return fail(Code::usage, "'{}' is no list of token ids: expected A,B,C", text);
}

engine::DecoderOptions decoder_options(const Arguments& arguments, const transformer::Config& config, int64_t sequences,
                                       int64_t tokens) {
  const LanguageArguments& l = arguments.language;
  engine::DecoderOptions options;
  options.threads = arguments.session.threads;
  options.optimisation = arguments.session.compile.optimisation;
  options.sequences = sequences;
  options.chunk = l.chunk;
  options.exact = l.activations == "f32";
  options.cache = l.cache == "f16" ? DType::f16 : l.cache == "bf16" ? DType::bf16 : DType::f32;
  options.context = l.context > 0 ? l.context : std::min(tokens, config.context);
  return options;
}

Result<int> logits(const Arguments& arguments) {
  if (arguments.language.ids.size() != 1)
    return fail(Code::usage, "logits takes one --ids, but {} are given", arguments.language.ids.size());
  TESSERA_ASSIGN(const std::vector<int64_t> ids, parse_ids(arguments.language.ids[0]));
  TESSERA_ASSIGN(const transformer::Source source, engine::open_language_model(arguments.subject));
  TESSERA_ASSIGN(
      const std::unique_ptr<engine::Decoder> decoder,
      engine::Decoder::make(source, decoder_options(arguments, source.config, 1, static_cast<int64_t>(ids.size()))));
  TESSERA_ASSIGN(const int sequence, decoder->open());
  TESSERA_ASSIGN(const Tensor tensor, decoder->feed(sequence, ids, true, &stop_requested));
  TESSERA_TRY(tell(arguments, tensor, "logits"));
  return 0;
}

Result<int> embed(const Arguments& arguments) {
  const LanguageArguments& l = arguments.language;
  std::vector<engine::EncoderText> texts;
  for (const std::string& list : l.ids) {
    texts.emplace_back();
    TESSERA_ASSIGN(texts.back().ids, parse_ids(list));
  }
  if (texts.empty()) return fail(Code::usage, "there is nothing to embed: give --ids");
  if (!l.types.empty()) {
    if (texts.size() != 1) return fail(Code::usage, "--types belongs to one sequence, but {} are given", texts.size());
    TESSERA_ASSIGN(texts[0].types, parse_ids(l.types));
  }
  TESSERA_ASSIGN(const transformer::Source source, engine::open_language_model(arguments.subject));
  TESSERA_ASSIGN(const std::unique_ptr<engine::Encoder> encoder,
                 engine::Encoder::make(
                     source, {.threads = arguments.session.threads, .optimisation = arguments.session.compile.optimisation}));
  const bool normalised = l.normalise || (source.normalised && l.pooling.empty());
  Result<Tensor> vectors =
      l.pooling == "pooler" ? encoder->pooled(texts, &stop_requested)
                            : encoder->embed(texts, pooling_of(l.pooling, source.pooling), normalised, &stop_requested);
  if (!vectors) return tl::unexpected<Error>(std::move(vectors.error()));
  TESSERA_TRY(tell(arguments, *vectors, "embeddings"));
  return 0;
}

}  // namespace tessera::cli
