// Names as people type them, and lists as they read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tessera/error.h"

namespace tessera {

// The one of `names` that `wanted` most likely misspells (case, a letter more, less, other, or two swapped), the first
// of equals; empty when none is near. Takes time for names of similar length only.
std::string_view nearest_name(std::string_view wanted, std::span<const std::string_view> names);
std::string_view nearest_name(std::string_view wanted, std::span<const std::string> names);

// "did you mean 'x'?", or "": the text of an error's hint.
std::string did_you_mean(std::string_view wanted, std::span<const std::string_view> names);
std::string did_you_mean(std::string_view wanted, std::span<const std::string> names);

// E0202: a range is given for the size `name`, but a model's sizes have these names.
Error dim_unknown(std::string_view name, std::span<const std::string> names);

// Whether all of `text` matches `pattern`, in which `*` stands for any run of characters and `?` for one byte.
// Takes at most |pattern| * |text| steps.
bool glob_match(std::string_view pattern, std::string_view text);

// The elements with a separator between them. Ours, because a formatting library's join compiles its whole formatter
// again in every file that calls it.
std::string joined(std::span<const int64_t> numbers, std::string_view separator);
std::string joined(std::span<const int32_t> numbers, std::string_view separator);
std::string joined(std::span<const std::string> texts, std::string_view separator);
std::string joined(std::span<const std::string_view> texts, std::string_view separator);

}  // namespace tessera
