// A few operators for the tests of the text form and the verifier, so that these do not depend on the list in src/ops.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "ir/op_def.h"

namespace tessera::ir::test_ops {

// constant, view, dims, add, relu, gather, norm (two results), attrs (one of each kind), branch, append, peek,
// where_true
const OpDef* find(std::string_view name);

// Whether `part` stands in `text`; shows both where it does not.
inline ::testing::AssertionResult has(std::string_view text, std::string_view part) {
  if (text.find(part) != std::string_view::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "no '" << part << "' in:\n" << text;
}

}  // namespace tessera::ir::test_ops
