#include "engine/conformance.h"

#include "base/file.h"
#include "base/result.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"

namespace tessera::cli {
namespace {

using engine::CaseResult;

constexpr size_t kMaxSkipFile = size_t{16} << 20;

std::string_view word(CaseResult::Status status) {
  return status == CaseResult::Status::passed ? "passed" : status == CaseResult::Status::failed ? "failed" : "skipped";
}

}  // namespace

Result<int> conformance(const Arguments& arguments) {
  engine::ConformanceOptions options;
  options.session = arguments.session;
  options.stop = &stop_requested;
  options.filter = arguments.filter;
  if (!arguments.skips.empty()) {
    TESSERA_ASSIGN(const std::string text, read_file(arguments.skips, kMaxSkipFile));
    auto skips = engine::parse_skips(text);
    if (!skips) return tl::unexpected<Error>(std::move(skips.error()).within("reading '" + arguments.skips + "'"));
    options.skips = std::move(*skips);
  }
  Progress progress;
  options.on_case = [&](const CaseResult& result) {
    if (result.status == CaseResult::Status::failed) {
      progress.clear();
      put(arguments.json ? stderr : stdout, fmt::format("FAILED {}: {}\n", result.name, result.why));
    }
    progress.show(result.name);
  };
  TESSERA_ASSIGN(const std::vector<CaseResult> results, engine::run_conformance(arguments.subject, options));
  progress.clear();

  int counts[3] = {};
  for (const CaseResult& result : results) ++counts[static_cast<int>(result.status)];
  if (arguments.json) {
    Json cases = Json::array();
    for (const CaseResult& result : results)
      cases.push_back({{"name", result.name}, {"status", word(result.status)}, {"why", result.why}});
    print_json({{"passed", counts[0]}, {"failed", counts[1]}, {"skipped", counts[2]}, {"cases", std::move(cases)}});
  } else {
    say("{} passed, {} failed, {} skipped\n", counts[0], counts[1], counts[2]);
  }
  return counts[1] > 0 ? 1 : 0;
}

}  // namespace tessera::cli
