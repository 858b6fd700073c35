// Strings, numbers and tensor elements as the graph's text form writes them, so that they read back bit for bit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ir/lexer.h"
#include "tessera/tensor.h"

namespace tessera::ir {

// Appends "text" in quotes. UTF-8 stands as it is; quotes, backslashes, control characters and bytes that are no UTF-8
// are escaped: \" \\ \n \r \t \x00.
void append_quoted(std::string& out, std::string_view text);
// The bytes of a string token; false on an escape that does not exist.
bool unescape(std::string_view escaped, std::string& out);

// The shortest decimal that reads back as `value`; inf, -inf, nan.
void append_real(std::string& out, double value);
bool parse_real(std::string_view text, double& out);
bool parse_integer(std::string_view text, int64_t& out);

// How many elements the text of a tensor has: of a block type one for each block.
int64_t literal_count(const Tensor& tensor);
// Element `index`: decimal; true, false; "string". A float or boolean whose bits no such text gives (a NaN with a
// payload) is written as its bits: 0x7fa00000. A
// block is its bytes: "00ff...".
void append_element(std::string& out, const Tensor& tensor, int64_t index);
// Stores what `token` says; false when it is no element of the type or does not fit it. Not for strings.
bool store_element(Tensor& tensor, int64_t index, const Token& token);
// Whether all elements have the same bits. False for strings and for fewer than two elements.
bool is_uniform(const Tensor& tensor);

}  // namespace tessera::ir
