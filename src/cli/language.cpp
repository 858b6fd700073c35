#include "cli/language.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iostream>

#include "base/file.h"
#include "base/result.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "engine/encoder.h"
#include "engine/language.h"
#include "formats/npy.h"
#include "text/tokenizer.h"

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

// What a command ends with, and the weights that it took.
Status tell(const Arguments& arguments, const Tensor& tensor, std::string_view what, const engine::DecoderCost& cost,
            int64_t weight_bytes) {
  if (!arguments.output.empty()) TESSERA_TRY(write_npy(arguments.output, tensor));
  if (arguments.json) {
    Json object{{"shape", tensor.shape()}, {"weights", cost.weights}, {"weight_bytes", weight_bytes}};
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
  options.weights = l.weights;
  options.deterministic = l.deterministic;
  options.exact = l.activations == "f32";
  options.cache = l.cache == "f16"    ? DType::f16
                  : l.cache == "bf16" ? DType::bf16
                  : l.cache == "int8" ? DType::i8
                                      : DType::f32;
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
  TESSERA_TRY(tell(arguments, tensor, "logits", decoder->cost(), decoder->weight_bytes()));
  return 0;
}

namespace {

// Texts are cut to `longest` tokens, as embedding models are used; ids are not. What a tokenizer.json says on cutting
// and filling up is of some earlier use: fillers would count as text here.
Result<std::vector<engine::EncoderText>> texts_of(const Arguments& arguments, int64_t longest) {
  const LanguageArguments& l = arguments.language;
  std::vector<std::string> lines = l.prompts;
  std::ifstream file;
  if (!l.file.empty() && l.file != "-") {
    file.open(l.file);
    if (!file) return fail(Code::file_not_found, "'{}' cannot be opened", l.file);
  }
  std::istream& in = l.file == "-" ? std::cin : file;
  for (std::string line; !l.file.empty() && std::getline(in, line);)
    if (!line.empty()) lines.push_back(line);
  std::vector<engine::EncoderText> texts;
  if (!lines.empty()) {
    TESSERA_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(arguments.subject));
    size_t cut = 0;
    for (const std::string& line : lines) {
      TESSERA_ASSIGN(const text::Encoding encoding,
                     tokenizer.encode(line, {.max_tokens = static_cast<size_t>(longest)}));
      texts.push_back({{encoding.ids.begin(), encoding.ids.end()}, {}});
      cut += encoding.cut ? 1 : 0;
    }
    if (cut > 0)
      remark("{} of {} texts are longer than {} tokens: their ends are left out\n", cut, lines.size(), longest);
  }
  for (const std::string& list : l.ids) {
    texts.emplace_back();
    TESSERA_ASSIGN(texts.back().ids, parse_ids(list));
  }
  if (texts.empty()) return fail(Code::usage, "there is nothing to embed: give --text, --file or --ids");
  if (l.types.empty()) return texts;
  if (texts.size() != 1) return fail(Code::usage, "--types belongs to one sequence, but {} are given", texts.size());
  TESSERA_ASSIGN(texts[0].types, parse_ids(l.types));
  return texts;
}

// Cosines between the rows of x [N, C].
Result<Tensor> cosines(const Tensor& x) {
  const int64_t n = x.shape()[0], width = x.shape()[1];
  TESSERA_ASSIGN(Tensor table, Tensor::make(DType::f32, {n, n}));
  const auto product = [&](int64_t a, int64_t b) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i)
      sum += static_cast<double>(x.as<float>()[a * width + i]) * x.as<float>()[b * width + i];
    return sum;
  };
  for (int64_t a = 0; a < n; ++a)
    for (int64_t b = 0; b < n; ++b) {
      const double length = std::sqrt(product(a, a) * product(b, b));
      table.as<float>()[a * n + b] = static_cast<float>(length > 0 ? product(a, b) / length : 0);
    }
  return table;
}

// Summed -log p of `tokens` after what came before them, from logits [tokens, vocabulary] of the positions before.
double loss(const Tensor& logits, std::span<const int64_t> tokens) {
  const int64_t width = logits.shape()[1];
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const float* row = logits.as<float>() + static_cast<int64_t>(i) * width;
    const double most = *std::max_element(row, row + width);
    double total = 0;
    for (int64_t j = 0; j < width; ++j) total += std::exp(row[j] - most);
    sum += most + std::log(total) - row[tokens[i]];
  }
  return sum;
}

}  // namespace

Result<int> embed(const Arguments& arguments) {
  const LanguageArguments& l = arguments.language;
  TESSERA_ASSIGN(const transformer::Source source, engine::open_language_model(arguments.subject));
  const int64_t context = source.config.context;
  TESSERA_ASSIGN(const std::vector<engine::EncoderText> texts,
                 texts_of(arguments, source.longest > 0 ? std::min(source.longest, context) : context));
  TESSERA_ASSIGN(const std::unique_ptr<engine::Encoder> encoder,
                 engine::Encoder::make(source, {.threads = arguments.session.threads,
                                                .optimisation = arguments.session.compile.optimisation,
                                                .weights = l.weights,
                                                .deterministic = l.deterministic,
                                                .exact = l.activations == "f32"}));
  const bool normalised = l.normalise || (source.normalised && l.pooling.empty());
  Result<Tensor> vectors =
      l.pooling == "pooler" ? encoder->pooled(texts, &stop_requested)
                            : encoder->embed(texts, pooling_of(l.pooling, source.pooling), normalised, &stop_requested);
  if (!vectors) return tl::unexpected<Error>(std::move(vectors.error()));
  if (l.compare) {
    TESSERA_ASSIGN(vectors, cosines(*vectors));
  }
  TESSERA_TRY(
      tell(arguments, *vectors, l.compare ? "cosines" : "embeddings", encoder->cost(), encoder->weight_bytes()));
  return 0;
}

// Windows of --ctx tokens, each of which scores its last --stride; the first one scores all that have one before them.
Result<int> perplexity(const Arguments& arguments) {
  constexpr size_t kMaxText = size_t{1} << 30;
  constexpr int64_t kScored = 64;  // tokens whose logits are held at once: a vocabulary may have 256 Ki
  TESSERA_ASSIGN(const std::string text, read_file(arguments.language.file, kMaxText));
  TESSERA_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(arguments.subject));
  TESSERA_ASSIGN(const text::Encoding encoding, tokenizer.encode(text));
  const std::vector<int64_t> ids(encoding.ids.begin(), encoding.ids.end());
  if (ids.size() < 2) return fail(Code::value_invalid, "the text has {} tokens, but scoring takes two", ids.size());
  TESSERA_ASSIGN(const transformer::Source source, engine::open_language_model(arguments.subject));
  const auto count = static_cast<int64_t>(ids.size());
  const engine::DecoderOptions options = decoder_options(arguments, source.config, 1, count);
  TESSERA_ASSIGN(const std::unique_ptr<engine::Decoder> decoder, engine::Decoder::make(source, options));
  const int64_t window = std::max<int64_t>(decoder->context(), 2);
  const int64_t stride = arguments.language.stride > 0 ? arguments.language.stride : std::max<int64_t>(window / 2, 1);
  const auto part = [&](int64_t begin, int64_t end) {
    return std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  };
  double nll = 0;
  int64_t scored = 1;  // tokens that are scored, or have none before them
  Progress progress;
  while (scored < count) {
    const int64_t end = std::min(count, scored == 1 ? window : scored + std::min(stride, window - 1));
    const int64_t begin = std::max<int64_t>(0, end - window);
    TESSERA_ASSIGN(const int sequence, decoder->open());
    if (scored - 1 > begin) TESSERA_TRY(decoder->feed(sequence, part(begin, scored - 1), false, &stop_requested));
    for (int64_t next = 0; scored < end; scored = next) {
      progress.show(fmt::format("{} of {} tokens", scored, count));
      next = std::min(end, scored + kScored);
      TESSERA_ASSIGN(const Tensor logits, decoder->feed(sequence, part(scored - 1, next - 1), true, &stop_requested));
      nll += loss(logits, part(scored, next));
    }
    decoder->close(sequence);
  }
  const double mean = nll / static_cast<double>(count - 1);
  progress.clear();
  if (arguments.json)
    print_json({{"perplexity", std::exp(mean)},
                {"nll", mean},
                {"tokens", count - 1},
                {"weights", decoder->cost().weights},
                {"context", window},
                {"stride", std::min(stride, window - 1)}});
  else
    say("perplexity {:.4f} of {} tokens\n", std::exp(mean), count - 1);
  return 0;
}

}  // namespace tessera::cli
