// Decoders. Each follows its configuration_*.py and modeling_*.py in transformers, whose defaults stand in where
// config.json leaves a field out.
#include <cmath>

#include "import/huggingface/families.h"

namespace tessera::huggingface {
namespace {

using transformer::Activation;
using transformer::Block;
using transformer::Config;
using transformer::Layer;
using transformer::Part;

// What nearly all decoders write under the same names.
void read_common(Fields& f, Config& c) {
  c.vocabulary = f.integer("vocab_size");
  c.width = f.integer("hidden_size");
  c.heads = f.integer("num_attention_heads");
  c.groups = f.integer("num_key_value_heads", c.heads);
  c.head_width = f.integer("head_dim", c.heads > 0 ? c.width / c.heads : 0);
  c.feed_width = f.integer("intermediate_size");
  c.context = f.integer("max_position_embeddings", 2048);
  c.eps = f.real("rms_norm_eps", 1e-6);
  c.activation = read_activation(f, "hidden_act", "silu");
  c.tied = f.flag("tie_word_embeddings", false);
  const int64_t layers = f.integer("num_hidden_layers");
  if (layers < 1 || layers > 4096) {
    f.fail_with(fail(Code::attribute_invalid, "num_hidden_layers is {}", layers).value());
    return;
  }
  Layer layer;
  layer.right = 0;
  layer.attention_scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(c.head_width, 1)));
  c.layers.assign(static_cast<size_t>(layers), layer);
}

// Which layers see a window: as layer_types says, or as `slides(i)` does.
template <class F>
void read_windows(Fields& f, Config& c, int64_t window, F slides) {
  const std::vector<std::string> types = f.texts("layer_types");
  if (!types.empty() && types.size() != c.layers.size())
    f.fail_with(fail(Code::shape_mismatch, "layer_types names {} layers of {}", types.size(), c.layers.size()).value());
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const bool named = i < types.size();
    if (named && types[i] != "sliding_attention" && types[i] != "full_attention")
      f.fail_with(fail(Code::unsupported_feature, "layers of type '{}' are not supported", types[i]).value());
    if ((named ? types[i] == "sliding_attention" : slides(i)) && window > 0) c.layers[i].left = window - 1;
  }
}
bool always(size_t) { return true; }

void read_plain_rope(Fields& f, Config& c, double theta) {
  const Json& parameters = rope_parameters(f);
  c.ropes = {read_rope(f, parameters, read_theta(f, parameters, theta), c.head_width)};
}

void read_llama(Fields& f, Config& c) {
  read_common(f, c);
  read_plain_rope(f, c, 10000);
  c.qkv_bias = c.out_bias = f.flag("attention_bias", false);
  c.feed_bias = f.flag("mlp_bias", false);
}

void read_granite(Fields& f, Config& c) {
  read_llama(f, c);
  c.embedding_scale = f.real("embedding_multiplier", 1.0);
  c.residual_scale = f.real("residual_multiplier", 1.0);
  c.logit_scale = 1 / f.real("logits_scaling", 1.0);
  for (Layer& layer : c.layers) layer.attention_scale = f.real("attention_multiplier", 1.0);
}

void read_smollm3(Fields& f, Config& c) {
  read_common(f, c);
  read_plain_rope(f, c, 2000000);
  c.tied = f.flag("tie_word_embeddings", true);
  c.qkv_bias = c.out_bias = f.flag("attention_bias", false);
  c.feed_bias = f.flag("mlp_bias", false);
  const std::vector<int64_t> ropes = f.integers("no_rope_layers");  // 1: with rope
  const int64_t interval = std::max<int64_t>(f.integer("no_rope_layer_interval", 4), 1);
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const bool turned = i < ropes.size() ? ropes[i] != 0 : (static_cast<int64_t>(i) + 1) % interval != 0;
    if (!turned) c.layers[i].rope = -1;
  }
  const int64_t window = f.flag("use_sliding_window", false) ? f.integer("sliding_window", 0) : 0;
  read_windows(f, c, window, [&](size_t i) { return c.layers[i].rope < 0; });
}

void read_mistral(Fields& f, Config& c) {
  read_common(f, c);
  read_plain_rope(f, c, 10000);
  read_windows(f, c, f.has("sliding_window") ? f.integer("sliding_window", 0) : 4096, always);
}

void read_experts(Fields& f, Config& c, std::string_view count, int64_t width) {
  c.experts.count = f.integer(count);
  c.experts.used = f.integer("num_experts_per_tok", 2);
  c.experts.width = width;
  for (Layer& layer : c.layers) layer.experts = true;
}

void read_mixtral(Fields& f, Config& c) {
  read_common(f, c);
  read_plain_rope(f, c, 1000000);
  read_windows(f, c, f.integer("sliding_window", 0), always);
  read_experts(f, c, f.find("num_local_experts") ? "num_local_experts" : "num_experts", c.feed_width);
  c.experts.normalised = true;
}

void read_qwen_window(Fields& f, Config& c, int64_t first) {
  const int64_t window = f.flag("use_sliding_window", false) ? f.integer("sliding_window", 4096) : 0;
  read_windows(f, c, window, [&](size_t i) { return static_cast<int64_t>(i) >= first; });
}

void read_qwen2(Fields& f, Config& c) {
  read_common(f, c);
  read_plain_rope(f, c, 10000);
  c.qkv_bias = true;
  read_qwen_window(f, c, f.integer("max_window_layers", 28));
}

void read_qwen3(Fields& f, Config& c) {
  read_common(f, c);
  if (!f.find("head_dim")) {
    c.head_width = 128;
    for (Layer& layer : c.layers) layer.attention_scale = 1 / std::sqrt(128.0);
  }
  read_plain_rope(f, c, 10000);
  c.qkv_bias = c.out_bias = f.flag("attention_bias", false);
  c.head_norms = true;
  read_qwen_window(f, c, f.integer("max_window_layers", 28));
}

// Layers that have one network instead of experts.
void read_dense_layers(Fields& f, Config& c) {
  const int64_t step = std::max<int64_t>(f.integer("decoder_sparse_step", 1), 1);
  for (size_t i = 0; i < c.layers.size(); ++i) c.layers[i].experts = (static_cast<int64_t>(i) + 1) % step == 0;
  for (int64_t i : f.integers("mlp_only_layers"))
    if (i >= 0 && i < static_cast<int64_t>(c.layers.size())) c.layers[static_cast<size_t>(i)].experts = false;
}

void read_qwen2_moe(Fields& f, Config& c) {
  read_common(f, c);
  read_plain_rope(f, c, 10000);
  c.qkv_bias = f.flag("qkv_bias", true);
  read_qwen_window(f, c, f.integer("max_window_layers", 28));
  read_experts(f, c, "num_experts", f.integer("moe_intermediate_size", 1408));
  c.experts.used = f.integer("num_experts_per_tok", 4);
  c.experts.shared_width = f.integer("shared_expert_intermediate_size", 5632);
  c.experts.shared_switch = true;
  c.experts.normalised = f.flag("norm_topk_prob", false);
  read_dense_layers(f, c);
}

void read_qwen3_moe(Fields& f, Config& c) {
  read_common(f, c);
  read_plain_rope(f, c, 10000);
  c.qkv_bias = c.out_bias = f.flag("attention_bias", false);
  c.head_norms = true;
  read_qwen_window(f, c, 0);
  read_experts(f, c, "num_experts", f.integer("moe_intermediate_size", 768));
  c.experts.used = f.integer("num_experts_per_tok", 8);
  c.experts.normalised = f.flag("norm_topk_prob", false);
  read_dense_layers(f, c);
}

void read_gemma_common(Fields& f, Config& c, std::string_view activation) {
  read_common(f, c);
  c.head_width = f.integer("head_dim", 256);
  c.context = f.integer("max_position_embeddings", 8192);
  c.activation = read_activation(f, f.find(activation) ? activation : "hidden_activation", "gelu_pytorch_tanh");
  c.tied = f.flag("tie_word_embeddings", true);
  c.qkv_bias = c.out_bias = f.flag("attention_bias", false);
  c.norm_offset = 1;
  c.embedding_scale = std::sqrt(static_cast<double>(c.width));
  for (Layer& layer : c.layers) layer.attention_scale = 1 / std::sqrt(static_cast<double>(c.head_width));
}

void read_gemma(Fields& f, Config& c) {
  read_gemma_common(f, c, "hidden_activation");
  read_plain_rope(f, c, 10000);
}

void read_gemma2(Fields& f, Config& c) {
  read_gemma_common(f, c, "hidden_activation");
  read_plain_rope(f, c, 10000);
  c.inner_norms = true;
  c.attention_softcap = f.has("attn_logit_softcapping") ? f.real("attn_logit_softcapping", 0.0) : 50;
  c.logit_softcap = f.has("final_logit_softcapping") ? f.real("final_logit_softcapping", 0.0) : 30;
  for (Layer& layer : c.layers) layer.attention_scale = 1 / std::sqrt(f.real("query_pre_attn_scalar", 256.0));
  read_windows(f, c, f.integer("sliding_window", 4096), [](size_t i) { return i % 2 == 0; });
}

// Gemma 3's text model; its files leave out what equals the defaults.
void read_gemma3_text(Fields& f, Config& c) {
  Json full = {{"vocab_size", 262208},
               {"hidden_size", 2304},
               {"intermediate_size", 9216},
               {"num_hidden_layers", 26},
               {"num_attention_heads", 8},
               {"num_key_value_heads", 4},
               {"max_position_embeddings", 131072}};
  full.update(f.all());
  Fields g(full, "config.json");
  read_gemma_common(g, c, "hidden_activation");
  c.inner_norms = c.head_norms = true;
  c.attention_softcap = g.real("attn_logit_softcapping", 0.0);
  c.logit_softcap = g.real("final_logit_softcapping", 0.0);
  for (Layer& layer : c.layers) layer.attention_scale = 1 / std::sqrt(g.real("query_pre_attn_scalar", 256.0));
  const auto pattern = static_cast<size_t>(
      std::max<int64_t>(g.integer("sliding_window_pattern", g.integer("_sliding_window_pattern", 6)), 1));
  read_windows(g, c, g.integer("sliding_window", 4096), [&](size_t i) { return (i + 1) % pattern != 0; });
  const Json& far = rope_parameters(g, "full_attention");
  const Json& near = rope_parameters(g, "sliding_attention");
  const bool apart = &near != &far;
  const Json plain = Json::object();
  const double local = g.real("rope_local_base_freq", 10000.0);
  c.ropes = {read_rope(g, far, read_theta(g, far, 1000000), c.head_width),
             read_rope(g, apart ? near : plain,
                       apart ? Fields(near, "the rope parameters").real("rope_theta", local) : local, c.head_width)};
  for (Layer& layer : c.layers) layer.rope = layer.left >= 0 ? 1 : 0;
  if (!g.status()) f.fail_with(g.status().error());
}

void read_gemma3(Fields& f, Config& c) {
  Fields text(f.object("text_config"), "text_config of config.json");
  read_gemma3_text(text, c);
  if (!text.status()) f.fail_with(text.status().error());
}

void read_phi3(Fields& f, Config& c) {
  read_common(f, c);
  c.eps = f.real("rms_norm_eps", 1e-5);
  read_plain_rope(f, c, 10000);
  c.fused_qkv = c.fused_gate = true;
  read_windows(f, c, f.integer("sliding_window", 0), always);
}

void read_gpt2(Fields& f, Config& c) {
  c.vocabulary = f.integer("vocab_size");
  c.width = f.integer("n_embd");
  c.heads = c.groups = f.integer("n_head");
  c.head_width = c.heads > 0 ? c.width / c.heads : 0;
  c.feed_width = f.integer("n_inner", 4 * c.width);
  c.context = c.positions = f.integer("n_positions", 1024);
  c.eps = f.real("layer_norm_epsilon", 1e-5);
  c.activation = read_activation(f, "activation_function", "gelu_new");
  c.tied = f.flag("tie_word_embeddings", true);
  c.layer_norm = c.fused_qkv = c.input_major = true;
  c.qkv_bias = c.out_bias = c.feed_bias = true;
  c.gated = false;
  const int64_t layers = f.integer("n_layer");
  if (layers < 1 || layers > 4096) {
    f.fail_with(fail(Code::attribute_invalid, "n_layer is {}", layers).value());
    return;
  }
  const bool scaled = f.flag("scale_attn_weights", true), by_layer = f.flag("scale_attn_by_inverse_layer_idx", false);
  for (int64_t i = 0; i < layers; ++i) {
    Layer layer;
    layer.right = 0;
    layer.rope = -1;
    layer.attention_scale = (scaled ? 1 / std::sqrt(static_cast<double>(std::max<int64_t>(c.head_width, 1))) : 1) /
                            (by_layer ? static_cast<double>(i + 1) : 1);
    c.layers.push_back(layer);
  }
}

void read_gpt_neox(Fields& f, Config& c) {
  read_common(f, c);
  c.eps = f.real("layer_norm_eps", 1e-5);
  c.activation = read_activation(f, "hidden_act", "gelu");
  c.layer_norm = c.fused_by_head = true;
  c.gated = false;
  c.qkv_bias = c.out_bias = f.flag("attention_bias", true);
  c.feed_bias = true;
  c.block = f.flag("use_parallel_residual", true) ? Block::parallel : Block::pre_norm;
  Json parameters = rope_parameters(f);
  if (parameters.find("partial_rotary_factor") == nullptr)
    parameters["partial_rotary_factor"] = f.real("rotary_pct", 0.25);
  c.ropes = {read_rope(f, parameters, read_theta(f, parameters, f.real("rotary_emb_base", 10000.0)), c.head_width)};
}

constexpr PartName kLlama[] = {
    {Part::tokens, "embed_tokens"},
    {Part::attention_norm, "layers.#.input_layernorm"},
    {Part::q, "layers.#.self_attn.q_proj"},
    {Part::k, "layers.#.self_attn.k_proj"},
    {Part::v, "layers.#.self_attn.v_proj"},
    {Part::qkv, "layers.#.self_attn.qkv_proj"},
    {Part::q_norm, "layers.#.self_attn.q_norm"},
    {Part::k_norm, "layers.#.self_attn.k_norm"},
    {Part::out, "layers.#.self_attn.o_proj"},
    {Part::feed_norm, "layers.#.post_attention_layernorm"},
    {Part::gate, "layers.#.mlp.gate_proj"},
    {Part::up, "layers.#.mlp.up_proj"},
    {Part::gate_up, "layers.#.mlp.gate_up_proj"},
    {Part::down, "layers.#.mlp.down_proj"},
    {Part::router, "layers.#.mlp.gate"},
    {Part::expert_gate, "layers.#.mlp.experts.@.gate_proj"},
    {Part::expert_up, "layers.#.mlp.experts.@.up_proj"},
    {Part::expert_down, "layers.#.mlp.experts.@.down_proj"},
    {Part::shared_gate, "layers.#.mlp.shared_expert.gate_proj"},
    {Part::shared_up, "layers.#.mlp.shared_expert.up_proj"},
    {Part::shared_down, "layers.#.mlp.shared_expert.down_proj"},
    {Part::shared_switch, "layers.#.mlp.shared_expert_gate"},
    {Part::final_norm, "norm"},
    {Part::head, "^lm_head"},
};
constexpr PartName kMixtral[] = {
    {Part::router, "layers.#.block_sparse_moe.gate"},
    {Part::expert_gate, "layers.#.block_sparse_moe.experts.@.w1"},
    {Part::expert_up, "layers.#.block_sparse_moe.experts.@.w3"},
    {Part::expert_down, "layers.#.block_sparse_moe.experts.@.w2"},
    {Part::tokens, "embed_tokens"},
    {Part::attention_norm, "layers.#.input_layernorm"},
    {Part::q, "layers.#.self_attn.q_proj"},
    {Part::k, "layers.#.self_attn.k_proj"},
    {Part::v, "layers.#.self_attn.v_proj"},
    {Part::out, "layers.#.self_attn.o_proj"},
    {Part::feed_norm, "layers.#.post_attention_layernorm"},
    {Part::final_norm, "norm"},
    {Part::head, "^lm_head"},
};
constexpr PartName kGemma2[] = {
    {Part::tokens, "embed_tokens"},
    {Part::attention_norm, "layers.#.input_layernorm"},
    {Part::q, "layers.#.self_attn.q_proj"},
    {Part::k, "layers.#.self_attn.k_proj"},
    {Part::v, "layers.#.self_attn.v_proj"},
    {Part::q_norm, "layers.#.self_attn.q_norm"},
    {Part::k_norm, "layers.#.self_attn.k_norm"},
    {Part::out, "layers.#.self_attn.o_proj"},
    {Part::attention_out_norm, "layers.#.post_attention_layernorm"},
    {Part::feed_norm, "layers.#.pre_feedforward_layernorm"},
    {Part::gate, "layers.#.mlp.gate_proj"},
    {Part::up, "layers.#.mlp.up_proj"},
    {Part::down, "layers.#.mlp.down_proj"},
    {Part::feed_out_norm, "layers.#.post_feedforward_layernorm"},
    {Part::final_norm, "norm"},
    {Part::head, "^lm_head"},
};
constexpr PartName kGpt2[] = {
    {Part::tokens, "wte"},          {Part::positions, "wpe"},       {Part::attention_norm, "h.#.ln_1"},
    {Part::qkv, "h.#.attn.c_attn"}, {Part::out, "h.#.attn.c_proj"}, {Part::feed_norm, "h.#.ln_2"},
    {Part::up, "h.#.mlp.c_fc"},     {Part::down, "h.#.mlp.c_proj"}, {Part::final_norm, "ln_f"},
    {Part::head, "^lm_head"},
};
constexpr PartName kGptNeox[] = {
    {Part::tokens, "embed_in"},
    {Part::attention_norm, "layers.#.input_layernorm"},
    {Part::qkv, "layers.#.attention.query_key_value"},
    {Part::out, "layers.#.attention.dense"},
    {Part::feed_norm, "layers.#.post_attention_layernorm"},
    {Part::up, "layers.#.mlp.dense_h_to_4h"},
    {Part::down, "layers.#.mlp.dense_4h_to_h"},
    {Part::final_norm, "final_layer_norm"},
    {Part::head, "^embed_out"},
};
constexpr std::string_view kModel[] = {"model.", "", "language_model.model.", "model.language_model."};
constexpr std::string_view kTransformer[] = {"", "transformer."};
constexpr std::string_view kNeox[] = {"gpt_neox.", ""};

constexpr Family kDecoders[] = {
    {"llama", read_llama, kLlama, kModel},         {"mistral", read_mistral, kLlama, kModel},
    {"mixtral", read_mixtral, kMixtral, kModel},   {"qwen2", read_qwen2, kLlama, kModel},
    {"qwen3", read_qwen3, kLlama, kModel},         {"qwen2_moe", read_qwen2_moe, kLlama, kModel},
    {"qwen3_moe", read_qwen3_moe, kLlama, kModel}, {"gemma", read_gemma, kLlama, kModel},
    {"gemma2", read_gemma2, kGemma2, kModel},      {"gemma3_text", read_gemma3_text, kGemma2, kModel},
    {"gemma3", read_gemma3, kGemma2, kModel},      {"phi3", read_phi3, kLlama, kModel},
    {"smollm3", read_smollm3, kLlama, kModel},     {"granite", read_granite, kLlama, kModel},
    {"gpt2", read_gpt2, kGpt2, kTransformer},      {"gpt_neox", read_gpt_neox, kGptNeox, kNeox},
};

}  // namespace

std::span<const Family> decoder_families() { return kDecoders; }

}  // namespace tessera::huggingface
