// Encoders, from their configuration_*.py and modeling_*.py in transformers.
#include <cmath>

#include "import/huggingface/families.h"

namespace tessera::huggingface {
namespace {

using transformer::Block;
using transformer::Config;
using transformer::Layer;
using transformer::Part;

void make_layers(Fields& f, Config& c, int64_t layers) {
  if (layers < 1 || layers > 4096) {
    f.fail_with(fail(Code::attribute_invalid, "the model has {} layers", layers).value());
    return;
  }
  c.groups = c.heads;
  c.head_width = c.heads > 0 ? c.width / c.heads : 0;
  Layer layer;
  layer.rope = -1;
  layer.attention_scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(c.head_width, 1)));
  c.layers.assign(static_cast<size_t>(layers), layer);
}

// The layer of Vaswani et al. 2017: biases everywhere, norms after the sums.
void set_post_norm(Config& c) {
  c.decoder = false;
  c.block = Block::post_norm;
  c.layer_norm = c.input_norm = true;
  c.final_norm = c.gated = false;
  c.qkv_bias = c.out_bias = c.feed_bias = true;
}

void read_sizes(Fields& f, Config& c) {
  c.vocabulary = f.integer("vocab_size");
  c.width = f.integer("hidden_size");
  c.heads = f.integer("num_attention_heads");
  c.feed_width = f.integer("intermediate_size");
  c.positions = c.context = f.integer("max_position_embeddings", 512);
  make_layers(f, c, f.integer("num_hidden_layers"));
}

void read_bert(Fields& f, Config& c) {
  set_post_norm(c);
  read_sizes(f, c);
  c.eps = f.real("layer_norm_eps", 1e-12);
  c.activation = read_activation(f, "hidden_act", "gelu");
  c.token_types = f.integer("type_vocab_size", 2);
  if (const std::string kind = f.text("position_embedding_type", "absolute"); kind != "absolute")
    f.fail_with(fail(Code::unsupported_feature, "position embeddings of type '{}' are not supported", kind).value());
}

// Rows up to that of the padding token are not used.
void skip_padding(Fields& f, Config& c) {
  c.position_offset = f.integer("pad_token_id", 1) + 1;
  c.context = c.positions - c.position_offset;
}

void read_roberta(Fields& f, Config& c) {
  read_bert(f, c);
  skip_padding(f, c);
}

void read_mpnet(Fields& f, Config& c) {
  set_post_norm(c);
  read_sizes(f, c);
  c.eps = f.real("layer_norm_eps", 1e-12);
  c.activation = read_activation(f, "hidden_act", "gelu");
  c.bias_buckets = f.integer("relative_attention_num_buckets", 32);
  skip_padding(f, c);
}

void read_distilbert(Fields& f, Config& c) {
  set_post_norm(c);
  c.vocabulary = f.integer("vocab_size");
  c.width = f.integer("dim");
  c.heads = f.integer("n_heads");
  c.feed_width = f.integer("hidden_dim", 4 * c.width);
  c.positions = c.context = f.integer("max_position_embeddings", 512);
  c.eps = 1e-12;
  c.activation = read_activation(f, "activation", "gelu");
  make_layers(f, c, f.integer("n_layers"));
}

void read_modernbert(Fields& f, Config& c) {
  read_sizes(f, c);
  c.decoder = false;
  c.positions = 0;
  c.layer_norm = c.input_norm = c.fused_qkv = c.fused_gate = true;
  c.norm_bias = f.flag("norm_bias", false);
  c.qkv_bias = c.out_bias = f.flag("attention_bias", false);
  c.feed_bias = f.flag("mlp_bias", false);
  c.eps = f.real("norm_eps", 1e-5);
  c.activation = read_activation(f, "hidden_activation", "gelu");
  const Json& far = rope_parameters(f, "full_attention");
  const Json& near = rope_parameters(f, "sliding_attention");
  const double global = f.real("global_rope_theta", 160000.0), local = f.real("local_rope_theta", 10000.0);
  c.ropes = {read_rope(f, far, read_theta(f, far, global), c.head_width),
             read_rope(f, near, read_theta(f, near, local), c.head_width)};
  const std::vector<std::string> types = f.texts("layer_types");
  const auto every = static_cast<size_t>(std::max<int64_t>(f.integer("global_attn_every_n_layers", 3), 1));
  const int64_t window = f.integer("local_attention", f.integer("sliding_window", 128));
  for (size_t i = 0; i < c.layers.size(); ++i) {
    Layer& layer = c.layers[i];
    const bool slides = i < types.size() ? types[i] == "sliding_attention" : i % every != 0;
    layer.rope = slides ? 1 : 0;
    if (slides) layer.left = layer.right = window / 2;
    layer.attention_norm = i > 0;  // the first follows the norm of the embeddings
  }
}

constexpr PartName kBert[] = {
    {Part::tokens, "embeddings.word_embeddings"},
    {Part::positions, "embeddings.position_embeddings"},
    {Part::types, "embeddings.token_type_embeddings"},
    {Part::input_norm, "embeddings.LayerNorm"},
    {Part::q, "encoder.layer.#.attention.self.query"},
    {Part::k, "encoder.layer.#.attention.self.key"},
    {Part::v, "encoder.layer.#.attention.self.value"},
    {Part::out, "encoder.layer.#.attention.output.dense"},
    {Part::attention_norm, "encoder.layer.#.attention.output.LayerNorm"},
    {Part::up, "encoder.layer.#.intermediate.dense"},
    {Part::down, "encoder.layer.#.output.dense"},
    {Part::feed_norm, "encoder.layer.#.output.LayerNorm"},
    {Part::pooler, "pooler.dense"},
};
constexpr PartName kMpnet[] = {
    {Part::tokens, "embeddings.word_embeddings"},
    {Part::positions, "embeddings.position_embeddings"},
    {Part::input_norm, "embeddings.LayerNorm"},
    {Part::q, "encoder.layer.#.attention.attn.q"},
    {Part::k, "encoder.layer.#.attention.attn.k"},
    {Part::v, "encoder.layer.#.attention.attn.v"},
    {Part::out, "encoder.layer.#.attention.attn.o"},
    {Part::attention_norm, "encoder.layer.#.attention.LayerNorm"},
    {Part::up, "encoder.layer.#.intermediate.dense"},
    {Part::down, "encoder.layer.#.output.dense"},
    {Part::feed_norm, "encoder.layer.#.output.LayerNorm"},
    {Part::bias_table, "encoder.relative_attention_bias"},
    {Part::pooler, "pooler.dense"},
};
constexpr PartName kDistilbert[] = {
    {Part::tokens, "embeddings.word_embeddings"},
    {Part::positions, "embeddings.position_embeddings"},
    {Part::input_norm, "embeddings.LayerNorm"},
    {Part::q, "transformer.layer.#.attention.q_lin"},
    {Part::k, "transformer.layer.#.attention.k_lin"},
    {Part::v, "transformer.layer.#.attention.v_lin"},
    {Part::out, "transformer.layer.#.attention.out_lin"},
    {Part::attention_norm, "transformer.layer.#.sa_layer_norm"},
    {Part::up, "transformer.layer.#.ffn.lin1"},
    {Part::down, "transformer.layer.#.ffn.lin2"},
    {Part::feed_norm, "transformer.layer.#.output_layer_norm"},
};
constexpr PartName kModernbert[] = {
    {Part::tokens, "embeddings.tok_embeddings"},
    {Part::input_norm, "embeddings.norm"},
    {Part::attention_norm, "layers.#.attn_norm"},
    {Part::qkv, "layers.#.attn.Wqkv"},
    {Part::out, "layers.#.attn.Wo"},
    {Part::feed_norm, "layers.#.mlp_norm"},
    {Part::gate_up, "layers.#.mlp.Wi"},
    {Part::down, "layers.#.mlp.Wo"},
    {Part::final_norm, "final_norm"},
};
constexpr std::string_view kBertPrefixes[] = {"", "bert."};
constexpr std::string_view kRobertaPrefixes[] = {"", "roberta."};
constexpr std::string_view kMpnetPrefixes[] = {"", "mpnet."};
constexpr std::string_view kDistilbertPrefixes[] = {"", "distilbert."};
constexpr std::string_view kModernbertPrefixes[] = {"", "model."};

constexpr Family kEncoders[] = {
    {"bert", read_bert, kBert, kBertPrefixes},
    {"roberta", read_roberta, kBert, kRobertaPrefixes},
    {"xlm-roberta", read_roberta, kBert, kRobertaPrefixes},
    {"camembert", read_roberta, kBert, kRobertaPrefixes},
    {"distilbert", read_distilbert, kDistilbert, kDistilbertPrefixes},
    {"mpnet", read_mpnet, kMpnet, kMpnetPrefixes},
    {"modernbert", read_modernbert, kModernbert, kModernbertPrefixes},
};

}  // namespace

std::span<const Family> encoder_families() { return kEncoders; }

}  // namespace tessera::huggingface
