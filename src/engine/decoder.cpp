#include "engine/decoder.h"

#include <algorithm>
#include <map>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/compiled.h"
#include "engine/weights.h"
#include "ir/op_def.h"
#include "ops/math.h"
#include "tensor/large.h"

namespace tessera::engine {
namespace {

using transformer::kPageRows;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

Result<Tensor> integers(const std::vector<int64_t>& values, Dims shape) {
  TESSERA_ASSIGN(Tensor tensor, Tensor::make(DType::i64, std::move(shape)));
  std::copy(values.begin(), values.end(), tensor.as<int64_t>());
  return tensor;
}

// The type in which a weight is stored: that from which the graph takes it to f32.
DType stored_type(const ir::Graph& graph, ir::ValueId weight) {
  const ir::NodeId def = graph.value(weight).def;
  if (def == ir::kNoNode) return graph.type(weight)->dtype;
  const ir::OpDef* op = graph.node(def).op;
  return op == &ops::dequantize_op || op == &ops::cast_op ? stored_type(graph, graph.operands(def)[0])
                                                          : graph.type(weight)->dtype;
}

std::string mebibytes(double bytes) { return fmt::format("{:.1f} MiB", bytes / (1 << 20)); }

}  // namespace

// Of the products in which a weight is one operand.
DecoderCost cost_of(const ir::Graph& graph) {
  DecoderCost cost;
  std::map<std::string_view, int64_t> elements;
  double last = 0;
  for (ir::NodeId n = 0; n < graph.node_count(); ++n) {
    if (!graph.node(n).op->name.ends_with("linear")) continue;
    const ir::Type& weight = *graph.type(graph.operands(n)[1]);
    const int64_t count = weight.shape[0].value() * weight.shape[1].value();
    const DType type = stored_type(graph, graph.operands(n)[1]);
    last = 2.0 * static_cast<double>(count);
    cost.flops_per_token += last;
    cost.bytes_per_step += static_cast<double>(storage_bytes(type, count));
    elements[name(type)] += count;
  }
  cost.flops_per_token -= last;
  int64_t most = 0;
  for (const auto& [type, total] : elements)
    if (total > most) most = total, cost.weights = type;
  return cost;
}

Result<std::unique_ptr<Decoder>> Decoder::make(const transformer::Source& source, const DecoderOptions& options) {
  if (!source.config.decoder)
    return fail(Code::unsupported_feature, "a model of kind '{}' is an encoder and generates nothing",
                source.config.architecture);
  std::unique_ptr<Decoder> decoder(new Decoder(source.config, options));
  decoder->context_ = options.context > 0 ? options.context : source.config.context;
  if (source.config.positions > 0)
    decoder->context_ = std::min(decoder->context_, source.config.positions - source.config.position_offset);
  CompileOptions compile_options;
  compile_options.pool = std::make_shared<ThreadPool>(options.threads > 0 ? options.threads : usable_cores());
  TESSERA_ASSIGN(const transformer::Source stored, with_weights(source, options.weights, compile_options.pool));
  TESSERA_ASSIGN(ir::Graph graph,
                 transformer::build(stored.config, *stored.weights,
                                    {.logits = options.logits, .cache = options.cache, .exact = options.exact}));
  decoder->weight_bytes_ = constant_bytes(graph);
  const int64_t sequences = std::max<int64_t>(options.sequences, 1);
  int64_t row = 0;  // bytes of a token in the cache
  std::vector<std::pair<DType, Dims>> states;
  for (const ir::ValueId v : graph.inputs) {
    const ir::Type& type = *graph.type(v);
    if (type.kind != ir::Kind::state) continue;
    const int64_t groups = type.shape[1].value(), width = type.shape[3].value();
    states.emplace_back(type.dtype, Dims{0, groups, kPageRows, width});
    row += groups * width * bits(type.dtype) / 8;
  }
  // In doubles: contexts that are asked for may be any number.
  const double cache =
      static_cast<double>(row) * static_cast<double>(decoder->context_) * static_cast<double>(sequences);
  const double weights = static_cast<double>(decoder->weight_bytes_);
  const auto available = static_cast<double>(machine_memory().available);
  if (cache + weights > available)
    return fail(Code::out_of_memory,
                "a cache for {} sequences of {} tokens takes {} and the weights take {}, but {} are available; a "
                "smaller context takes less",
                sequences, decoder->context_, mebibytes(cache), mebibytes(weights), mebibytes(available));
  decoder->pages_each_ = ceil_div(decoder->context_, kPageRows);
  const int64_t pages = decoder->pages_each_ * sequences;
  decoder->cache_bytes_ = row * pages * kPageRows;
  decoder->cost_ = cost_of(graph);
  decoder->cost_.cache_bytes_per_token = static_cast<double>(row);
  for (auto& [type, shape] : states) {
    shape[0] = pages;
    TESSERA_ASSIGN(Tensor state, make_in_large_pages(type, std::move(shape)));
    decoder->states_.emplace_back(std::move(state));
  }
  decoder->pool_ = std::make_unique<runtime::PagePool>(pages, kPageRows);
  compile_options.pipeline.level = options.optimisation;
  compile_options.pipeline.exact_activations = options.exact;
  compile_options.pipeline.deterministic = options.deterministic;
  TESSERA_ASSIGN(decoder->executable_, compile(std::move(graph), compile_options));
  return decoder;
}

Result<int> Decoder::open(std::span<const int64_t> tokens) {
  size_t at = 0;
  while (at < open_.size() && open_[at].used) ++at;
  if (at == open_.size()) open_.emplace_back();
  Sequence& sequence = open_[at];
  sequence.used = true;
  sequence.pages = pool_->find(tokens);
  const auto known = sequence.pages.size() * static_cast<size_t>(kPageRows);
  sequence.tokens.assign(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(known));
  return static_cast<int>(at);
}

void Decoder::close(int sequence) {
  Sequence& s = open_[static_cast<size_t>(sequence)];
  // The last pages first: they are forgotten before those that they follow.
  for (size_t i = s.pages.size(); i-- > 0;) pool_->release(s.pages[i]);
  s = Sequence();
}

Status Decoder::check(std::span<const Segment> segments) const {
  for (const Segment& segment : segments) {
    if (segment.tokens.empty()) return fail(Code::value_invalid, "a step without tokens");
    if (length(segment.sequence) + static_cast<int64_t>(segment.tokens.size()) > context_)
      return fail(Code::value_invalid, "{} tokens pass the context of {}",
                  length(segment.sequence) + static_cast<int64_t>(segment.tokens.size()), context_);
    for (int64_t id : segment.tokens)
      if (id < 0 || id >= config_.vocabulary)
        return fail(Code::value_invalid, "token {} is none of the model's {}", id, config_.vocabulary);
  }
  return {};
}

Status Decoder::reserve(std::span<const Segment> segments) {
  for (const Segment& segment : segments) {
    Sequence& s = open_[static_cast<size_t>(segment.sequence)];
    const int64_t needed = ceil_div(static_cast<int64_t>(s.tokens.size() + segment.tokens.size()), kPageRows);
    while (static_cast<int64_t>(s.pages.size()) < needed) {
      TESSERA_ASSIGN(const int64_t page, pool_->take());
      s.pages.push_back(page);
    }
  }
  return {};
}

// In the order of the graph's inputs.
Result<std::vector<Value>> Decoder::inputs(std::span<const Segment> segments) const {
  std::vector<int64_t> ids, positions, starts = {0}, lengths, table, slots, picked;
  for (const Segment& segment : segments) {
    const Sequence& s = open_[static_cast<size_t>(segment.sequence)];
    for (size_t i = 0; i < segment.tokens.size(); ++i) {
      const auto position = static_cast<int64_t>(s.tokens.size() + i);
      if (segment.all || i + 1 == segment.tokens.size()) picked.push_back(static_cast<int64_t>(ids.size()));
      ids.push_back(segment.tokens[i]);
      positions.push_back(position);
      slots.push_back(s.pages[static_cast<size_t>(position / kPageRows)] * kPageRows + position % kPageRows);
    }
    starts.push_back(static_cast<int64_t>(ids.size()));
    lengths.push_back(static_cast<int64_t>(s.tokens.size() + segment.tokens.size()));
    for (int64_t i = 0; i < pages_each_; ++i)
      table.push_back(i < static_cast<int64_t>(s.pages.size()) ? s.pages[static_cast<size_t>(i)] : 0);
  }
  const auto n = static_cast<int64_t>(ids.size()), sequences = static_cast<int64_t>(segments.size());
  std::vector<Value> values;
  const auto add = [&](const std::vector<int64_t>& list, Dims shape) -> Status {
    TESSERA_ASSIGN(Tensor tensor, integers(list, std::move(shape)));
    values.emplace_back(std::move(tensor));
    return {};
  };
  TESSERA_TRY(add(ids, {n}));
  TESSERA_TRY(add(positions, {n}));
  TESSERA_TRY(add(starts, {sequences + 1}));
  TESSERA_TRY(add(lengths, {sequences}));
  TESSERA_TRY(add(table, {sequences, pages_each_}));
  TESSERA_TRY(add(slots, {n}));
  TESSERA_TRY(add(picked, {static_cast<int64_t>(picked.size())}));
  values.insert(values.end(), states_.begin(), states_.end());
  return values;
}

Result<Tensor> Decoder::step(std::span<const Segment> segments, const std::atomic<bool>* stop) {
  TESSERA_TRY(check(segments));
  TESSERA_TRY(reserve(segments));
  TESSERA_ASSIGN(const std::vector<Value> values, inputs(segments));
  ExecuteReport report;
  TESSERA_ASSIGN(std::vector<Value> outputs, executable_->run(values, {.stop = stop}, report));
  if (report.failed_assumption)
    return fail(Code::internal, "a step does not fit its graph: {}", *report.failed_assumption);
  for (const Segment& segment : segments) {
    Sequence& s = open_[static_cast<size_t>(segment.sequence)];
    s.tokens.insert(s.tokens.end(), segment.tokens.begin(), segment.tokens.end());
    pool_->remember(s.tokens, s.pages);
  }
  return *outputs[0].tensor();
}

Result<Tensor> Decoder::feed(int sequence, std::span<const int64_t> tokens, bool all, const std::atomic<bool>* stop) {
  TESSERA_TRY(check(std::vector<Segment>{{sequence, tokens, all}}));
  Tensor whole;
  int64_t row = 0;
  for (size_t at = 0; at < tokens.size();) {
    const size_t n = std::min(tokens.size() - at, static_cast<size_t>(std::max<int64_t>(options_.chunk, 1)));
    const Segment segment{sequence, tokens.subspan(at, n), all};
    TESSERA_ASSIGN(Tensor part, step({&segment, 1}, stop));
    at += n;
    if (!all || n == tokens.size()) {
      whole = std::move(part);
      continue;
    }
    const int64_t width = part.shape()[1];
    if (row == 0) {
      TESSERA_ASSIGN(whole, Tensor::make(DType::f32, {static_cast<int64_t>(tokens.size()), width}));
    }
    std::copy_n(part.as<float>(), part.count(), whole.as<float>() + row * width);
    row += part.shape()[0];
  }
  return whole;
}

SessionStatistics Decoder::statistics() const {
  SessionStatistics statistics;
  executable_->describe(statistics);
  return statistics;
}

}  // namespace tessera::engine
