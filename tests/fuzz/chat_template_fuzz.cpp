// Reads bytes as a chat template, and renders a conversation with it.
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera::text;
  static const Value context = *Value::parse_json(
      R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " H\u00e9 <x> "},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.5}}}]}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
          "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 3, "items": [1, 2, 3]})");
  const auto parsed = ChatTemplate::parse({reinterpret_cast<const char*>(data), size});
  if (!parsed) return 0;
  static_cast<void>(parsed->render(context, {.now = 1700000000, .max_steps = 100'000, .max_output = 1 << 20}));
  return 0;
}
