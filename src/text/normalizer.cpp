#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "text/normal_form.h"

namespace tessera::text {
namespace {

// A normalizer that looks at one code point at a time: `rule(rewriter, code point, begin, end)` writes what becomes of
// it.
template <class Rule>
class PerCodePoint : public Normalizer {
 public:
  explicit PerCodePoint(Rule rule) : rule_(std::move(rule)) {}
  Status apply(Aligned& text) const override {
    Rewriter rewriter(text);
    for (size_t at = 0; at < text.text().size();) {
      const Decoded c = decode_at(text.text(), at);
      rule_(rewriter, c.code_point, at, at + c.length);
      at += c.length;
    }
    return rewriter.finish();
  }

 private:
  Rule rule_;
};

template <class Rule>
NormalizerPtr per_code_point(Rule rule) {
  return std::make_unique<PerCodePoint<Rule>>(std::move(rule));
}

class FormNormalizer : public Normalizer {
 public:
  explicit FormNormalizer(NormalForm form)
      : compatible_(form == NormalForm::nfkc || form == NormalForm::nfkd),
        compose_(form == NormalForm::nfc || form == NormalForm::nfkc) {}

  Status apply(Aligned& text) const override {
    const std::string_view in = text.text();
    // Below these nothing changes: U+00A0 has a compatible, U+00C0 a canonical decomposition, U+0300 is the first mark.
    const uint32_t quiet = compatible_ ? 0xA0 : compose_ ? 0x300 : 0xC0;
    const auto is_quiet = [&](size_t at) { return decode_at(in, at).code_point < quiet; };
    size_t first = 0;
    while (first < in.size() && is_quiet(first)) first += decode_at(in, first).length;
    if (first == in.size()) return {};

    Rewriter rewriter(text);
    std::vector<SourcedCodePoint> run;
    for (size_t at = 0; at < in.size();) {
      run.clear();
      do {
        const Decoded c = decode_at(in, at);
        run.push_back({c.code_point, static_cast<uint32_t>(at), static_cast<uint32_t>(at + c.length)});
        at += c.length;
      } while (at < in.size() && joins_backward(decode_at(in, at).code_point));
      if (run.size() == 1 && run[0].code_point < quiet) {
        rewriter.copy(run[0].begin, run[0].end);
        continue;
      }
      normalize_run(run, compatible_, compose_);
      for (const SourcedCodePoint& c : run) rewriter.put(c.code_point, c.begin, c.end);
    }
    return rewriter.finish();
  }

 private:
  bool compatible_;
  bool compose_;
};

class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  Status apply(Aligned& text) const override {
    const std::string_view in = text.text();
    size_t begin = 0, end = in.size();
    if (left_)
      while (begin < end && is_space(decode_at(in, begin).code_point)) begin += decode_at(in, begin).length;
    if (right_)
      while (end > begin && is_space(decode_before(in, end).code_point)) end -= decode_before(in, end).length;
    if (begin == 0 && end == in.size()) return {};
    Rewriter rewriter(text);
    rewriter.copy(begin, end);
    return rewriter.finish();
  }

 private:
  bool left_;
  bool right_;
};

class Affix : public Normalizer {
 public:
  Affix(std::string content, bool before) : content_(std::move(content)), before_(before) {}
  Status apply(Aligned& text) const override {
    const size_t size = text.text().size();
    if (size == 0) return {};
    Rewriter rewriter(text);
    if (before_) rewriter.put(content_, 0, 0);
    rewriter.copy(0, size);
    if (!before_) rewriter.put(content_, size, size);
    return rewriter.finish();
  }

 private:
  std::string content_;
  bool before_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Status apply(Aligned& text) const override {
    const std::string_view in = text.text();
    Matcher matcher(pattern_, in);
    Span match;
    TESSERA_ASSIGN(bool found, matcher.next(match));
    if (!found) return {};
    Rewriter rewriter(text);
    size_t done = 0;
    while (found) {
      rewriter.copy(done, match.begin);
      rewriter.put(content_, match.begin, match.end);
      done = match.end;
      TESSERA_ASSIGN(found, matcher.next(match));
    }
    rewriter.copy(done, in.size());
    return rewriter.finish();
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class PrecompiledNormalizer : public Normalizer {
 public:
  explicit PrecompiledNormalizer(Charsmap map) : map_(std::move(map)) {}
  // A grapheme of less than 6 bytes is replaced whole by what its *shortest* matching prefix maps to; where none does,
  // each of its code points likewise. The models were converted with exactly this reading of the map.
  Status apply(Aligned& text) const override {
    const std::string_view in = text.text();
    Rewriter rewriter(text);
    for (size_t at = 0; at < in.size();) {
      const size_t end = grapheme_end(in, at);
      if (end - at < 6) {
        if (const auto match = map_.shortest(in.substr(0, end), at)) {
          put(rewriter, match->replacement, at, end);
          at = end;
          continue;
        }
      }
      while (at < end) {
        const size_t next = at + decode_at(in, at).length;
        if (const auto match = map_.shortest(in.substr(0, next), at)) {
          put(rewriter, match->replacement, at, next);
        } else {
          rewriter.copy(at, next);
        }
        at = next;
      }
    }
    return rewriter.finish();
  }

 private:
  static size_t grapheme_end(std::string_view in, size_t at) {
    utf8proc_int32_t state = 0;
    Decoded c = decode_at(in, at);
    for (at += c.length; at < in.size(); at += c.length) {
      const Decoded next = decode_at(in, at);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.code_point),
                                           static_cast<utf8proc_int32_t>(next.code_point), &state))
        break;
      c = next;
    }
    return at;
  }

  // The replacements of a hostile map need not be text.
  static void put(Rewriter& rewriter, std::string_view replacement, size_t begin, size_t end) {
    if (is_valid_utf8(replacement)) {
      rewriter.put(replacement, begin, end);
    } else {
      rewriter.put(repair_utf8(replacement), begin, end);
    }
  }

  Charsmap map_;
};

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<NormalizerPtr> parts) : parts_(std::move(parts)) {}
  Status apply(Aligned& text) const override {
    for (const NormalizerPtr& part : parts_) TESSERA_TRY(part->apply(text));
    return {};
  }

 private:
  std::vector<NormalizerPtr> parts_;
};

bool is_chinese(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

NormalizerPtr make_clean_text() {
  return per_code_point([](Rewriter& out, uint32_t c, size_t begin, size_t end) {
    const bool space = is_space(c);
    if (c == '\t' || c == '\n' || c == '\r') return out.put(" ", begin, end);
    if (c == 0 || c == 0xFFFD || in(c, kOther)) return;
    space ? out.put(" ", begin, end) : out.copy(begin, end);
  });
}

NormalizerPtr make_chinese_spaces() {
  return per_code_point([](Rewriter& out, uint32_t c, size_t begin, size_t end) {
    if (!is_chinese(c)) return out.copy(begin, end);
    out.put(" ", begin, begin);
    out.copy(begin, end);
    out.put(" ", end, end);
  });
}

NormalizerPtr make_remove(uint32_t categories) {
  return per_code_point([categories](Rewriter& out, uint32_t c, size_t begin, size_t end) {
    if (!in(c, categories)) out.copy(begin, end);
  });
}

bool is_printable_latin1(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> letters;
  std::array<int16_t, 324> bytes;  // the last letter is 256 + 67
  Alphabet() {
    bytes.fill(-1);
    uint16_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const size_t at = static_cast<size_t>(byte);
      letters[at] = is_printable_latin1(byte) ? static_cast<uint16_t>(byte) : next++;
      bytes[letters[at]] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}

}  // namespace

NormalizerPtr make_normal_form(NormalForm form) { return std::make_unique<FormNormalizer>(form); }
NormalizerPtr make_strip(bool left, bool right) { return std::make_unique<StripNormalizer>(left, right); }
NormalizerPtr make_prepend(std::string content) { return std::make_unique<Affix>(std::move(content), true); }
NormalizerPtr make_append(std::string content) { return std::make_unique<Affix>(std::move(content), false); }
NormalizerPtr make_strip_accents() { return make_remove(kMarks); }
NormalizerPtr make_replace(Pattern pattern, std::string content) {
  return std::make_unique<ReplaceNormalizer>(std::move(pattern), std::move(content));
}
NormalizerPtr make_precompiled(Charsmap map) { return std::make_unique<PrecompiledNormalizer>(std::move(map)); }
NormalizerPtr make_sequence(std::vector<NormalizerPtr> parts) {
  return std::make_unique<SequenceNormalizer>(std::move(parts));
}

NormalizerPtr make_lowercase() {
  return per_code_point([](Rewriter& out, uint32_t c, size_t begin, size_t end) {
    std::string lower;
    append_lower(lower, c);
    out.put(lower, begin, end);
  });
}

NormalizerPtr make_nmt() {
  return per_code_point([](Rewriter& out, uint32_t c, size_t begin, size_t end) {
    if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F)
      return;
    const bool odd_space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
                           c == 0xFFFD;
    odd_space ? out.put(" ", begin, end) : out.copy(begin, end);
  });
}

NormalizerPtr make_bert(BertRules rules) {
  std::vector<NormalizerPtr> parts;
  if (rules.clean_text) parts.push_back(make_clean_text());
  if (rules.handle_chinese_chars) parts.push_back(make_chinese_spaces());
  if (rules.strip_accents) {
    parts.push_back(make_normal_form(NormalForm::nfd));
    parts.push_back(make_remove(bit(Category::Mn)));
  }
  if (rules.lowercase) parts.push_back(make_lowercase());
  return make_sequence(std::move(parts));
}

NormalizerPtr make_byte_level() {
  return per_code_point([](Rewriter& out, uint32_t c, size_t begin, size_t end) {
    std::string bytes, letters;
    append_utf8(bytes, c);
    for (char byte : bytes) append_utf8(letters, byte_letter(static_cast<uint8_t>(byte)));
    out.put(letters, begin, end);
  });
}

uint32_t byte_letter(uint8_t byte) { return alphabet().letters[byte]; }

int letter_byte(uint32_t c) { return c < alphabet().bytes.size() ? alphabet().bytes[c] : -1; }

bool letters_to_bytes(std::string_view token, std::string& bytes) {
  bytes.clear();
  for (size_t at = 0; at < token.size();) {
    const Decoded c = decode_at(token, at);
    const int byte = letter_byte(c.code_point);
    if (byte < 0) return false;
    bytes.push_back(static_cast<char>(byte));
    at += c.length;
  }
  return true;
}

}  // namespace tessera::text
