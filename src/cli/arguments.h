// The command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/session.h"

namespace tessera::cli {

// What all commands together take; each reads its own part.
struct Arguments {
  std::string command;  // "run"
  std::string subject;  // the model; conformance: the folder; explain: the code
  std::vector<std::string> inputs;
  std::vector<DimRange> dims;
  SessionOptions session;
  std::string output;  // compile: the artifact; run: the folder
  std::string skips;
  std::string filter = "*";
  int runs = 20;
  double tolerance = 0;  // 0: what the types allow
  uint64_t seed = 1;
  bool json = false;
  bool text = false;
};

// What a command line that asks for nothing to be done ends with: help, or the version.
struct Answer {
  std::string text;
};

// E0801 with what is wrong.
Result<std::variant<Arguments, Answer>> parse_arguments(int argc, const char* const* argv);

}  // namespace tessera::cli
