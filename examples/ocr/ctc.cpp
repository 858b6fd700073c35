#include "ctc.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "failure.h"

namespace ocr {

tessera::Result<std::vector<std::string>> read_alphabet(const std::string& path) {
  std::ifstream file(path);
  if (!file) return fail(tessera::Code::file_not_found, "cannot open alphabet '{}'", path);
  std::vector<std::string> alphabet = {""};
  for (std::string line; std::getline(file, line);) alphabet.push_back(line);
  alphabet.push_back(" ");
  return alphabet;
}

tessera::Result<std::string> decode_greedy(const tessera::Tensor& scores, const std::vector<std::string>& alphabet) {
  const tessera::Dims& shape = scores.shape();
  const auto classes = static_cast<int64_t>(alphabet.size());
  if (scores.dtype() != tessera::DType::f32 || shape.size() != 3 || shape[0] != 1 || shape[2] != classes)
    return fail(tessera::Code::shape_mismatch, "the alphabet needs scores f32 [1, T, {}], the model gave {} [{}]",
                classes, tessera::name(scores.dtype()), fmt::join(shape, ", "));
  std::string text;
  int64_t previous = 0;
  for (int64_t step = 0; step < shape[1]; ++step) {
    const float* row = scores.as<float>() + step * classes;
    const int64_t best = std::max_element(row, row + classes) - row;
    if (best != previous) text += alphabet[static_cast<size_t>(best)];
    previous = best;
  }
  return text;
}

}  // namespace ocr
