#include "plan/verify.h"

#include <algorithm>
#include <optional>

#include "base/result.h"
#include "plan/kernel_desc.h"

namespace tessera::plan {
namespace {

constexpr uint32_t kMaxRank = 64;   // of any tensor; kernels take fewer axes
constexpr uint32_t kMaxDepth = 64;  // routines nested in each other: the runtime recurses
constexpr size_t kMaxItems = size_t{1} << 28;

template <class E>
bool in_range(E value, E last) {
  return static_cast<uint8_t>(value) <= static_cast<uint8_t>(last);
}

class RoutineVerifier {
 public:
  RoutineVerifier(const Plan& plan, uint32_t index, std::vector<uint32_t>& depth)
      : plan_(plan), r_(plan.routines[index]), index_(index), depth_(depth) {}

  Status run() {
    for (size_t n : {r_.symbols.size(), r_.exprs.size(), r_.lists.size(), r_.values.size(), r_.attrs.size(),
                     r_.steps.size(), r_.guards.size()})
      if (n > kMaxItems) return wrong("it has {} items of one kind", n);
    TESSERA_TRY(check_exprs());
    TESSERA_TRY(check_symbols());
    for (ValueId v = 0; v < r_.values.size(); ++v) TESSERA_TRY(check_value(v));
    TESSERA_TRY(check_inputs());
    for (uint32_t s = 0; s < r_.steps.size(); ++s) TESSERA_TRY(check_step(s));
    return check_rest();
  }

 private:
  template <class... A>
  tl::unexpected<Error> wrong(fmt::format_string<A...> format, A&&... args) const {
    return fail(Code::plan_invalid, "routine {} of the plan does not verify: {}", index_,
                fmt::format(format, std::forward<A>(args)...));
  }

  bool is_expr(uint32_t id) const { return id < r_.exprs.size(); }
  bool is_list(List l) const { return l.first <= r_.lists.size() && l.count <= r_.lists.size() - l.first; }
  bool are_exprs(List l) const {
    if (!is_list(l)) return false;
    auto ids = r_.list(l);
    return std::all_of(ids.begin(), ids.end(), [&](uint32_t id) { return is_expr(id); });
  }

  Status check_exprs() const {
    for (uint32_t id = 0; id < r_.exprs.size(); ++id) {
      const Expr& e = r_.exprs[id];
      if (!in_range(e.op, ExprOp::max)) return wrong("expression {} has an unknown operator", id);
      if (e.op == ExprOp::constant) continue;
      if (e.op == ExprOp::symbol) {
        if (e.a >= r_.symbols.size()) return wrong("expression {} reads symbol {}, which is not there", id, e.a);
      } else if (e.a >= id || e.b >= id) {
        return wrong("expression {} does not come after its operands {} and {}", id, e.a, e.b);
      }
    }
    return {};
  }

  Status check_symbols() const {
    for (uint32_t i = 0; i < r_.symbols.size(); ++i) {
      const Symbol& s = r_.symbols[i];
      if (!in_range(s.source, Symbol::Source::outer) || s.lo > s.hi) return wrong("symbol {} is malformed", i);
      if (s.source == Symbol::Source::outer) {
        if (index_ == 0) return wrong("symbol {} comes from outside, but there is none", i);
        continue;  // checked where the routine is called
      }
      if (s.value >= r_.values.size()) return wrong("symbol {} comes from value {}, which is not there", i, s.value);
      const Value& v = r_.values[s.value];
      if (v.kind != Kind::tensor && v.kind != Kind::state) return wrong("symbol {} comes from no tensor", i);
      if (s.source == Symbol::Source::dim && v.ranked && s.index >= v.shape.count)
        return wrong("symbol {} is axis {} of a tensor of rank {}", i, s.index, v.shape.count);
      if (s.source == Symbol::Source::element && (!is_int(v.dtype) || (bits(v.dtype) < 8 && !is_block(v.dtype))))
        return wrong("symbol {} is an element of no integer tensor", i);
      if (v.storage == Storage::view || v.storage == Storage::constant)
        return wrong("symbol {} comes from a view or a constant", i);
    }
    return {};
  }

  Status check_value(ValueId id) const {
    const Value& v = r_.values[id];
    if (!in_range(v.kind, Kind::state) || !in_range(v.storage, Storage::successor) ||
        static_cast<uint8_t>(v.dtype) >= kDTypeCount)
      return wrong("value {} is malformed", id);
    if (is_block(v.dtype) && v.storage != Storage::constant)
      return wrong("value {} is quantized, and only constants may be", id);
    if (!are_exprs(v.shape) || v.shape.count > kMaxRank) return wrong("the shape of value {} is malformed", id);
    if (v.packed && (v.storage != Storage::constant || (bits(v.dtype) < 8 && !is_block(v.dtype))))
      return wrong("value {} cannot be packed", id);
    if (!v.ranked && v.shape.count != 0) return wrong("value {} has a shape but no rank", id);
    const bool tensor = v.kind == Kind::tensor || v.kind == Kind::state;
    const bool plain = tensor && v.ranked && v.dtype != DType::string;
    switch (v.storage) {
      case Storage::input:
        break;
      case Storage::constant: {
        if (v.index >= plan_.constants.size()) return wrong("value {} is constant {}, not there", id, v.index);
        return check_constant(id, plan_.constants[v.index]);
      }
      case Storage::buffer:
        if (!plain || v.kind == Kind::state) return wrong("value {} cannot lie in a buffer", id);
        break;
      case Storage::boxed:
        if (v.kind == Kind::state) return wrong("value {} is a state, which no step makes", id);
        break;
      case Storage::view: {
        if (v.base >= id) return wrong("value {} does not come after its base {}", id, v.base);
        const Value& base = r_.values[v.base];
        const bool base_plain = base.kind == Kind::tensor && base.ranked && base.dtype == v.dtype;
        if (!plain || v.kind == Kind::state || !base_plain || base.storage == Storage::view || base.packed)
          return wrong("value {} is no view of value {}", id, v.base);
        if (!is_expr(v.offset) || !are_exprs(v.strides) || v.strides.count != v.shape.count)
          return wrong("the strides of value {} are malformed", id);
        break;
      }
      case Storage::successor: {
        if (v.base >= id || !plain || v.kind != Kind::state) return wrong("value {} is no successor", id);
        const Value& base = r_.values[v.base];
        if (base.kind != Kind::state || base.dtype != v.dtype || base.shape.count != v.shape.count ||
            !std::ranges::equal(r_.list(base.shape), r_.list(v.shape)))
          return wrong("value {} is not of the type of the state {} before it", id, v.base);
        break;
      }
    }
    if (v.kind == Kind::state && v.storage != Storage::input && v.storage != Storage::successor)
      return wrong("value {} is a state but neither given nor a successor", id);
    return {};
  }

  Status check_constant(ValueId id, const Tensor& tensor) const {
    const Value& v = r_.values[id];
    // How many bytes a packed constant has only its kernel knows: see prepare().
    bool same = v.kind == Kind::tensor && v.ranked && tensor.dtype() == (v.packed ? DType::u8 : v.dtype) &&
                static_cast<size_t>(tensor.rank()) == (v.packed ? 1 : v.shape.count);
    for (uint32_t a = 0; same && a < v.shape.count; ++a) {
      const Expr& e = r_.exprs[r_.list(v.shape)[a]];
      same = e.op == ExprOp::constant && (v.packed ? e.value >= 0 : e.value == tensor.shape()[a]);
    }
    if (!same) return wrong("value {} is not of the type of its constant", id);
    return {};
  }

  Status check_inputs() {
    defined_.assign(r_.values.size(), kNone);
    read_until_.assign(r_.values.size(), kNone);
    for (ValueId v = 0; v < r_.values.size(); ++v) {
      const Value& value = r_.values[v];
      if (value.storage == Storage::constant) defined_[v] = 0;
      if (value.storage == Storage::input && (value.index >= r_.inputs.size() || r_.inputs[value.index] != v))
        return wrong("value {} is input {}, which is another", v, value.index);
    }
    for (uint32_t i = 0; i < r_.inputs.size(); ++i) {
      const ValueId v = r_.inputs[i];
      if (v >= r_.values.size() || r_.values[v].storage != Storage::input || r_.values[v].index != i)
        return wrong("input {} is no input value", i);
      defined_[v] = 0;
    }
    return {};
  }

  // A value may be read when it, or the value whose memory it lies in, has been made and not been consumed.
  bool readable(ValueId v) const {
    const ValueId owner = r_.values[v].storage == Storage::view ? r_.values[v].base : v;
    return defined_[owner] != kNone && read_until_[owner] == kNone;
  }

  Status check_step(uint32_t s) {
    const Step& step = r_.steps[s];
    if (!in_range(step.kind, StepKind::scan)) return wrong("step {} is of no known kind", s);
    if (!is_list(step.operands) || !is_list(step.results)) return wrong("step {} is malformed", s);
    if (step.source != kNone && step.source >= plan_.sources.size()) return wrong("step {} has no such source", s);
    for (ValueId v : r_.operands(step)) {
      if (v == kNone) continue;
      if (v >= r_.values.size()) return wrong("step {} reads value {}, which is not there", s, v);
      if (!readable(v)) return wrong("step {} reads value {} before it is made or after it was consumed", s, v);
      if (r_.values[v].packed && step.kind != StepKind::kernel) return wrong("step {} reads a packed constant", s);
    }
    for (ValueId v : r_.results(step)) TESSERA_TRY(define(s, step, v));
    switch (step.kind) {
      case StepKind::kernel:
        return check_kernel(s, step);
      case StepKind::host:
        if (step.op >= plan_.host_ops.size()) return wrong("step {} calls host operator {}, not there", s, step.op);
        return {};
      default:
        return check_control(s, step);
    }
  }

  Status define(uint32_t s, const Step& step, ValueId v) {
    if (v == kNone) {
      if (step.kind == StepKind::kernel) return wrong("step {} leaves a kernel's result out", s);
      return {};
    }
    if (v >= r_.values.size()) return wrong("step {} makes value {}, which is not there", s, v);
    const Value& value = r_.values[v];
    const bool fits = step.kind == StepKind::kernel
                          ? value.storage == Storage::buffer || value.storage == Storage::successor
                          : value.storage == Storage::boxed;
    if (!fits || defined_[v] != kNone) return wrong("step {} cannot make value {}", s, v);
    if (value.storage == Storage::successor) {
      auto operands = r_.operands(step);
      if (std::ranges::count(operands, value.base) != 1)
        return wrong("step {} makes a successor of value {}, which it does not read once", s, value.base);
      if (!readable(value.base)) return wrong("step {} consumes value {} a second time", s, value.base);
      read_until_[value.base] = s;
    }
    defined_[v] = s;
    return {};
  }

  Status check_kernel(uint32_t s, const Step& step) {
    if (step.op >= plan_.kernels.size()) return wrong("step {} calls kernel {}, which is not there", s, step.op);
    if (step.attrs > r_.attrs.size() || step.n_attrs > r_.attrs.size() - step.attrs)
      return wrong("the attributes of step {} are malformed", s);
    auto types_of = [&](std::span<const ValueId> values) {
      std::vector<std::optional<DType>> types;
      for (ValueId v : values) {
        types.emplace_back();
        if (v == kNone) continue;
        const Value& value = r_.values[v];
        const bool plain = (value.kind == Kind::tensor || value.kind == Kind::state) && value.ranked;
        // `string` fits no kernel.
        types.back() = plain && value.shape.count <= kMaxKernelRank ? value.dtype : DType::string;
      }
      return types;
    };
    const KernelRef& ref = plan_.kernels[step.op];
    const auto operands = r_.operands(step);
    const KernelRule* rule = find_rule(ref.op, ref.kernel, types_of(operands), types_of(r_.results(step)));
    if (rule == nullptr)
      return wrong("step {} calls kernel '{}' for operator '{}' with types that the kernel table does not list", s,
                   ref.kernel, ref.op);
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i] != kNone && r_.values[operands[i]].packed != (rule->operand(i)->layout == Layout::packed))
        return wrong("operand {} of step {} is packed, or should be", i, s);
    return {};
  }

  // The body's inputs and outputs, counted against what the step passes and takes.
  Status check_control(uint32_t s, const Step& step) {
    const int bodies = step.kind == StepKind::branch ? 2 : 1;
    const size_t n_operands = step.operands.count, n_results = step.results.count;
    for (int i = 0; i < bodies; ++i) {
      const uint32_t callee = step.routines[i];
      if (callee <= index_ || callee >= plan_.routines.size() || depth_[callee] != kNone)
        return wrong("step {} calls routine {}, which is not a nested one of its own", s, callee);
      depth_[callee] = depth_[index_] + 1;
      if (depth_[callee] > kMaxDepth) return wrong("routines are nested more than {} deep", kMaxDepth);
      const Routine& body = plan_.routines[callee];
      for (const Symbol& symbol : body.symbols)
        if (symbol.source == Symbol::Source::outer && symbol.index >= r_.symbols.size())
          return wrong("routine {} takes a symbol from outside that is not there", callee);
      size_t inputs = 0, outputs = 0;
      if (step.kind == StepKind::branch) {
        inputs = n_operands == 0 ? SIZE_MAX : n_operands - 1;
        outputs = n_results;
      } else if (step.kind == StepKind::loop) {
        inputs = n_operands < 2 + size_t{step.carried} ? SIZE_MAX : n_operands;
        outputs = n_results < step.carried ? SIZE_MAX : n_results + 1;
      } else {
        const size_t leading = size_t{step.carried} + step.scanned;
        inputs = step.scanned == 0 || n_operands < leading ? SIZE_MAX : n_operands;
        outputs = n_results < step.carried ? SIZE_MAX : n_results;
      }
      if (body.inputs.size() != inputs || body.outputs.size() != outputs)
        return wrong("step {} does not pass or take what routine {} does", s, callee);
      for (ValueId v : body.inputs)
        if (v < body.values.size() && body.values[v].kind == Kind::state)
          return wrong("routine {} takes a state, which stays in the outermost one", callee);
    }
    // Only the trip count and the condition of a loop may be absent.
    const auto operands = r_.operands(step);
    for (size_t i = step.kind == StepKind::loop ? 2 : 0; i < operands.size(); ++i)
      if (operands[i] == kNone) return wrong("operand {} of step {} is absent", i, s);
    return {};
  }

  Status check_rest() const {
    if (r_.output_names.size() != r_.outputs.size()) return wrong("outputs and their names differ in number");
    for (ValueId v : r_.outputs)
      if (v >= r_.values.size() || !readable(v) || r_.values[v].packed)
        return wrong("value {} is given out but not there", v);
    for (const Symbol& s : r_.symbols) {
      if (s.source == Symbol::Source::outer) continue;
      if (defined_[s.value] == kNone) return wrong("symbol '{}' comes from a value that nothing makes", s.name);
    }
    for (const Guard& g : r_.guards)
      if (!in_range(g.kind, Guard::Kind::divisible) || !is_expr(g.a) || !is_expr(g.b))
        return wrong("a guard is malformed");
    for (const Attr& a : r_.attrs)
      if (!are_exprs(a.list)) return wrong("an attribute is malformed");
    return {};
  }

  const Plan& plan_;
  const Routine& r_;
  uint32_t index_;
  std::vector<uint32_t>& depth_;      // of routines; kNone until called
  std::vector<uint32_t> defined_;     // step that makes a value; kNone: not yet
  std::vector<uint32_t> read_until_;  // step that consumes a state
};

}  // namespace

Status verify(const Plan& plan) {
  if (plan.routines.empty()) return fail(Code::plan_invalid, "the plan has no routine");
  auto packed = [](const Routine& r) { return std::ranges::any_of(r.values, [](const Value& v) { return v.packed; }); };
  if (plan.isa.empty() && std::ranges::any_of(plan.routines, packed))
    return fail(Code::plan_invalid, "the plan has packed constants, but does not say for which instruction set");
  std::vector<uint32_t> depth(plan.routines.size(), kNone);
  depth[0] = 0;
  for (uint32_t i = 0; i < plan.routines.size(); ++i) {
    if (depth[i] == kNone) return fail(Code::plan_invalid, "routine {} of the plan is never called", i);
    TESSERA_TRY(RoutineVerifier(plan, i, depth).run());
  }
  return {};
}

}  // namespace tessera::plan
