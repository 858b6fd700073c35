#include "engine/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/result.h"
#include "engine/culprit.h"
#include "engine/inputs.h"
#include "engine/model.h"
#include "engine/replay.h"
#include "ir/core_ops.h"
#include "ops/ops.h"

namespace tessera::engine {
namespace {

// The same relative error for every tolerance of difference(): sequences and optionals have no other measure.
Tolerance nested_tolerance(DType dtype) { return {verify_tolerance(dtype), verify_tolerance(dtype)}; }

// Whether rows of attention that see no key are 0 in the graph, as a softmax of -inf alone, which the model may have
// in its place, is not: what follows from such rows are numbers here and none there.
bool has_empty_rows(const ir::Graph& graph) {
  for (ir::NodeId n = 0; n < graph.node_count(); ++n) {
    const ir::Node& node = graph.node(n);
    if (node.op != &ops::attention_op) continue;
    const ir::A attrs(*node.op, *node.attrs);
    const auto operands = graph.operands(n);
    const bool masked =
        std::any_of(operands.begin() + 3, operands.end(), [](ir::ValueId v) { return v != ir::kNoValue; });
    if (std::isinf(attrs.real("fill")) && (masked || !attrs.dims("causal").empty() || !attrs.dims("window").empty()))
      return true;
  }
  return false;
}

ValueVerdict judge(std::string name, const Value& actual, const Value& expected, double tolerance, bool nan_is_any) {
  ValueVerdict verdict;
  verdict.name = std::move(name);
  const Tensor* a = actual.tensor();
  const Tensor* b = expected.tensor();
  const bool comparable = a != nullptr && b != nullptr && a->dtype() == b->dtype() && a->shape() == b->shape() &&
                          a->dtype() != DType::string;
  if (!comparable) {
    const auto why = difference(actual, expected, nested_tolerance);
    verdict.ok = !why;
    verdict.why = why.value_or("");
    return verdict;
  }
  verdict.tolerance = is_float(a->dtype()) && tolerance > 0 ? tolerance : verify_tolerance(a->dtype());
  verdict.distance = distance(*a, *b, nan_is_any);
  verdict.ok = verdict.distance->relative <= verdict.tolerance;
  if (!verdict.ok)
    verdict.why = fmt::format("element {} is {:.9g}, the reference {:.9g}: relative error {:.3g}, allowed {:.3g}",
                              verdict.distance->index, verdict.distance->actual, verdict.distance->expected,
                              verdict.distance->relative, verdict.tolerance);
  return verdict;
}

// How much of its tolerance an output uses.
double use_of(const ValueVerdict& verdict) {
  if (!verdict.distance) return verdict.ok ? 0 : HUGE_VAL;
  if (verdict.distance->relative == 0) return 0;
  return verdict.tolerance > 0 ? verdict.distance->relative / verdict.tolerance : HUGE_VAL;
}

// Compares one model at one set of inputs.
class Comparison {
 public:
  Comparison(const Model& model, const SessionOptions& options, double tolerance, const std::atomic<bool>* stop)
      : model_(model), options_(options), tolerance_(tolerance), stop_(stop) {}

  Result<Verdict> run(std::span<const NamedValue> inputs) {
    TESSERA_ASSIGN(const std::vector<Value> bound, bind_inputs(model_.inputs(), inputs, model_.impl()->dims()));
    std::vector<ir::RefValue> operands;
    for (const Value& input : bound) {
      TESSERA_ASSIGN(ir::RefValue operand, ir::to_ref(input));
      operands.push_back(std::move(operand));
    }
    TESSERA_ASSIGN(const ir::Graph graph, graph_for(bound, operands));
    TESSERA_ASSIGN(compile_.pipeline, pipeline_of(options_.compile));
    compile_.reuse_memory = options_.compile.reuse_memory;
    compile_.pool = std::make_shared<ThreadPool>(options_.threads > 0 ? options_.threads : usable_cores());
    TESSERA_ASSIGN(const Compilation made, compile_steps(graph, compile_));
    nan_is_any_ = has_empty_rows(*made.expanded) && !has_empty_rows(graph);
    Reference reference{graph, std::move(operands)};
    reference.stop = stop_;
    TESSERA_ASSIGN(const std::vector<ir::ValueId> named, run_reference(*made.expanded, reference));

    TESSERA_TRY(compare_outputs(inputs, reference));
    TESSERA_TRY(compare_named(*made.expanded, named, bound, reference));
    if (differs_) TESSERA_TRY(find_culprit(made, bound, reference));
    return std::move(verdict_);
  }

 private:
  // The model's graph at these inputs: the one for all sizes, where its assumptions hold for them.
  Result<ir::Graph> graph_for(std::span<const Value> inputs, std::span<const ir::RefValue> operands) const {
    Result<ir::Graph> general = model_.impl()->graph();
    if (!general && general.error().code != Code::value_unknown) return general;
    if (general && ir::check_guards(*general, operands)) return general;
    return model_.impl()->graph_for(inputs, !general);
  }

  // The named tensors of the optimised graph that the reference has too, in order.
  Result<std::vector<ir::ValueId>> run_reference(const ir::Graph& optimised, Reference& reference) const {
    std::unordered_map<ir::NameId, int> count;
    for (ir::ValueId v = 0; v < optimised.value_count(); ++v)
      if (optimised.value(v).name != 0 && is_tensor_result(optimised, v)) ++count[optimised.value(v).name];
    const std::unordered_set<ir::ValueId> outputs(reference.graph.outputs.begin(), reference.graph.outputs.end());
    ir::InterpreterOptions options;
    options.stop = stop_;
    options.on_node = [&](const ir::Graph& graph, ir::NodeId n, std::span<const ir::RefValue> results) -> Status {
      if (&graph != &reference.graph) return {};
      for (int i = 0; i < graph.node(n).n_results; ++i) {
        const ir::ValueId v = graph.result(n, i);
        const auto wanted = count.find(graph.value(v).name);
        if (wanted != count.end() && wanted->second == 1 && !outputs.contains(v) && is_tensor_result(graph, v))
          reference.named.insert_or_assign(graph.value(v).name, results[static_cast<size_t>(i)]);
      }
      return {};
    };
    TESSERA_ASSIGN(reference.outputs, ir::Interpreter(options).run(reference.graph, reference.inputs));
    std::vector<ir::ValueId> named;
    for (ir::ValueId v = 0; v < optimised.value_count(); ++v) {
      const auto known = reference.named.find(optimised.value(v).name);
      if (known != reference.named.end() && is_tensor_result(optimised, v) &&
          known->second.array().dtype == optimised.type(v)->dtype)
        named.push_back(v);
    }
    return named;
  }

  // Adds what was found of one value.
  Status add(ir::NameId name, int output, std::string text, const Value& actual, const ir::RefValue& reference) {
    TESSERA_ASSIGN(const Value expected, ir::from_ref(reference));
    ValueVerdict verdict = judge(std::move(text), actual, expected, tolerance_, nan_is_any_);
    verdict.output = output >= 0;
    compared_.push_back({name, output, verdict.ok});
    verdict_.ok &= verdict.ok || output < 0;
    differs_ |= !verdict.ok;
    verdict_.values.push_back(std::move(verdict));
    return {};
  }

  // What a user's session gives.
  Status compare_outputs(std::span<const NamedValue> inputs, const Reference& reference) {
    Result<std::vector<NamedValue>> actual = std::vector<NamedValue>();
    Result<Session> session = Session::create(model_, options_);
    if (session) {
      actual = session->run(inputs, {.stop = stop_});
    } else {
      actual = tl::unexpected<Error>(std::move(session).error());
    }
    if (!actual && actual.error().code == Code::interrupted) return tl::unexpected<Error>(std::move(actual).error());
    for (size_t i = 0; i < reference.outputs.size(); ++i) {
      const ir::NameId name = reference.graph.output_names[i];
      std::string text(reference.graph.context().text(name));
      if (actual) {
        TESSERA_TRY(add(name, static_cast<int>(i), std::move(text), (*actual)[i].value, reference.outputs[i]));
        continue;
      }
      compared_.push_back({name, static_cast<int>(i), false});
      verdict_.values.push_back({std::move(text), true, false, 0, {}, "it cannot be run: " + actual.error().message});
      verdict_.ok = false;
      differs_ = true;
    }
    return {};
  }

  // The plan of a graph whose `wanted` values are given out behind its outputs, and what they are.
  struct Tapped {
    ir::Graph graph;
    compile::Lowered lowered;
    std::vector<Value> values;
  };
  Result<Tapped> tap(const ir::Graph& graph, std::span<const ir::ValueId> wanted, std::span<const Value> inputs) const {
    Tapped tapped{graph.clone(), {}, {}};
    for (ir::ValueId v : wanted) {
      tapped.graph.outputs.push_back(v);
      tapped.graph.output_names.push_back(graph.value(v).name);
    }
    TESSERA_ASSIGN(tapped.lowered, compile::lower(tapped.graph));
    TESSERA_ASSIGN(const std::unique_ptr<const Executable> executable,
                   executable_of(graph, std::move(tapped.lowered), count_nodes(graph), compile_));
    ExecuteReport report;
    TESSERA_ASSIGN(tapped.values, executable->run(inputs, {{}, stop_}, report));
    if (report.failed_assumption) return fail(Code::shape_mismatch, "{}", *report.failed_assumption);
    tapped.values.erase(tapped.values.begin(), tapped.values.begin() + static_cast<ptrdiff_t>(graph.outputs.size()));
    return tapped;
  }

  Status compare_named(const ir::Graph& optimised, const std::vector<ir::ValueId>& named, std::span<const Value> inputs,
                       const Reference& reference) {
    if (named.empty()) return {};
    Result<Tapped> tapped = tap(optimised, named, inputs);
    if (!tapped && tapped.error().code != Code::interrupted && differs_) return {};  // it runs no better than it did
    if (!tapped) return tl::unexpected<Error>(std::move(tapped).error());
    for (size_t i = 0; i < named.size(); ++i) {
      const ir::NameId name = optimised.value(named[i]).name;
      TESSERA_TRY(
          add(name, -1, std::string(optimised.context().text(name)), tapped->values[i], reference.named.at(name)));
    }
    return {};
  }

  Status find_culprit(const Compilation& made, std::span<const Value> inputs, const Reference& reference) {
    // Told values come in the order of the graph, so that the first one that differs is the nearest to the fault.
    std::vector<Compared> values(compared_.begin() + static_cast<ptrdiff_t>(reference.outputs.size()), compared_.end());
    values.insert(values.end(), compared_.begin(),
                  compared_.begin() + static_cast<ptrdiff_t>(reference.outputs.size()));
    const Agrees agrees = [&](const ir::RefValue& actual, const ir::RefValue& expected) {
      const Result<Value> a = ir::from_ref(actual), b = ir::from_ref(expected);
      return a && b && judge("", *a, *b, tolerance_, nan_is_any_).ok;
    };
    TESSERA_ASSIGN(verdict_.culprit, guilty_rewrite(reference, values, compile_, agrees));
    if (!verdict_.culprit) TESSERA_TRY(trace_kernels(*made.expanded, inputs, reference, agrees));
    if (verdict_.culprit) {
      verdict_.ok = false;
    } else {
      verdict_.note = "no rewrite and no kernel alone is at fault: roundings add up";
    }
    return {};
  }

  Status trace_kernels(const ir::Graph& optimised, std::span<const Value> inputs, const Reference& reference,
                       const Agrees& agrees) {
    std::vector<ir::ValueId> values;
    for (ir::ValueId v = 0; v < optimised.value_count(); ++v)
      if (is_tensor_result(optimised, v) && optimised.node(optimised.value(v).def).op != &ir::core::view)
        values.push_back(v);
    // Where each step came from; the tapped plan has the same steps.
    TESSERA_ASSIGN(const compile::Lowered lowered, compile::lower(optimised));
    Result<Tapped> tapped = tap(optimised, values, inputs);
    if (!tapped) return tl::unexpected<Error>(std::move(tapped).error());
    Traced traced{optimised, std::move(values), {}, {}, {}};
    const plan::Routine& main = lowered.plan.main();
    for (size_t s = 0; s < main.steps.size(); ++s) {
      const compile::Origin& origin = lowered.origins[0][s];
      if (origin.graph != &optimised) continue;
      const plan::Step& step = main.steps[s];
      if (step.kind == plan::StepKind::kernel) traced.kernels[origin.node] = lowered.plan.kernels[step.op].kernel;
      traced.places[origin.node] = origin.place;
    }
    for (const Value& value : tapped->values) {
      TESSERA_ASSIGN(ir::RefValue actual, ir::to_ref(value));
      traced.actual.push_back(std::move(actual));
    }
    TESSERA_ASSIGN(verdict_.culprit, guilty_kernel(reference, traced, agrees));
    if (verdict_.culprit) return {};
    // Each kernel is right for itself. What a session gives is not: then one disturbs what another one left.
    bool disturbed = false;
    for (size_t i = 0; i < reference.outputs.size(); ++i) {
      const auto at = std::find(traced.values.begin(), traced.values.end(), optimised.outputs[i]);
      if (compared_[i].agrees || at == traced.values.end()) continue;
      disturbed |= agrees(traced.actual[static_cast<size_t>(at - traced.values.begin())], reference.outputs[i]);
    }
    if (disturbed) {
      verdict_.culprit = Culprit{.pass = "memory", .rule = "", .node = "", .equation = ""};
      verdict_.note = "every kernel is right when its results are kept: the plan's memory is at fault";
    }
    return {};
  }

  const Model& model_;
  const SessionOptions& options_;
  const double tolerance_;
  const std::atomic<bool>* stop_;
  CompileOptions compile_;
  Verdict verdict_;
  std::vector<Compared> compared_;  // parallel to verdict_.values
  bool differs_ = false;
  bool nan_is_any_ = false;  // in the reference: of rows that see no key
};

}  // namespace

double verify_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-10;
    case DType::f32:
      return 1e-4;
    case DType::f16:
      return 1e-2;
    case DType::bf16:
      return 5e-2;
    default:
      return is_float(dtype) ? 0.25 : 0;  // one unit of the coarsest 8-bit type
  }
}

const ValueVerdict* Verdict::worst() const {
  const ValueVerdict* worst = nullptr;
  for (const ValueVerdict& value : values)
    if (worst == nullptr || use_of(value) > use_of(*worst)) worst = &value;
  return worst;
}

Result<Verdict> verify(const Model& model, SessionOptions options, std::span<const NamedValue> inputs, double tolerance,
                       const std::atomic<bool>* stop) {
  options.reference = false;
  options.cache_folder.clear();  // what is compiled now is compared
  return Comparison(model, options, tolerance, stop).run(inputs);
}

}  // namespace tessera::engine
