// What the commands on language models share.
#pragma once

#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "engine/decoder.h"

namespace tessera::cli {

// "1,403,407": E0801 for what is no list of integers.
Result<std::vector<int64_t>> parse_ids(std::string_view text);

// Options of a decoder for `sequences` of at most `tokens` each.
engine::DecoderOptions decoder_options(const Arguments& arguments, const transformer::Config& config, int64_t sequences,
                                       int64_t tokens);

}  // namespace tessera::cli
