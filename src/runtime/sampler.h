// Choosing the next token from a model's logits.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/error.h"

namespace tessera::runtime {

// The steps are taken in this order, each on what the one before left:
//   1. repetition penalty (Keskar et al. 2019): logits of tokens seen in prompt or answer, divided when positive and
//      multiplied when negative
//   2. presence and frequency penalty: taken off the logits of tokens in the answer, once and once a use
//   3. logit bias: added
//   4. temperature 0: the largest logit, the lowest id of equals, and nothing more. Else logits / temperature
//   5. top-k, 6. top-p (Holtzman et al. 2020): the fewest tokens that together have p, 7. min-p: those with at least
//      this part of the largest probability. The most likely token always stays
//   8. a draw, from the seed and the number of the token alone
struct SamplingOptions {
  double temperature = 0;
  int64_t top_k = 0;  // 0: all
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::vector<std::pair<int64_t, double>> logit_bias = {};
  uint64_t seed = 0;
  int64_t logprobs = 0;  // most likely tokens that are told beside the chosen one
};

// E0505 names a number that makes no sense.
Status check(const SamplingOptions& options);

struct TokenProbability {
  int64_t token = 0;
  double logprob = 0;  // of the model's own logits: before all of the steps
};

struct Choice {
  int64_t token = 0;
  double logprob = 0;
  std::vector<TokenProbability> top = {};
};

// One sequence's. Not thread-safe.
class Sampler {
 public:
  explicit Sampler(SamplingOptions options) : options_(std::move(options)) {}

  void see_prompt(std::span<const int64_t> tokens);
  // The next token, which then counts as part of the answer. `logits` may hold infinities; E0505 when they are NaN.
  Result<Choice> choose(std::span<const float> logits);

 private:
  void penalise(std::vector<float>& logits) const;
  int64_t draw(const std::vector<float>& logits);

  SamplingOptions options_;
  std::unordered_map<int64_t, int64_t> answer_;  // uses of each token
  std::unordered_map<int64_t, bool> seen_;
  uint64_t number_ = 0;  // of the next token
};

}  // namespace tessera::runtime
