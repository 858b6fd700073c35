// A model's whole way: bytes -> parse -> import -> passes -> lower -> plan, and a run where that is cheap. Whatever is
// wrong with the bytes must be an error of the model's, never one of ours.
#include <sys/time.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/memory.h"
#include "engine/cost.h"
#include "engine/model.h"
#include "engine/random_inputs.h"
#include "tessera/tessera.h"

namespace tessera {
namespace {

constexpr size_t kMostBytes = 32 << 20;     // one allocation; far below the fuzzer's limit of memory
constexpr double kMostWork = 1 << 20;       // floating-point operations and bytes of a model that is run
constexpr int64_t kMostElements = 1 << 12;  // of one input
constexpr int64_t kUnknownSize = 2;         // what sizes without a number become

// Errors that only a fault of ours can cause.
void check_blame(const Error& error) {
  if (describe(error.code).exit_code != 70 && error.code != Code::graph_invalid) return;
  std::fprintf(stderr, "%s\n", error.to_string().c_str());
  std::abort();
}

// Random inputs of the sizes that are known, and kUnknownSize elsewhere; nothing where one is too large or no tensor.
std::optional<std::vector<NamedValue>> small_inputs(const Model& model) {
  std::vector<NamedValue> inputs;
  for (const ValueInfo& info : model.inputs()) {
    if (info.kind == ValueInfo::Kind::optional) continue;
    Dims shape = info.sizes;
    for (int64_t& size : shape) size = size < 0 ? kUnknownSize : size;
    const Result<int64_t> count = element_count(shape);
    if (!count || *count > kMostElements) return std::nullopt;
    Result<Value> value = engine::random_input(info, 1, &shape);
    if (!value) return std::nullopt;
    inputs.push_back({info.name, std::move(*value)});
  }
  return inputs;
}

std::atomic<bool> stop = false;

// Loops may run long: a timer that counts the process's own time stops them.
class Stopwatch {
 public:
  Stopwatch() {
    stop = false;
    std::signal(SIGVTALRM, [](int) { stop = true; });
    const itimerval half_a_second = {{0, 0}, {0, 500'000}};
    ::setitimer(ITIMER_VIRTUAL, &half_a_second, nullptr);
  }
  ~Stopwatch() {
    const itimerval off = {};
    ::setitimer(ITIMER_VIRTUAL, &off, nullptr);
  }
};

bool cheap(const Model& model, const std::vector<NamedValue>& inputs) {
  std::vector<Value> values;
  for (const NamedValue& input : inputs) values.push_back(input.value);
  if (values.size() != model.inputs().size()) return false;
  Result<ir::Graph> graph = model.impl()->graph_for(values, true);
  if (!graph) return false;
  const auto cost = engine::cost_of(*graph, DimBindings(static_cast<size_t>(graph->dims().symbol_count())));
  return cost && cost->flops + cost->bytes < kMostWork;
}

void fuzz(std::span<const std::byte> bytes) {
  Result<Model> model = Model::from_memory(bytes);
  if (!model) return check_blame(model.error());
  for (const int level : {0, 2}) {
    Result<Session> session = Session::create(*model, {.compile = {.optimisation = level}, .threads = 1});
    if (!session) {
      check_blame(session.error());
      continue;
    }
    const std::optional<std::vector<NamedValue>> inputs = small_inputs(*model);
    if (!inputs || !cheap(*model, *inputs)) continue;
    const Stopwatch watch;
    if (auto outputs = session->run(*inputs, {.stop = &stop}); !outputs) check_blame(outputs.error());
  }
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::set_memory_limit(tessera::kMostBytes);
  tessera::fuzz(std::as_bytes(std::span(data, size)));
  return 0;
}
