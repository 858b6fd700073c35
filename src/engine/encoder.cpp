#include "engine/encoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/cpu.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/compiled.h"
#include "engine/weights.h"

namespace tessera::engine {

using transformer::Pooling;

namespace {

void normalise(float* vector, int64_t width) {
  double square = 0;
  for (int64_t i = 0; i < width; ++i) square += static_cast<double>(vector[i]) * vector[i];
  const auto scale = static_cast<float>(1 / std::max(std::sqrt(square), 1e-12));
  for (int64_t i = 0; i < width; ++i) vector[i] *= scale;
}

// hidden [tokens, width] -> vector [width]
void pool(const float* hidden, int64_t tokens, int64_t width, Pooling pooling, float* vector) {
  if (pooling != Pooling::mean) {
    std::copy_n(hidden + (pooling == Pooling::cls ? 0 : tokens - 1) * width, width, vector);
    return;
  }
  for (int64_t i = 0; i < width; ++i) {
    double sum = 0;
    for (int64_t t = 0; t < tokens; ++t) sum += hidden[t * width + i];
    vector[i] = static_cast<float>(sum / static_cast<double>(tokens));
  }
}

}  // namespace

Result<std::unique_ptr<Encoder>> Encoder::make(const transformer::Source& source, const EncoderOptions& options) {
  std::unique_ptr<Encoder> encoder(new Encoder(source.config, options));
  if (source.config.decoder) {
    DecoderOptions how;
    how.threads = options.threads;
    how.optimisation = options.optimisation;
    how.exact = options.exact;
    how.weights = options.weights;
    how.deterministic = options.deterministic;
    how.logits = false;
    how.context = std::min<int64_t>(source.config.context, 8192);
    TESSERA_ASSIGN(encoder->decoder_, Decoder::make(source, how));
    return encoder;
  }
  CompileOptions how;
  how.pool = std::make_shared<ThreadPool>(options.threads > 0 ? options.threads : usable_cores());
  TESSERA_ASSIGN(const transformer::Source stored, with_weights(source, options.weights, how.pool));
  TESSERA_ASSIGN(ir::Graph graph, transformer::build(stored.config, *stored.weights, {}));
  encoder->weight_bytes_ = constant_bytes(graph);
  encoder->cost_ = cost_of(graph);
  how.pipeline.level = options.optimisation;
  how.pipeline.exact_activations = options.exact;
  how.pipeline.deterministic = options.deterministic;
  TESSERA_ASSIGN(encoder->executable_, compile(std::move(graph), how));
  return encoder;
}

Status Encoder::check(std::span<const EncoderText> texts) const {
  const int64_t most = decoder_ != nullptr ? decoder_->context() : config_.context;
  for (size_t i = 0; i < texts.size(); ++i) {
    const EncoderText& text = texts[i];
    if (text.ids.empty()) return fail(Code::value_invalid, "text {} has no tokens", i);
    if (static_cast<int64_t>(text.ids.size()) > most)
      return fail(Code::value_invalid, "text {} has {} tokens, but the model takes {}", i, text.ids.size(), most);
    if (!text.types.empty() && text.types.size() != text.ids.size())
      return fail(Code::value_invalid, "text {} has {} tokens but types for {}", i, text.ids.size(), text.types.size());
    for (int64_t id : text.ids)
      if (id < 0 || id >= config_.vocabulary)
        return fail(Code::value_invalid, "token {} of text {} is none of the model's {}", id, i, config_.vocabulary);
    for (int64_t type : text.types)
      if (type < 0 || type >= std::max<int64_t>(config_.token_types, 1))
        return fail(Code::value_invalid, "token type {} of text {} is none of the model's {}", type, i,
                    config_.token_types);
  }
  return {};
}

Result<std::vector<Tensor>> Encoder::step(std::span<const EncoderText> texts, std::span<const size_t> chosen,
                                          const std::atomic<bool>* stop) const {
  int64_t tokens = 0;
  for (size_t i : chosen) tokens += static_cast<int64_t>(texts[i].ids.size());
  TESSERA_ASSIGN(Tensor ids, Tensor::make(DType::i64, {tokens}));
  TESSERA_ASSIGN(Tensor positions, Tensor::make(DType::i64, {tokens}));
  TESSERA_ASSIGN(Tensor types, Tensor::make(DType::i64, {tokens}));
  TESSERA_ASSIGN(Tensor starts, Tensor::make(DType::i64, {static_cast<int64_t>(chosen.size()) + 1}));
  int64_t at = 0;
  for (size_t s = 0; s < chosen.size(); ++s) {
    const EncoderText& text = texts[chosen[s]];
    std::copy(text.ids.begin(), text.ids.end(), ids.as<int64_t>() + at);
    std::copy(text.types.begin(), text.types.end(), types.as<int64_t>() + at);
    std::iota(positions.as<int64_t>() + at, positions.as<int64_t>() + at + text.ids.size(), 0);
    at += static_cast<int64_t>(text.ids.size());
    starts.as<int64_t>()[s + 1] = at;
  }
  std::vector<Value> values = {ids, positions, starts};
  if (config_.token_types > 0) values.emplace_back(types);
  ExecuteReport report;
  TESSERA_ASSIGN(std::vector<Value> outputs, executable_->run(values, {.stop = stop}, report));
  if (report.failed_assumption)
    return fail(Code::internal, "a step does not fit its graph: {}", *report.failed_assumption);
  std::vector<Tensor> tensors;
  for (const Value& output : outputs) tensors.push_back(*output.tensor());
  return tensors;
}

template <class F>
Status Encoder::run(std::span<const EncoderText> texts, const std::atomic<bool>* stop, const F& take) {
  TESSERA_TRY(check(texts));
  if (decoder_ != nullptr) {
    for (size_t i = 0; i < texts.size(); ++i) {
      TESSERA_ASSIGN(const int sequence, decoder_->open());
      const Result<Tensor> hidden = decoder_->feed(sequence, texts[i].ids, true, stop);
      decoder_->close(sequence);
      if (!hidden) return tl::unexpected<Error>(hidden.error());
      take(i, hidden->as<float>(), nullptr);
    }
    return {};
  }
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return texts[a].ids.size() > texts[b].ids.size(); });
  for (size_t begin = 0; begin < order.size();) {
    int64_t tokens = 0;
    size_t end = begin;
    while (end < order.size()) {
      tokens += static_cast<int64_t>(texts[order[end]].ids.size());
      if (end > begin && tokens > options_.step_tokens) break;
      ++end;
    }
    const std::span<const size_t> chosen(order.data() + begin, end - begin);
    TESSERA_ASSIGN(const std::vector<Tensor> outputs, step(texts, chosen, stop));
    int64_t row = 0;
    for (size_t s = 0; s < chosen.size(); ++s) {
      take(chosen[s], outputs[0].as<float>() + row * config_.width,
           outputs.size() > 1 ? outputs[1].as<float>() + static_cast<int64_t>(s) * config_.width : nullptr);
      row += static_cast<int64_t>(texts[chosen[s]].ids.size());
    }
    begin = end;
  }
  return {};
}

Result<Tensor> Encoder::embed(std::span<const EncoderText> texts, Pooling pooling, bool normalised,
                              const std::atomic<bool>* stop) {
  std::vector<int64_t> starts = {0};
  for (const EncoderText& text : texts)
    starts.push_back(starts.back() + (pooling == Pooling::none ? static_cast<int64_t>(text.ids.size()) : 1));
  TESSERA_ASSIGN(Tensor vectors, Tensor::make(DType::f32, {starts.back(), config_.width}));
  TESSERA_TRY(run(texts, stop, [&](size_t i, const float* hidden, const float*) {
    float* to = vectors.as<float>() + starts[i] * config_.width;
    const auto tokens = static_cast<int64_t>(texts[i].ids.size());
    if (pooling == Pooling::none)
      std::copy_n(hidden, tokens * config_.width, to);
    else
      pool(hidden, tokens, config_.width, pooling, to);
  }));
  if (normalised)
    for (int64_t row = 0; row < vectors.shape()[0]; ++row)
      normalise(vectors.as<float>() + row * config_.width, config_.width);
  return vectors;
}

Result<Tensor> Encoder::pooled(std::span<const EncoderText> texts, const std::atomic<bool>* stop) {
  if (!config_.pooler) return fail(Code::unsupported_feature, "the model has no pooling layer of its own");
  TESSERA_ASSIGN(Tensor vectors, Tensor::make(DType::f32, {static_cast<int64_t>(texts.size()), config_.width}));
  TESSERA_TRY(run(texts, stop, [&](size_t i, const float*, const float* pooled) {
    if (pooled != nullptr)
      std::copy_n(pooled, config_.width, vectors.as<float>() + static_cast<int64_t>(i) * config_.width);
  }));
  return vectors;
}

}  // namespace tessera::engine
