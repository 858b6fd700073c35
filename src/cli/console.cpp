#include "cli/console.h"

#include <unistd.h>

#include <cstdio>

namespace tessera::cli {

void put(std::FILE* file, std::string_view text) { std::fwrite(text.data(), 1, text.size(), file); }

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}
Progress::~Progress() { clear(); }

void Progress::show(const std::string& line) {
  if (!terminal_) return;
  remark("\r\x1b[K{}", line);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  remark("\r\x1b[K");
  std::fflush(stderr);
  shown_ = false;
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : bytes < 10 ? 2 : 1, units[unit]);
}

}  // namespace tessera::cli
