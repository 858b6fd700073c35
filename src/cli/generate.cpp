#include "engine/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/result.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/language.h"
#include "engine/language.h"

namespace tessera::cli {
namespace {

Result<runtime::SamplingOptions> sampling_of(const Arguments& arguments) {
  const LanguageArguments& l = arguments.language;
  runtime::SamplingOptions options;
  options.temperature = l.temperature;
  options.top_k = l.top_k;
  options.top_p = l.top_p;
  options.min_p = l.min_p;
  options.repetition_penalty = l.repetition_penalty;
  options.presence_penalty = l.presence_penalty;
  options.frequency_penalty = l.frequency_penalty;
  options.logprobs = l.logprobs;
  options.seed = arguments.seed;
  for (const std::string& text : l.logit_bias) {
    int64_t id = 0;
    double value = 0;
    const size_t equals = text.find('=');
    const char* const end = text.data() + text.size();
    const auto first = std::from_chars(text.data(), text.data() + std::min(equals, text.size()), id);
    const auto second = equals == std::string::npos ? std::from_chars_result{end, std::errc::invalid_argument}
                                                    : std::from_chars(text.data() + equals + 1, end, value);
    if (first.ec != std::errc() || second.ec != std::errc() || second.ptr != end || first.ptr != text.data() + equals)
      return fail(Code::usage, "--logit-bias {}: expected ID=VALUE", text);
    options.logit_bias.emplace_back(id, value);
  }
  if (Status right = runtime::check(options); !right) return fail(Code::usage, "{}", right.error().message);
  return options;
}

double rate(int64_t tokens, double ms) { return ms > 0 ? 1000 * static_cast<double>(tokens) / ms : 0; }

Json describe(const engine::Generated& generated, const engine::GenerateRequest& request) {
  Json object{{"text", nullptr},
              {"token_ids", generated.tokens},
              {"prompt_tokens", request.prompt.size()},
              {"shared_tokens", generated.shared_tokens},
              {"finish_reason", engine::name(generated.finish)}};
  if (request.sampling.logprobs == 0) return object;
  Json list = Json::array();
  for (const runtime::Choice& choice : generated.choices) {
    Json top = Json::array();
    for (const runtime::TokenProbability& token : choice.top)
      top.push_back({{"token", token.token}, {"logprob", token.logprob}});
    list.push_back({{"token", choice.token}, {"logprob", choice.logprob}, {"top", std::move(top)}});
  }
  object["logprobs"] = std::move(list);
  return object;
}

}  // namespace

Result<int> generate(const Arguments& arguments) {
  const LanguageArguments& l = arguments.language;
  TESSERA_ASSIGN(const runtime::SamplingOptions sampling, sampling_of(arguments));
  TESSERA_ASSIGN(const transformer::Source source, engine::open_language_model(arguments.subject));
  std::vector<engine::GenerateRequest> requests;
  int64_t longest = 0;
  for (const std::string& list : l.ids) {
    engine::GenerateRequest request;
    TESSERA_ASSIGN(request.prompt, parse_ids(list));
    request.sampling = sampling;
    request.max_tokens = l.max_tokens;
    if (!l.ignore_eos) request.eos = source.config.eos;
    longest = std::max(longest, static_cast<int64_t>(request.prompt.size()));
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return fail(Code::usage, "there is nothing to continue: give --prompt-ids");
  TESSERA_ASSIGN(
      const std::unique_ptr<engine::Decoder> decoder,
      engine::Decoder::make(source, decoder_options(arguments, source.config, static_cast<int64_t>(requests.size()),
                                                    longest + l.max_tokens)));
  engine::GenerateReport report;
  TESSERA_ASSIGN(const std::vector<engine::Generated> results,
                 engine::generate(*decoder, requests, &report, &stop_requested));
  if (!arguments.json) {
    for (const engine::Generated& result : results) say("{}\n", fmt::join(result.tokens, ","));
    say("{:.1f} tokens/s of prompt, {:.1f} tokens/s of answer\n", rate(report.prefill_tokens, report.prefill_ms),
        rate(report.decode_tokens, report.decode_ms));
    return 0;
  }
  Json object = describe(results[0], requests[0]);
  object["prefill_ms"] = report.prefill_ms;
  object["decode_ms"] = report.decode_ms;
  object["tokens_per_s"] = rate(report.decode_tokens, report.decode_ms);
  object["prefill_tokens_per_s"] = rate(report.prefill_tokens, report.prefill_ms);
  object["kv_bytes"] = decoder->cache_bytes();
  if (results.size() > 1) {
    Json list = Json::array();
    for (size_t i = 0; i < results.size(); ++i) list.push_back(describe(results[i], requests[i]));
    object["sequences"] = std::move(list);
  }
  print_json(object);
  return 0;
}

}  // namespace tessera::cli
