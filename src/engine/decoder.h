// Runs decoders step by step: sequences that share a paged cache of keys and values.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "engine/executable.h"
#include "import/transformer/source.h"
#include "runtime/pages.h"

namespace tessera::engine {

struct DecoderOptions {
  int threads = 0;
  int optimisation = 2;
  bool logits = true;  // else the last hidden state
  DType cache = DType::f32;
  std::string weights = {};    // types to convert them to as they are loaded: with_weights
  bool exact = false;          // activations are not rounded to what the weights' type suggests
  bool deterministic = false;  // a sequence's results do not depend on who shares its steps, to the last bit
  int64_t context = 0;         // tokens of a sequence; 0: what the model was made for
  int64_t sequences = 1;       // that are open at once
  int64_t chunk = 512;         // tokens of a step at most
};

// One sequence's part of a step.
struct Segment {
  int sequence;
  std::span<const int64_t> tokens;
  bool all = false;  // results of all its tokens, not only of the last one
};

// What a step costs at best.
struct DecoderCost {
  double flops_per_token = 0;        // of the products with weights, the last one left out: a prompt needs it once
  double bytes_per_step = 0;         // of the weights that every step reads
  double cache_bytes_per_token = 0;  // of keys and values, of each token before
  std::string weights = {};          // the type of most of them
};

DecoderCost cost_of(const ir::Graph& graph);

// Not thread-safe.
class Decoder {
 public:
  // E0503 when weights and cache do not fit into the machine's memory, before either is touched.
  static Result<std::unique_ptr<Decoder>> make(const transformer::Source& source, const DecoderOptions& options);

  // A new sequence. What it begins with may be known from others: `tokens` are those that it will start with, and
  // length() says how many of them need not be given to step().
  Result<int> open(std::span<const int64_t> tokens = {});
  void close(int sequence);
  int64_t length(int sequence) const {
    return static_cast<int64_t>(open_[static_cast<size_t>(sequence)].tokens.size());
  }
  int64_t context() const { return context_; }

  // f32 [rows, vocabulary or width]: results in the order of segments and their tokens. E0505 for tokens that the model
  // does not have, or past context(); then nothing has changed.
  Result<Tensor> step(std::span<const Segment> segments, const std::atomic<bool>* stop = nullptr);
  // The same for one sequence of any length, in steps of at most `chunk` tokens.
  Result<Tensor> feed(int sequence, std::span<const int64_t> tokens, bool all, const std::atomic<bool>* stop = nullptr);

  int64_t cache_bytes() const { return cache_bytes_; }
  int64_t weight_bytes() const { return weight_bytes_; }
  const transformer::Config& config() const { return config_; }
  const DecoderCost& cost() const { return cost_; }
  SessionStatistics statistics() const;

 private:
  struct Sequence {
    bool used = false;
    std::vector<int64_t> tokens;
    std::vector<int64_t> pages;
  };
  Decoder(const transformer::Config& config, const DecoderOptions& options) : config_(config), options_(options) {}
  Status check(std::span<const Segment> segments) const;
  Status reserve(std::span<const Segment> segments);
  Result<std::vector<Value>> inputs(std::span<const Segment> segments) const;

  transformer::Config config_;
  DecoderOptions options_;
  int64_t context_ = 0, pages_each_ = 0, cache_bytes_ = 0, weight_bytes_ = 0;
  DecoderCost cost_;
  std::unique_ptr<const Executable> executable_;
  std::vector<Value> states_;
  std::unique_ptr<runtime::PagePool> pool_;
  std::vector<Sequence> open_;
};

}  // namespace tessera::engine
