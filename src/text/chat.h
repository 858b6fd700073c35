// Conversations as the tokens that a model was trained on: its chat template over its tokenizer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tessera::text {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

struct ChatContext {
  bool add_generation_prompt = true;  // ends where the assistant begins to speak
  Value tools;                        // a list as the template takes it, or undefined
  ValueDict more;                     // other variables of the template: "enable_thinking"
};

class Chat {
 public:
  // The tokenizer's template of this name, or its first where there is none of it. E0402 when it has none at all; a
  // template that does not parse: E0208 with the line.
  static Result<Chat> make(Tokenizer tokenizer, std::string_view name = "default");
  // With a template of one's own.
  static Result<Chat> with_template(Tokenizer tokenizer, std::string_view source);

  // The conversation as text. E0507 with the template's line when it refuses: many take no system message.
  Result<std::string> render(const std::vector<ChatMessage>& messages, const ChatContext& context = {}) const;
  // `messages` are a list of dicts, with whatever else the template reads (tool_calls, parts of content).
  Result<std::string> render(const Value& messages, const ChatContext& context = {}) const;
  // And its tokens. The template writes the special tokens, so that no frame is added.
  Result<std::vector<TokenId>> encode(const std::vector<ChatMessage>& messages, const ChatContext& context = {}) const;

  // Tokens that end what the assistant says: the model's end of text, and the marks by which templates end a turn.
  const std::vector<TokenId>& end_tokens() const { return end_tokens_; }

 private:
  Chat(Tokenizer tokenizer, ChatTemplate chat_template);

  Tokenizer tokenizer_;
  ChatTemplate template_;
  std::vector<TokenId> end_tokens_;
};

}  // namespace tessera::text
