// The inside of chat templates: tokens and the tree. Included only by sources of this folder.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/value.h"

namespace tessera::text {

// Counts nesting while it lives.
class Deeper {
 public:
  explicit Deeper(int& depth) : depth_(depth) { ++depth_; }
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  int& depth_;
};

struct JinjaToken {
  // text: between tags; begin, end: of a statement; open, close: of an expression; op: all punctuation.
  enum class Kind : uint8_t { text, begin, end, open, close, name, string, integer, real, op, stop };
  Kind kind;
  std::string text;
  uint32_t line;
};
// E0208 with the line of an open tag or string.
Result<std::vector<JinjaToken>> lex_jinja(std::string_view source);

struct JinjaNode {
  enum class Kind : uint8_t {
    block,
    text,
    output,  // children: statements; -; expression
    if_,
    for_,
    set,
    macro,
    call,
    with,
    do_,
    break_,
    continue_,  // see the parser
    literal,
    name,
    list,
    dict,
    attribute,
    item,
    slice,
    invoke,
    keyword,
    spread,
    filter,
    test,
    unary,
    binary,
    choice
  };
  JinjaNode() = default;
  // Not by recursion: chains as a.b.c make trees as deep as they are long.
  ~JinjaNode();
  Kind kind = Kind::block;
  uint32_t line = 0;
  std::string text;                                  // a name, operator or text
  Value value;                                       // of literals
  std::vector<std::unique_ptr<JinjaNode>> children;  // may be null where a part is absent
  std::vector<std::string> names;                    // loop variables, parameters
};
using JinjaPtr = std::unique_ptr<JinjaNode>;

Result<JinjaPtr> parse_jinja(std::string_view source);

// "line 3: what happened: '{% the line %}'"
std::string at_line(std::string_view source, uint32_t line, std::string_view what);

// Whether there is a filter or test of this name.
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

// Arguments by place, then by name.
struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;
  // The argument at a place or of a name, or undefined.
  Value get(size_t place, std::string_view name) const;
};
// What applying a filter or method costs, in the units of Value::weight(): the time it takes, and what it writes.
uint64_t cost_of(std::string_view name, const Value& value, const Arguments& arguments);

// E0507 without a line: the caller adds it.
Result<Value> apply_filter(std::string_view name, const Value& value, const Arguments& arguments);
Result<bool> apply_test(std::string_view name, const Value& value, const Arguments& arguments);
Result<Value> call_method(const Value& object, std::string_view name, const Arguments& arguments);
std::string format_time(std::string_view format, int64_t seconds);

}  // namespace tessera::text
