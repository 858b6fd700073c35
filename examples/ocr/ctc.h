// Connectionist temporal classification (Graves et al. 2006): from scores per step to text.
#pragma once

#include <string>
#include <vector>

#include "tessera/error.h"
#include "tessera/tensor.h"

namespace ocr {

// What each class of the model's output stands for: class 0 is CTC's blank (an empty string), then the lines of the
// file, then a space. E0101 when the file cannot be opened.
tessera::Result<std::vector<std::string>> read_alphabet(const std::string& path);

// Greedy decoding of `scores` [1, T, classes] f32: the best class of each step, repeats merged, blanks dropped. Where
// scores are equal the lowest class wins. E0312 when the shape does not fit the alphabet.
tessera::Result<std::string> decode_greedy(const tessera::Tensor& scores, const std::vector<std::string>& alphabet);

}  // namespace ocr
