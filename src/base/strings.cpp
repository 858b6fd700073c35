#include "base/strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace tessera {
namespace {

constexpr size_t kLongest = 128;  // longer names are generated, not typed

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Edits that turn a into b, where swapping neighbours is one edit and case is free (optimal string alignment). Both are
// at most kLongest long.
size_t distance(std::string_view a, std::string_view b) {
  std::array<std::array<size_t, kLongest + 1>, 3> rows;  // the last three rows of the table, by i mod 3
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    auto& above = rows[(i + 2) % 3];
    auto& twice_above = rows[(i + 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
        row[j] = std::min(row[j], twice_above[j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

template <class Names>
std::string_view nearest(std::string_view wanted, const Names& names) {
  std::string_view best;
  if (wanted.empty() || wanted.size() > kLongest) return best;
  size_t limit = std::max<size_t>(1, wanted.size() / 3) + 1;  // a third of the letters may be wrong; strictly below
  for (std::string_view name : names) {
    const size_t apart = name.size() > wanted.size() ? name.size() - wanted.size() : wanted.size() - name.size();
    if (name.empty() || name.size() > kLongest || apart >= limit) continue;
    const size_t edits = distance(wanted, name);
    if (edits >= limit || edits >= name.size()) continue;
    limit = edits;
    best = name;
  }
  return best;
}

std::string question(std::string_view name) {
  return name.empty() ? std::string() : "did you mean '" + std::string(name) + "'?";
}

template <class T>
std::string join(std::span<const T> elements, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < elements.size(); ++i) {
    if (i > 0) text += separator;
    if constexpr (std::is_integral_v<T>)
      text += std::to_string(elements[i]);
    else
      text += elements[i];
  }
  return text;
}

}  // namespace

std::string joined(std::span<const int64_t> numbers, std::string_view separator) { return join(numbers, separator); }
std::string joined(std::span<const int32_t> numbers, std::string_view separator) { return join(numbers, separator); }
std::string joined(std::span<const std::string> texts, std::string_view separator) { return join(texts, separator); }
std::string joined(std::span<const std::string_view> texts, std::string_view separator) {
  return join(texts, separator);
}

std::string_view nearest_name(std::string_view wanted, std::span<const std::string_view> names) {
  return nearest(wanted, names);
}

std::string_view nearest_name(std::string_view wanted, std::span<const std::string> names) {
  return nearest(wanted, names);
}

std::string did_you_mean(std::string_view wanted, std::span<const std::string_view> names) {
  return question(nearest(wanted, names));
}

std::string did_you_mean(std::string_view wanted, std::span<const std::string> names) {
  return question(nearest(wanted, names));
}

Error dim_unknown(std::string_view name, std::span<const std::string> names) {
  const std::string message =
      names.empty()
          ? fmt::format("no input of the model has a size named '{}': all are numbers", name)
          : fmt::format("no input of the model has a size named '{}'; there are '{}'", name, joined(names, "', '"));
  Error error{Code::unknown_name, message};
  error.hint = did_you_mean(name, names);
  return error;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  // On a mismatch only the last star has to take one more character: earlier stars need not be tried again.
  size_t p = 0, t = 0;
  size_t star = std::string_view::npos, star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace tessera
