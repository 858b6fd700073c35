#include <algorithm>

#include "text/decoder.h"
#include "text/tokenizer.h"

namespace tessera::text {

// Decoders look at a token's left neighbour at most; more are kept for words that a decoder joins.
constexpr size_t kWindow = 6;

StreamDecoder::StreamDecoder(Tokenizer tokenizer, const DecodeOptions& options)
    : tokenizer_(std::move(tokenizer)), options_(options) {}

std::string StreamDecoder::push(TokenId id) {
  if (options_.skip_special && tokenizer_.is_special(id)) return {};
  window_.push_back(id);
  std::string bytes;
  tokenizer_.decode_bytes(window_, options_, bytes);
  // What this token adds. A decoder may take back the end of what was there (a space that is only stripped at the end
  // of all); such a token adds nothing, and the next ones are measured against what has been given out.
  std::string added;
  if (bytes.starts_with(before_)) {
    added = bytes.substr(before_.size());
    before_ = std::move(bytes);
  }
  if (window_.size() > kWindow) {
    window_.erase(window_.begin());
    tokenizer_.decode_bytes(window_, options_, before_);
  }
  held_ += added;
  // Whole characters, and what can never become one, go out.
  size_t whole = 0;
  while (whole < held_.size()) {
    const Utf8Step step = utf8_step(held_, whole);
    if (step.valid == 0 && step.cut) break;
    whole += step.valid != 0 ? step.valid : step.bad;
  }
  std::string out = repair_utf8(std::string_view(held_).substr(0, whole));
  held_.erase(0, whole);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out = repair_utf8(held_);
  held_.clear();
  window_.clear();
  before_.clear();
  return out;
}

}  // namespace tessera::text
