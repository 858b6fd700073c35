// Errors as values. Nothing in Tessera throws across its API; what can fail returns Result<T>.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace tessera {

// The stable codes. Each stands once in error_codes.def, with its cause, its fix and its exit code.
enum class Code : uint16_t {
#define TESSERA_CODE(number, name, exit_code, title, cause, fix) name = number,
#include "tessera/error_codes.def"
#undef TESSERA_CODE
};

// What went wrong, in one sentence with both facts, and the way there (innermost step first).
struct Error {
  Code code;
  std::string message;
  std::vector<std::string> trail = {};
  std::string hint = {};

  // Adds a step to the way there: "while importing 'model.onnx'" is within("importing 'model.onnx'").
  Error within(std::string step) &&;
  // Several lines: "E0312 message", "  while ...", "  hint: ...".
  std::string to_string() const;
};

struct CodeInfo {
  Code code;
  std::string_view name;   // shape_mismatch
  int exit_code;           // what the command exits with: 2 usage, 3 bad input, 4 not supported, 5 resource, 70 a bug
  std::string_view title;  // one line
  std::string_view cause;
  std::string_view fix;
};

// Facts about a code. `code` must be a listed one.
const CodeInfo& describe(Code code);
// All codes in ascending order; index by [0, code_count()).
const CodeInfo* all_codes();
size_t code_count();
// "E0312"
std::string code_name(Code code);

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

}  // namespace tessera
