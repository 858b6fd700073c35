#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"

namespace tessera::runtime {
namespace {

// Uniform in [0, 1): the counter-based generator of Steele et al. 2014 (SplitMix64).
double uniform(uint64_t seed, uint64_t number) {
  uint64_t z = seed * 0xd1342543de82ef95u + (number + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

// log of the sum of e^x.
double log_total(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - most);
  return most + std::log(sum);
}

}  // namespace

Status check(const SamplingOptions& o) {
  const auto in = [](std::string_view name, double value, double low, double high) -> Status {
    if (value >= low && value <= high) return {};
    return fail(Code::value_invalid, "{} is {} but must be in [{}, {}]", name, value, low, high);
  };
  constexpr double kMost = 1e6;
  TESSERA_TRY(in("temperature", o.temperature, 0, kMost));
  TESSERA_TRY(in("top-k", static_cast<double>(o.top_k), 0, 1e12));
  TESSERA_TRY(in("top-p", o.top_p, 0, 1));
  TESSERA_TRY(in("min-p", o.min_p, 0, 1));
  TESSERA_TRY(in("repetition penalty", o.repetition_penalty, 1e-6, kMost));
  TESSERA_TRY(in("presence penalty", o.presence_penalty, -kMost, kMost));
  TESSERA_TRY(in("frequency penalty", o.frequency_penalty, -kMost, kMost));
  return in("logprobs", static_cast<double>(o.logprobs), 0, 1e6);
}

void Sampler::see_prompt(std::span<const int64_t> tokens) {
  if (options_.repetition_penalty == 1) return;
  for (int64_t token : tokens) seen_[token] = true;
}

void Sampler::penalise(std::vector<float>& logits) const {
  const auto at = [&](int64_t token) -> float* {
    return token >= 0 && token < static_cast<int64_t>(logits.size()) ? &logits[static_cast<size_t>(token)] : nullptr;
  };
  if (options_.repetition_penalty != 1)
    for (const auto& [token, seen] : seen_)
      if (float* x = at(token))
        *x = static_cast<float>(*x > 0 ? *x / options_.repetition_penalty : *x * options_.repetition_penalty);
  if (options_.presence_penalty != 0 || options_.frequency_penalty != 0)
    for (const auto& [token, uses] : answer_)
      if (float* x = at(token))
        *x -= static_cast<float>(options_.presence_penalty + options_.frequency_penalty * static_cast<double>(uses));
  for (const auto& [token, bias] : options_.logit_bias)
    if (float* x = at(token)) *x += static_cast<float>(bias);
}

int64_t Sampler::draw(const std::vector<float>& logits) {
  std::vector<std::pair<double, int64_t>> tokens;
  tokens.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    tokens.emplace_back(static_cast<double>(logits[i]) / options_.temperature, static_cast<int64_t>(i));
  const auto before = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  size_t kept = tokens.size();
  if (options_.top_k > 0) kept = std::min(kept, static_cast<size_t>(options_.top_k));
  std::partial_sort(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(kept), tokens.end(), before);
  tokens.resize(kept);
  const double most = tokens[0].first;
  double total = 0;
  for (auto& [x, id] : tokens) total += x = most == -INFINITY ? 1 : std::exp(x - most);
  if (options_.top_p < 1) {
    double sum = 0;
    size_t n = 0;
    while (n < tokens.size() && (n == 0 || sum < options_.top_p * total)) sum += tokens[n++].first;
    tokens.resize(n);
  }
  if (options_.min_p > 0)
    while (tokens.size() > 1 && tokens.back().first < options_.min_p * tokens[0].first) tokens.pop_back();
  total = 0;
  for (const auto& token : tokens) total += token.first;
  double left = uniform(options_.seed, number_) * total;
  for (const auto& [weight, id] : tokens) {
    left -= weight;
    if (left < 0) return id;
  }
  return tokens.back().second;
}

Result<Choice> Sampler::choose(std::span<const float> logits) {
  if (logits.empty()) return fail(Code::value_invalid, "there are no logits to choose from");
  if (std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); }))
    return fail(Code::value_invalid, "the model's logits are no numbers");
  std::vector<float> changed(logits.begin(), logits.end());
  penalise(changed);
  Choice choice;
  choice.token =
      options_.temperature == 0 ? std::max_element(changed.begin(), changed.end()) - changed.begin() : draw(changed);
  if (options_.logprobs > 0) {
    const double total = log_total(logits);
    choice.logprob = logits[static_cast<size_t>(choice.token)] - total;
    std::vector<int64_t> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    const auto n = std::min<size_t>(static_cast<size_t>(options_.logprobs), order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(n), order.end(), [&](int64_t a, int64_t b) {
      const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    });
    for (size_t i = 0; i < n; ++i) choice.top.push_back({order[i], logits[static_cast<size_t>(order[i])] - total});
  }
  ++answer_[choice.token];
  seen_[choice.token] = true;
  ++number_;
  return choice;
}

}  // namespace tessera::runtime
