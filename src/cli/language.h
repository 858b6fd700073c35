// What the commands on language models share.
#pragma once

#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "engine/decoder.h"
#include "runtime/sampler.h"

namespace tessera::cli {

// "1,403,407": E0801 for what is no list of integers.
Result<std::vector<int64_t>> parse_ids(std::string_view text);

// Options of a decoder for `sequences` of at most `tokens` each.
engine::DecoderOptions decoder_options(const Arguments& arguments, const transformer::Config& config, int64_t sequences,
                                       int64_t tokens);

// How tokens are chosen. E0801 for options that contradict themselves.
Result<runtime::SamplingOptions> sampling_of(const Arguments& arguments);

// generate --chat: the conversation that stdin's lines lead, up to its end.
Result<int> chat(const Arguments& arguments);

}  // namespace tessera::cli
