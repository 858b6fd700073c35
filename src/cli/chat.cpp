// generate --chat: a conversation on the terminal.
#include "text/chat.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "base/file.h"
#include "base/result.h"
#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/language.h"
#include "engine/generate.h"
#include "engine/language.h"

namespace tessera::cli {
namespace {

constexpr int64_t kChatContext = 4096;  // tokens, where --ctx does not say: all of a model's may be gigabytes of cache

Result<text::Chat> chat_of(const Arguments& arguments, const text::Tokenizer& tokenizer) {
  const std::string& path = arguments.language.chat_template;
  if (path.empty()) {
    Result<text::Chat> chat = text::Chat::make(tokenizer);
    if (!chat && chat.error().code == Code::unsupported_feature) chat.error().hint = "give one with --chat-template";
    return chat;
  }
  constexpr size_t longest = size_t{4} << 20;
  TESSERA_ASSIGN(const std::string source, read_file(path, longest));
  return text::Chat::with_template(tokenizer, source);
}

class Conversation {
 public:
  Conversation(const Arguments& arguments, text::Tokenizer tokenizer, text::Chat chat, engine::Decoder& decoder)
      : arguments_(arguments), tokenizer_(std::move(tokenizer)), chat_(std::move(chat)), decoder_(decoder) {
    if (!arguments.language.system.empty()) messages_.push_back({"system", arguments.language.system});
    begin_ = messages_.size();
  }

  Status say_to(const std::string& line, const runtime::SamplingOptions& sampling, std::vector<int64_t> eos);

 private:
  Result<std::vector<int64_t>> prompt();

  const Arguments& arguments_;
  text::Tokenizer tokenizer_;
  text::Chat chat_;
  engine::Decoder& decoder_;
  std::vector<text::ChatMessage> messages_;
  size_t begin_ = 0;  // behind the system's message
};

// The tokens of all that was said. What does not leave room for an answer loses its oldest question and answer.
Result<std::vector<int64_t>> Conversation::prompt() {
  while (true) {
    TESSERA_ASSIGN(const std::vector<text::TokenId> ids, chat_.encode(messages_));
    const int64_t room = decoder_.context() - static_cast<int64_t>(ids.size());
    const bool fits = room >= std::min<int64_t>(arguments_.language.max_tokens, decoder_.context() / 4);
    if (fits || messages_.size() < begin_ + 3) return std::vector<int64_t>(ids.begin(), ids.end());
    const auto oldest = messages_.begin() + static_cast<ptrdiff_t>(begin_);
    messages_.erase(oldest, oldest + 2);
    remark("the oldest question and its answer are left out: the context is {} tokens\n", decoder_.context());
  }
}

Status Conversation::say_to(const std::string& line, const runtime::SamplingOptions& sampling,
                            std::vector<int64_t> eos) {
  messages_.push_back({"user", line});
  engine::GenerateRequest request;
  TESSERA_ASSIGN(request.prompt, prompt());
  request.sampling = sampling;
  request.max_tokens = arguments_.language.max_tokens;
  request.eos = std::move(eos);
  TextAnswer answer(tokenizer_, arguments_.language.stops, [this](std::string_view piece) {
    if (arguments_.json) return;
    say("{}", piece);
    std::fflush(stdout);
  });
  request.on_token = [&](const runtime::Choice& choice) { return answer.push(choice.token); };
  engine::GenerateReport report;
  TESSERA_ASSIGN(const std::vector<engine::Generated> results,
                 engine::generate(decoder_, {&request, 1}, &report, &stop_requested));
  answer.finish();
  messages_.push_back({"assistant", answer.text()});
  if (!arguments_.json) {
    say("\n");
    std::fflush(stdout);
    return {};
  }
  print_json({{"text", answer.text()},
              {"token_ids", results[0].tokens},
              {"prompt_tokens", request.prompt.size()},
              {"shared_tokens", results[0].shared_tokens},
              {"finish_reason", engine::name(results[0].finish)},
              {"prefill_ms", report.prefill_ms},
              {"decode_ms", report.decode_ms}});
  std::fflush(stdout);
  return {};
}

}  // namespace

Result<int> chat(const Arguments& arguments) {
  const LanguageArguments& l = arguments.language;
  if (!l.ids.empty()) return fail(Code::usage, "--chat takes texts, not --prompt-ids");
  TESSERA_ASSIGN(const runtime::SamplingOptions sampling, sampling_of(arguments));
  TESSERA_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(arguments.subject));
  TESSERA_ASSIGN(text::Chat chat, chat_of(arguments, tokenizer));
  TESSERA_ASSIGN(const transformer::Source source, engine::open_language_model(arguments.subject));
  std::vector<int64_t> eos;
  if (!l.ignore_eos) {
    eos = source.config.eos;
    eos.insert(eos.end(), chat.end_tokens().begin(), chat.end_tokens().end());
  }
  TESSERA_ASSIGN(const std::unique_ptr<engine::Decoder> decoder,
                 engine::Decoder::make(source, decoder_options(arguments, source.config, 1, kChatContext)));
  Conversation conversation(arguments, tokenizer, std::move(chat), *decoder);
  for (const std::string& prompt : l.prompts) TESSERA_TRY(conversation.say_to(prompt, sampling, eos));
  const bool person = isatty(STDIN_FILENO) == 1;
  for (std::string line; !stop_requested;) {
    if (person) {
      remark("> ");
      std::fflush(stderr);
    }
    if (!std::getline(std::cin, line)) break;
    if (!line.empty()) TESSERA_TRY(conversation.say_to(line, sampling, eos));
  }
  return 0;
}

}  // namespace tessera::cli
