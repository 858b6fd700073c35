// Values in files: .npy arrays, and ONNX's test data (.pb).
#pragma once

#include <string>

#include "tessera/session.h"

namespace tessera::engine {

// A value of the declared kind and type, from a .npy file or an ONNX message, told apart by content. Errors name the
// file.
Result<Value> read_value(const std::string& path, const ValueInfo& info);

// Writes folder/NAME.npy, or folder/NAME.pb for what .npy cannot hold (sequences, optionals, strings), whole or not at
// all. What a file name cannot hold of the value's name becomes '_'. Gives the path.
Result<std::string> write_value(const std::string& folder, const NamedValue& value);

}  // namespace tessera::engine
