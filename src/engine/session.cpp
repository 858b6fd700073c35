#include <list>
#include <mutex>
#include <unordered_map>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/strings.h"
#include "engine/cache.h"
#include "engine/compiled.h"
#include "engine/executable.h"
#include "engine/inputs.h"
#include "engine/model.h"
#include "kernels/dispatch.h"
#include "tessera/tessera.h"

namespace tessera {

using engine::Executable;
using engine::ExecuteOptions;
using engine::ExecuteReport;

const char* version() { return TESSERA_VERSION; }

struct Session::Impl {
  // What a specialised executable was made for.
  struct Key {
    std::vector<Dims> shapes;
    std::vector<std::string> values;  // elements of the inputs that may decide the model's form; empty where none do
    bool operator==(const Key&) const = default;
  };

  Impl(const Model& m, SessionOptions o) : model(m), options(o) {}

  Model model;
  SessionOptions options;
  passes::PipelineOptions pipeline;           // of options.compile
  std::shared_ptr<ThreadPool> pool;           // null on the interpreter
  bool from_cache = false;                    // general was
  std::shared_ptr<const Executable> general;  // null when the model's form depends on values of its inputs

  mutable std::mutex mutex;  // guards all below
  // Made for inputs that break an assumption of `general`; most recently used first.
  mutable std::list<std::pair<Key, std::shared_ptr<const Executable>>> special;
  mutable std::shared_ptr<const Executable> latest;  // the one that ran last
  mutable ExecuteReport last;
  mutable int64_t runs = 0;
  mutable int64_t shapes_planned = 0;
  mutable double plan_ms = 0;  // for the last of them

  engine::CompileOptions compile_options() const {
    return {.pool = pool, .pipeline = pipeline, .reuse_memory = options.compile.reuse_memory};
  }

  Result<std::shared_ptr<const Executable>> make(ir::Graph graph) const {
    if (options.reference) return std::shared_ptr<const Executable>(engine::interpret(std::move(graph)));
    return engine::compile(std::move(graph), compile_options());
  }

  // From the cache where the plan lies in it; else it is made, and kept there.
  Result<std::shared_ptr<const Executable>> make_kept(ir::Graph graph) {
    const bool cached = !options.cache_folder.empty() && !options.reference &&
                        model.impl()->format() != Model::Impl::Format::language &&
                        engine::CompileCache::worth_keeping(graph);
    if (!cached) return make(std::move(graph));
    const engine::CompileCache cache(options.cache_folder, options.cache_bytes);
    TESSERA_ASSIGN(const kernels::KernelSet* kernels, kernels::chosen_set());
    const std::string key = cache.key(*model.impl(), graph, options.compile, kernels->isa());
    if (const auto entry = cache.find(key)) {
      Result<std::unique_ptr<const Executable>> ready = engine::run_plan(entry->plan, compile_options(), entry->nodes);
      if (ready) {
        from_cache = true;
        return std::shared_ptr<const Executable>(std::move(*ready));
      }
    }
    engine::CompileOptions compile = compile_options();
    // A cache that cannot be written to keeps nothing, and the model runs all the same.
    compile.keep = [&](const plan::Plan& plan, int64_t nodes) { (void)cache.insert(key, plan, nodes); };
    return engine::compile(std::move(graph), compile);
  }

  Status make_general() {
    if (const auto& plan = model.impl()->plan()) {
      if (options.reference)
        return fail(Code::unsupported_feature,
                    "an artifact holds no graph for the interpreter to run: "
                    "use the model that it was compiled from");
      TESSERA_ASSIGN(general, engine::run_plan(plan, compile_options()));
      return {};
    }
    Result<ir::Graph> graph = model.impl()->graph();
    if (graph) {
      TESSERA_ASSIGN(general, make_kept(std::move(*graph)));
    } else if (graph.error().code != Code::value_unknown) {
      return tl::unexpected<Error>(std::move(graph).error());
    }
    return {};
  }

  Key key_of(std::span<const Value> inputs) const {
    Key key;
    for (const Value& input : inputs) {
      const Tensor* tensor = input.tensor();
      key.shapes.push_back(tensor ? tensor->shape() : Dims());
      if (general == nullptr)
        key.values.emplace_back(Model::Impl::may_decide(input) ? std::string(tensor->as<char>(), tensor->bytes()) : "");
    }
    return key;
  }

  std::shared_ptr<const Executable> find(const Key& key) const {
    const std::lock_guard lock(mutex);
    for (auto it = special.begin(); it != special.end(); ++it) {
      if (it->first != key) continue;
      special.splice(special.begin(), special, it);
      return it->second;
    }
    return nullptr;
  }

  Result<std::shared_ptr<const Executable>> specialised(std::span<const Value> inputs) const {
    Key key = key_of(inputs);
    if (auto found = find(key)) return found;
    TESSERA_ASSIGN(ir::Graph graph, model.impl()->graph_for(inputs, general == nullptr));
    TESSERA_ASSIGN(std::shared_ptr<const Executable> made, make(std::move(graph)));
    const std::lock_guard lock(mutex);
    special.emplace_front(std::move(key), made);
    if (special.size() > std::max<size_t>(options.cached_shapes, 1)) special.pop_back();
    return made;
  }

  Result<std::vector<Value>> execute(std::span<const Value> inputs, const ExecuteOptions& how) const {
    ExecuteReport report;
    std::shared_ptr<const Executable> used = general;
    Result<std::vector<Value>> outputs;
    if (general != nullptr) outputs = general->run(inputs, how, report);
    if (general == nullptr || (outputs && report.failed_assumption)) {
      if (model.impl()->plan() != nullptr)
        return fail(Code::shape_mismatch, "{}; compile the model again for these sizes", *report.failed_assumption);
      TESSERA_ASSIGN(used, specialised(inputs));
      report = {};
      outputs = used->run(inputs, how, report);
      if (outputs && report.failed_assumption) return fail(Code::shape_mismatch, "{}", *report.failed_assumption);
    }
    if (outputs) {
      const std::lock_guard lock(mutex);
      latest = std::move(used);
      last = report;
      ++runs;
      if (report.plan_ms) {
        ++shapes_planned;
        plan_ms = *report.plan_ms;
      }
    }
    return outputs;
  }
};

namespace {

// The caller's memory for outputs, by position.
Result<std::vector<Tensor>> output_buffers(const std::vector<ValueInfo>& outputs, std::span<const NamedValue> given) {
  std::vector<Tensor> buffers;
  if (given.empty()) return buffers;
  std::unordered_map<std::string_view, size_t> positions;
  std::vector<std::string> names;
  for (const ValueInfo& info : outputs) {
    positions.emplace(info.name, names.size());
    names.push_back(info.name);
  }
  buffers.resize(outputs.size());
  for (const NamedValue& value : given) {
    const auto found = positions.find(value.name);
    if (found == positions.end()) {
      Error error{Code::unknown_name, "the model has no output '" + value.name + "'"};
      error.hint = did_you_mean(value.name, names);
      return tl::unexpected<Error>(std::move(error));
    }
    if (value.value.tensor() == nullptr)
      return fail(Code::dtype_mismatch, "memory for output '{}' must be a tensor", value.name);
    buffers[found->second] = *value.value.tensor();
  }
  return buffers;
}

}  // namespace

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::create(const Model& model, SessionOptions options) {
  auto impl = std::make_unique<Impl>(model, options);
  TESSERA_ASSIGN(impl->pipeline, engine::pipeline_of(options.compile));
  if (!options.reference)
    impl->pool = std::make_shared<ThreadPool>(options.threads > 0 ? options.threads : usable_cores());
  TESSERA_TRY(without_throwing([&] { return impl->make_general(); }));
  return Session(std::move(impl));
}

Result<std::vector<NamedValue>> Session::run(std::span<const NamedValue> inputs, const RunOptions& options) const {
  const Model::Impl& model = *impl_->model.impl();
  TESSERA_ASSIGN(std::vector<Value> bound, engine::bind_inputs(model.inputs(), inputs, model.dims()));
  TESSERA_ASSIGN(std::vector<Tensor> buffers, output_buffers(model.outputs(), options.outputs));
  TESSERA_ASSIGN(std::vector<Value> results, without_throwing([&] {
                   return impl_->execute(bound, {buffers, options.stop});
                 }));
  std::vector<NamedValue> outputs;
  for (size_t i = 0; i < results.size(); ++i) outputs.push_back({model.outputs()[i].name, std::move(results[i])});
  return outputs;
}

SessionStatistics Session::statistics() const {
  SessionStatistics statistics;
  const std::lock_guard lock(impl_->mutex);
  const auto& described = impl_->latest != nullptr ? impl_->latest : impl_->general;
  if (described != nullptr) described->describe(statistics);
  statistics.runs = impl_->runs;
  statistics.shapes_planned = impl_->shapes_planned;
  statistics.plan_ms = impl_->plan_ms;
  statistics.from_cache = impl_->from_cache;
  statistics.specialised_plans = static_cast<int64_t>(impl_->special.size());
  statistics.arena_bytes = impl_->last.arena_bytes;
  statistics.peak_activation_bytes = impl_->last.peak_activation_bytes;
  statistics.live_set_bound_bytes = impl_->last.live_set_bound_bytes;
  return statistics;
}

const Model& Session::model() const { return impl_->model; }

}  // namespace tessera
