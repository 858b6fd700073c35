#include "picture.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "failure.h"

namespace ocr {
namespace {

using tessera::Code;

constexpr int64_t kMaxPixels = int64_t{64} << 20;  // a PNG of a few bytes may claim 2^62
constexpr int kRows = 48;                          // the height that the recogniser was trained with
constexpr int kChannels = 3;
constexpr int kMaxAspect = 1000;  // of a line; bounds the input that a picture one pixel high would make

// Where one output pixel takes its value from, along one axis.
struct Tap {
  int first;
  int second;
  float weight;  // of the second
};

std::vector<Tap> taps(int from, int to) {
  std::vector<Tap> result(static_cast<size_t>(to));
  const double scale = static_cast<double>(from) / to;
  for (int i = 0; i < to; ++i) {
    const double at = std::clamp((i + 0.5) * scale - 0.5, 0.0, from - 1.0);
    const int first = static_cast<int>(at);
    result[static_cast<size_t>(i)] = {first, std::min(first + 1, from - 1), static_cast<float>(at - first)};
  }
  return result;
}

}  // namespace

tessera::Result<Picture> read_png(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return fail(Code::file_not_found, "cannot open picture '{}'", path);
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> owner(&image, &png_image_free);
  if (!png_image_begin_read_from_stdio(&image, file.get()))
    return fail(Code::file_malformed, "picture '{}' is not a readable PNG: {}", path, image.message);
  const int64_t pixels = static_cast<int64_t>(image.width) * image.height;
  if (pixels > kMaxPixels)
    return fail(Code::out_of_memory, "picture '{}' has {} pixels, more than the limit of {}", path, pixels, kMaxPixels);
  image.format = PNG_FORMAT_RGB;
  Picture picture;
  picture.width = static_cast<int>(image.width);
  picture.height = static_cast<int>(image.height);
  picture.rgb.resize(static_cast<size_t>(pixels) * kChannels);
  const png_color white = {255, 255, 255};
  if (!png_image_finish_read(&image, &white, picture.rgb.data(), 0, nullptr))
    return fail(Code::file_malformed, "picture '{}' is damaged: {}", path, image.message);
  return picture;
}

std::vector<float> resize(const Picture& picture, int width, int height) {
  const std::vector<Tap> columns = taps(picture.width, width);
  const std::vector<Tap> rows = taps(picture.height, height);
  std::vector<float> result;  // [height, width, 3]
  result.reserve(static_cast<size_t>(width) * static_cast<size_t>(height) * kChannels);
  const size_t pitch = static_cast<size_t>(picture.width) * kChannels;
  for (const Tap& row : rows) {
    const uint8_t* upper = picture.rgb.data() + static_cast<size_t>(row.first) * pitch;
    const uint8_t* lower = picture.rgb.data() + static_cast<size_t>(row.second) * pitch;
    for (const Tap& column : columns) {
      for (int c = 0; c < kChannels; ++c) {
        const int left = column.first * kChannels + c;
        const int right = column.second * kChannels + c;
        const float at_left = upper[left] + row.weight * static_cast<float>(lower[left] - upper[left]);
        const float at_right = upper[right] + row.weight * static_cast<float>(lower[right] - upper[right]);
        result.push_back(at_left + column.weight * (at_right - at_left));
      }
    }
  }
  return result;
}

tessera::Result<tessera::Tensor> recogniser_input(const Picture& picture) {
  if (picture.width < 1 || picture.height < 1 || picture.width / picture.height >= kMaxAspect)
    return fail(Code::shape_invalid,
                "a picture of {} by {} pixels is not a line of text: it is empty, or {} times as wide as high",
                picture.width, picture.height, kMaxAspect);
  const double aspect = static_cast<double>(picture.width) / picture.height;
  const int width = std::max(1, static_cast<int>(std::lround(kRows * aspect)));
  auto tensor = tessera::Tensor::make(tessera::DType::f32, {1, kChannels, kRows, width});
  if (!tensor) return tensor;
  const std::vector<float> pixels = resize(picture, width, kRows);  // [48, W, 3], red first
  float* planes = tensor->as<float>();                              // [3, 48, W], blue first
  const size_t plane = static_cast<size_t>(kRows) * static_cast<size_t>(width);
  for (size_t i = 0; i < plane; ++i)
    for (size_t c = 0; c < kChannels; ++c)
      planes[c * plane + i] = pixels[i * kChannels + (kChannels - 1 - c)] / 127.5f - 1.0f;
  return tensor;
}

}  // namespace ocr
