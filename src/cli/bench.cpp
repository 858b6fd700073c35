#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "base/cpu.h"
#include "base/measure.h"
#include "base/memory.h"
#include "base/result.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/input_spec.h"
#include "cli/json.h"
#include "engine/cost.h"
#include "engine/language.h"
#include "engine/model.h"
#include "engine/values.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

double ms(Clock::duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

struct Timing {
  double load_ms = 0;
  std::vector<double> runs_ms;  // ascending
  ResidentSet resident;         // after the second run

  // Nearest-rank percentile.
  double at(double fraction) const {
    const auto rank = static_cast<size_t>(fraction * static_cast<double>(runs_ms.size() - 1) + 0.5);
    return runs_ms[rank];
  }
  double median() const {
    const size_t half = runs_ms.size() / 2;
    return runs_ms.size() % 2 == 1 ? runs_ms[half] : (runs_ms[half - 1] + runs_ms[half]) / 2;
  }
};

// Two runs that are not counted come first: the first one touches all memory, the second tells what stays resident.
Result<Timing> measure(const Session& session, std::span<const NamedValue> inputs, int runs, int warm_up = 2) {
  Timing timing;
  timing.load_ms = ms(Clock::now() - process_start);
  Progress progress;
  for (int i = -warm_up; i < runs; ++i) {
    if (i >= 0) progress.show(fmt::format("run {} of {}", i + 1, runs));
    const Clock::time_point begin = Clock::now();
    TESSERA_TRY(session.run(inputs, {.stop = &stop_requested}));
    const double took = ms(Clock::now() - begin);
    if (i == -1) timing.resident = resident_set();
    if (i >= 0) timing.runs_ms.push_back(took);
  }
  std::sort(timing.runs_ms.begin(), timing.runs_ms.end());
  return timing;
}

// Measures again for each number of runs on stdin: whoever asks takes turns with another program. An unmeasured run
// first wakes the threads.
Result<int> serve(const Session& session, std::span<const NamedValue> inputs) {
  std::string line;
  for (int c = 0; (c = std::getc(stdin)) != EOF && !stop_requested.load();) {
    if (c != '\n') {
      line += static_cast<char>(c);
      continue;
    }
    int runs = 0;
    const auto [end, problem] = std::from_chars(line.data(), line.data() + line.size(), runs);
    if (problem != std::errc() || end != line.data() + line.size() || runs < 1)
      return fail(Code::usage, "expected a number of runs on stdin, got '{}'", line);
    TESSERA_ASSIGN(const Timing timing, measure(session, inputs, runs, 1));
    print_json({{"median_ms", timing.median()}, {"min_ms", timing.runs_ms.front()}, {"p90_ms", timing.at(0.9)}});
    std::fflush(stdout);
    line.clear();
  }
  return 0;
}

// Writes the inputs for another program to read.
Result<Json> save_inputs(const std::string& folder, std::span<const NamedValue> inputs) {
  Json list = Json::array();
  if (folder.empty()) return list;
  for (const NamedValue& input : inputs) {
    TESSERA_ASSIGN(std::string file, engine::write_value(folder, input));
    list.push_back({{"name", input.name}, {"file", std::move(file)}});
  }
  return list;
}

// The graph's cost at the sizes of these inputs; nothing where a size is only known during the run.
std::optional<engine::Cost> cost_at(const Model& model, std::span<const NamedValue> inputs) {
  std::vector<Value> values;
  for (const ValueInfo& info : model.inputs())
    for (const NamedValue& input : inputs)
      if (input.name == info.name) values.push_back(input.value);
  if (values.size() != model.inputs().size()) return std::nullopt;
  const Result<ir::Graph> graph = model.impl()->graph_for(values, false);
  if (!graph) return std::nullopt;
  return engine::cost_of(*graph, DimBindings(static_cast<size_t>(graph->dims().symbol_count())));
}

// Which part of the time this machine would need at best, were it only for arithmetic or only for memory.
Result<double> percent_of_limit(const engine::Cost& cost, double median_ms, int threads) {
  TESSERA_ASSIGN(const Isa isa, chosen_isa());
  TESSERA_ASSIGN(const double gflops, measure_peak_gflops(isa, threads));
  TESSERA_ASSIGN(const double bandwidth, measure_read_bandwidth(threads));
  const double least_ms = std::max(cost.flops / (gflops * 1e6), cost.bytes / (bandwidth * 1e6));
  return 100 * least_ms / median_ms;
}

// The word that was given for --precision; "rules" stands for a file of them.
std::string precision_word(const CompileOptions& options) {
  if (options.precision.empty()) return options.strict ? "strict" : "keep";
  return options.precision.find('[') == std::string::npos ? options.precision : "rules";
}

}  // namespace

Result<int> bench(const Arguments& arguments) {
  if (engine::is_language_model(arguments.subject)) return bench_language(arguments);
  TESSERA_ASSIGN(const Model model, Model::load(arguments.subject, {arguments.dims}));
  TESSERA_ASSIGN(std::vector<NamedValue> inputs, read_inputs(model.inputs(), arguments.inputs, arguments.seed));
  TESSERA_TRY(add_random_inputs(model.inputs(), arguments.seed, inputs));
  TESSERA_ASSIGN(Json saved, save_inputs(arguments.output, inputs));
  TESSERA_ASSIGN(const Session session, Session::create(model, arguments.session));
  if (arguments.serve) return serve(session, inputs);
  TESSERA_ASSIGN(const Timing timing, measure(session, inputs, arguments.runs));
  const SessionStatistics facts = session.statistics();
  const ResidentSet at_end = resident_set();
  const std::optional<engine::Cost> cost = cost_at(model, inputs);
  std::optional<double> percent, flops, bytes;
  if (cost) {
    flops = cost->flops;
    bytes = cost->bytes;
    TESSERA_ASSIGN(percent, percent_of_limit(*cost, timing.median(), facts.threads));
  }
  if (arguments.json) {
    print_json({{"median_ms", timing.median()},
                {"min_ms", timing.runs_ms.front()},
                {"p90_ms", timing.at(0.9)},
                {"load_ms", timing.load_ms},
                {"runs", timing.runs_ms.size()},
                {"threads", facts.threads},
                {"isa", facts.isa},
                {"precision", precision_word(arguments.session.compile)},
                {"peak_activation_bytes", facts.peak_activation_bytes},
                {"live_set_bound_bytes", facts.live_set_bound_bytes},
                {"arena_bytes", facts.arena_bytes},
                {"plan_ms", facts.plan_ms},
                {"from_cache", facts.from_cache},
                {"resident_bytes", timing.resident.now},
                {"resident_peak_bytes", at_end.peak},
                {"weight_bytes", facts.weight_bytes},
                {"nodes", facts.nodes},
                {"kernels", facts.kernels},
                {"host_steps", facts.host_steps},
                {"bytes_moved", bytes},
                {"flops", flops},
                {"percent_of_limit", percent},
                {"inputs", std::move(saved)}});
    return 0;
  }
  say("median {:.3f} ms, min {:.3f} ms, p90 {:.3f} ms of {} runs ({}, {} threads)\n", timing.median(),
      timing.runs_ms.front(), timing.at(0.9), timing.runs_ms.size(), facts.isa, facts.threads);
  say("load {:.1f} ms; {} nodes, {} kernels, {} of them on the reference\n", timing.load_ms, facts.nodes, facts.kernels,
      facts.host_steps);
  say("activations {} at most, live-set bound {}; weights {}; resident {}, at most {}\n",
      bytes_text(static_cast<double>(facts.peak_activation_bytes)),
      bytes_text(static_cast<double>(facts.live_set_bound_bytes)), bytes_text(static_cast<double>(facts.weight_bytes)),
      bytes_text(static_cast<double>(timing.resident.now)), bytes_text(static_cast<double>(at_end.peak)));
  if (cost)
    say("{:.3f} GFLOP, {} moved; {:.1f}% of what this machine could do\n", *flops * 1e-9, bytes_text(*bytes), *percent);
  return 0;
}

}  // namespace tessera::cli
