#include "engine/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/result.h"
#include "base/strings.h"

namespace tessera::engine {
namespace {

// Where a size that the model names was seen first.
struct Seen {
  int64_t size;
  std::string_view input;
};
using SeenSizes = std::unordered_map<std::string_view, Seen>;

Status check_tensor(const ValueInfo& info, const Tensor& tensor, std::span<const DimRange> dims, SeenSizes& seen) {
  if (tensor.dtype() != info.dtype)
    return fail(Code::dtype_mismatch, "input '{}' must be {} but {} was given", info.name, info.type,
                type_text(tensor));
  if (!info.ranked) return {};
  if (tensor.shape().size() != info.shape.size())
    return fail(Code::rank_mismatch, "input '{}' must be {} but {} was given", info.name, info.type, type_text(tensor));
  for (size_t axis = 0; axis < info.shape.size(); ++axis) {
    const int64_t size = tensor.shape()[axis];
    TESSERA_TRY(check_dim(dims, info.shape[axis], size, info.name));
    if (info.sizes[axis] >= 0) {
      if (size != info.sizes[axis])
        return fail(Code::shape_mismatch, "input '{}' must be {} but {} was given: axis {} is {}, not {}", info.name,
                    info.type, type_text(tensor), axis, size, info.sizes[axis]);
      continue;
    }
    const auto [first, is_new] = seen.try_emplace(info.shape[axis], Seen{size, info.name});
    if (!is_new && first->second.size != size)
      return fail(Code::shape_mismatch, "'{}' is {} in input '{}' but {} in input '{}', axis {} of {}",
                  info.shape[axis], first->second.size, first->second.input, size, info.name, axis, info.type);
  }
  return {};
}

Result<Value> check_input(const ValueInfo& info, const Value& value, std::span<const DimRange> dims, SeenSizes& seen) {
  const bool fits = info.kind == ValueInfo::Kind::tensor     ? value.tensor() != nullptr
                    : info.kind == ValueInfo::Kind::sequence ? value.sequence() != nullptr
                                                             : true;
  if (!fits)
    return fail(Code::dtype_mismatch, "input '{}' must be {} but {} was given", info.name, info.type, type_text(value));
  if (info.kind == ValueInfo::Kind::tensor) TESSERA_TRY(check_tensor(info, *value.tensor(), dims, seen));
  // What is present may be given as it is.
  if (info.kind == ValueInfo::Kind::optional && !value.optional())
    return Value(Optional{std::make_shared<const Value>(value)});
  return value;
}

}  // namespace

std::string type_text(const Value& value) {
  if (const Tensor* tensor = value.tensor())
    return fmt::format("{}[{}]", name(tensor->dtype()), joined(tensor->shape(), ", "));
  if (const Sequence* sequence = value.sequence())
    return fmt::format("a sequence of {} items of {}", sequence->items.size(), name(sequence->element));
  const auto& inner = value.optional()->value;
  return inner ? "an optional of " + type_text(*inner) : "an absent optional";
}

Status check_dim(std::span<const DimRange> dims, std::string_view name, int64_t size, std::string_view input) {
  for (const DimRange& dim : dims) {
    if (dim.name != name) continue;
    if (size < dim.lo || size > dim.hi)
      return fail(Code::dim_out_of_bounds, "'{}' is {} in input '{}' but was declared to lie in [{}, {}]", name, size,
                  input, dim.lo, dim.hi);
    if (!dim.sizes.empty() && !std::binary_search(dim.sizes.begin(), dim.sizes.end(), size))
      return fail(Code::dim_out_of_bounds, "'{}' is {} in input '{}' but was declared to be one of {}", name, size,
                  input, joined(dim.sizes, ", "));
  }
  return {};
}

Result<std::vector<Value>> bind_inputs(const std::vector<ValueInfo>& inputs, std::span<const NamedValue> given,
                                       std::span<const DimRange> dims) {
  std::unordered_map<std::string_view, const Value*> by_name;
  for (const NamedValue& value : given)
    if (!by_name.emplace(value.name, &value.value).second)
      return fail(Code::duplicate_name, "input '{}' is given twice", value.name);

  std::vector<std::string> missing;
  std::vector<Value> bound;
  SeenSizes seen;
  Status wrong;  // names are checked before types: a misspelt name explains a missing input
  for (const ValueInfo& info : inputs) {
    const auto found = by_name.find(info.name);
    if (found == by_name.end()) {
      if (info.kind == ValueInfo::Kind::optional) {
        bound.emplace_back(Optional{});
      } else {
        missing.push_back(fmt::format("'{}' ({})", info.name, info.type));
      }
      continue;
    }
    Result<Value> value = check_input(info, *found->second, dims, seen);
    if (value) {
      bound.push_back(std::move(*value));
    } else if (wrong) {
      wrong = tl::unexpected<Error>(std::move(value).error());
    }
    by_name.erase(found);
  }
  for (const NamedValue& value : given) {
    if (!by_name.contains(value.name)) continue;
    std::vector<std::string> names;
    for (const ValueInfo& info : inputs) names.push_back(info.name);
    Error error{Code::input_unknown,
                fmt::format("the model has no input '{}'; it takes '{}'", value.name, joined(names, "', '"))};
    error.hint = did_you_mean(value.name, names);
    return tl::unexpected<Error>(std::move(error));
  }
  if (!missing.empty())
    return fail(Code::input_missing, "{} of the model's {} inputs {} missing: {}", missing.size(), inputs.size(),
                missing.size() == 1 ? "is" : "are", joined(missing, ", "));
  if (!wrong) return tl::unexpected<Error>(std::move(wrong).error());
  return bound;
}

}  // namespace tessera::engine
