// Runs folders of ONNX conformance cases.
#pragma once

#include <functional>

#include "tessera/session.h"

namespace tessera::engine {

// A line of a skip file: "GLOB  reason" leaves the cases of matching names out; "GLOB  shape-only reason" runs them,
// but compares only types, shapes and ranges, because their outputs come from a random generator.
struct SkipRule {
  std::string glob;
  std::string reason;
  bool shape_only = false;
};
// Blank lines and lines that begin with '#' mean nothing. E0104 for a line without a reason.
Result<std::vector<SkipRule>> parse_skips(std::string_view text);

struct CaseResult {
  enum class Status : uint8_t { passed, failed, skipped };

  std::string name;
  Status status = Status::passed;
  std::string why;  // of failures and skips
};

struct ConformanceOptions {
  SessionOptions session;
  std::vector<SkipRule> skips;
  std::string filter = "*";                        // a glob: only cases of matching names
  std::function<void(const CaseResult&)> on_case;  // told of each as it is done
  const std::atomic<bool>* stop = nullptr;
};

// Runs every folder/CASE that has a model.onnx, in the order of their names, on all its test_data_set_N. A case that
// goes wrong in any way is a failed one; the run itself fails only when `folder` cannot be read or holds no case
// (E0101), or when it is stopped (E0504).
Result<std::vector<CaseResult>> run_conformance(const std::string& folder, const ConformanceOptions& options);

}  // namespace tessera::engine
