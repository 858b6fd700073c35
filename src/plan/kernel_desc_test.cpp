#include "plan/kernel_desc.h"

#include <gtest/gtest.h>

#include "kernels/table.h"

namespace tessera::plan {
namespace {

using Types = std::vector<std::optional<DType>>;

KernelRule rule(std::string_view types, std::string_view layouts = "dense->dense") {
  Result<KernelRule> parsed = parse_rule("op", "kernel", types, layouts, 0);
  EXPECT_TRUE(parsed.has_value()) << parsed.error().to_string();
  return parsed.value_or(KernelRule{});
}

TEST(KernelDesc, EveryLineOfTheTableParses) {
  for (const kernels::KernelDesc& d : kernels::kernel_table()) {
    Result<KernelRule> parsed = parse_rule(d.op, d.kernel, d.types, d.layouts, d.in_place);
    EXPECT_TRUE(parsed.has_value()) << parsed.error().to_string();
    EXPECT_FALSE(rules_for(d.op).empty());
  }
}

TEST(KernelDesc, AlternativesAndClasses) {
  const KernelRule r = rule("f32|f16,int->f32");
  EXPECT_TRUE(fits(r, Types{DType::f16, DType::u8}, Types{DType::f32}));
  EXPECT_FALSE(fits(r, Types{DType::bf16, DType::u8}, Types{DType::f32}));
  EXPECT_FALSE(fits(r, Types{DType::f32, DType::u4}, Types{DType::f32}));
  EXPECT_FALSE(fits(r, Types{DType::f32, DType::boolean}, Types{DType::f32}));
}

TEST(KernelDesc, LettersBindTypes) {
  const KernelRule r = rule("T:number,T->T");
  EXPECT_TRUE(fits(r, Types{DType::i64, DType::i64}, Types{DType::i64}));
  EXPECT_FALSE(fits(r, Types{DType::i64, DType::i32}, Types{DType::i64}));
  EXPECT_FALSE(fits(r, Types{DType::i64, DType::i64}, Types{DType::f32}));
}

TEST(KernelDesc, OptionalAndAbsentOperands) {
  const KernelRule r = rule("f32,f32?,-,f32?->f32");
  EXPECT_TRUE(fits(r, Types{DType::f32}, Types{DType::f32}));
  EXPECT_TRUE(fits(r, Types{DType::f32, std::nullopt, std::nullopt, DType::f32}, Types{DType::f32}));
  EXPECT_FALSE(fits(r, Types{DType::f32, std::nullopt, DType::f32}, Types{DType::f32}));
  EXPECT_FALSE(fits(r, Types{std::nullopt}, Types{DType::f32}));
  EXPECT_FALSE(fits(r, Types{DType::f32, DType::f32, std::nullopt, DType::f32, DType::f32}, Types{DType::f32}));
}

TEST(KernelDesc, RepeatedOperands) {
  const KernelRule r = rule("T:any...->T");
  EXPECT_TRUE(fits(r, Types{DType::u8, DType::u8, DType::u8}, Types{DType::u8}));
  EXPECT_FALSE(fits(r, Types{DType::u8, DType::u8, DType::i8}, Types{DType::u8}));
  EXPECT_FALSE(fits(r, Types{DType::u8, std::nullopt}, Types{DType::u8}));
}

TEST(KernelDesc, LayoutsOneForAllOrOneEach) {
  const KernelRule r = rule("f32,f32,f32->f32", "strided,rows->dense");
  EXPECT_EQ(r.operand(0)->layout, Layout::strided);
  EXPECT_EQ(r.operand(1)->layout, Layout::rows);
  EXPECT_EQ(r.operand(2)->layout, Layout::rows);
  EXPECT_EQ(r.result(0)->layout, Layout::dense);
  EXPECT_EQ(r.operand(3), nullptr);
}

TEST(KernelDesc, LinesThatBreakTheGrammarAreRefused) {
  for (std::string_view types : {"f32", "f33->f32", "T->T", "f32...,f32->f32", "->f33", "T:->T", "T:q->T", ",->f32"})
    EXPECT_FALSE(parse_rule("op", "kernel", types, "dense->dense", 0).has_value()) << types;
  for (std::string_view layouts : {"dense", "tight->dense", "dense,dense->dense", "->dense"})
    EXPECT_FALSE(parse_rule("op", "kernel", "f32->f32", layouts, 0).has_value()) << layouts;
}

TEST(KernelDesc, SelectsTheFirstThatFits) {
  const KernelRule* copy = select_kernel("copy", Types{DType::bf16}, Types{DType::bf16});
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->kernel, "copy");
  EXPECT_EQ(select_kernel("copy", Types{DType::i4}, Types{DType::i4}), nullptr);
  EXPECT_EQ(select_kernel("no such operator", Types{}, Types{}), nullptr);
}

}  // namespace
}  // namespace tessera::plan
