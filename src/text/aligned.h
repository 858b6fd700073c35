// Text on its way through a tokenizer, and where each of its bytes came from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/unicode.h"

namespace tessera::text {

// Valid UTF-8. While nothing has changed the text it is only a view of the original.
class Aligned {
 public:
  // `base` is where `text` begins in the original. Without tracking spans are not kept.
  Aligned(std::string_view text, uint32_t base, bool tracked)
      : text_(text), original_(text.size()), base_(base), tracked_(tracked) {}
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;

  std::string_view text() const { return text_; }
  bool tracked() const { return tracked_; }
  uint32_t base() const { return base_; }
  size_t original_size() const { return original_; }

  // The original characters of the bytes [begin, end), begin < end.
  Span origin(size_t begin, size_t end) const;
  Span origin(size_t at) const { return origin(at, at + 1); }
  // Where the original continues before text()[at]: for insertions.
  uint32_t place(size_t at) const;

  // The text is now `text`; `origin` has a span for each of its bytes when tracked, else is empty.
  void replace(std::string text, std::vector<Span> origin);

 private:
  std::string owned_;
  std::string_view text_;
  std::vector<Span> origin_;  // of each byte, once it is no view any more
  size_t original_;
  uint32_t base_;
  bool tracked_;
};

// Writes a text's successor from left to right.
class Rewriter {
 public:
  explicit Rewriter(Aligned& source);
  // Bytes [begin, end) of the source as they are.
  void copy(size_t begin, size_t end);
  // Characters that stand for the source's bytes [begin, end), or are inserted before `begin` where both are equal.
  void put(std::string_view text, size_t begin, size_t end);
  void put(uint32_t code_point, size_t begin, size_t end);
  size_t size() const { return out_.size(); }
  // E0503 when the text has grown beyond all use, in this step or in those before: replacements of many by much.
  Status finish();

 private:
  Aligned& source_;
  std::string out_;
  std::vector<Span> origin_;
  size_t limit_;
  bool too_long_ = false;
};

}  // namespace tessera::text
