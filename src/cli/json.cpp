#include "cli/json.h"

#include <cstdio>

namespace tessera::cli {

void print_json(const Json& object) {
  const std::string line = object.dump() + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
}

}  // namespace tessera::cli
