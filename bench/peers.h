// Other libraries doing what a case does.
#pragma once

#include <functional>
#include <string>

#include "bench/cases.h"

namespace tessera::bench {

// Runs the case once on its own copy of the operands, weights laid out as the peer prefers; constants are those of set
// `i`. Empty where the peer does not do such cases, or was not there at build.
using PeerRun = std::function<void(int64_t i)>;
PeerRun peer_run(const std::string& peer, const Case& c, const Tensor& x, const Tensor& w, int threads);

}  // namespace tessera::bench
