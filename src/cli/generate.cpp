#include "engine/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/result.h"
#include "base/strings.h"
#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/language.h"
#include "engine/language.h"

namespace tessera::cli {

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

namespace {

double rate(int64_t tokens, double ms) { return ms > 0 ? 1000 * static_cast<double>(tokens) / ms : 0; }

Json describe(const engine::Generated& generated, const engine::GenerateRequest& request, const TextAnswer* answer) {
  Json object{{"text", answer != nullptr ? Json(answer->text()) : Json()},
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

// The tokens of all prompts: texts first, then those given as ids.
Result<std::vector<std::vector<int64_t>>> prompts_of(const LanguageArguments& l, const text::Tokenizer* tokenizer) {
  std::vector<std::vector<int64_t>> prompts;
  for (const std::string& prompt : l.prompts) {
    TESSERA_ASSIGN(const text::Encoding encoding, tokenizer->encode(prompt));
    prompts.emplace_back(encoding.ids.begin(), encoding.ids.end());
  }
  for (const std::string& list : l.ids) {
    TESSERA_ASSIGN(std::vector<int64_t> ids, parse_ids(list));
    prompts.push_back(std::move(ids));
  }
  if (prompts.empty()) return fail(Code::usage, "there is nothing to continue: give --prompt or --prompt-ids");
  return prompts;
}

void print_answers(const std::vector<engine::Generated>& results, const std::vector<TextAnswer>& answers) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (answers.empty())
      say("{}\n", joined(results[i].tokens, ","));
    else if (results.size() > 1)
      say("{}\n", answers[i].text());
    else
      say("\n");  // the text came as it was made
  }
}

}  // namespace

Result<int> generate(const Arguments& arguments) {
  const LanguageArguments& l = arguments.language;
  if (l.chat) return chat(arguments);
  if (!l.system.empty() || !l.chat_template.empty())
    return fail(Code::usage, "--system and --chat-template belong to --chat");
  TESSERA_ASSIGN(const runtime::SamplingOptions sampling, sampling_of(arguments));
  TESSERA_ASSIGN(const transformer::Source source, engine::open_language_model(arguments.subject));
  // Ids need no tokenizer, and then a model without one gives no text.
  Result<text::Tokenizer> loaded = text::Tokenizer::load(arguments.subject);
  if (!loaded && (!l.prompts.empty() || !l.stops.empty())) return tl::unexpected<Error>(std::move(loaded.error()));
  const text::Tokenizer* tokenizer = loaded ? &*loaded : nullptr;
  TESSERA_ASSIGN(const std::vector<std::vector<int64_t>> prompts, prompts_of(l, tokenizer));

  std::vector<int64_t> eos = source.config.eos;
  if (tokenizer != nullptr)
    eos.insert(eos.end(), tokenizer->special().end_of_turn.begin(), tokenizer->special().end_of_turn.end());
  const bool streams = !arguments.json && prompts.size() == 1;
  std::vector<TextAnswer> answers;
  for (size_t i = 0; tokenizer != nullptr && i < prompts.size(); ++i)
    answers.emplace_back(*tokenizer, l.stops, [streams](std::string_view piece) {
      if (!streams) return;
      say("{}", piece);
      std::fflush(stdout);
    });
  std::vector<engine::GenerateRequest> requests;
  int64_t longest = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    engine::GenerateRequest request;
    request.prompt = prompts[i];
    request.sampling = sampling;
    request.max_tokens = l.max_tokens;
    if (!l.ignore_eos) request.eos = eos;
    if (tokenizer != nullptr)
      request.on_token = [&answers, i](const runtime::Choice& choice) { return answers[i].push(choice.token); };
    longest = std::max(longest, static_cast<int64_t>(request.prompt.size()));
    requests.push_back(std::move(request));
  }
  TESSERA_ASSIGN(
      const std::unique_ptr<engine::Decoder> decoder,
      engine::Decoder::make(source, decoder_options(arguments, source.config, static_cast<int64_t>(requests.size()),
                                                    longest + std::min(l.max_tokens, INT64_MAX - longest))));
  engine::GenerateReport report;
  TESSERA_ASSIGN(const std::vector<engine::Generated> results,
                 engine::generate(*decoder, requests, &report, &stop_requested));
  for (TextAnswer& answer : answers) answer.finish();
  if (!arguments.json) {
    print_answers(results, answers);
    remark("{:.1f} tokens/s of prompt, {:.1f} tokens/s of answer; weights {}, cache {} ({}); {}\n",
           rate(report.prefill_tokens, report.prefill_ms), rate(report.decode_tokens, report.decode_ms),
           decoder->cost().weights, bytes_text(static_cast<double>(decoder->cache_bytes())), l.cache,
           engine::name(results[0].finish));
    return 0;
  }
  const auto tell = [&](size_t i) {
    return describe(results[i], requests[i], answers.empty() ? nullptr : &answers[i]);
  };
  Json object = tell(0);
  object["prefill_ms"] = report.prefill_ms;
  object["decode_ms"] = report.decode_ms;
  object["tokens_per_s"] = rate(report.decode_tokens, report.decode_ms);
  object["prefill_tokens_per_s"] = rate(report.prefill_tokens, report.prefill_ms);
  object["kv_bytes"] = decoder->cache_bytes();
  object["weights"] = decoder->cost().weights;
  object["weight_bytes"] = decoder->weight_bytes();
  if (results.size() > 1) {
    Json list = Json::array();
    for (size_t i = 0; i < results.size(); ++i) list.push_back(tell(i));
    object["sequences"] = std::move(list);
  }
  print_json(object);
  return 0;
}

}  // namespace tessera::cli
