// JSON documents from untrusted files: bounded in depth, without exceptions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"

namespace tessera {

constexpr int kMaxJsonDepth = 64;

// E0104 with the byte at which the text stops being JSON, or nests deeper than kMaxJsonDepth; `what` names the document
// ("config.json").
Result<nlohmann::json> parse_json(std::string_view text, std::string_view what);

}  // namespace tessera
