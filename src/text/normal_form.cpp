#include "text/normal_form.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/unicode.h"

namespace tessera::text {
namespace {

int combining_class(uint32_t c) { return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class; }

// The primary composite of two code points, or 0.
uint32_t composite(uint32_t a, uint32_t b) {
  utf8proc_int32_t pair[2] = {static_cast<utf8proc_int32_t>(a), static_cast<utf8proc_int32_t>(b)};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  return utf8proc_normalize_utf32(pair, 2, options) == 1 ? static_cast<uint32_t>(pair[0]) : 0;
}

void decompose(std::vector<SourcedCodePoint>& run, bool compatible) {
  std::vector<SourcedCodePoint> out;
  out.reserve(run.size());
  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (compatible) options |= UTF8PROC_COMPAT;
  for (const SourcedCodePoint& c : run) {
    utf8proc_int32_t parts[32];  // the longest decomposition, of U+FDFA, has 18
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code_point), parts, std::size(parts),
                                               static_cast<utf8proc_option_t>(options), &boundary);
    if (count <= 0) out.push_back(c);
    for (utf8proc_ssize_t i = 0; i < count; ++i) out.push_back({static_cast<uint32_t>(parts[i]), c.begin, c.end});
  }
  run = std::move(out);
}

// Canonical ordering: marks between two starters by their class, equal ones in their order.
void order(std::vector<SourcedCodePoint>& run) {
  for (size_t i = 0; i < run.size();) {
    if (combining_class(run[i].code_point) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < run.size() && combining_class(run[end].code_point) != 0) ++end;
    if (end - i > 1)
      std::stable_sort(run.begin() + static_cast<ptrdiff_t>(i), run.begin() + static_cast<ptrdiff_t>(end),
                       [](const SourcedCodePoint& a, const SourcedCodePoint& b) {
                         return combining_class(a.code_point) < combining_class(b.code_point);
                       });
    i = end;
  }
}

// D117: a code point composes with the last starter unless something between them blocks it.
void compose(std::vector<SourcedCodePoint>& run) {
  size_t starter = SIZE_MAX, out = 0;
  int last_class = -1;  // of what stands between the starter and here; -1 for nothing
  for (const SourcedCodePoint c : std::vector<SourcedCodePoint>(run)) {
    const int own = combining_class(c.code_point);
    const bool blocked = last_class >= own && last_class != -1;
    if (starter != SIZE_MAX && !blocked) {
      if (const uint32_t joined = composite(run[starter].code_point, c.code_point)) {
        run[starter] = {joined, std::min(run[starter].begin, c.begin), std::max(run[starter].end, c.end)};
        continue;
      }
    }
    if (own == 0) {
      starter = out;
      last_class = -1;
    } else {
      last_class = own;
    }
    run[out++] = c;
  }
  run.resize(out);
}

}  // namespace

bool joins_backward(uint32_t c) {
  if (c < 0x300) return false;
  // Hangul vowels and finals, the letters that become them in compatible forms, and the halfwidth voicing marks.
  if ((c >= 0x1160 && c <= 0x11FF) || (c >= 0x3131 && c <= 0x318E) || (c >= 0xFF9E && c <= 0xFFDC)) return true;
  return in(c, kMarks);
}

void normalize_run(std::vector<SourcedCodePoint>& run, bool compatible, bool composed) {
  decompose(run, compatible);
  order(run);
  if (composed) compose(run);
}

}  // namespace tessera::text
