#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/result.h"

namespace tessera::text {
namespace {

// Limits of one search: some hundred times what the patterns of real models need on a megabyte of one character.
constexpr uint32_t kMatchLimit = 100'000'000;
constexpr uint32_t kHeapLimitKiB = 64 * 1024;
constexpr size_t kMaxExpression = 64 * 1024;  // bytes
constexpr uint32_t kMaxParentheses = 100;     // parentheses

template <auto free>
struct Free {
  template <class T>
  void operator()(T* object) const {
    free(object);
  }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>>;

}  // namespace

struct Pattern::Compiled {
  std::unique_ptr<pcre2_code, Free<pcre2_code_free>> code;
  std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> context;
};

Pattern Pattern::literal(std::string text) {
  Pattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

Pattern Pattern::scanner(Scanner scanner) {
  Pattern pattern;
  pattern.scanner_ = scanner;
  return pattern;
}

Result<Pattern> Pattern::regex(std::string_view expression) {
  if (const Scanner known = find_scanner(expression)) return scanner(known);
  return compiled_regex(expression);
}

Result<Pattern> Pattern::compiled_regex(std::string_view expression) {
  if (expression.size() > kMaxExpression)
    return fail(Code::unsupported_feature, "a regular expression has {} bytes, more than {}", expression.size(),
                kMaxExpression);
  TESSERA_ASSIGN(const std::string translated, translate_oniguruma(expression));
  const CompileContext context(pcre2_compile_context_create(nullptr));
  auto code = std::make_shared<Compiled>();
  code->context.reset(pcre2_match_context_create(nullptr));
  if (!context || !code->context) return fail(Code::out_of_memory, "no memory for a regular expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), kMaxParentheses);
  pcre2_set_match_limit(code->context.get(), kMatchLimit);
  pcre2_set_heap_limit(code->context.get(), kHeapLimitKiB);

  int error = 0;
  size_t place = 0;
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE;
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options, &error,
                                 &place, context.get()));
  if (!code->code) {
    char message[256] = "";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    return fail(Code::unsupported_feature, "the regular expression '{}' does not compile: {}", expression, message);
  }
  // Where the machine has no JIT the interpreter does the same, only slower.
  (void)pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE);
  Pattern pattern;
  pattern.code_ = std::move(code);
  return pattern;
}

Matcher::Matcher(const Pattern& pattern, std::string_view text) : pattern_(pattern), text_(text) {
  if (pattern.code_) data_ = pcre2_match_data_create(1, nullptr);
}

Matcher::~Matcher() { pcre2_match_data_free(data_); }

void Matcher::restart(std::string_view text) {
  text_ = text;
  at_ = 0;
  last_end_ = SIZE_MAX;
}

Result<bool> Matcher::next(Span& match) {
  if (at_ > text_.size() || (at_ == text_.size() && !pattern_.code_)) return false;
  if (pattern_.scanner_ != nullptr) {
    match = {static_cast<uint32_t>(at_), static_cast<uint32_t>(pattern_.scanner_(text_, at_))};
    at_ = match.end;
    return true;
  }
  if (pattern_.code_) return next_regex(match);
  if (pattern_.literal_.empty()) return false;
  const size_t begin = text_.find(pattern_.literal_, at_);
  if (begin == std::string_view::npos) {
    at_ = text_.size() + 1;
    return false;
  }
  at_ = begin + pattern_.literal_.size();
  match = {static_cast<uint32_t>(begin), static_cast<uint32_t>(at_)};
  return true;
}

Result<bool> Matcher::next_regex(Span& match) {
  if (data_ == nullptr) return fail(Code::out_of_memory, "no memory to match a regular expression");
  while (at_ <= text_.size()) {
    const int count = pcre2_match(pattern_.code_->code.get(), reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(),
                                  at_, PCRE2_NO_UTF_CHECK, data_, pattern_.code_->context.get());
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0)
      return fail(Code::iteration_limit, "a regular expression of the tokenizer gives up at byte {} of a text of {}",
                  at_, text_.size());
    const size_t* bounds = pcre2_get_ovector_pointer(data_);
    // \K may put the beginning behind the end.
    const size_t end = bounds[1], begin = std::min(bounds[0], end);
    if (begin == end) {
      at_ = end < text_.size() ? end + decode_at(text_, end).length : end + 1;
      if (begin == last_end_) continue;
    } else {
      at_ = end;
    }
    last_end_ = end;
    match = {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
    return true;
  }
  at_ = text_.size() + 1;
  return false;
}

}  // namespace tessera::text
