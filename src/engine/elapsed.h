// Time that has passed.
#pragma once

#include <chrono>

namespace tessera::engine {

inline double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace tessera::engine
