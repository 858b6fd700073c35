#include "picture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <png.h>
#include <unistd.h>

#include <fstream>

namespace ocr {
namespace {

std::string scratch(const std::string& name) {
  return fmt::format("{}/ocr_test.{}.{}", testing::TempDir(), getpid(), name);
}

// Writes pixels of a libpng simplified format.
void write_png(const std::string& path, int width, int height, png_uint_32 format, const std::vector<uint8_t>& pixels) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = format;
  ASSERT_TRUE(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr)) << image.message;
}

TEST(ReadPng, GivesRgbOfEveryKind) {
  const std::string path = scratch("kinds.png");
  write_png(path, 2, 1, PNG_FORMAT_RGB, {1, 2, 3, 250, 251, 252});
  auto picture = read_png(path).value();
  EXPECT_EQ(picture.width, 2);
  EXPECT_EQ(picture.height, 1);
  EXPECT_EQ(picture.rgb, (std::vector<uint8_t>{1, 2, 3, 250, 251, 252}));
  write_png(path, 1, 2, PNG_FORMAT_GRAY, {7, 200});
  EXPECT_EQ(read_png(path).value().rgb, (std::vector<uint8_t>{7, 7, 7, 200, 200, 200}));
  write_png(path, 1, 1, PNG_FORMAT_RGBA, {9, 9, 9, 0});
  EXPECT_EQ(read_png(path).value().rgb, (std::vector<uint8_t>{255, 255, 255}));
}

TEST(ReadPng, NamesWhatIsWrong) {
  EXPECT_EQ(read_png(scratch("absent.png")).error().code, tessera::Code::file_not_found);
  const std::string path = scratch("damaged.png");
  std::ofstream(path) << "not a picture";
  EXPECT_EQ(read_png(path).error().code, tessera::Code::file_malformed);

  write_png(path, 64, 64, PNG_FORMAT_RGB, std::vector<uint8_t>(64 * 64 * 3, 5));
  std::ifstream whole(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(whole)), std::istreambuf_iterator<char>());
  std::ofstream(path, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  EXPECT_EQ(read_png(path).error().code, tessera::Code::file_malformed);
}

TEST(ReadPng, RefusesHugePicturesBeforeAllocating) {
  // Signature and IHDR of a picture of 60000 x 60000, 8-bit RGB, with its CRC; then the start of a data chunk.
  const unsigned char header[] = {0x89, 'P',  'N',  'G',  '\r', '\n', 0x1a, '\n', 0,    0,    0,   13,  'I', 'H',
                                  'D',  'R',  0,    0,    0xea, 0x60, 0,    0,    0xea, 0x60, 8,   2,   0,   0,
                                  0,    0x0f, 0xb0, 0xe2, 0x15, 0,    0,    0,    9,    'I',  'D', 'A', 'T'};
  const std::string path = scratch("huge.png");
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(header), sizeof header);
  EXPECT_EQ(read_png(path).error().code, tessera::Code::out_of_memory);
}

TEST(Resize, KeepsAPictureOfTheSameSize) {
  const Picture picture = {2, 2, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255}};
  EXPECT_EQ(resize(picture, 2, 2), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255}));
}

TEST(Resize, InterpolatesBetweenPixelCentres) {
  const Picture picture = {2, 1, {0, 0, 0, 100, 100, 200}};
  // Doubling puts the new centres at -1/4, 1/4, 3/4 and 5/4 of the old ones; the outer two are clamped.
  EXPECT_EQ(resize(picture, 4, 1), (std::vector<float>{0, 0, 0, 25, 25, 50, 75, 75, 150, 100, 100, 200}));
  EXPECT_EQ(resize(picture, 1, 2), (std::vector<float>{50, 50, 100, 50, 50, 100}));
}

TEST(RecogniserInput, IsBlueFirstAndScaled) {
  Picture picture = {96, 48, {}};
  for (int i = 0; i < 96 * 48; ++i) picture.rgb.insert(picture.rgb.end(), {255, 0, 51});
  const tessera::Tensor input = recogniser_input(picture).value();
  EXPECT_EQ(input.shape(), (tessera::Dims{1, 3, 48, 96}));
  const int plane = 48 * 96;
  EXPECT_FLOAT_EQ(input.as<float>()[0], -0.6f);
  EXPECT_FLOAT_EQ(input.as<float>()[plane], -1.0f);
  EXPECT_FLOAT_EQ(input.as<float>()[2 * plane], 1.0f);
}

TEST(RecogniserInput, KeepsTheAspectAndRefusesExtremes) {
  EXPECT_EQ(recogniser_input({7, 20, std::vector<uint8_t>(7 * 20 * 3)}).value().shape(), (tessera::Dims{1, 3, 48, 17}));
  EXPECT_EQ(recogniser_input({1, 500, std::vector<uint8_t>(500 * 3)}).value().shape(), (tessera::Dims{1, 3, 48, 1}));
  EXPECT_EQ(recogniser_input({}).error().code, tessera::Code::shape_invalid);
  EXPECT_EQ(recogniser_input({5000, 1, std::vector<uint8_t>(5000 * 3)}).error().code, tessera::Code::shape_invalid);
}

}  // namespace
}  // namespace ocr
