#include "plan/artifact.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "plan/plan_maker.h"
#include "plan/verify.h"

namespace tessera::plan {
namespace {

class ArtifactTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "artifact_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/model.tess";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static Plan sample() {
    PlanMaker m;
    const ValueId x = m.input("x", DType::f32, {-1, 3});
    const ExprId n = m.r().shape(x)[0];
    m.output(m.copy(m.view(x, {m.c(3), n}, {m.c(1), m.c(3)}, m.c(0))), "y");
    Tensor w = Tensor::make(DType::f32, {5}).value();
    for (int i = 0; i < 5; ++i) w.as<float>()[i] = static_cast<float>(i) + 0.5f;
    m.output(m.constant(w), "w");
    m.output(m.constant(Tensor::of_strings({2}, {"one", "zwei"})), "words");
    m.output(m.constant(Tensor::make(DType::i4, {7}).value()), "packed");
    m.output(m.host("mystery", {x}, DType::i64, {n}), "z");
    m.plan.host_ops[0].blob = std::string("a\0b", 3);
    m.plan.sources = {"node 'first' (Gemm)"};
    m.r().steps[0].source = 0;
    m.r().guards.push_back({Guard::Kind::at_most, n, m.c(9), "n <= 9"});
    return m.plan;
  }
  std::string written() {
    EXPECT_TRUE(write_artifact(path_, sample(), {{"note", "kept"}}).has_value());
    return read_file(path_, 1 << 20).value();
  }
  static Result<Artifact> parsed(const std::string& bytes) {
    return read_artifact(std::as_bytes(std::span(bytes)), nullptr);
  }

  std::string folder_, path_;
};

TEST_F(ArtifactTest, ComesBackAsItWas) {
  const Plan plan = sample();
  ASSERT_TRUE(write_artifact(path_, plan, {{"note", "kept"}}).has_value());
  Result<Artifact> loaded = load_artifact(path_);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().to_string();
  EXPECT_EQ(loaded->notes.at("note"), "kept");
  const Plan& back = *loaded->plan;
  ASSERT_EQ(back.routines.size(), 1u);
  EXPECT_EQ(back.main().values.size(), plan.main().values.size());
  EXPECT_EQ(back.main().lists, plan.main().lists);
  EXPECT_EQ(back.main().output_names, plan.main().output_names);
  EXPECT_EQ(back.main().guards[0].what, "n <= 9");
  EXPECT_EQ(back.host_ops[0].blob, plan.host_ops[0].blob);
  EXPECT_EQ(describe(back, back.main().steps[0]), "node 'first' (Gemm)");
  ASSERT_EQ(back.constants.size(), 3u);
  EXPECT_EQ(back.constants[0].as<float>()[4], 4.5f);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(back.constants[0].data()) % 64, 0u);
  EXPECT_EQ(back.constants[1].strings(), (std::vector<std::string>{"one", "zwei"}));
  EXPECT_EQ(back.constants[2].shape(), Dims{7});
  EXPECT_TRUE(write_artifact(folder_ + "/again.tess", back, loaded->notes).has_value());
  EXPECT_EQ(read_file(folder_ + "/again.tess", 1 << 20).value(), read_file(path_, 1 << 20).value());
}

TEST_F(ArtifactTest, EveryTruncationIsRefused) {
  const std::string bytes = written();
  for (size_t n = 0; n < bytes.size(); n += n < 2000 ? 1 : 97) {
    const Result<Artifact> cut = parsed(bytes.substr(0, n));
    ASSERT_FALSE(cut.has_value()) << n;
    EXPECT_EQ(cut.error().code, Code::artifact_corrupt);
  }
  EXPECT_FALSE(parsed(bytes + "x").has_value());
}

TEST_F(ArtifactTest, EveryChangedByteIsFound) {
  const std::string bytes = written();
  ASSERT_TRUE(verify_constants(std::as_bytes(std::span(bytes))).has_value());
  for (size_t at = 0; at < bytes.size(); at += at < 1500 ? 1 : 61) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    // Only the gaps between parts hold nothing.
    if (parsed(changed).has_value() && verify_constants(std::as_bytes(std::span(changed))).has_value()) {
      EXPECT_EQ(bytes[at], '\0') << at;
    }
  }
}

TEST_F(ArtifactTest, OtherVersionsAreRefused) {
  std::string bytes = written();
  bytes[8] = 99;
  const Result<Artifact> other = parsed(bytes);
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, Code::artifact_version);
  EXPECT_NE(other.error().message.find("version 99"), std::string::npos);
}

TEST_F(ArtifactTest, PlansThatDoNotVerifyAreRefused) {
  Plan plan = sample();
  plan.routines[0].outputs[0] = 1000;
  ASSERT_TRUE(write_artifact(path_, plan).has_value());
  const Result<Artifact> loaded = load_artifact(path_);
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code, Code::artifact_corrupt);
}

TEST_F(ArtifactTest, AnUnwritablePathLeavesNothing) {
  EXPECT_EQ(write_artifact(folder_ + "/no/such/folder/x.tess", sample()).error().code, Code::file_write_failed);
  EXPECT_EQ(load_artifact(folder_ + "/none.tess").error().code, Code::file_not_found);
}

}  // namespace
}  // namespace tessera::plan
