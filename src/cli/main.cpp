// The command `tessera`.
#include <csignal>
#include <cstdio>

#include "base/memory.h"
#include "base/result.h"
#include "cli/commands.h"

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
constexpr Command kCommands[] = {
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

int report(const Error& error) {
  std::fflush(stdout);
  fmt::print(stderr, "{}\n", error.to_string());
  return describe(error.code).exit_code;
}

Result<int> dispatch(const Arguments& arguments) {
  for (const Command& command : kCommands)
    if (command.name == arguments.command) return command.run(arguments);
  return fail(Code::internal, "command '{}' is not dispatched", arguments.command);
}

int main(int argc, const char* const* argv) {
  const auto parsed = parse_arguments(argc, argv);
  if (!parsed) return report(parsed.error());
  std::signal(SIGINT, on_interrupt);
  Result<int> code = 0;
  if (const auto* answer = std::get_if<Reply>(&*parsed)) {
    fmt::print(stdout, "{}", answer->text);
  } else {
    code = without_throwing([&] { return dispatch(std::get<Arguments>(*parsed)); });
  }
  if (!code) return report(code.error());
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return report({Code::file_write_failed, "standard output cannot be written"});
  return *code;
}

}  // namespace
}  // namespace tessera::cli

int main(int argc, char** argv) { return tessera::cli::main(argc, argv); }
