// Oniguruma's regular expressions in PCRE2's syntax. What differs: \h is a hexadecimal digit, \s and \w are Unicode
// properties, x{n}+ repeats a repetition, (?m) lets the dot match line ends, and character classes nest ([a[bc]]) and
// intersect ([a&&b]). Properties of PCRE2 are those of Unicode 14.0: what came since is added to each.
#include <fmt/format.h>

#include <array>
#include <optional>

#include "base/result.h"
#include "text/regex.h"

namespace tessera::text {
namespace {

constexpr std::string_view kSpaces =
    "\\x09-\\x0D\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";
constexpr std::string_view kAlphabeticSymbols =
    "\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}"
    "\\x{1F170}-\\x{1F189}";
constexpr int kMaxNesting = 100;

constexpr std::array<std::string_view, 30> kCategoryNames = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

// The categories of a property's name ("L", "Lu"); 0 for other properties.
uint32_t categories_of(std::string_view name) {
  uint32_t set = 0;
  if (name.empty() || name.size() > 2) return 0;
  for (size_t i = 1; i < kCategoryNames.size(); ++i)
    if (kCategoryNames[i].starts_with(name)) set |= 1u << i;
  return set;
}

// What belongs into [] for a union of categories.
std::string category_items(uint32_t set) {
  std::string items;
  for (size_t i = 1; i < kCategoryNames.size(); ++i)
    if (set >> i & 1) items += fmt::format("\\p{{{}}}", kCategoryNames[i]);
  for (const CategoryChange& change : category_changes())
    if (set >> static_cast<int>(change.category) & 1)
      items += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", change.first, change.last);
  return items;
}

std::string word_items() {
  return category_items(kLetters | kMarks | bit(Category::Nd) | bit(Category::Nl) | bit(Category::Pc)) +
         std::string(kAlphabeticSymbols);
}

// What belongs into [] for a property, POSIX name or class of that name.
std::string property_items(std::string_view name) {
  std::string lower;
  for (char c : name)
    if (c != ' ' && c != '_' && c != '-') lower += static_cast<char>(to_lower(static_cast<unsigned char>(c)));
  if (lower == "letter") return category_items(kLetters);
  if (lower == "mark") return category_items(kMarks);
  if (lower == "number") return category_items(kNumbers);
  if (lower == "punctuation") return category_items(kPunctuation);
  if (lower == "symbol") return category_items(kSymbols);
  if (lower == "alpha" || lower == "alphabetic")
    return category_items(kLetters | bit(Category::Nl)) + "\\p{Alphabetic}" + std::string(kAlphabeticSymbols);
  if (lower == "alnum") return property_items("alpha") + category_items(bit(Category::Nd));
  if (lower == "digit") return category_items(bit(Category::Nd));
  if (lower == "word") return word_items();
  if (lower == "space" || lower == "whitespace") return std::string(kSpaces);
  if (lower == "blank") return "\\t" + category_items(bit(Category::Zs));
  if (lower == "punct") return category_items(kPunctuation | kSymbols);
  if (lower == "cntrl") return category_items(bit(Category::Cc));
  if (lower == "xdigit") return std::string(kHexDigits);
  if (lower == "upper") return "\\p{Uppercase}";
  if (lower == "lower") return "\\p{Lowercase}";
  if (lower == "ascii") return "\\x00-\\x7F";
  if (const uint32_t set = categories_of(name)) return category_items(set);
  return fmt::format("\\p{{{}}}", name);  // a script, or what PCRE2 will refuse
}

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}
  Result<std::string> run();

 private:
  // A character class while it is read: the union of `items` ([] content) and `others` (whole atoms).
  struct Set {
    std::string items;
    std::vector<std::string> others;
    bool after_set = false;  // the last item was no single character: no range can begin with it
  };

  bool at_end() const { return at_ == in_.size(); }
  bool take(std::string_view text) {
    if (!in_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  tl::unexpected<Error> bad(std::string_view what) const {
    return fail(Code::unsupported_feature, "the regular expression '{}' has {} at byte {}", in_, what, at_);
  }
  void atom(std::string_view text) {
    atom_ = out_.size();
    out_ += text;
  }
  Status escape();
  Status group();
  Result<bool> quantifier();
  // The content of \p{...}, after "\p" or "\P"; sets `negated` for ^.
  Result<std::string> property(bool& negated);
  Result<std::string> hex_escape();
  Result<std::string> character_class(int depth);
  Status class_escape(Set& set);
  std::string folded(std::string_view character) const;
  static std::string close(const Set& set);

  struct Group {
    size_t begin;
    bool fold;
  };
  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = SIZE_MAX;  // where in out_ the last atom begins
  bool fold_ = false;
  std::vector<Group> groups_;
};

std::string quoted(std::string_view character) {
  constexpr std::string_view special = "\\^$.[]|()?*+{}-&~#";
  return special.find(character[0]) != std::string_view::npos ? fmt::format("\\{}", character) : std::string(character);
}

std::string Translator::folded(std::string_view character) const {
  const unsigned char c = static_cast<unsigned char>(character[0]);
  const auto lower = static_cast<char>(c | 0x20);
  if (!fold_ || c >= 0x80 || lower < 'a' || lower > 'z') return quoted(character);
  return fmt::format("[{}{}]", lower, static_cast<char>(lower - 32));
}

Result<std::string> Translator::hex_escape() {
  // After \x or \u: {H...}, or two or four digits.
  const bool is_u = in_[at_ - 1] == 'u';
  std::string digits;
  if (take("{")) {
    while (!at_end() && in_[at_] != '}' && digits.size() < 8) digits += in_[at_++];
    if (!take("}")) return bad("an open escape");
  } else {
    constexpr std::string_view hex = "0123456789abcdefABCDEF";
    while (!at_end() && digits.size() < (is_u ? 4u : 2u) && hex.find(in_[at_]) != std::string_view::npos)
      digits += in_[at_++];
  }
  return fmt::format("\\x{{{}}}", digits.empty() ? "0" : digits);
}

Result<std::string> Translator::property(bool& negated) {
  if (!take("{")) {
    if (at_end()) return bad("an open property");
    return property_items(in_.substr(at_++, 1));  // \pL
  }
  if (take("^")) negated = !negated;
  const size_t end = in_.find('}', at_);
  if (end == std::string_view::npos) return bad("an open property");
  const std::string_view name = in_.substr(at_, end - at_);
  at_ = end + 1;
  if (name.empty()) return bad("a property without a name");
  return property_items(name);
}

Status Translator::escape() {
  if (at_end()) return bad("a lone backslash");
  const Decoded c = decode_at(in_, at_);
  const std::string_view character = in_.substr(at_, c.length);
  at_ += c.length;
  switch (character[0]) {
    case 'p':
    case 'P': {
      bool negated = character[0] == 'P';
      TESSERA_ASSIGN(const std::string items, property(negated));
      atom(fmt::format("[{}{}]", negated ? "^" : "", items));
      return {};
    }
    case 's':
      atom(fmt::format("[{}]", kSpaces));
      return {};
    case 'S':
      atom(fmt::format("[^{}]", kSpaces));
      return {};
    case 'd':
      atom(fmt::format("[{}]", property_items("digit")));
      return {};
    case 'D':
      atom(fmt::format("[^{}]", property_items("digit")));
      return {};
    case 'w':
      atom(fmt::format("[{}]", word_items()));
      return {};
    case 'W':
      atom(fmt::format("[^{}]", word_items()));
      return {};
    case 'h':
      atom(fmt::format("[{}]", kHexDigits));
      return {};
    case 'H':
      atom(fmt::format("[^{}]", kHexDigits));
      return {};
    case 'x':
    case 'u': {
      TESSERA_ASSIGN(const std::string text, hex_escape());
      atom(text);
      return {};
    }
    case 'G':
      return {};  // where a search begins: each of ours begins where the last match ended
    case 'g':
    case 'k':
      return bad("a subexpression call");
    case 'A':
    case 'z':
    case 'Z':
    case 'b':
    case 'B':
    case 'a':
    case 'e':
    case 'f':
    case 'n':
    case 'r':
    case 't':
    case 'R':
    case 'X':
    case 'K':
      atom(fmt::format("\\{}", character));
      return {};
    case 'v':
      atom("\\x0B");
      return {};
    default:
      break;
  }
  if (character[0] >= '1' && character[0] <= '9') return bad("a back-reference");
  if (character[0] == '0') return atom("\\x00"), Status();
  if (c.code_point < 0x80 && ((character[0] | 0x20) >= 'a' && (character[0] | 0x20) <= 'z'))
    return bad("an unknown escape");
  atom(quoted(character));
  return {};
}

Status Translator::group() {
  const size_t begin = out_.size();
  const bool outer = fold_;
  if (take("(?#")) {
    at_ = std::min(in_.find(')', at_), in_.size());
    if (!take(")")) return bad("an open comment");
    return {};
  }
  std::string prefix = "(?:";
  bool whole_rest = false;
  if (take("(?:") || take("(?=") || take("(?!") || take("(?>")) {
    prefix = std::string(in_.substr(at_ - 3, 3));
  } else if (take("(?<=") || take("(?<!")) {
    prefix = std::string(in_.substr(at_ - 4, 4));
  } else if (take("(?<") || take("(?P<")) {
    at_ = std::min(in_.find('>', at_), in_.size());
    if (!take(">")) return bad("an open group name");
  } else if (take("(?")) {
    bool on = true;
    for (; !at_end() && in_[at_] != ':' && in_[at_] != ')'; ++at_) {
      switch (in_[at_]) {
        case '-':
          on = false;
          break;
        case 'i':
          fold_ = on;
          break;
        case 'm':
          prefix += on ? "(?s)" : "(?-s)";
          break;
        case 'x':
          return bad("extended syntax");
        default:
          return bad("an unknown group");
      }
    }
    if (at_end()) return bad("an open group");
    whole_rest = in_[at_++] == ')';  // (?i) holds to the end of the group around it
    if (whole_rest) {
      out_ += prefix.substr(3);
      return {};
    }
  } else {
    ++at_;  // captures are never asked for
  }
  if (groups_.size() >= kMaxNesting) return bad("too deep a nesting");
  groups_.push_back({begin, outer});
  out_ += prefix;
  atom_ = SIZE_MAX;
  return {};
}

// Takes {n}, {n,}, {,m} or {n,m}; false when the brace is a plain character.
Result<bool> Translator::quantifier() {
  size_t end = at_ + 1;
  std::string low, high;
  bool comma = false;
  for (; end < in_.size() && in_[end] != '}'; ++end) {
    if (in_[end] == ',' && !comma) {
      comma = true;
    } else if (in_[end] >= '0' && in_[end] <= '9' && low.size() < 6 && high.size() < 6) {
      (comma ? high : low) += in_[end];
    } else {
      return false;
    }
  }
  if (end == in_.size() || (low.empty() && high.empty()) || atom_ == SIZE_MAX) return false;
  at_ = end + 1;
  const std::string body = !comma ? low : fmt::format("{},{}", low.empty() ? "0" : low, high);
  const bool repeated = !at_end() && (in_[at_] == '+' || in_[at_] == '*');
  if (repeated) {
    out_ = fmt::format("{}(?:{}{{{}}})", out_.substr(0, atom_), out_.substr(atom_), body);
  } else {
    out_ += fmt::format("{{{}}}", body);
  }
  return true;
}

Status Translator::class_escape(Set& set) {
  ++at_;
  if (at_end()) return bad("a lone backslash");
  const Decoded c = decode_at(in_, at_);
  const std::string_view character = in_.substr(at_, c.length);
  at_ += c.length;
  set.after_set = false;
  const auto add = [&](bool negated, const std::string& items) {
    set.after_set = true;
    negated ? set.others.push_back(fmt::format("[^{}]", items)) : void(set.items += items);
  };
  switch (character[0]) {
    case 'p':
    case 'P': {
      bool negated = character[0] == 'P';
      TESSERA_ASSIGN(const std::string items, property(negated));
      add(negated, items);
      return {};
    }
    case 's':
    case 'S':
      add(character[0] == 'S', std::string(kSpaces));
      return {};
    case 'd':
    case 'D':
      add(character[0] == 'D', property_items("digit"));
      return {};
    case 'w':
    case 'W':
      add(character[0] == 'W', word_items());
      return {};
    case 'h':
    case 'H':
      add(character[0] == 'H', std::string(kHexDigits));
      return {};
    case 'x':
    case 'u': {
      TESSERA_ASSIGN(const std::string text, hex_escape());
      set.items += text;
      return {};
    }
    case 'a':
    case 'e':
    case 'f':
    case 'n':
    case 'r':
    case 't':
      set.items += fmt::format("\\{}", character);
      return {};
    case 'v':
      set.items += "\\x0B";
      return {};
    case 'b':
      set.items += "\\x08";
      return {};
    case '0':
      set.items += "\\x00";
      return {};
    default:
      set.items += quoted(character);
      return {};
  }
}

// One atom for the union.
std::string Translator::close(const Set& set) {
  if (set.others.empty()) return fmt::format("[{}]", set.items);
  std::string out = "(?:";
  if (!set.items.empty()) out += fmt::format("[{}]|", set.items);
  for (const std::string& other : set.others) out += other + "|";
  out.back() = ')';
  return out;
}

Result<std::string> Translator::character_class(int depth) {
  if (depth > kMaxNesting) return bad("too deep a nesting");
  ++at_;  // [
  const bool negated = take("^");
  std::vector<Set> operands(1);
  for (bool first = true;; first = false) {
    if (at_end()) return bad("an open character class");
    Set& set = operands.back();
    const char c = in_[at_];
    if (c == ']' && !first) break;
    if (c == '\\') {
      TESSERA_TRY(class_escape(set));
    } else if (take("&&")) {
      operands.emplace_back();
    } else if (take("[:")) {
      const bool not_in = take("^");
      const size_t end = in_.find(":]", at_);
      if (end == std::string_view::npos) return bad("an open POSIX class");
      const std::string items = property_items(in_.substr(at_, end - at_));
      at_ = end + 2;
      not_in ? set.others.push_back(fmt::format("[^{}]", items)) : void(set.items += items);
      set.after_set = true;
    } else if (c == '[') {
      TESSERA_ASSIGN(std::string nested, character_class(depth + 1));
      set.others.push_back(std::move(nested));
      set.after_set = true;
    } else if (c == '-') {
      ++at_;
      // Between two characters a range, else itself.
      const bool range =
          !first && !at_end() && in_[at_] != ']' && in_[at_] != '[' && !set.items.empty() && !set.after_set;
      set.items += range ? "-" : "\\-";
      set.after_set = false;
    } else {
      const Decoded d = decode_at(in_, at_);
      const std::string_view character = in_.substr(at_, d.length);
      const bool letter = fold_ && d.code_point < 0x80 && ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
      const bool in_range = (at_ + 1 < in_.size() && in_[at_ + 1] == '-') || set.items.ends_with('-');
      set.items += quoted(character);
      set.after_set = false;
      if (letter && !in_range) set.items += static_cast<char>(c ^ 0x20);
      at_ += d.length;
    }
  }
  ++at_;
  for (const Set& set : operands)
    if (set.items.empty() && set.others.empty()) return bad("an empty character class");
  if (operands.size() == 1 && operands[0].others.empty())
    return fmt::format("[{}{}]", negated ? "^" : "", operands[0].items);
  std::string positive = close(operands[0]);
  if (operands.size() > 1) {
    std::string ahead;
    for (size_t i = 1; i < operands.size(); ++i) ahead += fmt::format("(?={})", close(operands[i]));
    positive = fmt::format("(?:{}{})", ahead, positive);
  }
  return negated ? fmt::format("(?:(?!{})(?s:.))", positive) : positive;
}

Result<std::string> Translator::run() {
  if (!is_valid_utf8(in_)) return bad("invalid UTF-8");
  while (!at_end()) {
    const char c = in_[at_];
    switch (c) {
      case '\\':
        ++at_;
        TESSERA_TRY(escape());
        break;
      case '[': {
        TESSERA_ASSIGN(const std::string text, character_class(0));
        atom(text);
        break;
      }
      case '(':
        TESSERA_TRY(group());
        break;
      case ')':
        if (groups_.empty()) return bad("an unmatched parenthesis");
        out_ += ')';
        atom_ = groups_.back().begin;
        fold_ = groups_.back().fold;
        groups_.pop_back();
        ++at_;
        break;
      case '|':
        out_ += '|';
        atom_ = SIZE_MAX;
        ++at_;
        break;
      case '{': {
        TESSERA_ASSIGN(const bool taken, quantifier());
        if (!taken) {
          atom("\\{");
          ++at_;
        }
        break;
      }
      case '}':
      case ']':
        atom(fmt::format("\\{}", c));
        ++at_;
        break;
      case '*':
      case '+':
      case '?':
        out_ += c;
        ++at_;
        break;
      case '^':
      case '$':
      case '.':
        atom(in_.substr(at_, 1));
        ++at_;
        break;
      default: {
        const uint32_t length = decode_at(in_, at_).length;
        atom(folded(in_.substr(at_, length)));
        at_ += length;
        break;
      }
    }
  }
  if (!groups_.empty()) return bad("an open group");
  return std::move(out_);
}

}  // namespace

Result<std::string> translate_oniguruma(std::string_view expression) { return Translator(expression).run(); }

}  // namespace tessera::text
