// The interpreter of templates: statements in jinja_render.cpp, expressions in jinja_eval.cpp.
#pragma once

#include <algorithm>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/jinja.h"

namespace tessera::text {

using Scope = std::vector<std::pair<std::string, Value>>;

// What a macro's name stands for; `native` is a function of ours instead.
struct Macro {
  const JinjaNode* node = nullptr;
  std::string native = {};
  std::shared_ptr<const std::vector<Scope>> seen = {};  // of a call's block: the variables where it stands
};

class JinjaRenderer {
 public:
  JinjaRenderer(std::string_view source, const RenderOptions& options) : source_(source), options_(options) {}
  Result<std::string> run(const JinjaNode& root, const Value& context);

 private:
  static constexpr std::string_view kTooDeep = "a list or mapping nests too deep, or holds a namespace";
  static constexpr int kMaxDepth = 400;  // of evaluations in each other: expressions nest 200, macros call macros
  enum class Flow : uint8_t { on, break_, continue_ };

  tl::unexpected<Error> bad(const JinjaNode& node, std::string_view what, Code code = Code::template_failed) const {
    return fail(code, "{}", at_line(source_, node.line, what));
  }
  // Errors of filters and methods get the line.
  template <class T>
  Result<T> located(const JinjaNode& node, Result<T> result) const {
    if (!result) return bad(node, result.error().message, result.error().code);
    return result;
  }
  Status charge(const JinjaNode& node, uint64_t steps) {
    steps_ += std::min(steps, options_.max_steps + 1);
    if (steps_ > options_.max_steps) return bad(node, "the template runs too long", Code::iteration_limit);
    return {};
  }
  Value look_up(std::string_view name);
  void assign(const std::string& name, Value value);

  Result<Flow> block(const JinjaNode& node, std::string& out);
  Result<Flow> statement(const JinjaNode& node, std::string& out);
  Result<Flow> loop(const JinjaNode& node, std::string& out);
  Status set(const JinjaNode& node);
  Status spread(const JinjaNode& node, Arguments& out);
  Status unpack(const JinjaNode& node, const Value& value, Scope& scope) const;
  Result<Value> evaluate(const JinjaNode& node);
  Result<Value> evaluate_plain(const JinjaNode& node);
  Result<Value> binary(const JinjaNode& node);
  Result<Value> compute(const JinjaNode& node, const Value& left, const Value& right);
  Result<bool> contains(const JinjaNode& node, const Value& value, const Value& in) const;
  Result<Value> item(const JinjaNode& node);
  Result<Value> slice(const JinjaNode& node);
  Result<Value> invoke(const JinjaNode& node, const JinjaNode* caller);
  Result<Value> call(const JinjaNode& node, const Value& value, const Arguments& given, const JinjaNode* caller);
  Result<Value> macro_body(const JinjaNode& macro);
  Result<Value> run_macro(const JinjaNode& node, const Macro& macro, const Arguments& arguments,
                          const JinjaNode* caller);
  Result<Value> native(const JinjaNode& node, std::string_view name, const Arguments& arguments);
  Result<Arguments> arguments(const JinjaNode& node, size_t first);

  std::string_view source_;
  RenderOptions options_;
  std::vector<Scope> scopes_;
  uint64_t steps_ = 0;
  int depth_ = 0;
};

}  // namespace tessera::text
