// Pictures for the text recogniser: reading PNG files and making the model's input of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/error.h"
#include "tessera/tensor.h"

namespace ocr {

struct Picture {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

// Reads any PNG as 8-bit RGB; transparent parts become white. E0101 when the file cannot be opened, E0104 when it is
// not a readable PNG, E0503 when it has more than 64 million pixels.
tessera::Result<Picture> read_png(const std::string& path);

// Bilinear, pixel centres at half positions, edges repeated. Returns [height, width, 3]; the picture must not be empty.
std::vector<float> resize(const Picture& picture, int width, int height);

// The recogniser's input [1, 3, 48, W]: 48 rows, W keeps the aspect, channels in the order blue, green, red, 0...255
// scaled to -1...1.
tessera::Result<tessera::Tensor> recogniser_input(const Picture& picture);

}  // namespace ocr
