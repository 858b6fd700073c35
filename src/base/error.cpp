#include "tessera/error.h"

#include <cstdio>
#include <cstdlib>

#include "base/result.h"

namespace tessera {
namespace {

constexpr CodeInfo kCodes[] = {
#define TESSERA_CODE(number, name, exit_code, title, cause, fix) {Code::name, #name, exit_code, title, cause, fix},
#include "tessera/error_codes.def"
#undef TESSERA_CODE
};

}  // namespace

const CodeInfo* all_codes() { return kCodes; }
size_t code_count() { return std::size(kCodes); }

const CodeInfo& describe(Code code) {
  for (const CodeInfo& info : kCodes)
    if (info.code == code) return info;
  TESSERA_CHECK(!"a listed code");
  std::abort();
}

std::string code_name(Code code) { return fmt::format("E{:04}", static_cast<int>(code)); }

Error Error::within(std::string step) && {
  trail.push_back(std::move(step));
  return std::move(*this);
}

std::string Error::to_string() const {
  std::string text = code_name(code) + " " + message;
  for (const std::string& step : trail) text += "\n  while " + step;
  // What the code's listing says helps where nothing more exact is known.
  text += "\n  hint: ";
  text += hint.empty() ? describe(code).fix : std::string_view(hint);
  return text;
}

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "tessera: %s:%d: broken invariant: %s\n", file, line, condition);
  std::abort();
}

}  // namespace tessera
