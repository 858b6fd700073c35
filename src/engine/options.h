// Options of compilations as text: a JSON file's, and one text for equal options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/session.h"

namespace tessera::engine {

// "seq=128" (static), "seq=1..512" (dynamic), "seq=bucket:64,128,512" (these sizes only). E0801.
Result<DimRange> parse_dim(std::string_view text);

// What an options file says.
struct OptionsFile {
  CompileOptions compile;
  std::vector<DimRange> dims;
  std::vector<std::string> rule_files = {};  // whose text belongs into compile.rules; at most one
};

// A JSON object: the options' names as the command's, "dims": {"seq": "1..512"}. E0801 says which entry is wrong and
// which there are.
Result<OptionsFile> parse_options(std::string_view json);

// All of what decides a plan, apart from the model: equal options give equal texts.
std::string text_of(const CompileOptions& options);
std::string text_of(const DimRange& dim);

}  // namespace tessera::engine
