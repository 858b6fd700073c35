#include "text/pretokenizer.h"

#include <algorithm>

#include "text/normalizer.h"
#include "text/scanners.h"

namespace tessera::text {
namespace {

struct Part {
  Span span;
  bool match;
};

// Appends the pieces that `parts`, which cover a piece from left to right, become.
void append_parts(const std::vector<Part>& parts, SplitBehavior behavior, std::vector<Span>& out) {
  const auto put = [&](Span span) {
    if (span.begin < span.end) out.push_back(span);
  };
  switch (behavior) {
    case SplitBehavior::removed:
      for (const Part& part : parts)
        if (!part.match) put(part.span);
      return;
    case SplitBehavior::isolated:
      for (const Part& part : parts) put(part.span);
      return;
    case SplitBehavior::contiguous:
      for (size_t i = 0; i < parts.size();) {
        Span span = parts[i].span;
        const bool match = parts[i].match;
        for (++i; i < parts.size() && parts[i].match == match; ++i) span.end = parts[i].span.end;
        put(span);
      }
      return;
    case SplitBehavior::merged_with_previous:
      // The first of several matches in a row joins what stands before it.
      for (size_t i = 0; i < parts.size(); ++i) {
        Span span = parts[i].span;
        if (!parts[i].match && i + 1 < parts.size() && parts[i + 1].match) span.end = parts[++i].span.end;
        put(span);
      }
      return;
    case SplitBehavior::merged_with_next:
      for (size_t i = 0; i < parts.size(); ++i) {
        Span span = parts[i].span;
        if (parts[i].match && i + 1 < parts.size() && !parts[i + 1].match) span.end = parts[++i].span.end;
        put(span);
      }
      return;
  }
}

// Each piece becomes what `cut(text of the piece, parts)` makes of it; spans in `parts` count from the piece.
template <class Cut>
Status split_each(Pieces& pieces, SplitBehavior behavior, Cut cut) {
  std::vector<Span> out;
  out.reserve(pieces.spans.size());
  std::vector<Part> parts;
  for (const Span& piece : pieces.spans) {
    parts.clear();
    TESSERA_TRY(cut(pieces.text.text().substr(piece.begin, piece.end - piece.begin), parts));
    for (Part& part : parts) {
      part.span.begin += piece.begin;
      part.span.end += piece.begin;
    }
    append_parts(parts, behavior, out);
  }
  pieces.spans = std::move(out);
  return {};
}

class Split : public PreTokenizer {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  Status apply(Pieces& pieces) const override {
    Matcher matcher(pattern_, {});
    return split_each(pieces, behavior_, [&](std::string_view text, std::vector<Part>& parts) -> Status {
      matcher.restart(text);
      const auto size = static_cast<uint32_t>(text.size());
      uint32_t done = 0;
      Span match;
      while (true) {
        TESSERA_ASSIGN(const bool found, matcher.next(match));
        if (!found) break;
        if (done < match.begin) parts.push_back({{done, match.begin}, invert_});
        parts.push_back({match, !invert_});
        done = match.end;
      }
      if (done < size) parts.push_back({{done, size}, invert_});
      return {};
    });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class ClassSplit : public PreTokenizer {
 public:
  ClassSplit(CodePointClass matches, SplitBehavior behavior) : matches_(matches), behavior_(behavior) {}
  Status apply(Pieces& pieces) const override {
    return split_each(pieces, behavior_, [&](std::string_view text, std::vector<Part>& parts) -> Status {
      uint32_t done = 0;
      for (uint32_t at = 0; at < text.size();) {
        const Decoded c = decode_at(text, at);
        if (matches_(c.code_point)) {
          if (done < at) parts.push_back({{done, at}, false});
          parts.push_back({{at, at + c.length}, true});
          done = at + c.length;
        }
        at += c.length;
      }
      if (done < text.size()) parts.push_back({{done, static_cast<uint32_t>(text.size())}, false});
      return {};
    });
  }

 private:
  CodePointClass matches_;
  SplitBehavior behavior_;
};

// Rust's \w has the two joiners besides.
bool is_rust_word(uint32_t c) { return is_word(c) || c == 0x200C || c == 0x200D; }

size_t scan_words(std::string_view text, size_t at) {
  const auto kind = [](uint32_t c) { return is_rust_word(c) ? 0 : is_space(c) ? 1 : 2; };
  const int first = kind(decode_at(text, at).code_point);
  while (at < text.size() && kind(decode_at(text, at).code_point) == first) at += decode_at(text, at).length;
  return at;
}

class Whitespace : public PreTokenizer {
 public:
  Status apply(Pieces& pieces) const override {
    return split_each(pieces, SplitBehavior::removed, [](std::string_view text, std::vector<Part>& parts) -> Status {
      for (size_t at = 0; at < text.size();) {
        const size_t end = scan_words(text, at);
        const uint32_t first = decode_at(text, at).code_point;
        parts.push_back({{static_cast<uint32_t>(at), static_cast<uint32_t>(end)}, is_space(first)});
        at = end;
      }
      return {};
    });
  }
};

class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(size_t length) : length_(length) {}
  Status apply(Pieces& pieces) const override {
    return split_each(pieces, SplitBehavior::isolated, [&](std::string_view text, std::vector<Part>& parts) -> Status {
      for (uint32_t at = 0; at < text.size();) {
        const uint32_t begin = at;
        for (size_t n = 0; n < length_ && at < text.size(); ++n) at += decode_at(text, at).length;
        parts.push_back({{begin, at}, true});
      }
      return {};
    });
  }

 private:
  size_t length_;
};

// Rewrites the text piece by piece: `put(rewriter, piece)` writes what becomes of one.
template <class Put>
Status rewrite_each(Pieces& pieces, Put put) {
  Rewriter rewriter(pieces.text);
  std::vector<Span> out;
  out.reserve(pieces.spans.size());
  for (const Span& piece : pieces.spans) {
    const auto begin = static_cast<uint32_t>(rewriter.size());
    put(rewriter, piece);
    const auto end = static_cast<uint32_t>(rewriter.size());
    if (begin < end) out.push_back({begin, end});
  }
  TESSERA_TRY(rewriter.finish());
  pieces.spans = std::move(out);
  return {};
}

class Metaspace : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)),
        scheme_(scheme),
        split_(split ? make_split(Pattern::literal(replacement_), SplitBehavior::merged_with_next, false) : nullptr) {}

  Status apply(Pieces& pieces) const override {
    const std::string_view text = pieces.text.text();
    TESSERA_TRY(rewrite_each(pieces, [&](Rewriter& out, Span piece) {
      const std::string_view own = text.substr(piece.begin, piece.end - piece.begin);
      const bool wanted =
          scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && pieces.at_start && piece.begin == 0);
      if (wanted && own[0] != ' ' && !own.starts_with(replacement_)) out.put(replacement_, piece.begin, piece.begin);
      for (size_t at = piece.begin; at < piece.end;) {
        const size_t space = std::min<size_t>(text.find(' ', at), piece.end);
        out.copy(at, space);
        if (space < piece.end) out.put(replacement_, space, space + 1);
        at = space + 1;
      }
    }));
    return split_ ? split_->apply(pieces) : Status();
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  PreTokenizerPtr split_;
};

class ByteLevel : public PreTokenizer {
 public:
  explicit ByteLevel(ByteLevelRules rules)
      : rules_(rules), split_(make_split(Pattern::scanner(scan_gpt2_ecma), SplitBehavior::isolated, false)) {}

  Status apply(Pieces& pieces) const override {
    const auto lacks_space = [&](Span piece) { return pieces.text.text()[piece.begin] != ' '; };
    if (rules_.add_prefix_space && std::any_of(pieces.spans.begin(), pieces.spans.end(), lacks_space)) {
      TESSERA_TRY(rewrite_each(pieces, [&](Rewriter& out, Span piece) {
        if (lacks_space(piece)) out.put(" ", piece.begin, piece.begin);
        out.copy(piece.begin, piece.end);
      }));
    }
    if (rules_.use_regex) TESSERA_TRY(split_->apply(pieces));
    if (!rules_.to_letters) return {};
    const std::string_view text = pieces.text.text();
    return rewrite_each(pieces, [&](Rewriter& out, Span piece) {
      for (size_t at = piece.begin; at < piece.end; ++at)
        out.put(byte_letter(static_cast<uint8_t>(text[at])), at, at + 1);
    });
  }

 private:
  ByteLevelRules rules_;
  PreTokenizerPtr split_;
};

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<PreTokenizerPtr> parts) : parts_(std::move(parts)) {}
  Status apply(Pieces& pieces) const override {
    for (const PreTokenizerPtr& part : parts_) TESSERA_TRY(part->apply(pieces));
    return {};
  }

 private:
  std::vector<PreTokenizerPtr> parts_;
};

}  // namespace

PreTokenizerPtr make_split(Pattern pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<Split>(std::move(pattern), behavior, invert);
}
PreTokenizerPtr make_class_split(CodePointClass matches, SplitBehavior behavior) {
  return std::make_unique<ClassSplit>(matches, behavior);
}
PreTokenizerPtr make_whitespace() { return std::make_unique<Whitespace>(); }
PreTokenizerPtr make_bert_pre_tokenizer() {
  std::vector<PreTokenizerPtr> parts;
  parts.push_back(make_class_split(is_space, SplitBehavior::removed));
  parts.push_back(make_class_split(is_punctuation, SplitBehavior::isolated));
  return make_pre_tokenizer_sequence(std::move(parts));
}
PreTokenizerPtr make_digits(bool individual) {
  return make_class_split([](uint32_t c) { return in(c, kNumbers); },
                          individual ? SplitBehavior::isolated : SplitBehavior::contiguous);
}
PreTokenizerPtr make_metaspace(std::string replacement, PrependScheme scheme, bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), scheme, split);
}
PreTokenizerPtr make_byte_level_pre_tokenizer(ByteLevelRules rules) { return std::make_unique<ByteLevel>(rules); }
PreTokenizerPtr make_fixed_length(size_t length) { return std::make_unique<FixedLength>(length); }
PreTokenizerPtr make_pre_tokenizer_sequence(std::vector<PreTokenizerPtr> parts) {
  return std::make_unique<Sequence>(std::move(parts));
}

Result<PreTokenizerPtr> make_unicode_scripts() {
  // Spaces belong to what stands before them. Scripts are named as PCRE2 knows them; code points of none (unassigned)
  // go with their neighbours too.
  constexpr std::string_view scripts[] = {"Common",
                                          "Inherited",
                                          "Latin",
                                          "Greek",
                                          "Cyrillic",
                                          "Armenian",
                                          "Hebrew",
                                          "Arabic",
                                          "Syriac",
                                          "Thaana",
                                          "Devanagari",
                                          "Bengali",
                                          "Gurmukhi",
                                          "Gujarati",
                                          "Oriya",
                                          "Tamil",
                                          "Telugu",
                                          "Kannada",
                                          "Malayalam",
                                          "Sinhala",
                                          "Thai",
                                          "Lao",
                                          "Tibetan",
                                          "Myanmar",
                                          "Georgian",
                                          "Hangul",
                                          "Ethiopic",
                                          "Cherokee",
                                          "Canadian_Aboriginal",
                                          "Ogham",
                                          "Runic",
                                          "Khmer",
                                          "Mongolian",
                                          "Bopomofo",
                                          "Yi",
                                          "Gothic",
                                          "Tagalog",
                                          "Limbu",
                                          "Tai_Le",
                                          "Braille",
                                          "Coptic",
                                          "Tifinagh",
                                          "Balinese",
                                          "Nko",
                                          "Lepcha",
                                          "Sundanese",
                                          "Javanese",
                                          "Cham",
                                          "Samaritan",
                                          "Lisu",
                                          "Adlam"};
  constexpr std::string_view loose = R"([ \p{Cn}]*)";
  std::string expression =
      R"([\p{Han}\p{Hiragana}\p{Katakana}\x{30FC}][ \p{Cn}\p{Han}\p{Hiragana}\p{Katakana}\x{30FC}]*)";
  for (std::string_view script : scripts) {
    // The prolonged sound mark is Common by its property.
    const bool common = script == "Common";
    expression +=
        "|(?:[\\p{" + std::string(script) + "}" + (common ? "&&[^ \\x{30FC}]" : "") + "]" + std::string(loose) + ")+";
  }
  TESSERA_ASSIGN(Pattern pattern, Pattern::compiled_regex(expression));
  return make_split(std::move(pattern), SplitBehavior::isolated, false);
}

}  // namespace tessera::text
