// bench for language models: reading a prompt, and extending sequences token by token.
#include <algorithm>
#include <chrono>
#include <iostream>

#include "base/cpu.h"
#include "base/measure.h"
#include "base/memory.h"
#include "base/result.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/language.h"
#include "engine/language.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

constexpr int kRounds = 3;  // measured; the first one before them warms up

struct Rates {
  double prefill = 0, decode = 0;  // tokens a second
};

std::vector<int64_t> tokens_of(const Arguments& arguments, int64_t vocabulary) {
  std::vector<int64_t> ids;
  uint64_t state = arguments.seed;
  for (int64_t i = 0; i < arguments.language.bench_prompt; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(vocabulary)));
  }
  return ids;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

constexpr int64_t kBeginning =
    8;  // tokens that a sequence has before it is extended, as llama.cpp's own measure has it

// One round: every sequence reads a prompt; then sequences of a few tokens are extended together.
Result<Rates> run_round(engine::Decoder& decoder, const Arguments& arguments, int64_t round) {
  const LanguageArguments& l = arguments.language;
  const int64_t vocabulary = decoder.config().vocabulary;
  std::vector<int64_t> ids = tokens_of(arguments, vocabulary);
  Rates rates;
  Clock::time_point begin = Clock::now();
  for (int64_t i = 0; i < l.bench_sequences; ++i) {
    TESSERA_ASSIGN(const int sequence, decoder.open());
    ids[0] = (round * l.bench_sequences + i) % vocabulary;
    TESSERA_TRY(decoder.feed(sequence, ids, false, &stop_requested));
    decoder.close(sequence);
  }
  rates.prefill = static_cast<double>(l.bench_prompt * l.bench_sequences) / seconds_since(begin);
  std::vector<int> open;
  std::vector<std::vector<int64_t>> next;
  for (int64_t i = 0; i < l.bench_sequences; ++i) {
    TESSERA_ASSIGN(const int sequence, decoder.open());
    open.push_back(sequence);
    next.push_back({i % vocabulary});
    const std::vector<int64_t> beginning(static_cast<size_t>(kBeginning), i % vocabulary);
    TESSERA_TRY(decoder.feed(sequence, beginning, false, &stop_requested));
  }
  begin = Clock::now();
  for (int64_t i = 0; i < l.bench_gen; ++i) {
    std::vector<engine::Segment> segments;
    for (size_t s = 0; s < open.size(); ++s) segments.push_back({open[s], next[s], false});
    TESSERA_ASSIGN(const Tensor logits, decoder.step(segments, &stop_requested));
    for (size_t s = 0; s < open.size(); ++s) {
      const float* row = logits.as<float>() + static_cast<int64_t>(s) * logits.shape()[1];
      next[s][0] = std::max_element(row, row + logits.shape()[1]) - row;
    }
  }
  rates.decode = static_cast<double>(l.bench_gen * l.bench_sequences) / seconds_since(begin);
  for (int sequence : open) decoder.close(sequence);
  return rates;
}

// Rounds on demand: a line of stdin says how many, a line of stdout what came of them.
Result<int> serve(engine::Decoder& decoder, const Arguments& arguments) {
  int64_t round = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const int64_t wanted = std::clamp<int64_t>(std::atoll(line.c_str()), 1, 1000);
    std::vector<double> prefill, decode;
    for (int64_t i = 0; i <= wanted; ++i) {
      TESSERA_ASSIGN(const Rates rates, run_round(decoder, arguments, round++));
      if (i == 0) continue;
      prefill.push_back(rates.prefill);
      decode.push_back(rates.decode);
    }
    print_json({{"prefill_tokens_per_s", median(prefill)}, {"decode_tokens_per_s", median(decode)}});
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

Result<int> bench_language(const Arguments& arguments) {
  const LanguageArguments& l = arguments.language;
  TESSERA_ASSIGN(const transformer::Source source, engine::open_language_model(arguments.subject));
  const engine::DecoderOptions options =
      decoder_options(arguments, source.config, l.bench_sequences, std::max(l.bench_prompt, kBeginning + l.bench_gen));
  TESSERA_ASSIGN(const std::unique_ptr<engine::Decoder> decoder, engine::Decoder::make(source, options));
  const double load_ms = 1000 * std::chrono::duration<double>(Clock::now() - process_start).count();
  if (arguments.serve) return serve(*decoder, arguments);
  std::vector<double> prefill, decode;
  Progress progress;
  ResidentSet resident;
  for (int round = 0; round <= kRounds; ++round) {
    progress.show(fmt::format("round {} of {}", round, kRounds));
    TESSERA_ASSIGN(const Rates rates, run_round(*decoder, arguments, round));
    if (round == 1) resident = resident_set();
    if (round == 0) continue;
    prefill.push_back(rates.prefill);
    decode.push_back(rates.decode);
  }
  const SessionStatistics facts = decoder->statistics();
  const engine::DecoderCost cost = decoder->cost();
  TESSERA_ASSIGN(const Isa isa, chosen_isa());
  TESSERA_ASSIGN(const double gflops, measure_peak_gflops(isa, facts.threads));
  TESSERA_ASSIGN(const double bandwidth, measure_read_bandwidth(facts.threads));
  const double prefill_rate = median(prefill), decode_rate = median(decode);
  // At best a prompt takes the arithmetic of its products, a step one reading of the weights and of all keys and
  // values.
  const double prefill_limit = gflops * 1e9 / cost.flops_per_token;
  const double tokens = static_cast<double>(kBeginning) + static_cast<double>(l.bench_gen) / 2;
  const double step_bytes =
      cost.bytes_per_step + cost.cache_bytes_per_token * tokens * static_cast<double>(l.bench_sequences);
  const double decode_limit = bandwidth * 1e9 / step_bytes * static_cast<double>(l.bench_sequences);
  if (arguments.json) {
    print_json({{"prefill_tokens_per_s", prefill_rate},
                {"decode_tokens_per_s", decode_rate},
                {"prefill_percent_of_limit", 100 * prefill_rate / prefill_limit},
                {"decode_percent_of_limit", 100 * decode_rate / decode_limit},
                {"sequences", l.bench_sequences},
                {"load_ms", load_ms},
                {"resident_bytes", resident.now},
                {"kv_bytes", decoder->cache_bytes()},
                {"weight_bytes", decoder->weight_bytes()},
                {"weights", cost.weights},
                {"activations", l.activations},
                {"threads", facts.threads},
                {"isa", facts.isa},
                {"host_steps", facts.host_steps},
                {"kernels", facts.kernels}});
    return 0;
  }
  say("prompt of {}: {:.1f} tokens/s, {:.1f}% of what this machine could do\n", l.bench_prompt, prefill_rate,
      100 * prefill_rate / prefill_limit);
  say("{} tokens of {} sequences: {:.1f} tokens/s, {:.1f}%\n", l.bench_gen, l.bench_sequences, decode_rate,
      100 * decode_rate / decode_limit);
  say("load {:.0f} ms; weights {} ({}), cache {}, resident {}; {} threads, {}\n", load_ms,
      bytes_text(static_cast<double>(decoder->weight_bytes())), cost.weights,
      bytes_text(static_cast<double>(decoder->cache_bytes())), bytes_text(static_cast<double>(resident.now)),
      facts.threads, facts.isa);
  return 0;
}

}  // namespace tessera::cli
