#include "runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/result.h"
#include "base/strings.h"

namespace tessera::runtime {

using plan::Kind;
using plan::kNone;
using plan::Place;
using plan::Step;
using plan::StepKind;
using plan::Storage;
using plan::ValueId;

namespace {

bool is_tensor(const plan::Value& v) { return v.kind == Kind::tensor || v.kind == Kind::state; }

std::string describe_output(const plan::Routine& r, uint32_t i) {
  return r.output_names[i].empty() ? fmt::format("output {}", i) : fmt::format("output '{}'", r.output_names[i]);
}

bool overlaps(const Tensor& a, const Tensor& b) {
  const auto* x = static_cast<const char*>(a.data());
  const auto* y = static_cast<const char*>(b.data());
  return a.bytes() > 0 && b.bytes() > 0 && x < y + b.bytes() && y < x + a.bytes();
}

Dims dims_of(const plan::Routine& r, const plan::Sizes& sizes, ValueId v) {
  Dims dims;
  for (plan::ExprId id : r.shape(v)) dims.push_back(sizes[id]);
  return dims;
}

}  // namespace

Result<std::vector<Value>> Executor::call(uint32_t index, std::span<const Value* const> inputs,
                                          const plan::Bindings& outer, std::span<const Tensor> buffers) {
  const Active a = {index, plan_.routines[index], shared_.prepared.routines[index], frames_[index]};
  TESSERA_TRY(check_stop());  // the body of a loop may have no steps
  TESSERA_TRY(enter(a, inputs, outer));
  Status done = lay_out(a, inputs, buffers);
  const size_t held = a.frame.instance->arena_bytes + a.frame.instance->output_bytes;
  live_.add(held);
  for (uint32_t s = 0; done && s < a.routine.steps.size(); ++s) {
    done = run_step(a, s);
    if (!done) done = tl::unexpected(std::move(done).error().within("running " + describe(plan_, a.routine.steps[s])));
  }
  Result<std::vector<Value>> results = std::vector<Value>();
  if (done)
    results = gather(a, buffers);
  else
    results = tl::unexpected(std::move(done).error());
  if (index == 0) {
    report_.arena_bytes = a.frame.instance->arena_bytes;
    report_.live_set_bound_bytes = a.frame.instance->live_set_bound_bytes;
    report_.peak_activation_bytes = live_.peak();
  }
  leave(a);
  live_.remove(held);
  return results;
}

Status Executor::enter(const Active& a, std::span<const Value* const> inputs, const plan::Bindings& outer) {
  TESSERA_ASSIGN(plan::Bindings symbols, plan::bind_inputs(a.routine, a.prepared, inputs, outer));
  Frame& f = a.frame;
  f.instance = shared_.instances.find(a.index, symbols);
  if (f.instance != nullptr) {
    TESSERA_TRY(plan::check_inputs(a.routine, f.instance->sizes, inputs));
  } else {
    const auto begin = std::chrono::steady_clock::now();
    plan::Sizes sizes(a.routine, symbols);
    TESSERA_TRY(plan::check_inputs(a.routine, sizes, inputs));
    TESSERA_TRY(check_guards(a, sizes));
    TESSERA_ASSIGN(plan::Instance made, plan::instantiate(shared_.prepared, a.index, symbols, std::move(sizes)));
    if (shared_.check) TESSERA_TRY(check_steps(a, made));
    f.instance = std::make_shared<const plan::Instance>(std::move(made));
    shared_.instances.insert(a.index, f.instance);
    if (a.index == 0)
      report_.plan_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }
  f.symbols = std::move(symbols);
  f.sizes = &f.instance->sizes;
  return {};
}

Status Executor::check_steps(const Active& a, const plan::Instance& instance) {
  for (uint32_t s = 0; s < a.routine.steps.size(); ++s) {
    if (!instance.checked[s]) continue;
    const Step& step = a.routine.steps[s];
    const kernels::Args& args = a.frame.call.build(a.routine, step, instance.sizes, [](ValueId) { return nullptr; });
    if (Status right = shared_.check(plan_.kernels[step.op].op, args); !right)
      return tl::unexpected(std::move(right).error().within("checking " + describe(plan_, step)));
  }
  return {};
}

Status Executor::check_guards(const Active& a, const plan::Sizes& sizes) {
  const std::optional<uint32_t> guard = plan::failed_guard(a.routine, sizes);
  if (!guard) return {};
  if (a.index == 0) report_.failed_guard = guard;
  const plan::Guard& g = a.routine.guards[*guard];
  return fail(Code::shape_mismatch, "these sizes do not fulfil {}: {} is {} and {} is {}", g.what,
              print(a.routine, g.a), sizes[g.a], print(a.routine, g.b), sizes[g.b]);
}

Status Executor::lay_out(const Active& a, std::span<const Value* const> inputs, std::span<const Tensor> buffers) {
  Frame& f = a.frame;
  const plan::Instance& instance = *f.instance;
  TESSERA_TRY(f.arena.begin(instance.arena_bytes));
  TESSERA_TRY(f.scratch.begin(instance.scratch_bytes));
  f.memory.assign(a.routine.values.size(), nullptr);
  f.values.resize(a.routine.values.size());
  TESSERA_TRY(place_outputs(a, inputs, buffers));
  for (ValueId v = 0; v < a.routine.values.size(); ++v) {
    const plan::Value& value = a.routine.values[v];
    if (value.storage == Storage::input) {
      f.values[v] = *inputs[value.index];
      if (!is_tensor(value)) continue;
      const Tensor& given = *inputs[value.index]->tensor();
      if (!is_aligned(given)) {
        if (value.kind == Kind::state)
          return fail(Code::value_invalid, "the state '{}' is not aligned to its elements", value.name);
        TESSERA_ASSIGN(f.values[v], aligned(given));
      }
      f.memory[v] = const_cast<void*>(f.values[v].tensor()->data());
    } else if (value.storage == Storage::constant) {
      f.values[v] = shared_.constants[value.index];
      f.memory[v] = const_cast<void*>(shared_.constants[value.index].data());
    } else if (instance.places[v].in == Place::In::arena) {
      f.memory[v] = f.arena.data() + instance.places[v].offset;
    } else if (instance.places[v].in == Place::In::output) {
      f.memory[v] = f.outputs[instance.places[v].output].mutable_data();
    }
  }
  return {};
}

// Gives memory to the outputs that kernels write: the caller's, or new.
Status Executor::place_outputs(const Active& a, std::span<const Value* const> inputs, std::span<const Tensor> buffers) {
  Frame& f = a.frame;
  f.outputs.assign(a.routine.outputs.size(), Tensor());
  for (const Tensor& buffer : buffers)
    for (const Value* input : inputs)
      if (input->tensor() != nullptr && overlaps(*input->tensor(), buffer))
        return fail(Code::value_invalid, "the memory given for an output overlaps an input");
  for (uint32_t i = 0; i < a.routine.outputs.size(); ++i) {
    const ValueId v = a.routine.outputs[i];
    const Place& place = f.instance->places[a.prepared.lifetimes.owner[v]];
    if (place.in != Place::In::output || place.output != i) continue;
    const Dims dims = dims_of(a.routine, *f.sizes, v);
    if (i < buffers.size() && buffers[i].data() != nullptr) {
      TESSERA_TRY(plan::check_type(a.routine, *f.sizes, v, buffers[i], describe_output(a.routine, i)));
      if (is_aligned(buffers[i])) {
        f.outputs[i] = buffers[i];
        continue;
      }
    }
    Result<Tensor> made = Tensor::make(a.routine.values[v].dtype, dims);
    if (!made) return tl::unexpected(std::move(made).error().within("making " + describe_output(a.routine, i)));
    f.outputs[i] = std::move(*made);
  }
  return {};
}

Status Executor::check_stop() const {
  if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) return fail(Code::interrupted, "the run was stopped");
  return {};
}

Status Executor::run_step(const Active& a, uint32_t s) {
  TESSERA_TRY(check_stop());
  switch (a.routine.steps[s].kind) {
    case StepKind::kernel:
      TESSERA_TRY(run_kernel(a, s));
      break;
    case StepKind::host:
      TESSERA_TRY(run_host(a, s));
      break;
    default:
      TESSERA_TRY(run_control(a, s));
      break;
  }
  TESSERA_TRY(learn_symbols(a, s));
  release(a, s);
  return {};
}

Status Executor::run_kernel(const Active& a, uint32_t s) {
  const Step& step = a.routine.steps[s];
  const plan::BoundKernel& kernel = a.prepared.kernels[s];
  Frame& f = a.frame;
  const bool late = !f.instance->checked[s];
  if (late) {
    TESSERA_ASSIGN(const bool known, plan::check_kernel_step(a.routine, kernel, step, *f.sizes));
    if (!known) return fail(Code::shape_invalid, "a size that the step needs is not known when it runs");
    TESSERA_TRY(allocate_late(a, step));
  }
  const plan::Lifetimes& l = a.prepared.lifetimes;
  kernels::Args& args = f.call.build(a.routine, step, *f.sizes, [&](ValueId v) { return f.memory[l.owner[v]]; });
  if (late && shared_.check) TESSERA_TRY(shared_.check(plan_.kernels[step.op].op, args));
  if (kernel.entry->scratch != nullptr) {
    if (late) TESSERA_TRY(f.scratch.grow(kernel.entry->scratch(args)));
    args.scratch = f.scratch.data();
  }
  args.parallel = &shared_.parallel;
  switch (kernel.entry->fn(args)) {
    case kernels::kDone:
      return {};
    case kernels::kIndexOutOfRange:
      return fail(Code::index_out_of_range, "{}: an index is outside of the axis that it selects from",
                  plan_.kernels[step.op].op);
    default:
      return fail(Code::value_invalid, "{}: a value is not one that it allows", plan_.kernels[step.op].op);
  }
}

Status Executor::allocate_late(const Active& a, const Step& step) {
  Frame& f = a.frame;
  for (ValueId v : a.routine.results(step)) {
    if (f.instance->places[v].in != Place::In::late) continue;
    TESSERA_ASSIGN(Tensor tensor, Tensor::make(a.routine.values[v].dtype, dims_of(a.routine, *f.sizes, v)));
    live_.add(tensor.bytes());
    f.memory[v] = tensor.mutable_data();
    f.values[v] = std::move(tensor);
  }
  return {};
}

Status Executor::run_host(const Active& a, uint32_t s) {
  const Step& step = a.routine.steps[s];
  TESSERA_ASSIGN(const std::vector<Value> operands, read_operands(a, step));
  std::vector<const Value*> pointers;
  for (size_t i = 0; i < operands.size(); ++i)
    pointers.push_back(a.routine.operands(step)[i] == kNone ? nullptr : &operands[i]);
  TESSERA_ASSIGN(
      std::vector<Value> results,
      shared_.hosts[step.op]->run(HostCall{pointers, a.routine.symbols, a.frame.symbols, shared_.max_iterations}));
  if (results.size() < step.results.count)
    return fail(Code::internal, "'{}' gave {} results where {} are declared", plan_.host_ops[step.op].op,
                results.size(), step.results.count);
  return store_all(a, step, std::move(results));
}

Status Executor::run_control(const Active& a, uint32_t s) {
  const Step& step = a.routine.steps[s];
  TESSERA_ASSIGN(const std::vector<Value> operands, read_operands(a, step));
  Result<std::vector<Value>> results = step.kind == StepKind::branch ? run_branch(a, step, operands)
                                       : step.kind == StepKind::loop ? run_loop(a, step, operands)
                                                                     : run_scan(a, step, operands);
  if (!results) return tl::unexpected(std::move(results).error());
  return store_all(a, step, std::move(*results));
}

Status Executor::store_all(const Active& a, const Step& step, std::vector<Value> values) {
  for (uint32_t i = 0; i < step.results.count; ++i)
    if (a.routine.results(step)[i] != kNone) TESSERA_TRY(store(a, step, i, std::move(values[i])));
  return {};
}

Status Executor::store(const Active& a, const Step& step, uint32_t result, Value value) {
  Frame& f = a.frame;
  const ValueId v = a.routine.results(step)[result];
  const plan::Value& declared = a.routine.values[v];
  TESSERA_TRY(plan::check_kind(declared, value, fmt::format("result {}", result)));
  if (is_tensor(declared)) {
    TESSERA_TRY(plan::check_type(a.routine, *f.sizes, v, *value.tensor(), fmt::format("result {}", result)));
    if (!is_aligned(*value.tensor())) {
      TESSERA_ASSIGN(value, copy_of(*value.tensor()));
    }
    f.memory[v] = const_cast<void*>(value.tensor()->data());
  }
  live_.add(bytes_of(value));
  f.values[v] = std::move(value);
  return {};
}

Status Executor::learn_symbols(const Active& a, uint32_t s) {
  const std::vector<uint32_t>& learnt = a.prepared.symbols_of_step[s];
  if (learnt.empty()) return {};
  Frame& f = a.frame;
  for (uint32_t index : learnt) {
    const plan::Symbol& symbol = a.routine.symbols[index];
    TESSERA_ASSIGN(const Value value, read(a, symbol.value));
    TESSERA_TRY(plan::bind_symbol(symbol, *value.tensor(), "a result", f.symbols[index]));
  }
  if (f.sizes != &f.own_sizes) {
    f.own_sizes = *f.sizes;
    f.sizes = &f.own_sizes;
  }
  f.own_sizes.update(a.routine, f.symbols);
  // Once more, now that all of their sizes may be known.
  for (ValueId v : a.routine.results(a.routine.steps[s]))
    if (v != kNone && is_tensor(a.routine.values[v]) && a.routine.values[v].storage == Storage::boxed)
      TESSERA_TRY(plan::check_type(a.routine, *f.sizes, v, *f.values[v].tensor(), "a result"));
  return check_guards(a, *f.sizes);
}

void Executor::release(const Active& a, uint32_t s) {
  const plan::Lifetimes& l = a.prepared.lifetimes;
  for (uint32_t i = l.dead_after[s]; i < l.dead_after[s + 1]; ++i) {
    Value& value = a.frame.values[l.dead[i]];
    live_.remove(bytes_of(value));
    value = Value();
  }
}

// Lets go of everything but the arena; what was held is no longer counted.
void Executor::leave(const Active& a) {
  Frame& f = a.frame;
  for (ValueId v = 0; v < f.values.size(); ++v) {
    const Storage storage = a.routine.values[v].storage;
    if (storage == Storage::boxed || storage == Storage::buffer) live_.remove(bytes_of(f.values[v]));
  }
  f.values.clear();
  f.outputs.clear();
  f.instance = nullptr;
}

Result<Value> Executor::read(const Active& a, ValueId v) {
  Frame& f = a.frame;
  const plan::Value& value = a.routine.values[v];
  if (value.storage == Storage::input || value.storage == Storage::constant || value.storage == Storage::boxed)
    return f.values[v];
  TESSERA_ASSIGN(const bool known, plan::check_operand(a.routine, *f.sizes, v, plan::Layout::dense));
  if (!known) return fail(Code::shape_invalid, "the size of {} is not known when it is read", value.name);
  const ValueId owner = a.prepared.lifetimes.owner[v];
  const kernels::View view = plan::view_of(a.routine, *f.sizes, v, f.memory[owner]);
  return Value(Tensor::borrow(value.dtype, dims_of(a.routine, *f.sizes, v), view.data));
}

Result<std::vector<Value>> Executor::read_operands(const Active& a, const Step& step) {
  std::vector<Value> operands(step.operands.count);
  for (uint32_t i = 0; i < step.operands.count; ++i)
    if (const ValueId v = a.routine.operands(step)[i]; v != kNone) {
      TESSERA_ASSIGN(operands[i], read(a, v));
    }
  return operands;
}

Result<Tensor> Executor::output_copy(const Tensor& tensor, const Tensor* buffer, std::string_view what) {
  if (buffer == nullptr || buffer->data() == nullptr || tensor.dtype() == DType::string) return copy_of(tensor);
  if (buffer->dtype() != tensor.dtype() || buffer->shape() != tensor.shape())
    return fail(Code::shape_mismatch, "the memory given for {} is {}[{}], but it is {}[{}]", what,
                name(buffer->dtype()), joined(buffer->shape(), ", "), name(tensor.dtype()),
                joined(tensor.shape(), ", "));
  Tensor target = *buffer;
  std::copy_n(static_cast<const char*>(tensor.data()), tensor.bytes(), static_cast<char*>(target.mutable_data()));
  return target;
}

Result<std::vector<Value>> Executor::gather(const Active& a, std::span<const Tensor> buffers) {
  Frame& f = a.frame;
  const plan::Lifetimes& l = a.prepared.lifetimes;
  std::vector<Value> results;
  for (uint32_t i = 0; i < a.routine.outputs.size(); ++i) {
    const ValueId v = a.routine.outputs[i];
    const plan::Value& value = a.routine.values[v];
    const Tensor* buffer = i < buffers.size() && buffers[i].data() != nullptr ? &buffers[i] : nullptr;
    const Place& place = f.instance->places[l.owner[v]];
    if (value.kind == Kind::state) {
      results.push_back(f.values[l.owner[v]]);
    } else if (place.in == Place::In::output && place.output == i && (buffer == nullptr || is_aligned(*buffer))) {
      results.push_back(f.outputs[i]);
    } else if (buffer == nullptr && l.owner[v] == v &&
               (value.storage == Storage::boxed || place.in == Place::In::late)) {
      results.push_back(f.values[v]);  // made in this run, in memory of its own
    } else {
      TESSERA_ASSIGN(Value held, read(a, v));
      if (held.tensor() != nullptr) {
        TESSERA_ASSIGN(held, output_copy(*held.tensor(), buffer, describe_output(a.routine, i)));
      }
      results.push_back(std::move(held));
    }
  }
  return results;
}

}  // namespace tessera::runtime
