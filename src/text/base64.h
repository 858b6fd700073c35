// RFC 4648 base64, as files carry binary tables in JSON.
#pragma once

#include <string>
#include <string_view>

#include "tessera/error.h"

namespace tessera::text {

// E0104 for characters outside the alphabet. Padding may be left out.
Result<std::string> decode_base64(std::string_view text);

}  // namespace tessera::text
