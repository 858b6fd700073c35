// Chat templates: the part of Jinja that tokenizer_config.json and GGUF files use, with trim_blocks and lstrip_blocks
// as Hugging Face renders them. What prints none or undefined prints nothing; true prints "true".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "text/value.h"

namespace tessera::text {

struct JinjaNode;

struct RenderOptions {
  int64_t now = 0;                       // seconds since 1970, for strftime_now; 0: the clock's
  uint64_t max_steps = 4'000'000;        // evaluated nodes; strings and lists count by their size
  size_t max_output = size_t{64} << 20;  // bytes
};

class ChatTemplate {
 public:
  // E0208 for what does not parse or is no part of this Jinja, showing its line.
  static Result<ChatTemplate> parse(std::string_view source);
  // `context` is a dict: messages, tools, add_generation_prompt, bos_token, eos_token ... E0507 when the template
  // raises an error or meets a value it cannot use, showing the line; E0506 past the limits.
  Result<std::string> render(const Value& context, const RenderOptions& options = {}) const;

 private:
  std::shared_ptr<const JinjaNode> root_;
  std::shared_ptr<const std::string> source_;
};

}  // namespace tessera::text
