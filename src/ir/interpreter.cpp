#include "ir/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/result.h"
#include "base/strings.h"
#include "ir/builder.h"

namespace tessera::ir {
namespace {

using Values = std::vector<RefValue>;

Result<TypeRef> type_of(Context& context, const RefValue& value) {
  if (std::holds_alternative<std::shared_ptr<const Array>>(value.held)) {
    const Array& a = value.array();
    return context.tensor(a.dtype, Shape(a.shape.begin(), a.shape.end()));
  }
  return fail(Code::unsupported_feature, "a composite operator takes tensors only");
}

// Evaluates a composite: its meaning, written for exactly these shapes, run without rounding in between.
Result<Values> run_meaning(const OpDef& op, const Attrs& attrs, std::span<const RefValue* const> operands,
                           const InterpreterOptions& outer) {
  Graph graph(std::make_shared<Context>());
  graph.name = op.name;
  Builder builder(graph);
  Xs formal;
  Values actual;
  for (const RefValue* operand : operands) {
    if (operand == nullptr) {
      formal.push_back(X{&builder, kNoValue});
      continue;
    }
    TESSERA_ASSIGN(TypeRef type, type_of(graph.context(), *operand));
    formal.push_back(builder.input(type, ""));
    actual.push_back(*operand);
  }
  Xs results = op.meaning(formal, A(op, attrs));
  TESSERA_TRY(builder.status());
  for (X x : results) {
    if (!x) return fail(Code::internal, "the meaning of '{}' left a result undefined", op.name);
    graph.outputs.push_back(x.id);
  }
  InterpreterOptions options = outer;
  options.round = false;
  options.on_node = {};
  return Interpreter(options).run(graph, actual);
}

Status bind_dims(const Context& context, const Shape& declared, const Dims& actual, DimBindings& bindings) {
  const DimTable& table = context.dims();
  for (size_t i = 0; i < declared.size(); ++i) {
    if (declared[i].is_const()) {
      if (declared[i].value() != actual[i])
        return fail(Code::shape_mismatch, "axis {} is {} but must be {}", i, actual[i], declared[i].value());
      continue;
    }
    std::optional<int> symbol = table.symbol_index(declared[i]);
    if (symbol && !bindings[static_cast<size_t>(*symbol)]) {
      DimBounds bounds = table.symbol_bounds(*symbol);
      if (actual[i] < bounds.lo || actual[i] > bounds.hi)
        return fail(Code::dim_out_of_bounds, "axis {} is {} but '{}' must lie in [{}, {}]", i, actual[i],
                    table.symbol_name(*symbol), bounds.lo, bounds.hi);
      bindings[static_cast<size_t>(*symbol)] = actual[i];
    }
  }
  // Expressions only after all bare symbols of the shape are bound.
  for (size_t i = 0; i < declared.size(); ++i) {
    if (declared[i].is_const()) continue;
    Result<int64_t> expected = table.evaluate(declared[i], bindings);
    if (expected && *expected != actual[i])
      return fail(Code::shape_mismatch, "axis {} is {} but {} is {}", i, actual[i], to_string(declared[i]), *expected);
  }
  return {};
}

// Binds the symbols of a declared type to what a value has, and checks the rest.
Status bind_type(const Context& context, TypeRef type, const RefValue& value, DimBindings& bindings) {
  const auto* held = std::get_if<std::shared_ptr<const Array>>(&value.held);
  if ((held != nullptr) != (type->kind == Kind::tensor || type->kind == Kind::state))
    return fail(Code::dtype_mismatch, "the value is {} but must be {}", held ? "a tensor" : "not a tensor",
                to_string(*type));
  if (held == nullptr) return {};
  const Array& array = **held;
  if (array.dtype != type->dtype)
    return fail(Code::dtype_mismatch, "the element type is {} but must be {}", name(array.dtype), name(type->dtype));
  if (!type->ranked) return {};
  if (array.rank() != type->rank())
    return fail(Code::rank_mismatch, "the shape is [{}] but must be {}", joined(array.shape, ", "),
                to_string(std::span<const Dim>(type->shape)));
  return bind_dims(context, type->shape, array.shape, bindings);
}

Status check_guard(const Graph& graph, const Guard& guard, const DimBindings& bindings) {
  Result<int64_t> a = graph.dims().evaluate(guard.a, bindings);
  Result<int64_t> b = graph.dims().evaluate(guard.b, bindings);
  if (!a || !b) return {};  // not bound (yet)
  bool holds = false;
  std::string_view relation;
  switch (guard.kind) {
    case Guard::Kind::equal:
      holds = *a == *b, relation = "==";
      break;
    case Guard::Kind::not_equal:
      holds = *a != *b, relation = "!=";
      break;
    case Guard::Kind::at_most:
      holds = *a <= *b, relation = "<=";
      break;
    case Guard::Kind::divisible:
      holds = *b != 0 && *a % *b == 0, relation = "divisible by";
      break;
  }
  if (holds) return {};
  return fail(Code::shape_mismatch, "the graph needs {} {} {}, but they are {} and {}", to_string(guard.a), relation,
              to_string(guard.b), *a, *b);
}

// Guards on sizes that nodes make are checked as soon as these are known: what runs next relies on them.
class OpenGuards {
 public:
  explicit OpenGuards(const Graph& graph) : graph_(graph) {
    for (const Guard& guard : graph.guards) open_.push_back(&guard);
  }

  // To be called when sizes may have become known.
  Status check(const DimBindings& bindings) {
    if (open_.empty()) return {};
    const auto known = std::ranges::count_if(bindings, [](const auto& size) { return size.has_value(); });
    if (known == known_) return {};
    known_ = known;
    std::vector<const Guard*> open;
    for (const Guard* guard : open_) {
      TESSERA_TRY(check_guard(graph_, *guard, bindings));
      const DimTable& dims = graph_.dims();
      if (!dims.evaluate(guard->a, bindings) || !dims.evaluate(guard->b, bindings)) open.push_back(guard);
    }
    open_ = std::move(open);
    return {};
  }

 private:
  const Graph& graph_;
  std::vector<const Guard*> open_;
  std::ptrdiff_t known_ = -1;
};

}  // namespace

void Eval::out(Array array) { results.push_back({std::make_shared<const Array>(std::move(array))}); }

Result<int64_t> Eval::evaluate(Dim d) const {
  if (d.is_const()) return d.value();
  if (bindings == nullptr) return fail(Code::shape_invalid, "size {} is not known here", to_string(d));
  return d.table()->evaluate(d, *bindings);
}

Result<Values> Interpreter::run(const Graph& graph, std::span<const RefValue> inputs) const {
  DimBindings bindings(static_cast<size_t>(graph.dims().symbol_count()));
  return run_bound(graph, inputs, std::move(bindings));
}

Result<Values> Interpreter::run_bound(const Graph& graph, std::span<const RefValue> inputs,
                                      DimBindings bindings) const {
  if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed))
    return fail(Code::interrupted, "stopped before graph '{}'", graph.name);
  if (inputs.size() != graph.inputs.size())
    return fail(Code::arity, "graph '{}' takes {} inputs but got {}", graph.name, graph.inputs.size(), inputs.size());
  bindings.resize(static_cast<size_t>(graph.dims().symbol_count()));
  std::vector<RefValue> values(graph.value_count());
  for (size_t i = 0; i < inputs.size(); ++i) {
    Status bound = bind_type(graph.context(), graph.type(graph.inputs[i]), inputs[i], bindings);
    if (!bound)
      return tl::unexpected<Error>(
          std::move(bound.error()).within("reading input " + graph.describe_value(graph.inputs[i])));
    values[graph.inputs[i]] = inputs[i];
  }
  OpenGuards guards(graph);
  TESSERA_TRY(guards.check(bindings));

  std::vector<NodeId> last_use(graph.value_count(), 0);
  for (NodeId n = 0; n < graph.node_count(); ++n)
    for (ValueId v : graph.operands(n))
      if (v != kNoValue) last_use[v] = n;
  for (ValueId v : graph.outputs) last_use[v] = kNoNode;

  for (NodeId n = 0; n < graph.node_count(); ++n) {
    const Node& node = graph.node(n);
    auto in_node = [&](Error error) {
      return tl::unexpected<Error>(std::move(error).within("running " + graph.describe(n)));
    };
    std::vector<const RefValue*> operands;
    for (ValueId v : graph.operands(n)) operands.push_back(v == kNoValue ? nullptr : &values[v]);
    std::vector<TypeRef> types;
    for (int i = 0; i < node.n_results; ++i) types.push_back(graph.type(graph.result(n, i)));
    Result<Values> results =
        run_node(*node.op, *node.attrs, operands, types, graph.regions(n), &graph.context(), &bindings);
    if (!results) return in_node(std::move(results.error()));
    for (int i = 0; i < node.n_results; ++i) {
      Status bound =
          bind_type(graph.context(), types[static_cast<size_t>(i)], (*results)[static_cast<size_t>(i)], bindings);
      if (!bound) return in_node(std::move(bound.error()));
    }
    TESSERA_TRY(guards.check(bindings));
    if (options_.on_node) TESSERA_TRY(options_.on_node(graph, n, *results));
    if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed))
      return fail(Code::interrupted, "stopped after {}", graph.describe(n));
    for (int i = 0; i < node.n_results; ++i) values[graph.result(n, i)] = std::move((*results)[static_cast<size_t>(i)]);
    for (ValueId v : graph.operands(n))
      if (v != kNoValue && last_use[v] == n) values[v] = {};
  }
  Values outputs;
  for (ValueId v : graph.outputs) outputs.push_back(values[v]);
  return outputs;
}

Result<Values> Interpreter::run_region(const Graph& region, std::span<const RefValue> inputs,
                                       const DimBindings* bindings) const {
  return run_bound(region, inputs, bindings ? *bindings : DimBindings());
}

Result<Values> Interpreter::run_node(const OpDef& op, const Attrs& attrs, std::span<const RefValue* const> operands,
                                     std::span<const TypeRef> types, std::span<const Graph> regions, Context* context,
                                     const DimBindings* bindings) const {
  Values results;
  if (op.is_primitive()) {
    TESSERA_CHECK(op.reference != nullptr);
    Eval eval{op, A(op, attrs), operands, regions, context, this, types};
    eval.bindings = bindings;
    TESSERA_TRY(op.reference(eval));
    results = std::move(eval.results);
  } else {
    TESSERA_ASSIGN(results, run_meaning(op, attrs, operands, options_));
  }
  if (!types.empty() && results.size() != types.size())
    return fail(Code::internal, "'{}' made {} results but declares {}", op.name, results.size(), types.size());
  if (!options_.round) return results;
  for (RefValue& value : results) {
    auto* held = std::get_if<std::shared_ptr<const Array>>(&value.held);
    // A result that shares an operand's array is already rounded; the others have this one owner.
    if (held != nullptr && held->use_count() == 1) round_to_dtype(const_cast<Array&>(**held));
  }
  return results;
}

Status check_guards(const Graph& graph, std::span<const RefValue> inputs) {
  DimBindings bindings(static_cast<size_t>(graph.dims().symbol_count()));
  for (size_t i = 0; i < std::min(inputs.size(), graph.inputs.size()); ++i)
    if (!bind_type(graph.context(), graph.type(graph.inputs[i]), inputs[i], bindings)) return {};  // run() reports it
  for (const Guard& guard : graph.guards) TESSERA_TRY(check_guard(graph, guard, bindings));
  return {};
}

std::optional<std::vector<Shape>> fold_dims(const OpDef& op, const Attrs& attrs, std::span<const TypeRef> types,
                                            std::span<const Shape* const> contents, std::span<const TypeRef> results,
                                            Context& context) {
  bool constant = true;
  for (const Shape* elements : contents)
    if (elements != nullptr)
      for (const Dim& d : *elements) constant &= d.is_const();

  std::vector<RefValue> operands;
  std::vector<const RefValue*> pointers;
  operands.reserve(contents.size());
  for (size_t i = 0; i < contents.size(); ++i) {
    if (contents[i] == nullptr) {
      pointers.push_back(nullptr);
      continue;
    }
    Array array{types[i]->dtype, {}, {}};
    for (const Dim& d : types[i]->shape) array.shape.push_back(d.value());
    if (constant) {
      std::vector<Int> data;
      for (const Dim& d : *contents[i]) data.push_back(d.value());
      array.data = std::move(data);
      if (is_unsigned_int(array.dtype)) round_to_dtype(array);  // a u64 past 2^63 is held as a negative Dim
    } else {
      array.data = *contents[i];
    }
    operands.push_back({std::make_shared<const Array>(std::move(array))});
    pointers.push_back(&operands.back());
  }
  Eval eval{op, A(op, attrs), pointers, {}, &context, nullptr, results};
  if (!op.reference(eval)) return std::nullopt;
  std::vector<Shape> folded;
  for (RefValue& value : eval.results) {
    Array array = value.array();
    round_to_dtype(array);
    Shape elements;
    if (const auto* ints = std::get_if<std::vector<Int>>(&array.data)) {
      for (Int v : *ints) elements.emplace_back(static_cast<int64_t>(v));
    } else if (const auto* dims = std::get_if<std::vector<Dim>>(&array.data)) {
      elements = *dims;
    } else {
      return std::nullopt;
    }
    folded.push_back(std::move(elements));
  }
  return folded;
}

Result<RefValue> to_ref(const Value& value) {
  if (const Tensor* tensor = value.tensor()) {
    TESSERA_ASSIGN(Array array, to_array(*tensor));
    return RefValue{std::make_shared<const Array>(std::move(array))};
  }
  if (const Sequence* sequence = value.sequence()) {
    RefValue::List list{sequence->element, {}};
    for (const Value& item : sequence->items) {
      TESSERA_ASSIGN(RefValue ref, to_ref(item));
      list.items.push_back(std::move(ref));
    }
    return RefValue{std::move(list)};
  }
  RefValue::Maybe maybe;
  if (const auto& inner = value.optional()->value) {
    TESSERA_ASSIGN(RefValue ref, to_ref(*inner));
    maybe.value = std::make_shared<const RefValue>(std::move(ref));
  }
  return RefValue{std::move(maybe)};
}

Result<Value> from_ref(const RefValue& value) {
  if (std::holds_alternative<std::shared_ptr<const Array>>(value.held)) {
    TESSERA_ASSIGN(Tensor tensor, to_tensor(value.array()));
    return Value(std::move(tensor));
  }
  if (const auto* list = std::get_if<RefValue::List>(&value.held)) {
    Sequence sequence{list->element, {}};
    for (const RefValue& item : list->items) {
      TESSERA_ASSIGN(Value v, from_ref(item));
      sequence.items.push_back(std::move(v));
    }
    return Value(std::move(sequence));
  }
  Optional optional;
  if (const auto& inner = value.maybe().value) {
    TESSERA_ASSIGN(Value v, from_ref(*inner));
    optional.value = std::make_shared<const Value>(std::move(v));
  }
  return Value(std::move(optional));
}

}  // namespace tessera::ir
