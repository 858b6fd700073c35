// The text recogniser: a trained model, its alphabet, and a session that runs it.
#pragma once

#include <string>
#include <vector>

#include "picture.h"
#include "tessera/session.h"

namespace ocr {

// Reads single lines of text. May be used from several threads at once.
class Reader {
 public:
  static tessera::Result<Reader> load(const std::string& model, const std::string& alphabet,
                                      const tessera::SessionOptions& options = {});

  // The text of one line.
  tessera::Result<std::string> read(const Picture& picture) const;

  const tessera::Session& session() const { return session_; }

 private:
  Reader(tessera::Session session, std::vector<std::string> alphabet)
      : session_(std::move(session)), alphabet_(std::move(alphabet)) {}

  tessera::Session session_;
  std::vector<std::string> alphabet_;
};

// A picture's file name and the text in it.
struct Expected {
  std::string file;
  std::string text;
};

// Reads lines of "file TAB text". E0104 on a line without a tab.
tessera::Result<std::vector<Expected>> read_expected(const std::string& path);

}  // namespace ocr
