#include "engine/generate.h"

#include <algorithm>
#include <chrono>

#include "base/result.h"
#include "engine/elapsed.h"

namespace tessera::engine {
namespace {

using Clock = std::chrono::steady_clock;

struct Running {
  const GenerateRequest* request;
  Generated* out;
  runtime::Sampler sampler;
  int sequence;
  int64_t last = 0;
  bool ended = false;
};

// Closes what was opened, whatever happens.
struct Sequences {
  Decoder& decoder;
  std::vector<int> ids;
  ~Sequences() {
    for (int id : ids) decoder.close(id);
  }
};

Status take(const Decoder& decoder, Running& r, std::span<const float> logits) {
  TESSERA_ASSIGN(runtime::Choice choice, r.sampler.choose(logits));
  const GenerateRequest& request = *r.request;
  if (std::find(request.eos.begin(), request.eos.end(), choice.token) != request.eos.end()) {
    r.out->finish = Finish::eos;
    r.ended = true;
    return {};
  }
  r.last = choice.token;
  r.out->tokens.push_back(choice.token);
  const bool stopped = request.on_token && request.on_token(choice);
  if (request.sampling.logprobs > 0) r.out->choices.push_back(std::move(choice));
  if (stopped) r.out->finish = Finish::stop;
  r.ended = stopped || static_cast<int64_t>(r.out->tokens.size()) >= request.max_tokens ||
            decoder.length(r.sequence) >= decoder.context();
  return {};
}

}  // namespace

std::string_view name(Finish finish) {
  constexpr std::string_view kNames[] = {"stop", "length", "eos"};
  return kNames[static_cast<size_t>(finish)];
}

Result<std::vector<Generated>> generate(Decoder& decoder, std::span<const GenerateRequest> requests,
                                        GenerateReport* report, const std::atomic<bool>* stop) {
  std::vector<Generated> results(requests.size());
  std::vector<Running> running;
  Sequences sequences{decoder, {}};
  GenerateReport told;
  const Clock::time_point begin = Clock::now();
  for (size_t i = 0; i < requests.size(); ++i) {
    const GenerateRequest& request = requests[i];
    TESSERA_TRY(runtime::check(request.sampling));
    if (request.prompt.empty()) return fail(Code::value_invalid, "prompt {} has no tokens", i);
    if (static_cast<int64_t>(request.prompt.size()) > decoder.context())
      return fail(Code::value_invalid, "prompt {} has {} tokens, more than the context of {}", i, request.prompt.size(),
                  decoder.context());
    TESSERA_ASSIGN(const int sequence, decoder.open(request.prompt));
    sequences.ids.push_back(sequence);
    Running r{&request, &results[i], runtime::Sampler(request.sampling), sequence};
    r.sampler.see_prompt(request.prompt);
    results[i].shared_tokens = decoder.length(sequence);
    const auto rest = std::span(request.prompt).subspan(static_cast<size_t>(results[i].shared_tokens));
    TESSERA_ASSIGN(const Tensor logits, decoder.feed(sequence, rest, false, stop));
    told.prefill_tokens += static_cast<int64_t>(rest.size());
    if (request.max_tokens > 0) {
      TESSERA_TRY(take(decoder, r, {logits.as<float>(), static_cast<size_t>(logits.count())}));
      if (!r.ended) running.push_back(std::move(r));
    }
  }
  told.prefill_ms = ms_since(begin);
  const Clock::time_point decoding = Clock::now();
  while (!running.empty()) {
    std::vector<Segment> segments;
    for (const Running& r : running) segments.push_back({r.sequence, {&r.last, 1}, false});
    TESSERA_ASSIGN(const Tensor logits, decoder.step(segments, stop));
    told.decode_tokens += static_cast<int64_t>(running.size());
    const auto width = static_cast<size_t>(logits.shape()[1]);
    for (size_t i = 0; i < running.size(); ++i)
      TESSERA_TRY(take(decoder, running[i], {logits.as<float>() + i * width, width}));
    std::erase_if(running, [](const Running& r) { return r.ended; });
  }
  told.decode_ms = ms_since(decoding);
  if (report != nullptr) *report = told;
  return results;
}

}  // namespace tessera::engine
