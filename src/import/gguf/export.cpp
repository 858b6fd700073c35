#include "import/gguf/export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/result.h"
#include "import/gguf/names.h"
#include "import/transformer/rope.h"
#include "tensor/block.h"

namespace tessera::gguf_import {
namespace {

using transformer::Config;
using transformer::Key;
using transformer::Layer;
using transformer::Part;
using transformer::Rope;

struct Word {
  std::string_view type;  // model_type
  std::string_view architecture;
  bool neighbours = false;  // rope turns neighbours, for which rows of q and k stand in another order
};
constexpr Word kWords[] = {
    {"llama", "llama", true},     {"mistral", "llama", true}, {"mixtral", "llama", true}, {"smollm3", "smollm3", true},
    {"granite", "granite", true}, {"qwen2", "qwen2"},         {"qwen3", "qwen3"},         {"qwen2_moe", "qwen2moe"},
    {"qwen3_moe", "qwen3moe"},    {"gemma", "gemma"},         {"gemma2", "gemma2"},       {"gemma3_text", "gemma3"},
    {"gemma3", "gemma3"},         {"phi3", "phi3"},           {"gpt2", "gpt2"},           {"gpt_neox", "gptneox"}};

Result<const Word*> find_word(const Config& c) {
  for (const Word& word : kWords)
    if (word.type == c.architecture) return &word;
  return fail(Code::unsupported_feature, "models of kind '{}' are not written as GGUF", c.architecture);
}

bool about(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b)); }

// A rope as GGUF tells it: a base, and what each frequency of it is divided by.
struct Told {
  double theta = 10000;
  std::vector<double> factors, long_factors;

  bool plain() const {
    return std::all_of(factors.begin(), factors.end(), [](double f) { return about(f, 1); });
  }
  bool linear() const {
    return std::all_of(factors.begin(), factors.end(), [&](double f) { return about(f, factors[0]); });
  }
};
Told tell(const Rope& rope) {
  Told told;
  const size_t pairs = rope.frequencies.size();
  // The first pairs turn as they were made: stretching spares them. Lists of factors go with any base.
  if (rope.long_frequencies.empty() && pairs > 1)
    told.theta = std::pow(rope.frequencies[1] / rope.frequencies[0], -static_cast<double>(pairs));
  const std::vector<double> base = transformer::rope_frequencies(2 * static_cast<int64_t>(pairs), told.theta);
  for (size_t i = 0; i < pairs; ++i) told.factors.push_back(base[i] / rope.frequencies[i]);
  for (size_t i = 0; i < rope.long_frequencies.size(); ++i)
    told.long_factors.push_back(base[i] / rope.long_frequencies[i]);
  return told;
}

tl::unexpected<Error> not_said(std::string_view what) {
  return fail(Code::unsupported_feature, "GGUF files of this architecture cannot say {}", what);
}

Status write_rope(const Config& c, const Word& word, const std::string& prefix, gguf::Writer& writer) {
  if (c.ropes.empty()) return {};
  const Rope& rope = c.ropes[0];
  const Told told = tell(rope);
  if (rope.stretch > 0) return not_said("how its rope grows with a text");
  writer.set_u32(prefix + "rope.dimension_count", static_cast<uint32_t>(2 * rope.frequencies.size()));
  writer.set_f32(prefix + "rope.freq_base", static_cast<float>(told.theta));
  if (!told.long_factors.empty()) {
    writer.set_u32(prefix + "rope.scaling.original_context_length", static_cast<uint32_t>(rope.original_context));
    writer.set_f32(prefix + "rope.scaling.attn_factor", static_cast<float>(rope.magnitude));
  } else if (!about(rope.magnitude, 1) || (!told.linear() && word.architecture != "llama")) {
    return not_said("how its rope is stretched");
  } else if (told.linear() && !told.plain()) {
    writer.set_string(prefix + "rope.scaling.type", "linear");
    writer.set_f32(prefix + "rope.scaling.factor", static_cast<float>(told.factors[0]));
  }
  if (c.ropes.size() > 1) {
    const Told local = tell(c.ropes[1]);
    if (!local.plain()) return not_said("how the rope of its windows is stretched");
    writer.set_f32(prefix + "rope.freq_base_swa", static_cast<float>(local.theta));
  }
  return {};
}

// Notes what a graph asks for.
class Recorder final : public transformer::Weights {
 public:
  explicit Recorder(const transformer::Weights& inner) : inner_(inner) {}
  std::string name(const Key& key) const override { return inner_.name(key); }
  Result<Tensor> get(const Key& key) const override {
    Result<Tensor> tensor = inner_.get(key);
    if (tensor) asked.push_back({key, tensor->shape(), tensor->dtype()});
    return tensor;
  }

  struct Asked {
    Key key;
    Dims shape;
    DType type;
  };
  mutable std::vector<Asked> asked;

 private:
  const transformer::Weights& inner_;
};

Result<Tensor> rows_in_order(const Tensor& from, const std::vector<int64_t>& order) {
  TESSERA_ASSIGN(Tensor to, Tensor::make(from.dtype(), from.shape()));
  const size_t bytes = from.bytes() / order.size();
  for (size_t i = 0; i < order.size(); ++i)
    std::memcpy(to.as<char>() + i * bytes, from.as<char>() + static_cast<size_t>(order[i]) * bytes, bytes);
  return to;
}

// The rows of each head, of which `turned` turn: first, middle, second, ... where these were by halves.
std::vector<int64_t> as_neighbours(int64_t heads, int64_t width, int64_t turned) {
  std::vector<int64_t> order;
  for (int64_t row = 0; row < heads * width; row += width)
    for (int64_t i = 0; i < width; ++i) order.push_back(row + (i < turned ? (i % 2) * (turned / 2) + i / 2 : i));
  return order;
}

// q of all heads, then k, then v, where each head had its three.
std::vector<int64_t> by_kind(int64_t heads, int64_t width) {
  std::vector<int64_t> order;
  for (int64_t kind = 0; kind < 3; ++kind)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t i = 0; i < width; ++i) order.push_back((head * 3 + kind) * width + i);
  return order;
}

Result<Tensor> transposed(const Tensor& from) {
  const int64_t rows = from.shape()[0], columns = from.shape()[1];
  TESSERA_ASSIGN(Tensor to, Tensor::make(from.dtype(), {columns, rows}));
  const size_t bytes = from.bytes() / static_cast<size_t>(std::max<int64_t>(from.count(), 1));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      std::memcpy(to.as<char>() + static_cast<size_t>(j * rows + i) * bytes,
                  from.as<char>() + static_cast<size_t>(i * columns + j) * bytes, bytes);
  return to;
}

bool is_norm(Part part) {
  return part == Part::attention_norm || part == Part::feed_norm || part == Part::final_norm || part == Part::q_norm ||
         part == Part::k_norm || part == Part::attention_out_norm || part == Part::feed_out_norm;
}

// A weight as GGUF has it, of one expert where there are several.
Result<Tensor> ordered(const Tensor& from, const Key& key, const Config& c, const Word& word) {
  if (c.input_major && transformer::is_projection(key.part) && from.rank() == 2) return transposed(from);
  if (word.neighbours && (key.part == Part::q || key.part == Part::k))
    return rows_in_order(from, as_neighbours(key.part == Part::q ? c.heads : c.groups, c.head_width,
                                             2 * static_cast<int64_t>(c.ropes[0].frequencies.size())));
  if (c.fused_by_head && key.part == Part::qkv) return rows_in_order(from, by_kind(c.heads, c.head_width));
  if (from.rank() > 1 && key.part != Part::shared_switch) return from;
  TESSERA_ASSIGN(Tensor vector, convert_weights(from, DType::f32));
  if (c.norm_offset == 0 || !is_norm(key.part)) return vector.reshaped({vector.count()});
  TESSERA_ASSIGN(Tensor moved, Tensor::make(DType::f32, {vector.count()}));
  for (int64_t i = 0; i < vector.count(); ++i)
    moved.as<float>()[i] = vector.as<float>()[i] + static_cast<float>(c.norm_offset);
  return moved;
}

Exported list_of(std::string name, std::vector<double> values) {
  const Dims shape = {static_cast<int64_t>(values.size())};
  return {std::move(name), shape, DType::f32, [values = std::move(values), shape]() -> Result<Tensor> {
            TESSERA_ASSIGN(Tensor tensor, Tensor::make(DType::f32, shape));
            for (size_t i = 0; i < values.size(); ++i) tensor.as<float>()[i] = static_cast<float>(values[i]);
            return tensor;
          }};
}

}  // namespace

Status write_config(const Config& c, gguf::Writer& writer) {
  TESSERA_ASSIGN(const Word* word, find_word(c));
  const std::string prefix = std::string(word->architecture) + ".";
  const auto integer = [&](std::string_view key, int64_t value) {
    writer.set_u32(prefix + std::string(key), static_cast<uint32_t>(std::min<int64_t>(value, UINT32_MAX)));
  };
  const auto real = [&](std::string_view key, double value) {
    writer.set_f32(prefix + std::string(key), static_cast<float>(value));
  };
  writer.set_string("general.architecture", word->architecture);
  integer("context_length", c.context);
  integer("embedding_length", c.width);
  integer("block_count", static_cast<int64_t>(c.layers.size()));
  integer("feed_forward_length", c.feed_width);
  integer("vocab_size", c.vocabulary);
  integer("attention.head_count", c.heads);
  integer("attention.head_count_kv", c.groups);
  integer("attention.key_length", c.head_width);
  integer("attention.value_length", c.head_width);
  real(c.layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", c.eps);
  TESSERA_TRY(write_rope(c, *word, prefix, writer));
  const Layer& first = c.layers[0];
  if (!about(first.attention_scale, 1 / std::sqrt(static_cast<double>(c.head_width))))
    real("attention.scale", first.attention_scale);
  int64_t window = 0;
  for (const Layer& layer : c.layers) window = std::max(window, layer.left + 1);
  if (window > 0) integer("attention.sliding_window", window);
  if (word->architecture == "gemma3") {
    const auto whole = std::find_if(c.layers.begin(), c.layers.end(), [](const Layer& l) { return l.left < 0; });
    integer("attention.sliding_window_pattern", whole - c.layers.begin() + 1);
  }
  if (c.attention_softcap != 0) real("attn_logit_softcapping", c.attention_softcap);
  if (c.logit_softcap != 0) real("final_logit_softcapping", c.logit_softcap);
  if (word->architecture == "granite") {
    real("embedding_scale", c.embedding_scale);
    real("residual_scale", c.residual_scale);
    real("logit_scale", 1 / c.logit_scale);
  }
  if (word->architecture == "gptneox")
    writer.set_bool(prefix + "use_parallel_residual", c.block == transformer::Block::parallel);
  if (c.experts.count == 0) return {};
  integer("expert_count", c.experts.count);
  integer("expert_used_count", c.experts.used);
  integer("expert_feed_forward_length", c.experts.width);
  if (c.experts.shared_width > 0) integer("expert_shared_feed_forward_length", c.experts.shared_width);
  writer.set_bool(prefix + "expert_weights_norm", c.experts.normalised);
  return {};
}

Result<std::vector<Exported>> export_weights(const transformer::Source& source) {
  const Config& c = source.config;
  TESSERA_ASSIGN(const Word* word, find_word(c));
  const Recorder recorder(*source.weights);
  TESSERA_ASSIGN([[maybe_unused]] const ir::Graph graph, transformer::build(c, recorder, {}));
  std::vector<Exported> list;
  std::map<std::string, std::vector<Key>, std::less<>> keys;  // experts of one layer share a name
  for (const Recorder::Asked& asked : recorder.asked) {
    const Key key = asked.key;
    std::string name = tensor_name(key, false);
    std::vector<Key>& same = keys[name];
    const bool stacked = is_stacked(key.part);
    if (!same.empty() && !stacked) continue;  // a table that is the last matrix too
    same.push_back(key);
    if (same.size() > 1) continue;
    Exported made{std::move(name), asked.shape, asked.type, {}};
    if (c.input_major && transformer::is_projection(key.part) && made.shape.size() == 2)
      std::swap(made.shape[0], made.shape[1]);
    if (made.shape.size() == 1 || key.part == Part::shared_switch) {
      made.type = DType::f32;
      made.shape = {made.shape.back()};
    }
    if (stacked) made.shape.insert(made.shape.begin(), c.experts.count);
    made.data = [weights = source.weights, c, word, key, stacked, shape = made.shape]() -> Result<Tensor> {
      TESSERA_ASSIGN(const Tensor one, weights->get(key));
      if (!stacked) return ordered(one, key, c, *word);
      TESSERA_ASSIGN(Tensor all, Tensor::make(one.dtype(), shape));
      for (int e = 0; e < static_cast<int>(shape[0]); ++e) {
        TESSERA_ASSIGN(const Tensor expert, weights->get({key.part, key.layer, e}));
        if (expert.bytes() != one.bytes())
          return fail(Code::dtype_mismatch, "tensor '{}' has another type than that of the first expert",
                      weights->name({key.part, key.layer, e}));
        std::memcpy(all.as<char>() + one.bytes() * static_cast<size_t>(e), expert.data(), expert.bytes());
      }
      return all;
    };
    list.push_back(std::move(made));
  }
  if (c.ropes.empty()) return list;
  const Told told = tell(c.ropes[0]);
  if (!told.long_factors.empty()) {
    list.push_back(list_of("rope_factors_short.weight", told.factors));
    list.push_back(list_of("rope_factors_long.weight", told.long_factors));
  } else if (!told.linear()) {
    list.push_back(list_of("rope_freqs.weight", told.factors));
  }
  return list;
}

Status check_exported(const Config& model, const Config& file) {
  const Config &a = model, &b = file;
  const auto same_rope = [&](const Layer& x, const Layer& y) {
    if (x.rope < 0 || y.rope < 0) return x.rope < 0 && y.rope < 0;
    const Rope &r = a.ropes[static_cast<size_t>(x.rope)], &s = b.ropes[static_cast<size_t>(y.rope)];
    const auto same = [](const std::vector<double>& p, const std::vector<double>& q) {
      return std::equal(p.begin(), p.end(), q.begin(), q.end(), about);
    };
    return same(r.frequencies, s.frequencies) && same(r.long_frequencies, s.long_frequencies) &&
           about(r.magnitude, s.magnitude) && r.stretch == s.stretch &&
           (r.long_frequencies.empty() || r.original_context == s.original_context);
  };
  const auto same_layer = [&](const Layer& x, const Layer& y) {
    return x.left == y.left && x.right == y.right && x.experts == y.experts && x.attention_norm == y.attention_norm &&
           about(x.attention_scale, y.attention_scale) && same_rope(x, y);
  };
  const bool mixed = a.experts.count > 0;
  const std::pair<std::string_view, bool> facts[] = {
      {"its sizes", a.vocabulary == b.vocabulary && a.width == b.width && a.heads == b.heads && a.groups == b.groups &&
                        a.head_width == b.head_width && a.feed_width == b.feed_width && a.context == b.context &&
                        a.positions == b.positions},
      {"its windows, ropes and experts layer by layer",
       std::equal(a.layers.begin(), a.layers.end(), b.layers.begin(), b.layers.end(), same_layer)},
      {"its norms", a.layer_norm == b.layer_norm && (!a.layer_norm || a.norm_bias == b.norm_bias) &&
                        about(a.eps, b.eps) && a.block == b.block && a.inner_norms == b.inner_norms &&
                        a.head_norms == b.head_norms},
      {"its activation", a.gated == b.gated && a.activation == b.activation},
      {"its biases", a.qkv_bias == b.qkv_bias && a.out_bias == b.out_bias && (mixed || a.feed_bias == b.feed_bias) &&
                         a.head_bias == b.head_bias},
      {"its experts",
       !mixed || (a.experts.count == b.experts.count && a.experts.used == b.experts.used &&
                  a.experts.width == b.experts.width && a.experts.shared_width == b.experts.shared_width &&
                  a.experts.shared_switch == b.experts.shared_switch && a.experts.normalised == b.experts.normalised)},
      {"its scales", a.tied == b.tied && about(a.embedding_scale, b.embedding_scale) &&
                         about(a.residual_scale, b.residual_scale) && about(a.logit_scale, b.logit_scale) &&
                         about(a.attention_softcap, b.attention_softcap) && about(a.logit_softcap, b.logit_softcap)},
  };
  for (const auto& [what, same] : facts)
    if (!same) return not_said(what);
  return {};
}

}  // namespace tessera::gguf_import
