// Binding symbols and checking types: the part of instantiate.h that looks at tensors.
#include <fmt/format.h>

#include <cstring>

#include "base/result.h"
#include "base/strings.h"
#include "plan/instantiate.h"
#include "tensor/scalar.h"

namespace tessera::plan {
namespace {

std::string print_dims(const Dims& dims) { return fmt::format("[{}]", joined(dims, ", ")); }

// "input 'x'", or its position when it has no name.
std::string describe_input(const Routine& r, uint32_t i) {
  const std::string& name = r.values[r.inputs[i]].name;
  return name.empty() ? fmt::format("input {}", i) : fmt::format("input '{}'", name);
}

std::string_view kind_name(Kind kind) {
  return kind == Kind::sequence ? "a sequence" : kind == Kind::optional ? "an optional" : "a tensor";
}

}  // namespace

Status check_kind(const Value& declared, const tessera::Value& given, std::string_view what) {
  const bool fits = declared.kind == Kind::sequence   ? given.sequence() != nullptr
                    : declared.kind == Kind::optional ? given.optional() != nullptr
                                                      : given.tensor() != nullptr;
  if (fits) return {};
  const Kind got = given.sequence() != nullptr   ? Kind::sequence
                   : given.optional() != nullptr ? Kind::optional
                                                 : Kind::tensor;
  return fail(Code::dtype_mismatch, "{}: expected {}, got {}", what, kind_name(declared.kind), kind_name(got));
}

namespace {

bool is_tensor(const Value& v) { return v.kind == Kind::tensor || v.kind == Kind::state; }

// Element type and rank.
Status check_form(const Routine& r, ValueId id, const Tensor& tensor, std::string_view what) {
  const Value& v = r.values[id];
  if (tensor.dtype() != v.dtype)
    return fail(Code::dtype_mismatch, "{}: expected {}{}, got {}{}", what, name(v.dtype), print_shape(r, id),
                name(tensor.dtype()), print_dims(tensor.shape()));
  if (v.ranked && static_cast<uint32_t>(tensor.rank()) != v.shape.count)
    return fail(Code::rank_mismatch, "{}: expected {} axes, {}, got {}", what, v.shape.count, print_shape(r, id),
                print_dims(tensor.shape()));
  return {};
}

}  // namespace

Status bind_symbol(const Symbol& symbol, const Tensor& tensor, std::string_view what, std::optional<int64_t>& bound) {
  int64_t value = 0;
  if (symbol.source == Symbol::Source::dim) {
    if (symbol.index >= static_cast<uint32_t>(tensor.rank()))
      return fail(Code::rank_mismatch, "{}: expected axis {} ('{}'), got {}", what, symbol.index, symbol.name,
                  print_dims(tensor.shape()));
    value = tensor.shape()[symbol.index];
  } else {
    if (symbol.index >= static_cast<uint64_t>(tensor.count()))
      return fail(Code::shape_mismatch, "{}: expected more than {} elements, got {}", what, symbol.index,
                  tensor.count());
    const Int128 element = decode_int(tensor.dtype(), tensor.data(), symbol.index);
    if (element < INT64_MIN || element > INT64_MAX)
      return fail(Code::dim_out_of_bounds, "{}: element {} ('{}') does not fit 64 bits", what, symbol.index,
                  symbol.name);
    value = static_cast<int64_t>(element);
  }
  const char* place = symbol.source == Symbol::Source::dim ? "axis" : "element";
  if (value < symbol.lo || value > symbol.hi) {
    const std::string range =
        symbol.hi == INT64_MAX ? fmt::format("at least {}", symbol.lo) : fmt::format("{} to {}", symbol.lo, symbol.hi);
    return fail(Code::dim_out_of_bounds, "{}: expected '{}' ({} {}) to be {}, got {}", what, symbol.name, place,
                symbol.index, range, value);
  }
  if (bound && *bound != value)
    return fail(Code::shape_mismatch, "{}: expected '{}' ({} {}) to be {}, got {}", what, symbol.name, place,
                symbol.index, *bound, value);
  bound = value;
  return {};
}

Status check_type(const Routine& r, const Sizes& sizes, ValueId id, const Tensor& tensor, std::string_view what) {
  TESSERA_TRY(check_form(r, id, tensor, what));
  if (!r.values[id].ranked) return {};
  auto shape = r.shape(id);
  for (size_t a = 0; a < shape.size(); ++a) {
    if (sizes.impossible(shape[a]))
      return fail(Code::shape_invalid, "{}: the size {} of axis {} overflows", what, print(r, shape[a]), a);
    if (!sizes.known(shape[a]) || sizes[shape[a]] == tensor.shape()[a]) continue;
    const bool symbolic = r.exprs[shape[a]].op != ExprOp::constant;
    return fail(Code::shape_mismatch, "{}: expected {}{}, got {}: axis {} is {}", what, print_shape(r, id),
                symbolic ? fmt::format(" with {} = {}", print(r, shape[a]), sizes[shape[a]]) : "",
                print_dims(tensor.shape()), a, tensor.shape()[a]);
  }
  return {};
}

Result<Bindings> bind_inputs(const Routine& r, const PreparedRoutine& prepared,
                             std::span<const tessera::Value* const> inputs, const Bindings& outer) {
  Bindings symbols(r.symbols.size());
  for (uint32_t i = 0; i < r.inputs.size(); ++i) {
    const Value& declared = r.values[r.inputs[i]];
    const std::string what = describe_input(r, i);
    TESSERA_TRY(check_kind(declared, *inputs[i], what));
    if (is_tensor(declared)) TESSERA_TRY(check_form(r, r.inputs[i], *inputs[i]->tensor(), what));
  }
  for (uint32_t index : prepared.symbols_of_inputs) {
    const Symbol& s = r.symbols[index];
    if (s.source == Symbol::Source::outer) {
      symbols[index] = outer[s.index];
      continue;
    }
    const uint32_t input = r.values[s.value].index;
    TESSERA_TRY(bind_symbol(s, *inputs[input]->tensor(), describe_input(r, input), symbols[index]));
  }
  return symbols;
}

Status check_inputs(const Routine& r, const Sizes& sizes, std::span<const tessera::Value* const> inputs) {
  for (uint32_t i = 0; i < r.inputs.size(); ++i)
    if (is_tensor(r.values[r.inputs[i]]))
      TESSERA_TRY(check_type(r, sizes, r.inputs[i], *inputs[i]->tensor(), describe_input(r, i)));
  return {};
}

}  // namespace tessera::plan
