#include "engine/precision.h"

#include <gtest/gtest.h>

#include "base/result.h"

namespace tessera::engine {
namespace {

using passes::Precision;

TEST(PrecisionPolicy, Words) {
  for (const char* text : {"", "keep"}) {
    const auto policy = parse_precision(text);
    ASSERT_TRUE(policy);
    EXPECT_TRUE(policy->rules.empty() && !policy->strict);
  }
  EXPECT_TRUE(parse_precision("strict")->strict);
  EXPECT_EQ(parse_precision("bf16")->rules.at(0).precision, Precision::bf16);
  EXPECT_EQ(parse_precision("f16")->rules.at(0).precision, Precision::f16);
  EXPECT_EQ(parse_precision("int8-dynamic")->rules.at(0).precision, Precision::int8_dynamic);
}

TEST(PrecisionPolicy, Rules) {
  const auto policy =
      parse_precision(R"([{"precision": "bf16"}, {"kind": "MatMul", "name": "*/out*", "precision": "keep"}])");
  ASSERT_TRUE(policy) << policy.error().to_string();
  ASSERT_EQ(policy->rules.size(), 2u);
  EXPECT_EQ(policy->rules[1].kind, "MatMul");
  EXPECT_EQ(policy->rules[1].name, "*/out*");
  EXPECT_EQ(policy->rules[1].precision, Precision::keep);
}

TEST(PrecisionPolicy, WrongOnesSayWhatIsWrong) {
  for (const char* text : {"int8", "{}", "[1]", "[{}]", R"([{"precision": 8}])", R"([{"precision": "fp8"}])",
                           R"([{"precision": "keep", "layer": "x"}])", "[\"\xff\"]"}) {
    const auto policy = parse_precision(text);
    ASSERT_FALSE(policy) << text;
    EXPECT_EQ(policy.error().code, Code::usage) << text;
  }
}

}  // namespace
}  // namespace tessera::engine
