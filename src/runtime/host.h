// How operators without a kernel are run: by functions that whoever makes the session provides.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "plan/sizes.h"
#include "tessera/error.h"
#include "tessera/tensor.h"

namespace tessera::runtime {

struct HostCall {
  std::span<const Value* const> operands;  // null where absent; their memory is theirs until run() returns, no longer
  std::span<const plan::Symbol> symbols;   // of the calling routine
  const plan::Bindings& sizes;             // their values, as far as known
  int64_t max_iterations;                  // of one loop
};

// One host operator, ready to run. Called from several threads at once.
class HostFunction {
 public:
  virtual ~HostFunction() = default;
  // As many results as the operator has, in memory of their own.
  virtual Result<std::vector<Value>> run(const HostCall& call) const = 0;
};

// Makes the function of a host operator from what its maker wrote into it. Called once an operator, when a session is
// made.
using HostResolver = std::function<Result<std::unique_ptr<HostFunction>>(const plan::HostOp&)>;

}  // namespace tessera::runtime
