// The command `tessera`.
#include <algorithm>
#include <csignal>
#include <cstdio>

#include "base/memory.h"
#include "base/result.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"

namespace tessera::cli {

const std::chrono::steady_clock::time_point process_start = std::chrono::steady_clock::now();
std::atomic<bool> stop_requested = false;

Status check_stop(std::string_view before) {
  if (!stop_requested) return {};
  return fail(Code::interrupted, "stopped before {}", before);
}

namespace {

struct Command {
  std::string_view name;
  Result<int> (*run)(const Arguments&);
};
constexpr Command kHandlers[] = {
    {"run", run},
    {"inspect", inspect},
    {"compile", compile},
    {"bench", bench},
    {"verify", verify},
    {"conformance", conformance},
    {"ops", ops},
    {"info", info},
    {"explain", explain},
    {"logits", logits},
    {"embed", embed},
    {"generate", generate},
    {"perplexity", perplexity},
    {"tokenize", tokenize},
    {"quantize", quantize},
};

// The first SIGINT asks; a second one kills, should something not listen.
void on_interrupt(int) {
  stop_requested = true;
  std::signal(SIGINT, SIG_DFL);
}

// For people on stderr, and for a program that asked for JSON as its one object.
int report(const Error& error, bool json) {
  const CodeInfo& info = describe(error.code);
  if (json)
    print_json({{"error", Json{{"code", code_name(error.code)},
                               {"message", error.message},
                               {"while", error.trail},
                               {"hint", error.hint.empty() ? std::string(info.fix) : error.hint},
                               {"exit_code", info.exit_code}}}});
  std::fflush(stdout);
  put(stderr, error.to_string() + "\n");
  return info.exit_code;
}

Result<int> dispatch(const Arguments& arguments) {
  for (const Command& command : kHandlers)
    if (command.name == arguments.command) return command.run(arguments);
  return fail(Code::internal, "command '{}' is not dispatched", arguments.command);
}

int main(int argc, const char* const* argv) {
  const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  const auto parsed = without_throwing([&] { return parse_arguments(argc, argv); });
  if (!parsed) return report(parsed.error(), json);
  std::signal(SIGINT, on_interrupt);
  Result<int> code = 0;
  if (const auto* answer = std::get_if<Reply>(&*parsed)) {
    put(stdout, answer->text);
  } else {
    code = without_throwing([&] { return dispatch(std::get<Arguments>(*parsed)); });
  }
  if (!code) return report(code.error(), json);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return report({Code::file_write_failed, "standard output cannot be written"}, false);
  return *code;
}

}  // namespace
}  // namespace tessera::cli

int main(int argc, char** argv) { return tessera::cli::main(argc, argv); }
