// What commands print: answers to stdout, progress to stderr where a person watches.
#pragma once

#include <fmt/core.h>

#include <string>

namespace tessera::cli {

template <class... A>
void say(fmt::format_string<A...> format, A&&... args) {
  fmt::print(stdout, format, std::forward<A>(args)...);
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
