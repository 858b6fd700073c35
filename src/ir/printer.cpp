#include "ir/printer.h"

#include <fmt/format.h>

#include <bit>
#include <unordered_map>
#include <unordered_set>

#include "base/result.h"
#include "base/strings.h"
#include "ir/core_ops.h"
#include "ir/literal.h"
#include "ir/op_def.h"

namespace tessera::ir {
namespace {

// Collects the symbols that a graph and the graphs in it mention.
class SymbolCollector {
 public:
  explicit SymbolCollector(const DimTable& dims)
      : dims_(dims), used_(static_cast<size_t>(dims.symbol_count()), false) {}

  void add(const Graph& graph) {
    for (ValueId v = 0; v < graph.value_count(); ++v) add(graph.type(v));
    for (NodeId n = 0; n < graph.node_count(); ++n) {
      if (const Attrs* attrs = graph.node(n).attrs; attrs != nullptr && attrs_.insert(attrs).second)
        for (const AttrValue& value : attrs->values) add(value);
      for (const Graph& region : graph.regions(n)) add(region);
    }
    for (const Guard& guard : graph.guards) add(guard.a), add(guard.b);
    for (const auto& [value, elements] : graph.contents) add(elements);
  }
  const std::vector<bool>& used() const { return used_; }

 private:
  void add(Dim d) {
    if (d.is_const() || !seen_.insert(d).second) return;
    for (int symbol : dims_.symbols_of(d)) used_[static_cast<size_t>(symbol)] = true;
  }
  void add(const Shape& shape) {
    for (Dim d : shape) add(d);
  }
  void add(TypeRef type) {
    if (type == nullptr || !types_.insert(type).second) return;
    add(type->shape);
    add(type->element);
  }
  void add(const AttrValue& value) {
    if (const auto* shape = std::get_if<Shape>(&value)) add(*shape);
    if (const auto* view = std::get_if<View>(&value)) {
      add(view->offsets);
      for (const auto& axis : view->axes)
        for (const ViewAtom& atom : axis) add(atom.stride), add(atom.size);
    }
  }

  const DimTable& dims_;
  std::vector<bool> used_;
  std::unordered_set<Dim> seen_;
  std::unordered_set<TypeRef> types_;
  std::unordered_set<const Attrs*> attrs_;
};

bool is_default(const AttrSpec& spec, const AttrValue& value) {
  if (spec.required) return false;
  // -0 is another number than 0, and NaN is itself.
  if (const auto* r = std::get_if<double>(&value))
    return std::bit_cast<uint64_t>(*r) == std::bit_cast<uint64_t>(spec.real_default);
  return value == default_value(spec);
}

std::string value_text(const AttrSpec& spec, const AttrValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) {
    if (spec.kind == AttrKind::boolean && (*i == 0 || *i == 1)) return *i ? "true" : "false";
    if (spec.kind == AttrKind::dtype && *i >= 0 && *i < kDTypeCount) return std::string(name(static_cast<DType>(*i)));
    if (spec.kind == AttrKind::word && !word_at(spec.words, *i).empty()) return std::string(word_at(spec.words, *i));
    return fmt::format("{}", *i);
  }
  if (const auto* r = std::get_if<double>(&value)) {
    std::string text;
    append_real(text, *r);
    return text;
  }
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) return fmt::format("[{}]", joined(*list, ", "));
  if (const auto* shape = std::get_if<Shape>(&value)) return to_string(std::span<const Dim>(*shape));
  return to_string(std::get<View>(value));
}

class Printer {
 public:
  Printer(const Graph& graph, const PrintOptions& options) : graph_(graph), options_(options) {}

  std::string take() { return std::move(out_); }

  // `root`: with the sizes that the whole text declares.
  void print(bool root, int depth) {
    number_values();
    indent_ = static_cast<size_t>(depth) * 2;
    line("graph ");
    if (!graph_.name.empty()) append_quoted(out_, graph_.name), out_ += ' ';
    out_ += "{\n";
    indent_ += 2;
    if (root) print_symbols();
    for (const Guard& guard : graph_.guards) print_guard(guard);
    for (ValueId v : graph_.inputs) {
      line("in ");
      print_definition(v);
      out_ += '\n';
    }
    for (NodeId n = 0; n < graph_.node_count(); ++n) {
      line("");
      print_node(n, depth);
      out_ += '\n';
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      line("out ");
      print_use(graph_.outputs[i]);
      if (i < graph_.output_names.size()) print_name(graph_.output_names[i]);
      out_ += '\n';
    }
    indent_ -= 2;
    line("}");
    if (root) out_ += '\n';
  }

  void print_alone(NodeId n) {
    numbers_.resize(graph_.value_count());
    for (ValueId v = 0; v < numbers_.size(); ++v) numbers_[v] = v;
    regions_ = false;
    print_node(n, 0);
  }

 private:
  void line(std::string_view text) {
    out_.append(indent_, ' ');
    out_ += text;
  }
  template <class... A>
  void append(fmt::format_string<A...> format, A&&... args) {
    out_ += fmt::format(format, std::forward<A>(args)...);
  }

  void number_values() {
    numbers_.assign(graph_.value_count(), kNoValue);
    uint32_t next = 0;
    for (ValueId v : graph_.inputs)
      if (v < numbers_.size()) numbers_[v] = next++;
    for (NodeId n = 0; n < graph_.node_count(); ++n)
      for (uint16_t i = 0; i < graph_.node(n).n_results; ++i) numbers_[graph_.result(n, i)] = next++;
  }

  void print_symbols() {
    const DimTable& dims = graph_.dims();
    SymbolCollector symbols(dims);
    symbols.add(graph_);
    for (size_t i = 0; i < symbols.used().size(); ++i) {
      if (!symbols.used()[i]) continue;
      line("dim ");
      std::string_view name = dims.symbol_name(static_cast<int>(i));
      if (is_word(name)) {
        out_ += name;
      } else {
        append_quoted(out_, name);
      }
      DimBounds bounds = dims.symbol_bounds(static_cast<int>(i));
      if (bounds.lo != 0 || bounds.hi != INT64_MAX)
        append(" in [{}, {}]", bounds.lo == INT64_MIN ? "-inf" : fmt::format("{}", bounds.lo),
               bounds.hi == INT64_MAX ? "inf" : fmt::format("{}", bounds.hi));
      out_ += '\n';
    }
  }

  void print_guard(const Guard& guard) {
    line("guard ");
    out_ += to_string(guard.a);
    switch (guard.kind) {
      case Guard::Kind::equal:
        out_ += " == ";
        break;
      case Guard::Kind::not_equal:
        out_ += " != ";
        break;
      case Guard::Kind::at_most:
        out_ += " <= ";
        break;
      case Guard::Kind::divisible:
        out_ += " % ";
        break;
    }
    out_ += to_string(guard.b);
    if (guard.kind == Guard::Kind::divisible) out_ += " == 0";
    print_location(guard.location);
    out_ += '\n';
  }

  void print_use(ValueId v) {
    if (v == kNoValue) {
      out_ += '_';
    } else if (v >= numbers_.size() || numbers_[v] == kNoValue) {
      out_ += "%?";
    } else {
      append("%{}", numbers_[v]);
    }
  }

  void print_name(NameId name) {
    if (name == 0) return;
    out_ += ' ';
    append_quoted(out_, graph_.context().text(name));
  }

  void print_definition(ValueId v) {
    print_use(v);
    if (v >= graph_.value_count()) return;
    print_name(graph_.value(v).name);
    out_ += ": ";
    out_ += type_text(graph_.type(v));
    auto known = graph_.contents.find(v);
    if (known == graph_.contents.end()) return;
    out_ += " is ";
    out_ += to_string(std::span<const Dim>(known->second));
  }

  const std::string& type_text(TypeRef type) {
    std::string& text = type_texts_[type];
    if (text.empty()) text = type != nullptr ? to_string(*type) : "?";
    return text;
  }

  void print_node(NodeId n, int depth) {
    const Node& node = graph_.node(n);
    if (node.n_results == 0) out_ += '_';
    for (int i = 0; i < node.n_results; ++i) {
      if (i > 0) out_ += ", ";
      print_definition(graph_.result(n, i));
    }
    out_ += " = ";
    out_ += node.op->name;
    if (node.n_operands > 0) {
      out_ += '(';
      for (int i = 0; i < node.n_operands; ++i) {
        if (i > 0) out_ += ", ";
        print_use(graph_.operands(n)[static_cast<size_t>(i)]);
      }
      out_ += ')';
    }
    if (const Tensor* tensor = constant_of(node)) {
      print_constant(*tensor);
    } else {
      print_attrs(node);
    }
    if (node.n_regions > 0 && regions_) print_regions(n, depth);
    print_location(node.location);
  }

  const Tensor* constant_of(const Node& node) const {
    if (node.op != &core::constant || node.attrs == nullptr || node.attrs->values.size() != 1) return nullptr;
    const auto* id = std::get_if<int64_t>(&node.attrs->values[0]);
    if (id == nullptr || *id < 0 || static_cast<size_t>(*id) >= graph_.context().constant_count()) return nullptr;
    return &graph_.context().constant(static_cast<uint32_t>(*id));
  }

  void print_constant(const Tensor& tensor) {
    if (is_uniform(tensor)) {
      out_ += " all ";
      append_element(out_, tensor, 0);
      return;
    }
    // Strings have no bytes to refer to.
    bool refers = options_.external && tensor.dtype() != DType::string;
    const int64_t count = literal_count(tensor);
    if (count > options_.max_inline && (refers || !options_.external)) {
      std::optional<ExternalData> data = refers ? options_.external(tensor) : std::nullopt;
      if (data) {
        out_ += " file ";
        append_quoted(out_, data->file);
        append(" offset {} length {}", data->offset, data->length);
      } else {
        append(" elided {} bytes", tensor.bytes());
      }
      return;
    }
    out_ += " [";
    for (int64_t i = 0; i < count; ++i) {
      if (i > 0) out_ += ", ";
      append_element(out_, tensor, i);
    }
    out_ += ']';
  }

  void print_attrs(const Node& node) {
    if (node.attrs == nullptr) return;
    bool first = true;
    const auto& values = node.attrs->values;
    for (size_t i = 0; i < values.size() && static_cast<int>(i) < node.op->attrs.size(); ++i) {
      const AttrSpec& spec = node.op->attrs[static_cast<int>(i)];
      if (is_default(spec, values[i])) continue;
      append("{}{} = {}", first ? " {" : ", ", spec.name, value_text(spec, values[i]));
      first = false;
    }
    if (!first) out_ += '}';
  }

  void print_regions(NodeId n, int depth) {
    out_ += " {\n";
    for (const Graph& region : graph_.regions(n)) {
      Printer nested(region, options_);
      nested.print(false, depth + 2);
      out_ += nested.out_;
      out_ += '\n';
    }
    line("}");
  }

  void print_location(LocId id) {
    if (!options_.locations) return;
    for (LocId one : graph_.context().covered(id)) print_place(graph_.context().location(one));
  }
  void print_place(const Location& location) {
    if (location == Location()) return;
    out_ += " @";
    if (location.node != 0 || location.op_type != 0) {
      out_ += ' ';
      append_quoted(out_, graph_.context().text(location.node));
    }
    if (std::string_view word = graph_.context().text(location.op_type); is_word(word) && !is_reserved(word)) {
      out_ += ' ';
      out_ += word;
    } else {
      print_name(location.op_type);
    }
    append(" #{}", location.index);
  }

  const Graph& graph_;
  const PrintOptions& options_;
  std::string out_;
  size_t indent_ = 0;
  bool regions_ = true;
  std::vector<uint32_t> numbers_;  // by value id
  std::unordered_map<TypeRef, std::string> type_texts_;
};

}  // namespace

std::string print(const Graph& graph, const PrintOptions& options) {
  Printer printer(graph, options);
  printer.print(true, 0);
  return printer.take();
}

std::string print_node(const Graph& graph, NodeId node) {
  PrintOptions options = PrintOptions::display();
  Printer printer(graph, options);
  printer.print_alone(node);
  return printer.take();
}

}  // namespace tessera::ir
