#include "import/gguf/import.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "formats/gguf.h"
#include "import/gguf/names.h"
#include "import/transformer/rope.h"
#include "tensor/scalar.h"

namespace tessera::gguf_import {
namespace {

using transformer::Activation;
using transformer::Block;
using transformer::Config;
using transformer::Key;
using transformer::Layer;
using transformer::Part;
using transformer::Rope;

class FileWeights final : public transformer::Weights {
 public:
  FileWeights(gguf::File file, bool post_norm) : file_(std::move(file)), post_norm_(post_norm) {}

  std::string name(const Key& key) const override { return tensor_name(key, post_norm_); }

  Result<Tensor> get(const Key& key) const override {
    // Files of the first mixtures have a matrix for each expert.
    if (const std::string own = expert_name(key); is_stacked(key.part) && !has(name(key)) && has(own)) return get(own);
    TESSERA_ASSIGN(const Tensor tensor, get(name(key)));
    if (key.part == Part::shared_switch && tensor.rank() == 1) return tensor.reshaped({1, tensor.count()});
    if (!is_stacked(key.part)) return tensor;
    if (tensor.rank() != 3 || key.expert >= tensor.shape()[0])
      return fail(Code::shape_mismatch, "tensor '{}' of rank {} does not hold the weights of expert {}", name(key),
                  tensor.rank(), key.expert);
    const Dims one = {tensor.shape()[1], tensor.shape()[2]};
    const size_t bytes = tensor.bytes() / static_cast<size_t>(tensor.shape()[0]);
    return Tensor::borrow(tensor.dtype(), one, tensor.as<char>() + bytes * static_cast<size_t>(key.expert),
                          std::make_shared<const Tensor>(tensor));
  }
  Result<Tensor> get(const std::string& text) const {
    const gguf::TensorInfo* info = file_.find_tensor(text);
    if (info == nullptr) return fail(Code::unknown_name, "the model has no tensor '{}'", text);
    return file_.tensor(*info);
  }
  bool has(const std::string& text) const { return file_.find_tensor(text) != nullptr; }
  const gguf::File& file() const { return file_; }

 private:
  gguf::File file_;
  bool post_norm_;
};

// Metadata of one architecture; the first error is kept.
class Metadata {
 public:
  Metadata(const gguf::File& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  bool has(std::string_view key) const { return file_.has(prefix_ + std::string(key)); }
  int64_t integer(std::string_view key, std::optional<int64_t> otherwise = {}) {
    if (otherwise && !has(key)) return *otherwise;
    // Some files give one number a layer; models whose layers differ are not known here.
    const Result<std::vector<int64_t>> list = file_.integers(prefix_ + std::string(key));
    if (!list) return kept(list.error(), otherwise.value_or(1));
    for (int64_t value : *list)
      if (value != list->front())
        return kept(fail(Code::unsupported_feature, "'{}{}' differs from layer to layer", prefix_, key).value(), value);
    if (list->empty()) return kept(fail(Code::unknown_name, "'{}{}' is empty", prefix_, key).value(), 1);
    return list->front();
  }
  double real(std::string_view key, double otherwise) {
    return read(file_.real(prefix_ + std::string(key), otherwise), otherwise);
  }
  bool flag(std::string_view key, bool otherwise) {
    return read(file_.boolean(prefix_ + std::string(key), otherwise), otherwise);
  }
  std::string text(std::string_view key, std::string_view otherwise) {
    return std::string(read(file_.string(prefix_ + std::string(key), otherwise), otherwise));
  }
  int64_t plain_integer(std::string_view key, int64_t otherwise) {
    return read(file_.integer(key, otherwise), otherwise);
  }
  void fail_with(Error error) {
    if (!error_) error_ = std::move(error);
  }
  Status status() const {
    if (error_) return tl::unexpected<Error>(*error_);
    return {};
  }

 private:
  template <class T>
  T kept(Error error, T value) {
    fail_with(std::move(error));
    return value;
  }
  template <class T, class U>
  T read(const Result<T>& result, U otherwise) {
    return result ? *result : kept<T>(result.error(), otherwise);
  }
  const gguf::File& file_;
  std::string prefix_;
  std::optional<Error> error_;
};

void read_sizes(Metadata& m, const FileWeights& w, Config& c) {
  c.width = m.integer("embedding_length");
  c.heads = m.integer("attention.head_count");
  c.groups = m.integer("attention.head_count_kv", c.heads);
  c.head_width = m.integer("attention.key_length", c.heads > 0 ? c.width / c.heads : 0);
  c.feed_width = m.integer("feed_forward_length");
  c.context = m.integer("context_length", 2048);
  if (m.integer("attention.value_length", c.head_width) != c.head_width)
    m.fail_with(fail(Code::unsupported_feature, "values are {} wide but keys {}",
                     m.integer("attention.value_length", 0), c.head_width)
                    .value());
  if (const gguf::TensorInfo* tokens = w.file().find_tensor("token_embd.weight"); tokens && tokens->shape.size() == 2)
    c.vocabulary = tokens->shape[0];
  else
    m.fail_with(fail(Code::unknown_name, "the model has no tensor 'token_embd.weight' of two axes").value());
  c.layer_norm = m.has("attention.layer_norm_epsilon");
  c.eps =
      c.layer_norm ? m.real("attention.layer_norm_epsilon", 1e-5) : m.real("attention.layer_norm_rms_epsilon", 1e-5);
  c.tied = !w.has("output.weight");
  c.fused_qkv = w.has("blk.0.attn_qkv.weight");
  c.qkv_bias = w.has(c.fused_qkv ? "blk.0.attn_qkv.bias" : "blk.0.attn_q.bias");
  c.out_bias = w.has("blk.0.attn_output.bias");
  c.feed_bias = w.has("blk.0.ffn_up.bias");
  c.head_bias = w.has("output.bias");
  c.norm_bias = w.has("output_norm.bias") || w.has("token_embd_norm.bias");
  c.head_norms = w.has("blk.0.attn_q_norm.weight");
  c.logit_softcap = m.real("final_logit_softcapping", 0);
  c.attention_softcap = m.real("attn_logit_softcapping", 0);
  const int64_t layers = m.integer("block_count");
  if (layers < 1 || layers > 4096) {
    m.fail_with(fail(Code::attribute_invalid, "the model has {} layers", layers).value());
    return;
  }
  Layer layer;
  layer.right = 0;
  layer.attention_scale = m.real("attention.scale", 0);
  if (layer.attention_scale == 0)
    layer.attention_scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(c.head_width, 1)));
  c.layers.assign(static_cast<size_t>(layers), layer);
}

// `period` layers, of which `sliding(i % period)` see the window; 1: all do.
template <class F>
void read_windows(Metadata& m, Config& c, int64_t otherwise, const F& slides) {
  const int64_t window = m.integer("attention.sliding_window", otherwise);
  if (window <= 0) return;
  for (size_t i = 0; i < c.layers.size(); ++i)
    if (slides(static_cast<int64_t>(i))) c.layers[i].left = window - 1;
}
bool always(int64_t) { return true; }

std::vector<double> factors(Metadata& m, const FileWeights& w, const std::string& name, size_t pairs) {
  std::vector<double> list;
  const Result<Tensor> tensor = w.get(name);
  if (!tensor) {
    m.fail_with(tensor.error());
    return std::vector<double>(pairs, 1);
  }
  for (int64_t i = 0; i < tensor->count() && is_float(tensor->dtype()) && bits(tensor->dtype()) >= 16; ++i)
    list.push_back(decode(tensor->dtype(), tensor->data(), i));
  if (list.size() != pairs || std::any_of(list.begin(), list.end(), [](double f) { return !(f > 0); })) {
    m.fail_with(fail(Code::shape_mismatch, "tensor '{}' must hold {} positive factors", name, pairs).value());
    return std::vector<double>(pairs, 1);
  }
  return list;
}

Rope read_rope(Metadata& m, const FileWeights& w, const Config& c, double theta, bool scaled) {
  Rope rope;
  const int64_t turned = m.integer("rope.dimension_count", c.head_width);
  if (!(theta > 0) || turned < 2 || turned > c.head_width || c.head_width > transformer::kMaxHeadWidth) {
    m.fail_with(
        fail(Code::attribute_invalid, "a rope of base {} over {} of {} elements", theta, turned, c.head_width).value());
    return rope;
  }
  rope.frequencies = transformer::rope_frequencies(turned, theta);
  const size_t pairs = rope.frequencies.size();
  if (!scaled) return rope;
  if (w.has("rope_freqs.weight")) {
    const std::vector<double> list = factors(m, w, "rope_freqs.weight", pairs);
    for (size_t i = 0; i < pairs; ++i) rope.frequencies[i] /= list[i];
  }
  const double factor = m.real("rope.scaling.factor", m.real("rope.scale_linear", 1));
  const std::string type = m.text("rope.scaling.type", factor == 1 ? "none" : "linear");
  const int64_t original = m.integer("rope.scaling.original_context_length", c.context);
  if (w.has("rope_factors_long.weight")) {
    transformer::LongRopeScaling s;
    s.short_factors = factors(m, w, "rope_factors_short.weight", pairs);
    s.long_factors = factors(m, w, "rope_factors_long.weight", pairs);
    s.original_context = original;
    s.magnitude = m.real("rope.scaling.attn_factor", 0);
    s.stretch = static_cast<double>(c.context) / static_cast<double>(std::max<int64_t>(original, 1));
    transformer::scale_long(rope, s);
  } else if (type == "linear") {
    for (double& f : rope.frequencies) f /= factor;
  } else if (type == "yarn") {
    transformer::YarnScaling s;
    s.factor = factor;
    s.theta = theta;
    s.original_context = static_cast<double>(original);
    s.beta_fast = m.real("rope.scaling.yarn_beta_fast", 32);
    s.beta_slow = m.real("rope.scaling.yarn_beta_slow", 1);
    transformer::scale_yarn(rope.frequencies, s);
    rope.magnitude = transformer::yarn_magnitude(factor) * m.real("rope.scaling.attn_factor", 1);
  } else if (type != "none" && type != "longrope") {
    m.fail_with(fail(Code::unsupported_feature, "the rope scaling '{}' is not supported", type).value());
  }
  return rope;
}

void read_experts(Metadata& m, Config& c, bool normalised) {
  c.experts.count = m.integer("expert_count", 0);
  if (c.experts.count == 0) return;
  c.experts.used = m.integer("expert_used_count");
  c.experts.width = m.integer("expert_feed_forward_length", c.feed_width);
  c.experts.normalised = m.flag("expert_weights_norm", normalised);
  for (Layer& layer : c.layers) layer.experts = true;
}

void read_llama(Metadata& m, const FileWeights& w, Config& c) {
  read_windows(m, c, 0, always);
  c.ropes = {read_rope(m, w, c, m.real("rope.freq_base", 10000), true)};
  c.ropes[0].interleaved = true;
  read_experts(m, c, true);
  c.embedding_scale = m.real("embedding_scale", 1);
  c.residual_scale = m.real("residual_scale", 1);
  c.logit_scale = 1 / m.real("logit_scale", 1);
}

void read_qwen(Metadata& m, const FileWeights& w, Config& c) {
  read_windows(m, c, 0, always);
  c.ropes = {read_rope(m, w, c, m.real("rope.freq_base", 10000), true)};
  read_experts(m, c, c.architecture == "qwen3moe");
  const gguf::TensorInfo* shared = w.file().find_tensor("blk.0.ffn_up_shexp.weight");
  c.experts.shared_width = m.integer("expert_shared_feed_forward_length",
                                     shared != nullptr && shared->shape.size() == 2 ? shared->shape[0] : 0);
  c.experts.shared_switch = w.has("blk.0.ffn_gate_inp_shexp.weight");
}

void read_smollm3(Metadata& m, const FileWeights& w, Config& c) {
  read_llama(m, w, c);
  for (size_t i = 0; i < c.layers.size(); ++i)
    if ((i + 1) % 4 == 0) c.layers[i].rope = -1;
}

void read_gemma(Metadata& m, const FileWeights& w, Config& c) {
  c.activation = Activation::gelu_tanh;
  c.embedding_scale = std::sqrt(static_cast<double>(c.width));
  c.inner_norms = c.architecture != "gemma";
  c.ropes = {read_rope(m, w, c, m.real("rope.freq_base", 10000), true)};
  if (c.architecture == "gemma2") read_windows(m, c, 4096, [](int64_t i) { return i % 2 == 0; });
  if (c.architecture == "gemma3") {
    const int64_t period = std::max<int64_t>(m.integer("attention.sliding_window_pattern", 6), 1);
    read_windows(m, c, 0, [&](int64_t i) { return (i + 1) % period != 0; });
    c.ropes.push_back(read_rope(m, w, c, m.real("rope.freq_base_swa", m.real("rope.local.freq_base", 10000)), false));
    for (Layer& layer : c.layers) layer.rope = layer.left >= 0 ? 1 : 0;
  }
  // The largest of both families scale by the width a head has of the model, which no field says.
  const bool largest =
      (c.architecture == "gemma2" && c.layers.size() == 46) || (c.architecture == "gemma3" && c.layers.size() == 62);
  if (largest && !m.has("attention.scale"))
    for (Layer& layer : c.layers)
      layer.attention_scale = 1 / std::sqrt(static_cast<double>(c.width) / static_cast<double>(c.heads));
}

void read_phi3(Metadata& m, const FileWeights& w, Config& c) {
  read_windows(m, c, 0, always);
  c.ropes = {read_rope(m, w, c, m.real("rope.freq_base", 10000), true)};
  c.fused_gate = true;
}

void read_gpt2(Metadata&, const FileWeights&, Config& c) {
  c.positions = c.context;
  c.activation = Activation::gelu_tanh;
  c.gated = false;
  for (Layer& layer : c.layers) layer.rope = -1;
}

void read_gpt_neox(Metadata& m, const FileWeights& w, Config& c) {
  c.ropes = {read_rope(m, w, c, m.real("rope.freq_base", 10000), true)};
  c.activation = Activation::gelu;
  c.gated = false;
  if (m.flag("use_parallel_residual", true)) c.block = Block::parallel;
}

void read_bert(Metadata&, const FileWeights& w, Config& c) {
  c.decoder = c.final_norm = c.gated = false;
  c.block = Block::post_norm;
  c.input_norm = true;
  c.activation = Activation::gelu;
  c.positions = c.context;
  const gguf::TensorInfo* types = w.file().find_tensor("token_types.weight");  // DistilBERT has none
  c.token_types = types != nullptr && !types->shape.empty() ? types->shape[0] : 0;
  for (Layer& layer : c.layers) layer.rope = layer.right = -1;
}

void read_modern_bert(Metadata& m, const FileWeights& w, Config& c) {
  c.decoder = false;
  c.input_norm = c.fused_gate = true;
  c.activation = Activation::gelu;
  c.ropes = {read_rope(m, w, c, m.real("rope.freq_base", 160000), true),
             read_rope(m, w, c, m.real("rope.freq_base_swa", 10000), false)};
  const int64_t window = m.integer("attention.sliding_window", 128);
  const int64_t period = std::max<int64_t>(m.integer("attention.sliding_window_pattern", 3), 1);
  for (size_t i = 0; i < c.layers.size(); ++i) {
    Layer& layer = c.layers[i];
    layer.right = -1;
    layer.attention_norm = i > 0;
    if (static_cast<int64_t>(i) % period == 0) continue;
    layer.left = layer.right = window / 2;
    layer.rope = 1;
  }
}

struct Architecture {
  std::string_view name;
  void (*read)(Metadata& metadata, const FileWeights& weights, Config& config);
};
constexpr Architecture kArchitectures[] = {
    {"llama", read_llama},      {"qwen2", read_qwen},    {"qwen3", read_qwen},
    {"qwen2moe", read_qwen},    {"qwen3moe", read_qwen}, {"gemma", read_gemma},
    {"gemma2", read_gemma},     {"gemma3", read_gemma},  {"phi3", read_phi3},
    {"smollm3", read_smollm3},  {"granite", read_llama}, {"gpt2", read_gpt2},
    {"gptneox", read_gpt_neox}, {"bert", read_bert},     {"modern-bert", read_modern_bert}};

Result<const Architecture*> find_architecture(std::string_view name) {
  std::string known;
  for (const Architecture& a : kArchitectures) {
    if (a.name == name) return &a;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", a.name);
  }
  return fail(Code::unsupported_feature, "GGUF models of architecture '{}' are not known, only {}", name, known);
}

Status read_pooling(Metadata& m, transformer::Source& source) {
  using transformer::Pooling;
  constexpr Pooling kKinds[] = {Pooling::none, Pooling::mean, Pooling::cls, Pooling::last};
  const int64_t kind = m.integer("pooling_type", source.config.decoder ? 3 : 1);
  if (kind < 0 || kind > 3) return fail(Code::unsupported_feature, "pooling of type {} is not supported", kind);
  source.pooling = kKinds[kind];
  return {};
}

}  // namespace

Result<transformer::Source> open(const std::string& path) {
  TESSERA_ASSIGN(gguf::File file, gguf::File::open(path));
  TESSERA_ASSIGN(const std::string architecture,
                 file.string("general.architecture").map([](auto text) { return std::string(text); }));
  TESSERA_ASSIGN(const Architecture* known, find_architecture(architecture));
  auto weights = std::make_shared<FileWeights>(std::move(file), architecture == "bert");
  Metadata metadata(weights->file(), architecture);
  transformer::Source source;
  Config& c = source.config;
  c.architecture = architecture;
  read_sizes(metadata, *weights, c);
  TESSERA_TRY(metadata.status());
  known->read(metadata, *weights, c);
  c.bos = metadata.plain_integer("tokenizer.ggml.bos_token_id", -1);
  c.pad = metadata.plain_integer("tokenizer.ggml.padding_token_id", -1);
  for (std::string_view key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const int64_t id = metadata.plain_integer(key, -1); id >= 0) c.eos.push_back(id);
  TESSERA_TRY(read_pooling(metadata, source));
  TESSERA_TRY(metadata.status());
  TESSERA_TRY(transformer::check(c));
  source.weights = std::move(weights);
  return source;
}

}  // namespace tessera::gguf_import
