// Making and passing on errors. See include/tessera/error.h for the types.
#pragma once

#include <fmt/core.h>

#include "tessera/error.h"

namespace tessera {

template <class... A>
tl::unexpected<Error> fail(Code code, fmt::format_string<A...> format, A&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<A>(args)...)});
}

// Prints the message and aborts: for broken invariants of ours, never for input.
[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace tessera

#define TESSERA_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::tessera::check_failed(__FILE__, __LINE__, #condition))

#define TESSERA_CONCAT_(a, b) a##b
#define TESSERA_CONCAT(a, b) TESSERA_CONCAT_(a, b)

// TESSERA_TRY(expr): returns expr's error from the enclosing function, if it has one.
#define TESSERA_TRY(expr)                                                         \
  do {                                                                            \
    if (auto tessera_status = (expr); !tessera_status)                            \
      return tl::unexpected<::tessera::Error>(std::move(tessera_status).error()); \
  } while (0)

// TESSERA_ASSIGN(auto x, expr): declares or assigns x from a Result, or returns its error.
#define TESSERA_ASSIGN(target, expr) TESSERA_ASSIGN_(TESSERA_CONCAT(tessera_result_, __LINE__), target, expr)
#define TESSERA_ASSIGN_(result, target, expr)                                      \
  auto result = (expr);                                                            \
  if (!result) return tl::unexpected<::tessera::Error>(std::move(result).error()); \
  target = std::move(*result)
