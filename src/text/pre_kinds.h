// How GGUF files of model "gpt2" name the expressions that cut their text ("tokenizer.ggml.pre").
#pragma once

#include <string_view>
#include <vector>

#include "tessera/error.h"

namespace tessera::text {

struct PreKind {
  std::vector<std::string_view> expressions;  // each cuts what the ones before it left
  bool ignore_merges = false;
  bool add_bos = false;  // where the file does not say
  bool add_sep = false;
};
// E0402 for a name that is not known.
Result<PreKind> find_pre_kind(std::string_view name);
// One name of each kind.
std::vector<std::string_view> pre_kind_names();

}  // namespace tessera::text
