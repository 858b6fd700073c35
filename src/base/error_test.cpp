#include <gtest/gtest.h>

#include <set>

#include "base/result.h"

namespace tessera {
namespace {

TEST(ErrorCodes, AscendWithAllFactsGiven) {
  std::set<std::string_view> names;
  int last = 0;
  ASSERT_GT(code_count(), 0u);
  for (size_t i = 0; i < code_count(); ++i) {
    const CodeInfo& info = all_codes()[i];
    const int number = static_cast<int>(info.code);
    EXPECT_GT(number, last) << info.name;
    EXPECT_LE(number, 9999);
    last = number;
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    for (std::string_view text : {info.title, info.cause, info.fix}) EXPECT_FALSE(text.empty()) << info.name;
    for (std::string_view text : {info.cause, info.fix}) EXPECT_EQ(text.back(), '.') << info.name;
    EXPECT_TRUE(std::set<int>({2, 3, 4, 5, 6, 70}).contains(info.exit_code)) << info.name;
    EXPECT_EQ(&describe(info.code), &info);
  }
}

TEST(Error, TellsTheWayThere) {
  Error error = fail(Code::shape_mismatch, "K is {} in x but {} in w", 64, 32).value();
  error = std::move(error).within("adding node 'up'").within("importing 'model.onnx'");
  error.hint = "look";
  EXPECT_EQ(error.to_string(),
            "E0312 K is 64 in x but 32 in w\n  while adding node 'up'\n  while importing 'model.onnx'\n  hint: look");
  error.hint.clear();
  EXPECT_TRUE(error.to_string().ends_with(std::string("\n  hint: ").append(describe(error.code).fix)));
}

Result<int> half(int x) {
  if (x % 2 != 0) return fail(Code::value_invalid, "{} is odd", x);
  return x / 2;
}

Result<int> quarter(int x) {
  TESSERA_ASSIGN(int h, half(x));
  TESSERA_TRY(half(h));
  return half(h);
}

TEST(Result, PassesErrorsOn) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(7).error().message, "7 is odd");
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
  EXPECT_EQ(quarter(6).error().code, Code::value_invalid);
}

TEST(CheckDeathTest, PrintsTheCondition) { EXPECT_DEATH(TESSERA_CHECK(1 + 1 == 3), "broken invariant: 1 \\+ 1 == 3"); }

}  // namespace
}  // namespace tessera
