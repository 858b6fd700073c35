#include "import/onnx/proto.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

namespace tessera::onnx {
namespace {

using protobuf::Writer;

Bytes as_bytes(const std::string& s) { return std::as_bytes(std::span(s)); }

Writer attribute(std::string_view name, AttributeType type) {
  Writer a;
  a.string(1, name);
  a.int64(20, static_cast<int64_t>(type));
  return a;
}

// A model of one node that holds the attribute.
std::string model_with(const Writer& attribute) {
  Writer node, graph, model;
  node.string(4, "Op");
  node.message(5, attribute);
  graph.message(1, node);
  model.message(7, graph);
  return model.take();
}

Result<ModelProto> parse_attribute(const std::string& file) { return parse_model(as_bytes(file)); }

TEST(OnnxProto, ReadsAModel) {
  Writer opset, entry, dim_value, dim_param, unknown, shape, tensor_type, type, input, weight, node, graph, function,
      model;
  opset.string(1, "my.domain");
  opset.int64(2, 3);
  entry.string(1, "key");
  entry.string(2, "value");
  dim_value.int64(1, 7);
  dim_param.string(2, "batch");
  for (const Writer* d : {&dim_param, &dim_value, &unknown}) shape.message(1, *d);
  tensor_type.int64(1, 1);
  tensor_type.message(2, shape);
  type.message(1, tensor_type);
  input.string(1, "x");
  input.message(2, type);
  weight.packed(1, std::vector<int64_t>{2, 3});
  weight.int64(2, 1);
  weight.string(8, "w");
  weight.string(9, std::string(24, 'a'));
  node.string(1, "x");
  node.string(1, "");
  node.string(1, "w");
  node.string(2, "y");
  node.string(3, "n0");
  node.string(4, "Op");
  node.string(7, "my.domain");
  node.string(8, "v2");
  node.string(6, "a doc string");
  node.message(9, entry);
  node.message(10, entry);  // a device configuration
  graph.message(1, node);
  graph.string(2, "main");
  graph.message(5, weight);
  graph.message(11, input);
  graph.message(12, input);
  graph.message(13, input);
  graph.message(14, entry);  // a quantization annotation
  function.string(1, "f");
  function.string(4, "a");
  function.string(5, "b");
  function.string(6, "alpha");
  function.message(7, node);
  function.message(9, opset);
  function.string(10, "my.domain");
  Writer with_default = attribute("beta", AttributeType::f32);
  with_default.float32(2, 0.5f);
  function.message(11, with_default);
  function.string(13, "v2");
  model.int64(1, 13);
  model.string(2, "writer");
  model.string(3, "1.0");
  model.int64(5, 4);
  model.message(7, graph);
  model.message(8, opset);
  model.message(14, entry);
  model.message(20, entry);  // training information
  model.message(25, function);
  model.message(26, entry);  // a device configuration
  std::string file = model.take();

  auto m = parse_model(as_bytes(file));
  ASSERT_TRUE(m) << m.error().to_string();
  EXPECT_EQ(m->ir_version, 13);
  EXPECT_EQ(m->producer_name, "writer");
  EXPECT_EQ(m->model_version, 4);
  ASSERT_EQ(m->opset_import.size(), 1u);
  EXPECT_EQ(m->opset_import[0].domain, "my.domain");
  EXPECT_EQ(m->opset_import[0].version, 3);
  EXPECT_EQ(m->metadata_props.at(0).value, "value");
  const GraphProto& g = m->graph;
  EXPECT_EQ(g.name, "main");
  ASSERT_EQ(g.node.size(), 1u);
  EXPECT_EQ(g.node[0].input, (std::vector<std::string_view>{"x", "", "w"}));
  EXPECT_EQ(g.node[0].output, (std::vector<std::string_view>{"y"}));
  EXPECT_EQ(g.node[0].name, "n0");
  EXPECT_EQ(g.node[0].overload, "v2");
  EXPECT_EQ(g.node[0].metadata_props.at(0).key, "key");
  ASSERT_EQ(g.input.size(), 1u);
  const TypeProto& t = g.input[0].type;
  EXPECT_EQ(t.kind, TypeProto::Kind::tensor);
  EXPECT_EQ(t.elem_type, 1);
  ASSERT_TRUE(t.shape);
  ASSERT_EQ(t.shape->size(), 3u);
  EXPECT_EQ((*t.shape)[0].dim_param, "batch");
  EXPECT_EQ((*t.shape)[1].dim_value, 7);
  EXPECT_FALSE((*t.shape)[2].dim_value);
  EXPECT_TRUE((*t.shape)[2].dim_param.empty());
  EXPECT_EQ(g.output.size(), 1u);
  EXPECT_EQ(g.value_info.size(), 1u);
  ASSERT_EQ(g.initializer.size(), 1u);
  EXPECT_EQ(g.initializer[0].dims, (std::vector<int64_t>{2, 3}));
  ASSERT_TRUE(g.initializer[0].raw_data);
  EXPECT_EQ(g.initializer[0].raw_data->size(), 24u);
  const std::byte* begin = as_bytes(file).data();
  EXPECT_TRUE(g.initializer[0].raw_data->data() > begin && g.initializer[0].raw_data->data() < begin + file.size());
  ASSERT_EQ(m->functions.size(), 1u);
  const FunctionProto& f = m->functions[0];
  EXPECT_EQ(f.name, "f");
  EXPECT_EQ(f.domain, "my.domain");
  EXPECT_EQ(f.overload, "v2");
  EXPECT_EQ(f.attribute, (std::vector<std::string_view>{"alpha"}));
  EXPECT_EQ(*f.attribute_proto.at(0).f(), 0.5f);
  EXPECT_EQ(f.node.size(), 1u);
  EXPECT_EQ(f.opset_import.size(), 1u);
}

TEST(OnnxProto, ReadsEveryKindOfAttribute) {
  Writer tensor, node, graph, sparse, type, tensor_type;
  tensor.int64(2, 7);
  node.string(4, "Inner");
  graph.message(1, node);
  sparse.message(1, tensor);
  sparse.message(2, tensor);
  sparse.packed(3, std::vector<int64_t>{5});
  tensor_type.int64(1, 9);
  type.message(1, tensor_type);
  Writer a[15];
  for (int i = 1; i < 15; ++i) a[i] = attribute("a", static_cast<AttributeType>(i));
  a[1].float32(2, 2.5f);
  a[2].int64(3, -4);
  a[3].string(4, "s");
  a[4].message(5, tensor);
  a[5].message(6, graph);
  a[6].packed(7, std::vector<float>{1.0f, 2.0f});
  a[6].float32(7, 3.0f);
  a[7].int64(8, 1);
  a[7].packed(8, std::vector<int64_t>{2, -3});
  a[8].string(9, "p");
  a[8].string(9, "q");
  for (int i = 0; i < 2; ++i) {
    a[9].message(10, tensor);
    a[10].message(11, graph);
    a[12].message(23, sparse);
    a[14].message(15, type);
  }
  a[11].message(22, sparse);
  a[13].message(14, type);
  Writer all, g, model;
  all.string(4, "Op");
  for (int i = 1; i < 15; ++i) all.message(5, a[i]);
  g.message(1, all);
  model.message(7, g);
  std::string file = model.take();
  auto m = parse_model(as_bytes(file));
  ASSERT_TRUE(m) << m.error().to_string();
  const auto& got = m->graph.node[0].attribute;
  ASSERT_EQ(got.size(), 14u);
  EXPECT_EQ(*got[0].f(), 2.5f);
  EXPECT_EQ(*got[1].i(), -4);
  EXPECT_EQ(*got[2].s(), "s");
  EXPECT_EQ(got[3].t()->data_type, 7);
  EXPECT_EQ(got[4].g()->node.at(0).op_type, "Inner");
  EXPECT_EQ(*got[5].floats(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(*got[6].ints(), (std::vector<int64_t>{1, 2, -3}));
  EXPECT_EQ(*got[7].strings(), (std::vector<std::string_view>{"p", "q"}));
  EXPECT_EQ(got[8].tensors()->size(), 2u);
  EXPECT_EQ(got[9].graphs()->size(), 2u);
  EXPECT_EQ(got[10].sparse_tensor()->dims, (std::vector<int64_t>{5}));
  EXPECT_EQ(got[11].sparse_tensors()->size(), 2u);
  EXPECT_EQ(got[12].tp()->elem_type, 9);
  EXPECT_EQ(got[13].type_protos()->size(), 2u);
  // Asking for another kind than the attribute's gives nothing.
  EXPECT_EQ(got[3].tensors(), nullptr);
  EXPECT_EQ(got[8].t(), nullptr);
  EXPECT_EQ(got[0].i(), nullptr);
}

TEST(OnnxProto, MissingValuesAreZeroOrEmptyWhereThatMeansSomething) {
  std::string ints = model_with(attribute("a", AttributeType::ints));
  std::string zero = model_with(attribute("a", AttributeType::i64));
  std::string tensor = model_with(attribute("a", AttributeType::tensor));
  std::string nothing = model_with(attribute("a", AttributeType::undefined));
  auto empty = parse_attribute(ints);
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->graph.node[0].attribute[0].ints()->empty());
  EXPECT_EQ(*parse_attribute(zero)->graph.node[0].attribute[0].i(), 0);
  for (const std::string& file : {tensor, nothing}) {
    auto m = parse_attribute(file);
    ASSERT_FALSE(m);
    EXPECT_EQ(m.error().code, Code::model_malformed);
  }
}

TEST(OnnxProto, TheValueTellsTheTypeWhereNoneIsSaid) {
  Writer a;
  a.string(1, "axis");
  a.int64(3, 2);
  std::string file = model_with(a);
  auto m = parse_attribute(file);
  ASSERT_TRUE(m);
  EXPECT_EQ(m->graph.node[0].attribute[0].type, AttributeType::i64);
}

TEST(OnnxProto, ReferencesHoldNoValue) {
  Writer a = attribute("alpha", AttributeType::f32);
  a.string(21, "outer_alpha");
  std::string file = model_with(a);
  auto m = parse_attribute(file);
  ASSERT_TRUE(m);
  EXPECT_EQ(m->graph.node[0].attribute[0].ref_attr_name, "outer_alpha");
  EXPECT_EQ(m->graph.node[0].attribute[0].f(), nullptr);
}

TEST(OnnxProto, RefusesContradictoryMessages) {
  Writer two = attribute("a", AttributeType::i64);
  two.int64(3, 1);
  two.float32(2, 1.0f);
  Writer other = attribute("a", AttributeType::ints);
  other.int64(3, 1);
  Writer nameless;
  nameless.int64(3, 1);
  Writer tensor, twice = attribute("a", AttributeType::tensor);
  tensor.int64(2, 1);
  twice.message(5, tensor);
  twice.message(5, tensor);
  Writer node, graph, no_op;
  node.string(3, "n");
  graph.message(1, node);
  no_op.message(7, graph);
  for (const std::string& file :
       {model_with(two), model_with(other), model_with(nameless), model_with(twice), no_op.result(), std::string()}) {
    auto m = parse_attribute(file);
    ASSERT_FALSE(m);
    EXPECT_EQ(m.error().code, Code::model_malformed) << m.error().to_string();
  }
  std::string file = model_with(two);
  auto m = parse_attribute(file);
  EXPECT_TRUE(m.error().to_string().starts_with(
      "E0201 attribute 'a' holds two values, INT and FLOAT\n  while reading a nameless Op node"));
}

TEST(OnnxProto, NestedTypes) {
  Writer tensor_type, tensor, sequence_type, sequence, optional_type, optional, map_type, map, info, graph, model;
  tensor_type.int64(1, 1);
  tensor.message(1, tensor_type);
  sequence_type.message(1, tensor);
  sequence.message(4, sequence_type);
  optional_type.message(1, sequence);
  optional.message(9, optional_type);
  map_type.int64(1, 7);
  map_type.message(2, optional);
  map.message(5, map_type);
  info.string(1, "x");
  info.message(2, map);
  graph.message(11, info);
  model.message(7, graph);
  std::string file = model.take();
  auto m = parse_model(as_bytes(file));
  ASSERT_TRUE(m);
  const TypeProto& t = m->graph.input[0].type;
  EXPECT_EQ(t.kind, TypeProto::Kind::map);
  EXPECT_EQ(t.elem_type, 7);
  EXPECT_EQ(t.element[0].kind, TypeProto::Kind::optional);
  EXPECT_EQ(t.element[0].element[0].kind, TypeProto::Kind::sequence);
  EXPECT_EQ(t.element[0].element[0].element[0].kind, TypeProto::Kind::tensor);
  EXPECT_FALSE(t.element[0].element[0].element[0].shape);
}

TEST(OnnxProto, NestedGraphsStopAtTheDepthLimit) {
  for (int levels : {5, 20, 5000}) {
    std::string graph;
    for (int i = 0; i < levels; ++i) {
      Writer a = attribute("body", AttributeType::graph), node, outer;
      a.string(6, graph);
      node.string(4, "Loop");
      node.message(5, a);
      outer.message(1, node);
      graph = outer.take();
    }
    Writer model;
    model.string(7, graph);
    std::string file = model.take();
    auto m = parse_model(as_bytes(file));
    EXPECT_EQ(m.has_value(), levels <= 20);
    if (!m) {
      EXPECT_EQ(m.error().code, Code::file_malformed);
    }
  }
}

std::string read(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

std::vector<std::filesystem::path> case_models() {
  std::vector<std::filesystem::path> models;
  for (const char* folder : {"../shared/data/onnx-node", "../shared/data/onnx-models"}) {
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (std::filesystem::exists(entry.path() / "model.onnx")) models.push_back(entry.path() / "model.onnx");
  }
  return models;
}

TEST(OnnxProto, ReadsTheModelsOfTheConformanceCases) {
  auto models = case_models();
  if (models.empty()) GTEST_SKIP() << "../shared/data/onnx-node and onnx-models are not here";
  for (const auto& path : models) {
    std::string file = read(path);
    auto m = parse_model(as_bytes(file));
    ASSERT_TRUE(m) << path << ": " << m.error().to_string();
    EXPECT_FALSE(m->opset_import.empty() && m->ir_version >= 3) << path;
    EXPECT_FALSE(m->graph.output.empty()) << path;
  }
}

TEST(OnnxProto, DamagedModelsGiveErrorsOrModels) {
  auto models = case_models();
  if (models.empty()) GTEST_SKIP() << "../shared/data/onnx-node and onnx-models are not here";
  std::mt19937 random(5);
  for (size_t i = 0; i < models.size(); i += 17) {
    std::string file = read(models[i]);
    if (file.size() > 20000) continue;
    for (size_t n = 0; n < file.size(); n += 1 + n / 50) {
      auto m = parse_model(as_bytes(file).first(n));
      if (!m) {
        Code c = m.error().code;
        EXPECT_TRUE(c == Code::file_truncated || c == Code::file_malformed || c == Code::model_malformed);
      }
    }
    for (int n = 0; n < 200; ++n) {
      std::string bad = file;
      for (int k = 0; k < 3; ++k) bad[random() % bad.size()] = static_cast<char>(random());
      static_cast<void>(parse_model(as_bytes(bad)));
    }
  }
}

}  // namespace
}  // namespace tessera::onnx
