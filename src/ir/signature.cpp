// Parsing of signatures, their text, and shapes drawn from them.
#include "ir/signature.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <shared_mutex>
#include <unordered_map>

namespace tessera::ir {
namespace {

constexpr uint64_t bit(DType t) { return uint64_t{1} << static_cast<int>(t); }

// The types that one alternative stands for; 0 when it is no word of the language.
uint64_t alternative(std::string_view word) {
  constexpr uint64_t kFloat = bit(DType::f32) | bit(DType::f16) | bit(DType::bf16) | bit(DType::f64);
  uint64_t ints = 0, blocks = 0;
  for (int t = 0; t < kDTypeCount; ++t)
    if (const DType type = static_cast<DType>(t); is_int(type) || is_block(type))
      (is_int(type) ? ints : blocks) |= bit(type);
  if (word == "float") return kFloat;
  if (word == "int") return ints;
  if (word == "number") return kFloat | ints;
  if (word == "index") return bit(DType::i64) | bit(DType::i32);
  if (word == "block") return blocks;
  if (word == "any") return bit(DType::string) - 1;  // string and the block types come last
  DType type;
  return parse_dtype(word, type) ? bit(type) : 0;
}

class Parser {
 public:
  explicit Parser(const OpDef& op) : op_(op), text_(op.signature) {}

  Result<Signature> parse() {
    if (text_.empty()) return std::move(signature_);
    TESSERA_TRY(values(signature_.operands));
    if (!take("->")) return wrong("'->'");
    TESSERA_TRY(values(signature_.results));
    if (at_ != text_.size()) return wrong("the end");
    for (size_t i = 0; i < signature_.operands.size(); ++i)
      if (signature_.operands[i].repeated && i + 1 < signature_.operands.size())
        return wrong("a repeated operand to be the last");
    for (const std::string& letter : signature_.letters)
      if (is_run(letter) && is_size(letter)) return wrong(letter + " to be either a size or a run of axes");
    TESSERA_TRY(types());
    return std::move(signature_);
  }

 private:
  Status values(std::vector<SignatureOperand>& list) {
    if (skip(), at_ == text_.size() || text_.substr(at_).starts_with("->")) return {};
    do {
      SignatureOperand& value = list.emplace_back();
      value.name = word();
      if (value.name.empty() || find(value.name, list.size() - 1, &list) != nullptr) return wrong("a new name");
      value.optional = take("?");
      value.repeated = take("...");
      if (!take("[")) return wrong("'['");
      if (take("]")) continue;
      do {
        TESSERA_TRY(axis(value));
      } while (take(","));
      if (!take("]")) return wrong("']'");
    } while (take(","));
    return {};
  }

  Status axis(SignatureOperand& value) {
    SignatureAxis axis;
    if (take("*")) {
      const std::string letter = word();
      if (letter.empty()) return wrong("the name of a run of axes");
      axis.variadic = true;
      axis.letters.push_back(index_of(letter));
      runs_.push_back(letter);
      for (const SignatureAxis& other : value.axes)
        if (other.variadic && other.letters == axis.letters) return wrong("each run once in an operand");
    } else {
      do {
        const std::string factor = word();
        if (factor.empty()) return wrong("a size");
        if (std::isdigit(static_cast<unsigned char>(factor[0]))) {
          TESSERA_ASSIGN(const int64_t n, number(factor));
          axis.factor *= n;
        } else {
          axis.letters.push_back(index_of(factor));
          sizes_.push_back(factor);
        }
      } while (take("*"));
      if (take("/")) {
        TESSERA_ASSIGN(axis.divisor, number(word()));
      }
    }
    if (take("|")) {
      if (word() != "1") return wrong("'1'");
      axis.broadcast = true;
    }
    value.axes.push_back(std::move(axis));
    return {};
  }

  // clause {";" clause}; clause = ["each"] name {"," name} ":" alternatives
  Status types() {
    text_ = op_.types;
    at_ = 0;
    if (text_.empty()) {
      for (auto* list : {&signature_.operands, &signature_.results})
        for (SignatureOperand& value : *list) value.types = alternative("any") | bit(DType::string);
      return {};
    }
    for (int group = 0; at_ < text_.size(); ++group) {
      std::vector<SignatureOperand*> members;
      std::string name = word();
      const bool each = name == "each" && (skip(), at_ < text_.size() && text_[at_] != ':' && text_[at_] != ',');
      if (each) name = word();
      for (;; name = word()) {
        SignatureOperand* member = find(name, signature_.operands.size(), &signature_.operands);
        if (member == nullptr) member = find(name, signature_.results.size(), &signature_.results);
        if (member == nullptr || member->types != 0 || member->type_attr >= 0) return wrong("a value without a type");
        members.push_back(member);
        if (!take(",")) break;
      }
      if (!take(":")) return wrong("':'");
      uint64_t allowed = 0;
      int attr = -1;
      if (take("->")) {
        attr = op_.attrs.find(word());
        if (attr < 0 || op_.attrs[attr].kind != AttrKind::dtype) return wrong("an attribute that is a type");
        allowed = alternative("any");
      } else {
        do {
          const uint64_t more = alternative(word());
          if (more == 0) return wrong("a type");
          allowed |= more;
        } while (take("|"));
      }
      for (SignatureOperand* member : members) {
        member->types = allowed;
        member->type_attr = attr;
        member->type_group = each || attr >= 0 ? -1 : group;
      }
      if (!take(";") && at_ < text_.size()) return wrong("';'");
    }
    for (const auto* list : {&signature_.operands, &signature_.results})
      for (const SignatureOperand& value : *list)
        if (value.types == 0) return wrong(value.name + "'s type");
    return {};
  }

  static SignatureOperand* find(std::string_view name, size_t count, std::vector<SignatureOperand>* list) {
    for (size_t i = 0; i < count; ++i)
      if ((*list)[i].name == name) return &(*list)[i];
    return nullptr;
  }
  bool is_run(const std::string& letter) const { return std::ranges::find(runs_, letter) != runs_.end(); }
  bool is_size(const std::string& letter) const { return std::ranges::find(sizes_, letter) != sizes_.end(); }

  int index_of(const std::string& letter) {
    std::vector<std::string>& letters = signature_.letters;
    const auto found = std::ranges::find(letters, letter);
    const int index = static_cast<int>(found - letters.begin());
    if (found == letters.end()) letters.push_back(letter);
    return index;
  }

  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view symbol) {
    skip();
    if (!text_.substr(at_).starts_with(symbol)) return false;
    at_ += symbol.size();
    skip();
    return true;
  }
  std::string word() {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    std::string found(text_.substr(begin, at_ - begin));
    skip();
    return found;
  }
  Result<int64_t> number(const std::string& digits) const {
    int64_t n = 0;
    for (char c : digits) {
      if (c < '0' || c > '9' || n > 1'000'000) return wrong("a small number");
      n = n * 10 + (c - '0');
    }
    if (n == 0) return wrong("a number above 0");
    return n;
  }
  tl::unexpected<Error> wrong(std::string_view wanted) const {
    return fail(Code::internal, "{}: expected {} at character {} of '{}'", op_.name, wanted, at_ + 1, text_);
  }

  const OpDef& op_;
  std::string_view text_;
  size_t at_ = 0;
  Signature signature_;
  std::vector<std::string> runs_, sizes_;  // letters by their use
};

}  // namespace

int Signature::min_operands() const {
  int needed = 0;
  for (size_t i = 0; i < operands.size(); ++i)
    if (!operands[i].optional) needed = static_cast<int>(i) + 1;
  return needed;
}

std::string Signature::form(const SignatureAxis& axis) const {
  std::string text = axis.variadic ? "*" : "";
  const char* times = "";
  if (axis.factor != 1 || axis.letters.empty()) {
    text += std::to_string(axis.factor);
    times = "*";
  }
  for (int letter : axis.letters) {
    text.append(times).append(letters[static_cast<size_t>(letter)]);
    times = "*";
  }
  if (axis.divisor != 1) text.append("/").append(std::to_string(axis.divisor));
  if (axis.broadcast) text.append("|1");
  return text;
}

std::string Signature::form(const SignatureOperand& operand) const {
  std::string text = "[";
  for (size_t i = 0; i < operand.axes.size(); ++i) text.append(i > 0 ? ", " : "").append(form(operand.axes[i]));
  return text.append("]");
}

Result<Signature> parse_signature(const OpDef& op) { return Parser(op).parse(); }

const Signature& signature_of(const OpDef& op) {
  static std::shared_mutex mutex;
  static std::unordered_map<const OpDef*, std::unique_ptr<const Signature>> parsed;
  {
    std::shared_lock lock(mutex);
    if (auto found = parsed.find(&op); found != parsed.end()) return *found->second;
  }
  Result<Signature> signature = parse_signature(op);
  TESSERA_CHECK(signature);
  std::unique_lock lock(mutex);
  return *parsed.emplace(&op, std::make_unique<const Signature>(std::move(*signature))).first->second;
}

std::vector<std::vector<Dims>> random_shapes(const Signature& signature, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  // A letter in "D/2" must be a multiple of 2, in "D/4" elsewhere of both.
  std::vector<int64_t> multiple(signature.letters.size(), 1);
  for (const auto* list : {&signature.operands, &signature.results})
    for (const SignatureOperand& value : *list)
      for (const SignatureAxis& axis : value.axes)
        if (axis.factor % axis.divisor != 0 && !axis.letters.empty()) {
          int64_t& m = multiple[static_cast<size_t>(axis.letters[0])];
          m = std::lcm(m, axis.divisor);
        }
  const auto draw_size = [&](size_t letter) {
    constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 16};  // odd and even, below and at a vector's width
    return kSizes[below(std::size(kSizes))] * multiple[letter];
  };
  std::vector<Dims> runs(signature.letters.size());
  std::vector<int64_t> sizes(signature.letters.size());
  for (size_t letter = 0; letter < sizes.size(); ++letter) {
    sizes[letter] = draw_size(letter);
    for (int64_t axes = below(3); axes > 0; --axes) runs[letter].push_back(draw_size(letter));
  }
  const auto shape_of = [&](const SignatureOperand& value) {
    Dims shape;
    for (const SignatureAxis& axis : value.axes) {
      const bool one = axis.broadcast && below(4) == 0;
      if (axis.variadic) {
        const Dims& run = runs[static_cast<size_t>(axis.letters[0])];
        const size_t dropped = axis.broadcast ? static_cast<size_t>(below(run.size() + 1)) / 2 : 0;
        for (size_t i = dropped; i < run.size(); ++i) shape.push_back(axis.broadcast && below(4) == 0 ? 1 : run[i]);
      } else {
        int64_t size = axis.factor;
        for (int letter : axis.letters) size *= sizes[static_cast<size_t>(letter)];
        shape.push_back(one ? 1 : size / axis.divisor);
      }
    }
    return shape;
  };
  std::vector<std::vector<Dims>> shapes;
  for (const SignatureOperand& operand : signature.operands) {
    std::vector<Dims>& given = shapes.emplace_back();
    int64_t count = operand.repeated ? 1 + below(3) : 1;
    if (operand.optional && below(3) == 0) count = 0;
    for (; count > 0; --count) given.push_back(shape_of(operand));
  }
  return shapes;
}

}  // namespace tessera::ir
