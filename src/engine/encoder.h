// Vectors of texts: encoders, and decoders read to their last hidden state.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "engine/decoder.h"
#include "engine/executable.h"
#include "import/transformer/source.h"

namespace tessera::engine {

struct EncoderOptions {
  int threads = 0;
  int optimisation = 2;
  std::string weights = {};    // types to convert them to as they are loaded: with_weights
  bool deterministic = false;  // a text's vectors do not depend on the others, to the last bit
  bool exact = false;          // activations are not rounded to what the weights' type suggests
  int64_t step_tokens = 4096;  // of several sequences that run together, unless one alone is longer
};

struct EncoderText {
  std::vector<int64_t> ids;
  std::vector<int64_t> types = {};  // empty: all 0
};

// May be used from several threads at once when it is an encoder.
class Encoder {
 public:
  static Result<std::unique_ptr<Encoder>> make(const transformer::Source& source, const EncoderOptions& options);

  // One vector a text, f32 [texts, width]; without pooling one a token, [tokens, width], text after text. `normalised`
  // scales them to length 1. E0505 for ids or lengths that the model does not have. Texts are sorted by length and run
  // without padding, so that a text's vector does not depend on the others.
  Result<Tensor> embed(std::span<const EncoderText> texts, transformer::Pooling pooling, bool normalised,
                       const std::atomic<bool>* stop = nullptr);
  // What the model's own pooling layer gives, f32 [texts, width]; E0402 when it has none.
  Result<Tensor> pooled(std::span<const EncoderText> texts, const std::atomic<bool>* stop = nullptr);

  const transformer::Config& config() const { return config_; }
  const DecoderCost& cost() const { return decoder_ != nullptr ? decoder_->cost() : cost_; }
  int64_t weight_bytes() const { return decoder_ != nullptr ? decoder_->weight_bytes() : weight_bytes_; }

 private:
  Encoder(const transformer::Config& config, const EncoderOptions& options) : config_(config), options_(options) {}
  Status check(std::span<const EncoderText> texts) const;
  // Calls take(text, hidden [its tokens, width], pooled [width] or null) for each, in any order.
  template <class F>
  Status run(std::span<const EncoderText> texts, const std::atomic<bool>* stop, const F& take);
  Result<std::vector<Tensor>> step(std::span<const EncoderText> texts, std::span<const size_t> chosen,
                                   const std::atomic<bool>* stop) const;

  transformer::Config config_;
  EncoderOptions options_;
  int64_t weight_bytes_ = 0;
  DecoderCost cost_;
  std::unique_ptr<const Executable> executable_;  // null when a decoder does the work
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace tessera::engine
