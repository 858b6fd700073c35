// tessera-bench: kernels beside the machine's limits and beside peers, in one process.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <thread>

#include "base/cpu.h"
#include "base/measure.h"
#include "base/result.h"
#include "bench/kernel_call.h"
#include "bench/peers.h"
#include "formats/json.h"

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  std::string filter, peer;
  int threads = 0;
  bool json = false;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class F>
double seconds(int64_t calls, int64_t first, const F& run) {
  const Clock::time_point begin = Clock::now();
  for (int64_t i = 0; i < calls; ++i) run(first + i);
  return std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(calls);
}

struct Times {
  double ours = 0, peer = 0, ratio = 0;  // medians, in seconds; of the peer's time to ours
};

// Alternates the two, each warmed up by as many calls as are measured: what the other left in the caches and in its
// threads' spinning counts for neither, nor the waking of its own.
Times measure(const KernelCall& call, const PeerRun& peer, double budget) {
  constexpr double kLeast = 2e-3;  // one timing, far above the clock's and the pool's jitter
  call.run(0);
  const double once = seconds(1, 1, [&](int64_t i) { call.run(i); });
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(kLeast / once));
  const double round = 2 * once * static_cast<double>(calls) * (peer ? 3 : 1);
  const int rounds = std::clamp(static_cast<int>(budget / round), 7, 60);
  std::vector<double> ours, theirs, ratios;
  int64_t next = 0;
  // The peers' OpenMP spins for some 300 000 pauses, 6 ms here, on the core that the other side wants.
  const auto settle = [] { std::this_thread::sleep_for(std::chrono::milliseconds(8)); };
  const auto measured = [&](const auto& run) {
    seconds(calls, next, run);
    return seconds(calls, next + calls, run);
  };
  for (int r = 0; r < rounds; ++r, next += 2 * calls) {
    if (peer) settle();
    ours.push_back(measured([&](int64_t i) { call.run(i); }));
    if (!peer) continue;
    settle();
    theirs.push_back(measured(peer));
    ratios.push_back(theirs.back() / ours.back());
  }
  return {median(ours), peer ? median(theirs) : 0, peer ? median(ratios) : 0};
}

struct Bound {
  double value = 0;
  const char* name = "";
  double plain = 0, four = 0;  // of reading
};
Result<Bound> bound_of(Limit limit, Isa isa, int threads) {
  Bound bound;
  switch (limit) {
    case Limit::read: {
      TESSERA_ASSIGN(bound.plain, measure_read_bandwidth(threads));
      TESSERA_ASSIGN(bound.four, measure_read_bandwidth(threads, 4));
      return Bound{bound.plain, "dram_read", bound.plain, bound.four};
    }
    case Limit::copy: {
      TESSERA_ASSIGN(bound.value, measure_copy_bandwidth(threads));
      return Bound{bound.value, "copy"};
    }
    default: {
      const Arithmetic arithmetic = limit == Limit::f32_peak    ? Arithmetic::f32
                                    : limit == Limit::bf16_peak ? Arithmetic::bf16
                                                                : Arithmetic::int8;
      TESSERA_ASSIGN(bound.value, measure_peak_gops(isa, arithmetic, threads));
      return Bound{bound.value, "peak"};
    }
  }
}

Json describe(const std::string& kernel, const std::string& shape, std::string_view type, std::string_view isa,
              int threads) {
  return {{"kernel", kernel}, {"shape", shape}, {"type", type}, {"isa", isa}, {"threads", threads}};
}

void print(const Arguments& a, const Json& line) {
  if (a.json) {
    fmt::print("{}\n", line.dump());
  } else {
    const auto number = [&](const char* key) { return line.find(key)->number().value_or(0); };
    const auto text = [&](const char* key) { return *line.find(key)->text(); };
    fmt::print("{:<26} {:<30} {:<9} {:>9.2f} {:<7} {:>5.1f}% of {}", text("kernel"), text("shape"), text("type"),
               number("value"), text("unit"), number("percent_of_limit"), text("limit"));
    if (line.find("peer")->text() != nullptr)
      fmt::print("   {} {:.2f}, ratio {:.3f}", text("peer"), number("peer_value"), number("ratio"));
    fmt::print("\n");
  }
  std::fflush(stdout);
}

// What a case showed, for those that are held against it.
struct Shown {
  double seconds = 0, scratch = 0;
};

Result<Shown> run_case(const Case& c, const Arguments& a, const kernels::KernelSet& set, Isa isa, ThreadPool& pool) {
  TESSERA_ASSIGN(const KernelCall call, KernelCall::make(c, set, pool));
  TESSERA_TRY(call.check());
  const PeerRun peer = a.peer.empty()
                           ? PeerRun()
                           : peer_run(a.peer, c, call.drawn(0), call.drawn(c.operands.size() > 1 ? 1 : 0), a.threads);
  TESSERA_ASSIGN(Bound bound, bound_of(c.limit, isa, a.threads));
  Times times;
  for (int attempt = 0; attempt < 3; ++attempt) {
    times = measure(call, peer, 1.0);
    // A limit that moved by a tenth meanwhile says that the machine did something else.
    TESSERA_ASSIGN(const Bound again, bound_of(c.limit, isa, a.threads));
    const bool steady = std::abs(again.value - bound.value) <= 0.1 * bound.value;
    bound = again;
    if (steady) break;
  }
  const bool memory = c.limit == Limit::read || c.limit == Limit::copy;
  const double value = c.work / times.ours * 1e-9;
  Json line = describe(std::string(call.kernel()), c.shape, c.types(), set.isa(), a.threads);
  line["value"] = value;
  line["unit"] = memory ? "GB/s" : c.limit == Limit::int8_peak ? "GOP/s" : "GFLOP/s";
  line["percent_of_limit"] = 100 * value / bound.value;
  line["peer"] = peer ? Json(a.peer) : Json();
  line["peer_value"] = peer ? Json(c.work / times.peer * 1e-9) : Json();
  line["ratio"] = peer ? Json(times.ratio) : Json();
  line["limit"] = bound.name;
  line["limit_value"] = bound.value;
  line["median_us"] = times.ours * 1e6;
  line["scratch_bytes"] = static_cast<int64_t>(call.scratch_bytes());
  if (c.limit == Limit::read) {
    line["dram_read"] = bound.plain;
    line["dram_read_four_streams"] = bound.four;
  }
  print(a, line);
  return Shown{times.ours, static_cast<double>(call.scratch_bytes())};
}

// One case's time or scratch as a multiple of another's, where both ran.
void print_ratios(const Arguments& a, std::string_view isa, const std::map<std::string, Shown>& shown) {
  for (const Ratio& r : ratios()) {
    const auto of = [&](const std::string& shape) { return shown.find(fmt::format("{} {} {}", r.op, shape, r.types)); };
    const auto one = of(r.shape), other = of(r.than);
    if (one == shown.end() || other == shown.end()) continue;
    const bool time = r.what == Ratio::time;
    const double value = time                        ? one->second.seconds / other->second.seconds
                         : other->second.scratch > 0 ? one->second.scratch / other->second.scratch
                                                     : 1;
    Json line = describe(r.op + (time ? " time" : " scratch"), r.shape + " / " + r.than, r.types, isa, a.threads);
    line["value"] = value;
    line["unit"] = "times";
    line["percent_of_limit"] = 100 * value / r.most;
    for (const char* key : {"peer", "peer_value", "ratio"}) line[key] = Json();
    line["limit"] = "what is asked";
    line["limit_value"] = r.most;
    print(a, line);
  }
}

// A parallel loop with one chunk for each thread, which end when all have begun: the caller cannot do the work alone.
void fork_join(const Arguments& a, std::string_view isa, ThreadPool& pool) {
  constexpr int kLoops = 20'000;
  std::vector<double> us;
  us.reserve(kLoops);
  std::atomic<int64_t> begun{0};
  int64_t wanted = 0;
  const auto meet = [&](int64_t, int64_t) {
    begun.fetch_add(1);
    while (begun.load() < wanted) {
    }
  };
  for (int i = -kLoops / 10; i < kLoops; ++i) {
    wanted += pool.threads();
    const Clock::time_point begin = Clock::now();
    pool.parallel_for(pool.threads(), 1, meet);
    if (i < 0) continue;  // warms the pool up
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::sort(us.begin(), us.end());
  constexpr double kLimit = 1.5;  // what is asked of two threads
  const double middle = us[us.size() / 2];
  Json line = describe("fork_join", fmt::format("{}", pool.threads()), "", isa, a.threads);
  line["value"] = middle;
  line["unit"] = "us";
  line["percent_of_limit"] = 100 * middle / kLimit;
  for (const char* key : {"peer", "peer_value", "ratio"}) line[key] = Json();
  line["limit"] = "1.5 us";
  line["limit_value"] = kLimit;
  line["p99_us"] = us[us.size() * 99 / 100];
  print(a, line);
}

Status run_all(const Arguments& a) {
  TESSERA_ASSIGN(const Isa isa, chosen_isa());
  const kernels::KernelSet* set = kernels::set_for(name(isa));
  if (set == nullptr) return fail(Code::isa_unavailable, "this build has no kernels for {}", name(isa));
  ThreadPool pool(a.threads);
  const auto chosen = [&](const std::string& text) { return text.find(a.filter) != std::string::npos; };
  if (chosen("fork_join")) fork_join(a, set->isa(), pool);
  std::map<std::string, Shown> shown;
  for (const Case& c : cases()) {
    const std::string name = fmt::format("{} {} {}", c.op, c.shape, c.types());
    if (!chosen(name)) continue;
    TESSERA_ASSIGN(shown[name], run_case(c, a, *set, isa, pool));
  }
  print_ratios(a, set->isa(), shown);
  return {};
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  using namespace tessera;
  CLI::App app(
      "Measures kernels beside the machine's limits and beside peers.\n"
      "example: tessera-bench ops --filter linear --threads 2 --peer onednn --json");
  app.require_subcommand(1);
  CLI::App* ops = app.add_subcommand("ops", "the operator library: results are checked first");
  bench::Arguments arguments;
  std::string isa;
  ops->add_option("--filter", arguments.filter, "only cases whose operator, shape and type hold this text");
  ops->add_option("--isa", isa, "the instruction set; else TESSERA_ISA, else the best");
  ops->add_option("--threads", arguments.threads, "default: all cores of this process")->check(CLI::Range(1, 1024));
  ops->add_option("--peer", arguments.peer, "alternates with this library")
      ->check(CLI::IsMember({"onednn", "openblas"}));
  ops->add_flag("--json", arguments.json, "one object a line");
  CLI11_PARSE(app, argc, argv);
  if (arguments.threads == 0) arguments.threads = usable_cores();
  if (!isa.empty()) setenv("TESSERA_ISA", isa.c_str(), 1);
  const Status status = bench::run_all(arguments);
  if (status) return 0;
  fmt::print(stderr, "{}\n", status.error().to_string());
  return 1;
}
