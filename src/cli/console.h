// What commands print: answers to stdout, progress to stderr where a person watches.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace tessera::cli {

// A file that cannot be written to remembers that: main asks stdout once, at the end.
void put(std::FILE* file, std::string_view text);

template <class... A>
void say(fmt::format_string<A...> format, A&&... args) {
  put(stdout, fmt::format(format, std::forward<A>(args)...));
}

// To stderr: what is no part of the answer.
template <class... A>
void remark(fmt::format_string<A...> format, A&&... args) {
  put(stderr, fmt::format(format, std::forward<A>(args)...));
}

// One line that is overwritten by the next and gone at the end. Nothing when stderr is no terminal.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  void show(const std::string& line);
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
};

// "1.5 MB"
std::string bytes_text(double bytes);

}  // namespace tessera::cli
