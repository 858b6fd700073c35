#include "ctc.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace ocr {
namespace {

using tessera::DType;
using tessera::Tensor;

const std::vector<std::string> kAlphabet = {"", "a", "好", " "};

// Scores [1, T, 4] whose best class at each step is the one given.
std::vector<float> scores_of(const std::vector<int>& best) {
  std::vector<float> scores(best.size() * kAlphabet.size(), 0.1f);
  for (size_t i = 0; i < best.size(); ++i) scores[i * kAlphabet.size() + static_cast<size_t>(best[i])] = 0.7f;
  return scores;
}

std::string decoded(const std::vector<int>& best) {
  const std::vector<float> scores = scores_of(best);
  const auto steps = static_cast<int64_t>(best.size());
  return decode_greedy(Tensor::borrow(DType::f32, {1, steps, 4}, scores.data()), kAlphabet).value();
}

TEST(DecodeGreedy, MergesRepeatsAndDropsBlanks) {
  EXPECT_EQ(decoded({0, 1, 1, 0, 1, 2, 2, 3, 3, 1, 0}), "aa好 a");
  EXPECT_EQ(decoded({1}), "a");
  EXPECT_EQ(decoded({0, 0, 0}), "");
  EXPECT_EQ(decoded({}), "");
}

TEST(DecodeGreedy, LowestClassWinsATie) {
  const std::vector<float> scores = {0.1f, 0.4f, 0.4f, 0.1f};
  EXPECT_EQ(decode_greedy(Tensor::borrow(DType::f32, {1, 1, 4}, scores.data()), kAlphabet).value(), "a");
}

TEST(DecodeGreedy, RefusesOtherShapesAndTypes) {
  const std::vector<float> scores(8);
  const Tensor two_lines = Tensor::borrow(DType::f32, {2, 1, 4}, scores.data());
  const Tensor other_alphabet = Tensor::borrow(DType::f32, {1, 1, 5}, scores.data());
  const Tensor integers = Tensor::borrow(DType::i32, {1, 2, 4}, scores.data());
  for (const Tensor& wrong : {two_lines, other_alphabet, integers}) {
    const auto text = decode_greedy(wrong, kAlphabet);
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().code, tessera::Code::shape_mismatch);
  }
}

TEST(ReadAlphabet, PutsBlankFirstAndSpaceLast) {
  const std::string path = fmt::format("{}/ocr_test.{}.txt", testing::TempDir(), getpid());
  std::ofstream(path) << "x\n好\n!";  // the last line may lack its end
  EXPECT_EQ(read_alphabet(path).value(), (std::vector<std::string>{"", "x", "好", "!", " "}));
  EXPECT_EQ(read_alphabet(path + ".absent").error().code, tessera::Code::file_not_found);
}

}  // namespace
}  // namespace ocr
