// Reads the ONNX conformance cases' data, and checks the scalar formats against what the Cast cases expect.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "import/onnx/import.h"
#include "import/onnx/value_proto.h"
#include "ir/verifier.h"
#include "tensor/scalar.h"

namespace tessera::onnx {
namespace {

namespace fs = std::filesystem;

const char* const kFolders[] = {"../shared/data/onnx-node", "../shared/data/onnx-models"};

std::vector<fs::path> cases(std::string_view prefix) {
  std::vector<fs::path> found;
  for (const char* folder : kFolders) {
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().filename().string().starts_with(prefix) && fs::exists(entry.path() / "model.onnx"))
        found.push_back(entry.path());
  }
  return found;
}

ValueKind kind_of(const TypeProto& type) {
  if (type.kind == TypeProto::Kind::sequence) return ValueKind::sequence;
  return type.kind == TypeProto::Kind::optional ? ValueKind::optional : ValueKind::tensor;
}

Value read(const fs::path& path, ValueKind kind) {
  auto file = MappedFile::open(path.string());
  EXPECT_TRUE(file) << path;
  if (!file) return {};
  auto value = parse_value((*file)->bytes(), kind, DType::f32, {.file = *file});
  EXPECT_TRUE(value) << path << ": " << value.error().to_string();
  return value ? *value : Value();
}

TEST(OnnxCases, AllTensorsOfAllCasesAreRead) {
  auto all = cases("test_");
  if (all.empty()) GTEST_SKIP() << "../shared/data/onnx-node and onnx-models are not here";
  int values = 0;
  std::set<DType> types;
  for (const fs::path& path : all) {
    auto file = MappedFile::open((path / "model.onnx").string());
    ASSERT_TRUE(file);
    auto model = parse_model((*file)->bytes());
    ASSERT_TRUE(model);
    ExternalFiles files(path.string());
    for (const TensorProto& t : model->graph.initializer) {
      auto tensor = to_tensor(t, {.file = *file, .external = &files});
      EXPECT_TRUE(tensor) << path << ": " << tensor.error().to_string();
    }
    for (const NodeProto& node : model->graph.node) {
      for (const AttributeProto& a : node.attribute) {
        if (a.t() == nullptr) continue;
        auto tensor = to_tensor(*a.t(), {.file = *file});
        EXPECT_TRUE(tensor) << path << ": " << tensor.error().to_string();
      }
    }
    for (int set = 0; fs::exists(path / ("test_data_set_" + std::to_string(set))); ++set) {
      const fs::path data = path / ("test_data_set_" + std::to_string(set));
      for (bool input : {true, false}) {
        const auto& infos = input ? model->graph.input : model->graph.output;
        for (size_t i = 0; i < infos.size(); ++i) {
          const fs::path pb = data / ((input ? "input_" : "output_") + std::to_string(i) + ".pb");
          if (!fs::exists(pb)) continue;
          Value v = read(pb, kind_of(infos[i].type));
          ++values;
          if (v.tensor() == nullptr) continue;
          types.insert(v.tensor()->dtype());
          EXPECT_EQ(v.tensor()->dtype(), dtype_of(infos[i].type.elem_type)) << pb;
        }
      }
    }
  }
  EXPECT_GT(values, 1000);
  EXPECT_GE(types.size(), 20u);
}

// Every graph that import makes keeps to the rules, those nested in it too.
TEST(OnnxCases, ImportedGraphsVerify) {
  auto all = cases("test_");
  if (all.empty()) GTEST_SKIP() << "../shared/data/onnx-node and onnx-models are not here";
  int verified = 0;
  for (const fs::path& path : all) {
    auto graph = import_onnx((path / "model.onnx").string());
    if (!graph) continue;  // the conformance test tells which
    const Status valid = ir::verify(*graph);
    EXPECT_TRUE(valid) << path << ": " << valid.error().to_string();
    ++verified;
  }
  EXPECT_GT(verified, 700);
}

const AttributeProto* find(const NodeProto& node, std::string_view name) {
  for (const AttributeProto& a : node.attribute)
    if (a.name == name) return &a;
  return nullptr;
}

// Every case of one Cast or CastLike node: casting the input through double gives the expected bytes.
TEST(OnnxCases, CastGivesTheExpectedBits) {
  auto all = cases("test_cast");
  if (all.empty()) GTEST_SKIP() << "../shared/data/onnx-node and onnx-models are not here";
  int checked = 0;
  for (const fs::path& path : all) {
    auto file = MappedFile::open((path / "model.onnx").string());
    ASSERT_TRUE(file);
    auto model = parse_model((*file)->bytes());
    ASSERT_TRUE(model);
    ASSERT_EQ(model->graph.node.size(), 1u) << path;
    const NodeProto& node = model->graph.node[0];
    Rounding rounding;
    if (const AttributeProto* a = find(node, "saturate")) rounding.saturate = *a->i() != 0;
    if (const AttributeProto* a = find(node, "round_mode"))
      rounding.e8m0 = *a->s() == "up" ? E8m0Round::up : *a->s() == "down" ? E8m0Round::down : E8m0Round::nearest;
    Value x = read(path / "test_data_set_0/input_0.pb", ValueKind::tensor);
    Value y = read(path / "test_data_set_0/output_0.pb", ValueKind::tensor);
    ASSERT_TRUE(x.tensor() && y.tensor());
    if (x.tensor()->dtype() == DType::string || y.tensor()->dtype() == DType::string) continue;
    std::vector<double> values(static_cast<size_t>(x.tensor()->count()));
    decode_all(x.tensor()->dtype(), x.tensor()->data(), std::span<double>(values));
    Tensor got = *Tensor::make(y.tensor()->dtype(), y.tensor()->shape());
    encode_all(got.dtype(), got.mutable_data(), std::span<const double>(values), rounding);
    EXPECT_TRUE(std::equal(got.as<char>(), got.as<char>() + got.bytes(), y.tensor()->as<char>())) << path;
    ++checked;
  }
  EXPECT_GT(checked, 40);
}

}  // namespace
}  // namespace tessera::onnx
