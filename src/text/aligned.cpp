#include "text/aligned.h"

namespace tessera::text {

Span Aligned::origin(size_t begin, size_t end) const {
  if (!tracked_) return {};
  if (!origin_.empty()) return {origin_[begin].begin, origin_[end - 1].end};
  while (begin > 0 && is_continuation(text_[begin])) --begin;
  while (end < text_.size() && is_continuation(text_[end])) ++end;
  return {base_ + static_cast<uint32_t>(begin), base_ + static_cast<uint32_t>(end)};
}

uint32_t Aligned::place(size_t at) const {
  if (!tracked_) return 0;
  if (at < text_.size()) return origin(at).begin;
  return at > 0 ? origin(at - 1).end : base_;
}

void Aligned::replace(std::string text, std::vector<Span> origin) {
  owned_ = std::move(text);
  text_ = owned_;
  origin_ = std::move(origin);
}

Rewriter::Rewriter(Aligned& source) : source_(source), limit_((size_t{16} << 20) + 32 * source.original_size()) {
  out_.reserve(source.text().size() + source.text().size() / 4);
  if (source.tracked()) origin_.reserve(out_.capacity());
}

void Rewriter::copy(size_t begin, size_t end) {
  out_.append(source_.text(), begin, end - begin);
  if (source_.tracked())
    for (size_t i = begin; i < end; ++i) origin_.push_back(source_.origin(i));
}

void Rewriter::put(std::string_view text, size_t begin, size_t end) {
  if (out_.size() + text.size() > limit_) {
    too_long_ = true;
    return;
  }
  out_ += text;
  if (!source_.tracked()) return;
  const uint32_t place = source_.place(begin);
  origin_.insert(origin_.end(), text.size(), begin < end ? source_.origin(begin, end) : Span{place, place});
}

void Rewriter::put(uint32_t code_point, size_t begin, size_t end) {
  std::string text;
  append_utf8(text, code_point);
  put(text, begin, end);
}

Status Rewriter::finish() {
  if (too_long_)
    return fail(Code::out_of_memory, "the tokenizer's rules make more than {} bytes of a text of {}", limit_,
                source_.original_size());
  source_.replace(std::move(out_), std::move(origin_));
  return {};
}

}  // namespace tessera::text
