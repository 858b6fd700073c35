#include "import/huggingface/import.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "base/test_folder.h"
#include "import/huggingface/families.h"

namespace tessera::huggingface {
namespace {

// A Llama of one layer: config.json as `change` leaves it, tensors all of 0.01.
struct TinyModel {
  TestFolder folder;
  Json config = {{"model_type", "llama"},    {"vocab_size", 11},
                 {"hidden_size", 8},         {"num_hidden_layers", 1},
                 {"num_attention_heads", 2}, {"num_key_value_heads", 1},
                 {"intermediate_size", 12},  {"max_position_embeddings", 32}};
  std::map<std::string, Dims> tensors = {{"model.embed_tokens.weight", {11, 8}},
                                         {"model.layers.0.input_layernorm.weight", {8}},
                                         {"model.layers.0.self_attn.q_proj.weight", {8, 8}},
                                         {"model.layers.0.self_attn.k_proj.weight", {4, 8}},
                                         {"model.layers.0.self_attn.v_proj.weight", {4, 8}},
                                         {"model.layers.0.self_attn.o_proj.weight", {8, 8}},
                                         {"model.layers.0.post_attention_layernorm.weight", {8}},
                                         {"model.layers.0.mlp.gate_proj.weight", {12, 8}},
                                         {"model.layers.0.mlp.up_proj.weight", {12, 8}},
                                         {"model.layers.0.mlp.down_proj.weight", {8, 12}},
                                         {"model.norm.weight", {8}},
                                         {"lm_head.weight", {11, 8}}};
  std::string dtype = "F32";

  Result<ir::Graph> build() const {
    folder.put("config.json", config.dump());
    Json header = Json::object();
    std::vector<float> data;
    for (const auto& [name, shape] : tensors) {
      const size_t begin = data.size() * 4;
      data.resize(data.size() + static_cast<size_t>(*element_count(shape)), 0.01f);
      header[name] = {
          {"dtype", dtype}, {"shape", shape}, {"data_offsets", std::vector<size_t>{begin, data.size() * 4}}};
    }
    const std::string text = header.dump();
    std::string bytes(8 + text.size() + data.size() * 4, '\0');
    const uint64_t length = text.size();
    std::memcpy(bytes.data(), &length, 8);
    std::memcpy(bytes.data() + 8, text.data(), text.size());
    std::memcpy(bytes.data() + 8 + text.size(), data.data(), data.size() * 4);
    folder.put("model.safetensors", bytes);
    TESSERA_ASSIGN(const transformer::Source source, open(folder.path()));
    return transformer::build(source.config, *source.weights, {});
  }
};

TEST(HuggingFace, SaysWhatIsWrong) {
  struct Case {
    std::function<void(TinyModel&)> change;
    Code code;
    std::string_view says;
  };
  const Case cases[] = {
      {[](TinyModel& m) { m.config["model_type"] = "mamba"; }, Code::unsupported_feature, "'mamba' are not known"},
      {[](TinyModel& m) { m.config["hidden_size"] = nullptr; }, Code::unknown_name, "no field 'hidden_size'"},
      {[](TinyModel& m) { m.config["hidden_size"] = "8"; }, Code::dtype_mismatch, "'hidden_size' of config.json"},
      {[](TinyModel& m) { m.config["hidden_size"] = 1e300; }, Code::dtype_mismatch, "below 2^40"},
      {[](TinyModel& m) { m.config["hidden_size"] = int64_t{1} << 40; }, Code::attribute_invalid,
       "of 549755813888 elements"},
      {[](TinyModel& m) { m.config["num_key_value_heads"] = 3; }, Code::shape_invalid, "in 3 groups"},
      {[](TinyModel& m) { m.config["num_hidden_layers"] = 1 << 20; }, Code::attribute_invalid, "num_hidden_layers"},
      {[](TinyModel& m) {
         m.config["quantization_config"] = {{"quant_method", "gptq"}};
       },
       Code::unsupported_feature, "is quantized"},
      {[](TinyModel& m) { m.config["hidden_act"] = "mish"; }, Code::unsupported_feature, "'mish'"},
      {[](TinyModel& m) {
         m.config["rope_scaling"] = {{"rope_type", "spiral"}};
       },
       Code::unsupported_feature, "'spiral'"},
      {[](TinyModel& m) {
         m.config["rope_scaling"] = {{"rope_type", "linear"}};
       },
       Code::unknown_name, "'factor'"},
      {[](TinyModel& m) {
         m.config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 0.5}};
       },
       Code::attribute_invalid, "a dynamic rope of factor 0.5"},
      {[](TinyModel& m) {
         m.folder.put("modules.json", R"([{"type": "x.Pooling", "path": "pool"}])");
         m.folder.put("pool/config.json", R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})");
       },
       Code::unsupported_feature, "other than one of mean, cls and last pooling"},
      {[](TinyModel& m) { m.tensors.erase("model.layers.0.mlp.up_proj.weight"); }, Code::unknown_name,
       "no tensor 'model.layers.0.mlp.up_proj.weight', which must be [12, 8]"},
      {[](TinyModel& m) { m.tensors["model.norm.weight"] = {9}; }, Code::shape_mismatch,
       "'model.norm.weight' is [9] but must be [8]"},
      {[](TinyModel& m) { m.config["num_hidden_layers"] = 2; }, Code::unknown_name,
       "'model.layers.1.input_layernorm.weight'"},
      {[](TinyModel& m) { m.config["attention_bias"] = true; }, Code::unknown_name,
       "'model.layers.0.self_attn.q_proj.bias'"},
      {[](TinyModel& m) { m.dtype = "I32"; }, Code::dtype_mismatch, "of type i32 but must hold real numbers"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.says);
    TinyModel model;
    c.change(model);
    const auto graph = model.build();
    ASSERT_FALSE(graph);
    EXPECT_EQ(graph.error().code, c.code) << graph.error().to_string();
    EXPECT_NE(graph.error().message.find(c.says), std::string::npos) << graph.error().message;
  }
  TinyModel right;
  const auto graph = right.build();
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_EQ(graph->value_name(graph->inputs[0]), "ids");
  TinyModel tied;
  tied.config["tie_word_embeddings"] = true;
  tied.tensors.erase("lm_head.weight");
  EXPECT_TRUE(tied.build());
}

transformer::Config read(const Json& config) {
  Fields fields(config, "config.json");
  const auto family = find_family(*config.find("model_type")->text());
  EXPECT_TRUE(family);
  transformer::Config c;
  (*family)->read(fields, c);
  EXPECT_TRUE(fields.status()) << fields.status().error().to_string();
  return c;
}

Json with(Json base, const Json& more) {
  base.update(more);
  return base;
}

TEST(HuggingFace, FieldsMeanWhatTransformersTakesThemFor) {
  const Json base = {
      {"vocab_size", 16}, {"hidden_size", 32},       {"num_hidden_layers", 6},       {"num_attention_heads", 2},
      {"head_dim", 16},   {"intermediate_size", 12}, {"max_position_embeddings", 64}};
  const auto lefts = [](const transformer::Config& c) {
    std::vector<int64_t> list;
    for (const auto& layer : c.layers) list.push_back(layer.left);
    return list;
  };
  using List = std::vector<int64_t>;
  // Windows: absent, null and switched off are three things.
  EXPECT_EQ(lefts(read(with(base, {{"model_type", "mistral"}}))), List(6, 4095));
  EXPECT_EQ(lefts(read(with(base, {{"model_type", "mistral"}, {"sliding_window", nullptr}}))), List(6, -1));
  const Json qwen = with(base, {{"model_type", "qwen2"}, {"sliding_window", 8}, {"max_window_layers", 4}});
  EXPECT_EQ(lefts(read(qwen)), List(6, -1));
  EXPECT_EQ(lefts(read(with(qwen, {{"use_sliding_window", true}}))), (List{-1, -1, -1, -1, 7, 7}));
  const auto gemma3 = read(with(base, {{"model_type", "gemma3_text"},
                                       {"sliding_window", 8},
                                       {"rope_theta", 1e6},
                                       {"rope_local_base_freq", 1e4},
                                       {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8}}}}));
  EXPECT_EQ(lefts(gemma3), (List{7, 7, 7, 7, 7, -1}));
  EXPECT_EQ(gemma3.layers[5].rope, 0);
  EXPECT_NEAR(gemma3.ropes[0].frequencies[1], std::pow(1e6, -2.0 / 16) / 8, 1e-12);
  EXPECT_NEAR(gemma3.ropes[1].frequencies[1], std::pow(1e4, -2.0 / 16), 1e-12);
  EXPECT_EQ(gemma3.attention_softcap, 0);
  EXPECT_EQ(gemma3.norm_offset, 1);
  // The same in the spelling of version 5.
  const auto gemma3_new =
      read(with(base, {{"model_type", "gemma3_text"},
                       {"sliding_window", 8},
                       {"layer_types", Json::array({"full_attention", "sliding_attention", "full_attention",
                                                    "full_attention", "full_attention", "full_attention"})},
                       {"rope_parameters",
                        {{"full_attention", {{"rope_type", "linear"}, {"factor", 8}, {"rope_theta", 1e6}}},
                         {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}}}}));
  EXPECT_EQ(lefts(gemma3_new), (List{-1, 7, -1, -1, -1, -1}));
  EXPECT_EQ(gemma3_new.ropes[0].frequencies, gemma3.ropes[0].frequencies);
  EXPECT_EQ(gemma3_new.ropes[1].frequencies, gemma3.ropes[1].frequencies);
  // Parts of heads.
  const auto neox = read(with(base, {{"model_type", "gpt_neox"}, {"rotary_pct", 0.5}, {"rotary_emb_base", 100}}));
  ASSERT_EQ(neox.ropes[0].frequencies.size(), 4u);
  EXPECT_NEAR(neox.ropes[0].frequencies[1], std::pow(100, -2.0 / 8), 1e-12);
  const auto neox_new = read(with(
      base, {{"model_type", "gpt_neox"}, {"rope_parameters", {{"partial_rotary_factor", 0.5}, {"rope_theta", 100}}}}));
  EXPECT_EQ(neox_new.ropes[0].frequencies, neox.ropes[0].frequencies);
  // LongRoPE: 64 / 16 is a stretch of 4.
  const Json eight = Json::array({1, 1, 1, 1, 1, 1, 1, 2}), twos = Json::array({2, 2, 2, 2, 2, 2, 2, 4});
  const auto phi3 =
      read(with(base, {{"model_type", "phi3"},
                       {"original_max_position_embeddings", 16},
                       {"rope_scaling", {{"type", "longrope"}, {"short_factor", eight}, {"long_factor", twos}}}}));
  EXPECT_EQ(phi3.ropes[0].original_context, 16);
  EXPECT_NEAR(phi3.ropes[0].magnitude, std::sqrt(1 + std::log(4.0) / std::log(16.0)), 1e-12);
  EXPECT_NEAR(phi3.ropes[0].frequencies[7] / phi3.ropes[0].long_frequencies[7], 2, 1e-12);
  // Which layers have experts.
  const auto moe = read(with(base, {{"model_type", "qwen2_moe"},
                                    {"num_experts", 4},
                                    {"decoder_sparse_step", 2},
                                    {"mlp_only_layers", Json::array({1})}}));
  std::vector<bool> experts;
  for (const auto& layer : moe.layers) experts.push_back(layer.experts);
  EXPECT_EQ(experts, (std::vector<bool>{false, false, false, true, false, true}));
  EXPECT_FALSE(moe.experts.normalised);
}

}  // namespace
}  // namespace tessera::huggingface
