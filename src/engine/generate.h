// Generation: prompts in, tokens out, several at once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/decoder.h"
#include "runtime/sampler.h"

namespace tessera::engine {

enum class Finish : uint8_t { stop, length, eos };
std::string_view name(Finish finish);

struct GenerateRequest {
  std::vector<int64_t> prompt;
  runtime::SamplingOptions sampling = {};
  int64_t max_tokens = 128;
  std::vector<int64_t> eos = {};  // tokens that end the answer, and are no part of it; empty to ignore them
  // Told of each token; true ends the answer with Finish::stop.
  std::function<bool(const runtime::Choice& choice)> on_token = {};
};

struct Generated {
  std::vector<int64_t> tokens;
  std::vector<runtime::Choice> choices;  // with probabilities, where they were asked for
  Finish finish = Finish::length;
  int64_t shared_tokens = 0;  // of the prompt, whose keys and values were there already
};

struct GenerateReport {
  double prefill_ms = 0;  // until each sequence has its first token
  double decode_ms = 0;
  int64_t prefill_tokens = 0;  // that were computed
  int64_t decode_tokens = 0;   // after the first of each sequence
};

// All requests together: prompts are read one after another, in the decoder's chunks, then every step extends all
// sequences that have not ended by one token. An answer that reaches the decoder's context ends with Finish::length.
Result<std::vector<Generated>> generate(Decoder& decoder, std::span<const GenerateRequest> requests,
                                        GenerateReport* report = nullptr, const std::atomic<bool>* stop = nullptr);

}  // namespace tessera::engine
