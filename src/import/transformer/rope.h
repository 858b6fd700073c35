// The ways in which models stretch rotary embeddings over more tokens than they were trained for.
#pragma once

#include <vector>

#include "import/transformer/config.h"

namespace tessera::transformer {

// theta^(-2i / width) for i < width / 2.
std::vector<double> rope_frequencies(int64_t width, double theta);

// Llama 3.1's: low frequencies are divided by `factor`, high ones stay, those between are blended.
struct Llama3Scaling {
  double factor = 8, low = 1, high = 4;
  double original_context = 8192;
};
void scale_llama3(std::vector<double>& frequencies, const Llama3Scaling& scaling);

// Peng et al. 2023, YaRN: the same by dimension, and a factor on cosine and sine.
struct YarnScaling {
  double factor = 1, beta_fast = 32, beta_slow = 1;
  double original_context = 0, theta = 10000;
  bool truncate = true;  // the bounds of the blended dimensions are whole
};
void scale_yarn(std::vector<double>& frequencies, const YarnScaling& scaling);
// 0.1 scale ln(factor) + 1
double yarn_magnitude(double factor, double scale = 1);

// Ding et al. 2024, LongRoPE: factors for each dimension, one list for sequences up to the original context.
struct LongRopeScaling {
  std::vector<double> short_factors, long_factors;
  int64_t original_context = 0;
  double magnitude = 0;  // 0: sqrt(1 + ln(stretch) / ln(original_context))
  double stretch = 1;
};
void scale_long(Rope& rope, const LongRopeScaling& scaling);

}  // namespace tessera::transformer
