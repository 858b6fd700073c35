// The commands. Each prints its answer to stdout, and gives the exit code: 0, or 1 where the answer is no. Errors are
// printed by main.
#pragma once

#include <chrono>

#include "cli/arguments.h"

namespace tessera::cli {

Result<int> run(const Arguments& arguments);
Result<int> inspect(const Arguments& arguments);
Result<int> inspect_plan(const Arguments& arguments, const Model& model);
Result<int> compile(const Arguments& arguments);
Result<int> bench(const Arguments& arguments);
Result<int> bench_language(const Arguments& arguments);  // of bench, for language models
Result<int> verify(const Arguments& arguments);
Result<int> conformance(const Arguments& arguments);
Result<int> quantize(const Arguments& arguments);
Result<int> ops(const Arguments& arguments);
Result<int> info(const Arguments& arguments);
Result<int> explain(const Arguments& arguments);
Result<int> logits(const Arguments& arguments);
Result<int> embed(const Arguments& arguments);
Result<int> generate(const Arguments& arguments);
Result<int> perplexity(const Arguments& arguments);
Result<int> tokenize(const Arguments& arguments);

// When main() began.
extern const std::chrono::steady_clock::time_point process_start;
// True once the user has asked to stop (SIGINT). Commands hand it to whatever takes long.
extern std::atomic<bool> stop_requested;
// E0504 once stop_requested is true.
Status check_stop(std::string_view before);

}  // namespace tessera::cli
