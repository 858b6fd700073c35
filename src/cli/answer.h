// The text of an answer as its tokens come.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace tessera::cli {

// Holds back what may become a stop text, and gives out the rest as soon as it is certain.
class TextAnswer {
 public:
  using Sink = std::function<void(std::string_view)>;
  TextAnswer(const text::Tokenizer& tokenizer, std::vector<std::string> stops, Sink sink = {})
      : stream_(tokenizer), stops_(std::move(stops)), sink_(std::move(sink)) {}

  // True once a stop text has been found: it and what follows are no part of the answer.
  bool push(int64_t token);
  // No more tokens come.
  void finish();
  const std::string& text() const { return text_; }

 private:
  bool take(std::string piece);

  text::StreamDecoder stream_;
  std::vector<std::string> stops_;
  Sink sink_;
  std::string text_;     // given out
  std::string pending_;  // may begin a stop text
  bool stopped_ = false;
};

}  // namespace tessera::cli
