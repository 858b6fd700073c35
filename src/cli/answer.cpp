#include "cli/answer.h"

#include <algorithm>

namespace tessera::cli {
namespace {

// The longest end of `text` that begins `stop`.
size_t beginning(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size()); n > 0; --n)
    if (text.ends_with(stop.substr(0, n))) return n;
  return 0;
}

}  // namespace

bool TextAnswer::push(int64_t token) { return take(stream_.push(static_cast<text::TokenId>(token))); }

bool TextAnswer::take(std::string piece) {
  if (stopped_) return true;
  pending_ += piece;
  size_t first = std::string::npos, held = 0;
  for (const std::string& stop : stops_) {
    if (stop.empty()) continue;
    first = std::min(first, pending_.find(stop));
    held = std::max(held, beginning(pending_, stop));
  }
  stopped_ = first != std::string::npos;
  const size_t certain = stopped_ ? first : pending_.size() - held;
  if (sink_ && certain > 0) sink_(std::string_view(pending_).substr(0, certain));
  text_ += pending_.substr(0, certain);
  pending_.erase(0, stopped_ ? std::string::npos : certain);
  return stopped_;
}

void TextAnswer::finish() {
  if (take(stream_.finish())) return;
  if (sink_) sink_(pending_);
  text_ += pending_;
  pending_.clear();
}

}  // namespace tessera::cli
