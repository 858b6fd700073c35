#include "reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace ocr {
namespace {

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
