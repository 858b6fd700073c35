#include "text/chat.h"

#include <algorithm>

#include "base/result.h"

namespace tessera::text {
namespace {

// Marks of a turn's end, where a model's files name only the end of a text.
constexpr std::string_view kTurnEnds[] = {"<|im_end|>",      "<|eot_id|>",     "<|eom_id|>",
                                          "<end_of_turn>",   "<|end|>",        "<|return|>",
                                          "<|end_of_text|>", "<|endoftext|>",  "<|END_OF_TURN_TOKEN|>",
                                          "<EOT>",           "<|end_of_role|>"};

}  // namespace

Chat::Chat(Tokenizer tokenizer, ChatTemplate chat_template)
    : tokenizer_(std::move(tokenizer)), template_(std::move(chat_template)) {
  const SpecialTokens& special = tokenizer_.special();
  if (special.eos) end_tokens_.push_back(*special.eos);
  end_tokens_.insert(end_tokens_.end(), special.end_of_turn.begin(), special.end_of_turn.end());
  for (std::string_view mark : kTurnEnds)
    if (const auto id = tokenizer_.find(mark); id && tokenizer_.is_special(*id)) end_tokens_.push_back(*id);
  std::sort(end_tokens_.begin(), end_tokens_.end());
  end_tokens_.erase(std::unique(end_tokens_.begin(), end_tokens_.end()), end_tokens_.end());
}

Result<Chat> Chat::make(Tokenizer tokenizer, std::string_view name) {
  const std::vector<NamedTemplate>& all = tokenizer.chat_templates();
  if (all.empty()) return fail(Code::unsupported_feature, "the model's files have no chat template");
  const auto named = std::find_if(all.begin(), all.end(), [&](const NamedTemplate& t) { return t.name == name; });
  return with_template(tokenizer, named != all.end() ? named->source : all.front().source);
}

Result<Chat> Chat::with_template(Tokenizer tokenizer, std::string_view source) {
  Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  if (!parsed) return tl::unexpected<Error>(std::move(parsed).error().within("reading the chat template"));
  return Chat(std::move(tokenizer), std::move(*parsed));
}

Result<std::string> Chat::render(const std::vector<ChatMessage>& messages, const ChatContext& context) const {
  ValueList list;
  for (const ChatMessage& message : messages)
    list.push_back(Value::dict({{"role", Value(message.role)}, {"content", Value(message.content)}}));
  return render(Value::list(std::move(list)), context);
}

Result<std::string> Chat::render(const Value& messages, const ChatContext& context) const {
  ValueDict variables = context.more;
  variables.emplace_back("messages", messages);
  variables.emplace_back("add_generation_prompt", context.add_generation_prompt);
  if (!context.tools.is_undefined()) variables.emplace_back("tools", context.tools);
  const SpecialTokens& special = tokenizer_.special();
  for (const auto& [name, id] :
       {std::pair("bos_token", special.bos), std::pair("eos_token", special.eos), std::pair("unk_token", special.unk),
        std::pair("pad_token", special.pad), std::pair("cls_token", special.cls), std::pair("sep_token", special.sep)})
    if (id) variables.emplace_back(name, tokenizer_.token(*id));
  Result<std::string> text = template_.render(Value::dict(std::move(variables)));
  if (!text) return tl::unexpected<Error>(std::move(text).error().within("rendering the chat template"));
  return text;
}

Result<std::vector<TokenId>> Chat::encode(const std::vector<ChatMessage>& messages, const ChatContext& context) const {
  TESSERA_ASSIGN(const std::string text, render(messages, context));
  return tokenizer_.encode_ids(text);
}

}  // namespace tessera::text
