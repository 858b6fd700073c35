#include "base/strings.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

TEST(NearestName, FindsMisspellings) {
  const std::vector<std::string_view> names = {"input_ids", "attention_mask", "token_type_ids", "x", "y"};
  EXPECT_EQ(nearest_name("input_id", names), "input_ids");
  EXPECT_EQ(nearest_name("inptu_ids", names), "input_ids");
  EXPECT_EQ(nearest_name("Attention_Mask", names), "attention_mask");
  EXPECT_EQ(nearest_name("atention_msk", names), "attention_mask");
  EXPECT_EQ(nearest_name("X", names), "x");
  EXPECT_EQ(nearest_name("y", names), "y");
  EXPECT_EQ(nearest_name("z", names), "");  // every letter is wrong
  EXPECT_EQ(nearest_name("pixel_values", names), "");
  EXPECT_EQ(nearest_name("", names), "");
}

TEST(NearestName, OwnedStringsAndLongOnes) {
  const std::vector<std::string> names = {std::string(1 << 20, 'a'), "", "alpha"};
  EXPECT_EQ(nearest_name("alhpa", names), "alpha");
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'a'), names), "");
  const std::vector<std::string> long_names = {std::string(128, 'a')};
  EXPECT_EQ(nearest_name(std::string(127, 'a'), long_names), long_names[0]);
}

TEST(NearestName, FirstOfEquals) {
  const std::vector<std::string_view> names = {"cat", "car"};
  EXPECT_EQ(nearest_name("cab", names), "cat");
}

TEST(DidYouMean, Asks) {
  const std::vector<std::string_view> names = {"compile", "run"};
  EXPECT_EQ(did_you_mean("compil", names), "did you mean 'compile'?");
  EXPECT_EQ(did_you_mean("serve", names), "");
}

TEST(GlobMatch, StarsAndMarks) {
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("**", "anything"));
  EXPECT_TRUE(glob_match("layer*.ffn", "layer12.ffn"));
  EXPECT_TRUE(glob_match("*.weight", "a.b.weight"));
  EXPECT_TRUE(glob_match("a*b*c", "a-b-b-xc"));
  EXPECT_TRUE(glob_match("layer?", "layer7"));
  EXPECT_FALSE(glob_match("layer?", "layer"));
  EXPECT_FALSE(glob_match("layer?", "layer77"));
  EXPECT_FALSE(glob_match("", "x"));
  EXPECT_FALSE(glob_match("a*b", "a-c"));
  EXPECT_FALSE(glob_match("abc", "ab"));
}

TEST(GlobMatch, ManyStarsEndSoon) {
  std::string pattern;
  for (int i = 0; i < 500; ++i) pattern += "a*";
  EXPECT_FALSE(glob_match(pattern + "b", std::string(20'000, 'a')));
}

TEST(DimUnknown, TellsTheNamesThatThereAre) {
  const Error error = dim_unknown("bacth", std::vector<std::string>{"batch", "seq"});
  EXPECT_EQ(error.code, Code::unknown_name);
  EXPECT_EQ(error.message, "no input of the model has a size named 'bacth'; there are 'batch', 'seq'");
  EXPECT_EQ(error.hint, "did you mean 'batch'?");
  EXPECT_EQ(dim_unknown("n", {}).message, "no input of the model has a size named 'n': all are numbers");
}

}  // namespace
}  // namespace tessera
