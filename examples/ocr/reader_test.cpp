#include "reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace ocr {
namespace {

// Where scripts/fetch_model.sh puts the model.
std::filesystem::path model_folder() {
  const char* cache = std::getenv("TESSERA_CACHE");
  if (cache) return std::filesystem::path(cache) / "ppocr-v4";
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home ? home : "") / ".cache/tessera-models/ppocr-v4";
}

TEST(Reader, ReadsEveryPictureRight) {
  const std::filesystem::path model = model_folder();
  if (!std::filesystem::exists(model / "recogniser.onnx"))
    GTEST_SKIP() << "the trained model is not in " << model << "; scripts/fetch_model.sh fetches it";
  const auto reader = Reader::load(model / "recogniser.onnx", model / "keys.txt");
  ASSERT_TRUE(reader) << reader.error().to_string();
  const auto expected = read_expected("examples/ocr/expected.tsv");
  ASSERT_TRUE(expected) << expected.error().to_string();
  EXPECT_GE(expected->size(), 12u);
  for (const Expected& line : *expected) {
    const auto picture = read_png("examples/ocr/pictures/" + line.file);
    ASSERT_TRUE(picture) << picture.error().to_string();
    const auto text = reader->read(*picture);
    ASSERT_TRUE(text) << text.error().to_string();
    EXPECT_EQ(*text, line.text) << line.file;
  }
}

TEST(Reader, NamesTheMissingFile) {
  const auto no_alphabet = Reader::load("absent.onnx", "absent.txt");
  ASSERT_FALSE(no_alphabet);
  EXPECT_NE(no_alphabet.error().message.find("absent.txt"), std::string::npos);
  const auto no_model = Reader::load("absent.onnx", "examples/ocr/expected.tsv");
  ASSERT_FALSE(no_model);
  EXPECT_EQ(no_model.error().code, tessera::Code::file_not_found);
  EXPECT_NE(no_model.error().to_string().find("absent.onnx"), std::string::npos);
}

TEST(ReadExpected, NamesTheLineWithoutATab) {
  const std::string path = fmt::format("{}/ocr_test.{}.tsv", testing::TempDir(), getpid());
  std::ofstream(path) << "a.png\ttext with\ttab\nb.png text\n";
  const auto wrong = read_expected(path);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("line 2"), std::string::npos);
  std::ofstream(path) << "a.png\ttext with\ttab\n";
  EXPECT_EQ(read_expected(path).value().at(0).text, "text with\ttab");
}

}  // namespace
}  // namespace ocr
