// What --json prints.
#pragma once

#include <nlohmann/json.hpp>

#include "tessera/session.h"

namespace tessera::cli {

using Json = nlohmann::ordered_json;

// One object on one line of stdout. Names that are no UTF-8 are shown with replacement characters; infinities and NaN
// become null.
void print_json(const Json& object);

}  // namespace tessera::cli
