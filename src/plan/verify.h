// Checks that a plan may be run: artifacts are untrusted input.
#pragma once

#include "plan/plan.h"
#include "tessera/error.h"

namespace tessera::plan {

// Proves what the runtime relies on: every index is in range, expressions and values come before their users, each
// value is made once, routines form a tree, states are consumed once and not read afterwards, views lie on dense bases,
// and each kernel's line of the table takes the step's types. What depends on sizes is checked by instantiate(). E0603
// names the routine and what is wrong.
Status verify(const Plan& plan);

}  // namespace tessera::plan
