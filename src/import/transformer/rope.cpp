#include "import/transformer/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::transformer {

std::vector<double> rope_frequencies(int64_t width, double theta) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i + 1 < width; i += 2)
    frequencies.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(width)));
  return frequencies;
}

void scale_llama3(std::vector<double>& frequencies, const Llama3Scaling& s) {
  const double longest = s.original_context / s.low, shortest = s.original_context / s.high;
  for (double& f : frequencies) {
    const double wave = 2 * std::numbers::pi / f;
    if (wave > longest) {
      f /= s.factor;
    } else if (wave >= shortest) {
      const double smooth = (s.original_context / wave - s.low) / (s.high - s.low);
      f = (1 - smooth) * f / s.factor + smooth * f;
    }
  }
}

void scale_yarn(std::vector<double>& frequencies, const YarnScaling& s) {
  const auto width = 2 * static_cast<double>(frequencies.size());
  // The dimension that makes `turns` turns over the original context.
  const auto dimension = [&](double turns) {
    return width * std::log(s.original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(s.theta));
  };
  double low = dimension(s.beta_fast), high = dimension(s.beta_slow);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, width - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / s.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

double yarn_magnitude(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

void scale_long(Rope& rope, const LongRopeScaling& s) {
  double magnitude = s.magnitude;
  if (magnitude == 0)
    magnitude =
        s.stretch <= 1 ? 1 : std::sqrt(1 + std::log(s.stretch) / std::log(static_cast<double>(s.original_context)));
  rope.long_frequencies = rope.frequencies;
  for (size_t i = 0; i < rope.frequencies.size(); ++i) {
    rope.frequencies[i] /= s.short_factors[i];
    rope.long_frequencies[i] /= s.long_factors[i];
  }
  rope.magnitude = rope.long_magnitude = magnitude;
  rope.original_context = s.original_context;
}

}  // namespace tessera::transformer
