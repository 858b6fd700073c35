#include "engine/quantize.h"

#include "base/cpu.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"

namespace tessera::cli {

Result<int> quantize(const Arguments& arguments) {
  Progress progress;
  ThreadPool pool(arguments.session.threads > 0 ? arguments.session.threads : usable_cores());
  engine::QuantizeOptions options;
  options.recipe = arguments.type;
  options.pool = &pool;
  options.progress = [&](size_t tensor, size_t of) {
    progress.show(fmt::format("tensor {} of {}", tensor + 1, of));
    return check_stop("all tensors were written");
  };
  Result<engine::QuantizeReport> report = engine::quantize(arguments.subject, arguments.output, options);
  progress.clear();
  if (!report) return tl::unexpected(std::move(report).error());
  if (arguments.json) {
    Json kinds = Json::array();
    for (const engine::QuantizedKind& kind : report->kinds)
      kinds.push_back(
          {{"type", kind.type}, {"tensors", kind.tensors}, {"bytes", kind.bytes}, {"relative_error", kind.error}});
    print_json({{"file", arguments.output},
                {"bytes_before", report->bytes_before},
                {"bytes_after", report->bytes_after},
                {"types", kinds}});
    return 0;
  }
  for (const engine::QuantizedKind& kind : report->kinds)
    say("{:8} {:5} tensors {:>10}{}\n", kind.type, kind.tensors, bytes_text(static_cast<double>(kind.bytes)),
        kind.error > 0 ? fmt::format("  relative error {:.2e}", kind.error) : "");
  say("{}: {} of weights, from {}\n", arguments.output, bytes_text(static_cast<double>(report->bytes_after)),
      bytes_text(static_cast<double>(report->bytes_before)));
  return 0;
}

}  // namespace tessera::cli
