#include "base/fault.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tessera {

Result<std::optional<PlantedFault>> planted_fault() {
  const char* text = std::getenv("TESSERA_INJECT_FAULT");
  if (text == nullptr || *text == 0) return std::optional<PlantedFault>();
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;;) {
    const size_t colon = rest.find(':');
    parts.push_back(rest.substr(0, colon));
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  using Where = PlantedFault::Where;
  using How = PlantedFault::How;
  PlantedFault fault;
  bool good =
      parts.size() >= 2 && !parts[1].empty() && (parts[0] == "rule" || parts[0] == "pass" || parts[0] == "kernel");
  if (good) {
    fault.where = parts[0] == "rule" ? Where::rule : parts[0] == "pass" ? Where::pass : Where::kernel;
    fault.name = parts[1];
  }
  for (size_t i = 2; good && i < parts.size(); ++i) {
    const std::string_view part = parts[i];
    if (part == "scale" || part == "swap" || part == "drop") {
      fault.how = part == "scale" ? How::scale : part == "swap" ? How::swap : How::drop;
      continue;
    }
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), fault.nth);
    good = error == std::errc() && end == part.data() + part.size() && fault.nth > 0;
  }
  if (!good)
    return fail(Code::usage,
                "TESSERA_INJECT_FAULT is '{}': expected rule:NAME, pass:NAME or kernel:NAME, then :scale, :swap or "
                ":drop and a number",
                text);
  return std::optional(std::move(fault));
}

}  // namespace tessera
