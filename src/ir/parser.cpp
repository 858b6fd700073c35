#include "ir/parser.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/core_ops.h"
#include "ir/text_reader.h"
#include "ir/verifier.h"

namespace tessera::ir {
namespace {

constexpr size_t kMaxList = UINT16_MAX;  // operands, results and nested graphs of a node, inputs of a graph

// What the parsers of a graph and of the graphs in it share.
struct Source {
  TextReader reader;
  const OpFinder& find_op;
  const ParseOptions& options;
  size_t uniform_bytes_left;
  std::vector<const Graph*> open = {};  // the graphs around the one being parsed, outermost first
};

class GraphParser {
 public:
  GraphParser(Source& source, std::shared_ptr<Context> context)
      : source_(source), reader_(source.reader), lexer_(source.reader.lexer), graph_(std::move(context)) {}

  Result<Graph> parse() {
    if (source_.open.size() >= static_cast<size_t>(source_.options.max_depth))
      return fail_here(fmt::format("graphs are nested more than {} deep", source_.open.size()));
    TESSERA_TRY(reader_.expect("graph"));
    TESSERA_ASSIGN(graph_.name, reader_.optional_string());
    TESSERA_TRY(reader_.expect("{"));
    while (!lexer_.accept("}")) TESSERA_TRY(statement());
    return std::move(graph_);
  }

 private:
  // "%1 "name": f32[4] is [...]": an input, or a result of a node.
  struct Definition {
    Token label;
    std::string name;
    TypeRef type;
    std::optional<Shape> contents;
  };

  Context& context() { return graph_.context(); }
  tl::unexpected<Error> fail_here(std::string_view message) { return lexer_.fail_at(lexer_.peek().begin, message); }

  Status statement() {
    if (lexer_.peek().kind == TokenKind::label || lexer_.at("_")) return node();
    if (lexer_.accept("in")) return input();
    if (lexer_.accept("out")) return output();
    if (lexer_.accept("guard")) return guard();
    if (lexer_.accept("dim")) return dim();
    return lexer_.expected("'dim', 'guard', 'in', 'out', a value or '}'");
  }

  Status dim() {
    Token at = lexer_.peek();
    if (!source_.open.empty() || graph_.value_count() > 0 || !graph_.guards.empty())
      return fail_here("sizes are declared at the start of the outermost graph");
    std::string name;
    if (at.kind == TokenKind::word) {
      name = lexer_.take().text;
    } else {
      TESSERA_ASSIGN(name, reader_.string());
    }
    if (name.empty()) return lexer_.fail_at(at.begin, "a size has an empty name");
    DimBounds bounds{0, INT64_MAX};
    // An input may follow instead: "in %0".
    if (lexer_.at_followed_by("in", '[')) {
      lexer_.take();
      TESSERA_TRY(reader_.expect("["));
      TESSERA_ASSIGN(bounds.lo, reader_.bound());
      TESSERA_TRY(reader_.expect(","));
      TESSERA_ASSIGN(bounds.hi, reader_.bound());
      TESSERA_TRY(reader_.expect("]"));
    }
    DimTable& dims = context().dims();
    if (dims.find(name))
      return lexer_.fail_at(at.begin, fmt::format("the size '{}' is declared twice", name), Code::duplicate_name);
    if (bounds.lo > bounds.hi)
      return lexer_.fail_at(at.begin, fmt::format("'{}' has no value in [{}, {}]", name, bounds.lo, bounds.hi),
                            Code::shape_invalid);
    dims.fresh(name, bounds);
    return {};
  }

  Status guard() {
    Guard made{};
    TESSERA_ASSIGN(made.a, reader_.size());
    if (lexer_.accept("==")) {
      made.kind = Guard::Kind::equal;
    } else if (lexer_.accept("!=")) {
      made.kind = Guard::Kind::not_equal;
    } else if (lexer_.accept("<=")) {
      made.kind = Guard::Kind::at_most;
    } else if (lexer_.accept("%")) {
      made.kind = Guard::Kind::divisible;
    } else {
      return lexer_.expected("'==', '!=', '<=' or '%'");
    }
    TESSERA_ASSIGN(made.b, reader_.size());
    if (made.kind == Guard::Kind::divisible) {
      TESSERA_TRY(reader_.expect("=="));
      if (lexer_.peek().text != "0") return lexer_.expected("'0', as in 'a % b == 0'");
      lexer_.take();
    }
    TESSERA_ASSIGN(made.location, reader_.location());
    graph_.guards.push_back(made);
    return {};
  }

  Status input() {
    if (graph_.node_count() > 0) return fail_here("the inputs stand before the nodes");
    if (graph_.inputs.size() >= kMaxList) return fail_here(fmt::format("a graph has more than {} inputs", kMaxList));
    TESSERA_ASSIGN(Definition made, definition());
    return bind(made, graph_.add_input(made.type, made.name));
  }

  Status output() {
    TESSERA_ASSIGN(ValueId value, use());
    TESSERA_ASSIGN(std::string name, reader_.optional_string());
    graph_.outputs.push_back(value);
    graph_.output_names.push_back(context().name(name));
    return {};
  }

  Result<Definition> definition() {
    Definition made{};
    if (lexer_.peek().kind != TokenKind::label) return lexer_.expected("a value, such as %1");
    made.label = lexer_.take();
    TESSERA_ASSIGN(made.name, reader_.optional_string());
    TESSERA_TRY(reader_.expect(":"));
    TESSERA_ASSIGN(made.type, reader_.type());
    if (lexer_.accept("is")) {
      TESSERA_ASSIGN(made.contents, reader_.sizes());
    }
    return made;
  }

  Status bind(Definition& made, ValueId value) {
    if (!labels_.emplace(made.label.text, value).second)
      return lexer_.fail_at(made.label.begin, fmt::format("%{} is defined twice", made.label.text),
                            Code::duplicate_name);
    graph_.set_name(value, made.name);
    if (made.contents) graph_.contents.emplace(value, std::move(*made.contents));
    return {};
  }

  Result<ValueId> use() {
    Token token = lexer_.peek();
    if (token.kind != TokenKind::label) return lexer_.expected("a value, such as %1");
    auto found = labels_.find(token.text);
    if (found == labels_.end())
      return lexer_.fail_at(token.begin, fmt::format("%{} is not defined before its use", token.text),
                            Code::unknown_name);
    lexer_.take();
    return found->second;
  }

  Status node() {
    size_t begin = lexer_.peek().begin;
    std::vector<Definition> results;
    if (!lexer_.accept("_")) {
      do {
        TESSERA_ASSIGN(Definition made, definition());
        results.push_back(std::move(made));
      } while (lexer_.accept(","));
    }
    TESSERA_TRY(reader_.expect("="));

    if (lexer_.peek().kind != TokenKind::word) return lexer_.expected("the name of an operator");
    Token word = lexer_.take();
    const OpDef* op = source_.find_op(word.text);
    if (op == nullptr)
      return lexer_.fail_at(word.begin, fmt::format("there is no operator '{}'", word.text), Code::unsupported_op);

    std::vector<ValueId> operands;
    if (lexer_.accept("(")) TESSERA_TRY(reader_.list(")", [&] { return operand(operands); }));
    AttrsRef attributes = nullptr;
    std::vector<Graph> regions;
    if (op == &core::constant) {
      TESSERA_ASSIGN(attributes, constant(results, word.begin));
    } else {
      TESSERA_ASSIGN(attributes, braces(*op, regions, word.begin));
    }
    TESSERA_ASSIGN(LocId where, reader_.location());

    if (std::max({results.size(), operands.size(), regions.size()}) > kMaxList)
      return lexer_.fail_at(begin, fmt::format("a node has more than {} results, operands or graphs", kMaxList));
    std::vector<TypeRef> types;
    for (const Definition& made : results) types.push_back(made.type);
    NodeId id = graph_.add_node(*op, operands, attributes, types, where, std::move(regions));
    for (size_t i = 0; i < results.size(); ++i) TESSERA_TRY(bind(results[i], graph_.result(id, static_cast<int>(i))));
    return check(id, begin);
  }

  // The nodes of the graphs in it were checked when they were read.
  Status check(NodeId id, size_t begin) {
    if (!source_.options.verify) return {};
    VerifyOptions only;
    only.nodes = std::span<const NodeId>(&id, 1);
    only.outer = source_.open;
    only.nested = false;
    if (Status status = verify(graph_, only); !status)
      return tl::unexpected<Error>(std::move(status).error().within("reading " + lexer_.position(begin)));
    return {};
  }

  Status operand(std::vector<ValueId>& operands) {
    if (lexer_.accept("_")) {
      operands.push_back(kNoValue);
      return {};
    }
    TESSERA_ASSIGN(ValueId value, use());
    operands.push_back(value);
    return {};
  }

  Result<AttrsRef> constant(const std::vector<Definition>& results, size_t at) {
    if (results.size() != 1 || !results[0].type->is_tensor() || !results[0].type->ranked)
      return lexer_.fail_at(at, "a constant has one result, a tensor of known shape");
    const Type& type = *results[0].type;
    Dims shape;
    for (Dim d : type.shape) {
      if (!d.is_const()) return lexer_.fail_at(at, fmt::format("the size {} of a constant is no number", to_string(d)));
      shape.push_back(d.value());
    }
    TESSERA_ASSIGN(Tensor tensor,
                   read_constant(reader_, type.dtype, shape, source_.uniform_bytes_left, source_.options.load));
    return context().attrs(Attrs{{static_cast<int64_t>(context().constant(std::move(tensor)))}});
  }

  // "{axis = 0}" and "{ graph ... }".
  Result<AttrsRef> braces(const OpDef& op, std::vector<Graph>& regions, size_t at) {
    std::vector<std::optional<AttrValue>> values(static_cast<size_t>(op.attrs.size()));
    while (lexer_.accept("{")) {
      if (lexer_.at("graph")) {
        source_.open.push_back(&graph_);
        while (!lexer_.accept("}")) {
          TESSERA_ASSIGN(Graph region, GraphParser(source_, graph_.shared_context()).parse());
          regions.push_back(std::move(region));
        }
        source_.open.pop_back();
      } else {
        TESSERA_TRY(reader_.list("}", [&] { return attribute(op, values); }));
      }
    }
    Attrs made;
    for (int i = 0; i < op.attrs.size(); ++i) {
      const AttrSpec& spec = op.attrs[i];
      std::optional<AttrValue>& value = values[static_cast<size_t>(i)];
      if (!value && spec.required)
        return lexer_.fail_at(at, fmt::format("{} needs the attribute '{}'", op.name, spec.name),
                              Code::attribute_invalid);
      made.values.push_back(value ? std::move(*value) : default_value(spec));
    }
    return context().attrs(std::move(made));
  }

  Status attribute(const OpDef& op, std::vector<std::optional<AttrValue>>& values) {
    if (lexer_.peek().kind != TokenKind::word) return lexer_.expected("the name of an attribute");
    Token name = lexer_.take();
    int index = op.attrs.find(name.text);
    if (index < 0)
      return lexer_.fail_at(name.begin, fmt::format("{} has no attribute '{}'", op.name, name.text),
                            Code::attribute_invalid);
    std::optional<AttrValue>& value = values[static_cast<size_t>(index)];
    if (value) return lexer_.fail_at(name.begin, fmt::format("the attribute '{}' is given twice", name.text));
    TESSERA_TRY(reader_.expect("="));
    TESSERA_ASSIGN(value, attribute_value(op.attrs[index]));
    return {};
  }

  Result<AttrValue> attribute_value(const AttrSpec& spec) {
    switch (spec.kind) {
      case AttrKind::integer:
        return reader_.integer().map(as_attribute);
      case AttrKind::real:
        return reader_.real().map(as_attribute);
      case AttrKind::integers:
        return reader_.integers().map(as_attribute);
      case AttrKind::dims:
        return reader_.sizes().map(as_attribute);
      case AttrKind::view:
        return reader_.view().map(as_attribute);
      case AttrKind::boolean:
        if (lexer_.accept("true")) return int64_t{1};
        if (lexer_.accept("false")) return int64_t{0};
        return lexer_.expected("'true' or 'false'");
      case AttrKind::dtype: {
        DType dtype;
        if (lexer_.peek().kind != TokenKind::word || !parse_dtype(lexer_.peek().text, dtype))
          return lexer_.expected("an element type");
        lexer_.take();
        return static_cast<int64_t>(dtype);
      }
      case AttrKind::word:
        break;
    }
    int64_t index = lexer_.peek().kind == TokenKind::word ? word_index(spec.words, lexer_.peek().text) : -1;
    if (index < 0) return lexer_.expected(fmt::format("one of {}", spec.words));
    lexer_.take();
    return index;
  }

  static constexpr auto as_attribute = [](auto&& value) { return AttrValue(std::move(value)); };

  Source& source_;
  TextReader& reader_;
  Lexer& lexer_;
  Graph graph_;
  std::unordered_map<std::string_view, ValueId> labels_;
};

}  // namespace

Result<Graph> parse_graph(std::string_view text, const OpFinder& find_op, const ParseOptions& options) {
  // Ids have 32 bits, and every value and operand takes at least two bytes.
  if (text.size() > UINT32_MAX)
    return fail(Code::text_syntax, "{} bytes of graph text are more than 4 GiB", text.size());
  auto context = std::make_shared<Context>();
  Source source{TextReader(text, *context, options.max_depth), find_op, options, options.max_uniform_bytes};
  TESSERA_ASSIGN(Graph graph, GraphParser(source, context).parse());
  if (source.reader.lexer.peek().kind != TokenKind::end) return source.reader.lexer.expected("the end of the text");
  if (options.verify) TESSERA_TRY(verify_structure(graph));
  return graph;
}

}  // namespace tessera::ir
