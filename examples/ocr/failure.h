// Making an error of this example's.
#pragma once

#include <fmt/format.h>

#include "tessera/error.h"

namespace ocr {

template <class... A>
tl::unexpected<tessera::Error> fail(tessera::Code code, fmt::format_string<A...> format, A&&... args) {
  return tl::unexpected<tessera::Error>(tessera::Error{code, fmt::format(format, std::forward<A>(args)...)});
}

}  // namespace ocr
