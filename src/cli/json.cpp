#include "cli/json.h"

#include "cli/console.h"

namespace tessera::cli {

void print_json(const Json& object) { put(stdout, object.dump() + "\n"); }

}  // namespace tessera::cli
