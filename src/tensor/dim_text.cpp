// Dims as text.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/strings.h"
#include "tensor/dim_impl.h"

namespace tessera {
namespace {

bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool in_name(char c) { return starts_name(c) || is_digit(c) || c == '.'; }

std::string quoted_unless_identifier(std::string_view name) {
  const bool call = name == "floordiv" || name == "ceildiv" || name == "mod" || name == "min" || name == "max";
  if (!name.empty() && !call && starts_name(name[0]) && std::ranges::all_of(name, in_name)) return std::string(name);
  std::string out = "\"";
  for (char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

struct Printer {
  const DimTable& table;

  std::string print(Dim d) const {
    if (d.is_const()) return std::to_string(d.value());
    struct Piece {
      int degree = 0;
      std::string text;
      int64_t coefficient = 0;
    };
    std::vector<Piece> pieces;
    for (const auto& term : table.terms(d)) {
      Piece piece{0, {}, term.coefficient};
      std::vector<std::string> factors;
      for (const auto& [index, power] : term.factors) {
        piece.degree += power;
        factors.insert(factors.end(), static_cast<size_t>(power), print_atom(table.atom(index)));
      }
      std::ranges::sort(factors);
      piece.text = fmt::format("{}", joined(factors, "*"));
      pieces.push_back(std::move(piece));
    }
    std::ranges::sort(pieces, [](const Piece& a, const Piece& b) {
      return a.degree != b.degree ? a.degree > b.degree : a.text < b.text;
    });
    std::string out;
    for (const Piece& piece : pieces) {
      const bool negative = piece.coefficient < 0;
      const uint64_t magnitude = negative ? ~static_cast<uint64_t>(piece.coefficient) + 1 : piece.coefficient;
      out += out.empty() ? (negative ? "-" : "") : (negative ? " - " : " + ");
      if (piece.degree == 0) {
        out += std::to_string(magnitude);
      } else {
        if (magnitude != 1) out += std::to_string(magnitude) + '*';
        out += piece.text;
      }
    }
    return out;
  }

  std::string print_atom(const DimTable::Atom& atom) const {
    using Kind = DimTable::AtomKind;
    if (atom.kind == Kind::symbol) return quoted_unless_identifier(table.symbol_name(atom.symbol));
    if (atom.kind == Kind::floordiv) return fmt::format("floordiv({}, {})", print(atom.a), print(atom.b));
    std::vector<std::string> operands;
    operands.push_back(print(atom.a));
    Dim tail = atom.b;
    for (const DimTable::Atom* next = bare(tail); next && next->kind == atom.kind; next = bare(tail)) {
      operands.push_back(print(next->a));
      tail = next->b;
    }
    operands.push_back(print(tail));
    // Constants last, as people write them.
    std::ranges::sort(operands, {}, [](const std::string& s) {
      const bool number = is_digit(s.back()) && s.find_first_not_of("-0123456789") == std::string::npos;
      return std::pair<bool, const std::string&>(number, s);
    });
    return fmt::format("{}({})", atom.kind == Kind::min ? "min" : "max", joined(operands, ", "));
  }

  // The atom when `d` is that atom alone.
  const DimTable::Atom* bare(Dim d) const {
    if (d.is_const()) return nullptr;
    const auto terms = table.terms(d);
    if (terms.size() != 1 || terms[0].coefficient != 1 || terms[0].factors.size() != 1) return nullptr;
    const auto& [atom, power] = terms[0].factors[0];
    return power == 1 ? &table.atom(atom) : nullptr;
  }
};

// sum := ["-"] product { ("+" | "-") product };  product := factor { "*" factor }
// factor := number | name | call "(" sum { "," sum } ")" | "(" sum ")"
class Parser {
 public:
  Parser(DimTable& table, std::string_view text) : table_(table), text_(text) {}

  Result<Dim> parse() {
    TESSERA_ASSIGN(const Dim d, sum(0));
    skip_space();
    if (at_ != text_.size()) return error("an operator or the end");
    return d;
  }

 private:
  // Prints nest at most kMaxDepth deep, so this reads them all and bounds the stack.
  static constexpr int kMaxNesting = 2 * DimTable::kMaxDepth;
  // A call takes no more operands than this.
  static constexpr size_t kMaxOperands = 1024;

  Result<Dim> sum(int depth) {
    if (depth > kMaxNesting) return fail(Code::text_syntax, "size expression nests deeper than {}", kMaxNesting);
    bool negative = take('-');
    Dim total = 0;
    while (true) {
      TESSERA_ASSIGN(const Dim next, product(negative, depth));
      total += next;
      if (take('+')) {
        negative = false;
      } else if (take('-')) {
        negative = true;
      } else {
        return total;
      }
    }
  }

  Result<Dim> product(bool negative, int depth) {
    Dim all = negative ? -1 : 1;
    skip_space();
    if (at_ < text_.size() && is_digit(text_[at_])) {
      // The sign belongs to the number: -2^63 has no positive counterpart.
      TESSERA_ASSIGN(all, number(negative));
      if (!take('*')) return all;
    }
    do {
      TESSERA_ASSIGN(const Dim next, factor(depth));
      all *= next;
    } while (take('*'));
    return all;
  }

  Result<Dim> factor(int depth) {
    skip_space();
    if (at_ == text_.size()) return error("a number, a name or '('");
    const char c = text_[at_];
    if (is_digit(c)) return number(false);
    if (take('(')) {
      TESSERA_ASSIGN(const Dim inner, sum(depth + 1));
      if (!take(')')) return error("')'");
      return inner;
    }
    if (c == '"') return quoted();
    if (!starts_name(c)) return error("a number, a name or '('");
    const size_t begin = at_;
    while (at_ < text_.size() && in_name(text_[at_])) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (!take('(')) return table_.symbol(name);
    std::vector<Dim> operands;
    do {
      if (operands.size() == kMaxOperands) return error("')'");
      TESSERA_ASSIGN(operands.emplace_back(), sum(depth + 1));
    } while (take(','));
    if (!take(')')) return error("',' or ')'");
    return call(name, operands);
  }

  Result<Dim> call(std::string_view name, std::span<const Dim> operands) {
    if (name == "min" || name == "max") {
      Dim all = operands[0];
      for (Dim d : operands.subspan(1)) all = name == "min" ? min(all, d) : max(all, d);
      return all;
    }
    if (name != "floordiv" && name != "ceildiv" && name != "mod")
      return fail(Code::text_syntax, "'{}' is no function of sizes: there are floordiv, ceildiv, mod, min and max",
                  name);
    if (operands.size() != 2) return fail(Code::text_syntax, "{} takes 2 operands but has {}", name, operands.size());
    if (name == "floordiv") return floordiv(operands[0], operands[1]);
    if (name == "ceildiv") return ceildiv(operands[0], operands[1]);
    return mod(operands[0], operands[1]);
  }

  Result<Dim> number(bool negative) {
    const uint64_t most = uint64_t{INT64_MAX} + negative;
    const size_t begin = at_;
    uint64_t value = 0;
    for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
      const auto digit = static_cast<uint64_t>(text_[at_] - '0');
      if (value > (most - digit) / 10) {
        at_ = begin;
        return error("a number of at most 64 bits");
      }
      value = value * 10 + digit;
    }
    return Dim(static_cast<int64_t>(negative ? ~value + 1 : value));
  }

  Result<Dim> quoted() {
    std::string name;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] != '\\') {
        name += text_[at_];
        continue;
      }
      if (++at_ == text_.size()) break;
      if (text_[at_] != 'x') {
        name += text_[at_];
        continue;
      }
      int byte = 0;
      for (int i = 0; i < 2; ++i) {
        ++at_;
        if (at_ == text_.size() || !std::isxdigit(static_cast<unsigned char>(text_[at_])))
          return error("two hexadecimal digits");
        const char c = text_[at_];
        byte = byte * 16 + (is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
      }
      name += static_cast<char>(byte);
    }
    if (at_ == text_.size()) return error("'\"'");
    ++at_;
    return table_.symbol(name);
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }

  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  tl::unexpected<Error> error(std::string_view expected) {
    const std::string_view found = text_.substr(at_, 16);
    return fail(Code::text_syntax, "size expression needs {} at column {} but has {}", expected, at_ + 1,
                found.empty() ? std::string("its end") : fmt::format("'{}'", found));
  }

  DimTable& table_;
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::string DimTable::print(Dim d) const {
  if (!d.is_const()) TESSERA_CHECK(d.table() == this);
  return Printer{*this}.print(d);
}

Result<Dim> DimTable::parse(std::string_view text) { return Parser(*this, text).parse(); }

std::string to_string(Dim d) { return d.is_const() ? std::to_string(d.value()) : d.table()->print(d); }

std::string to_string(std::span<const Dim> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += to_string(shape[i]);
  }
  return out + "]";
}

}  // namespace tessera
