// What --json prints.
#pragma once

#include "formats/json.h"

namespace tessera::cli {

// One object on one line of stdout.
void print_json(const Json& object);

}  // namespace tessera::cli
