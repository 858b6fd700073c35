#include "plan/kernel_desc.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/result.h"
#include "kernels/abi.h"
#include "kernels/table.h"

namespace tessera::plan {
namespace {

static_assert(kMaxKernelRank == kernels::kMaxRank);

uint64_t bit(DType t) { return uint64_t{1} << static_cast<int>(t); }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  if (trimmed(text).empty()) return parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

// Bit set of a type's or class's name; 0 when there is none.
uint64_t types_of(std::string_view word) {
  constexpr DType kFloats[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
  constexpr DType kInts[] = {DType::i64, DType::i32, DType::i16, DType::i8,
                             DType::u64, DType::u32, DType::u16, DType::u8};
  uint64_t floats = 0, ints = 0, blocks = 0;
  for (DType t : kFloats) floats |= bit(t);
  for (DType t : kInts) ints |= bit(t);
  for (int t = kPlainTypeCount; t < kDTypeCount; ++t) blocks |= bit(static_cast<DType>(t));
  if (word == "float") return floats;
  if (word == "int") return ints;
  if (word == "number") return floats | ints;
  if (word == "block") return blocks;
  if (word == "any") return floats | ints | bit(DType::boolean);
  DType t;
  return parse_dtype(word, t) ? bit(t) : 0;
}

class RuleParser {
 public:
  RuleParser(std::string_view kernel, std::string_view types, std::string_view layouts)
      : kernel_(kernel), types_(types), layouts_(layouts) {}

  Status parse(KernelRule& rule) {
    TESSERA_ASSIGN(const auto types, sides(types_));
    TESSERA_ASSIGN(const auto layouts, sides(layouts_));
    TESSERA_TRY(parse_side(types.first, layouts.first, rule.operands));
    return parse_side(types.second, layouts.second, rule.results);
  }

 private:
  tl::unexpected<Error> wrong(std::string_view what, std::string_view word) const {
    return fail(Code::internal, "table.def, kernel '{}': {} '{}'", kernel_, what, word);
  }

  Result<std::pair<std::string_view, std::string_view>> sides(std::string_view text) const {
    const size_t arrow = text.find("->");
    if (arrow == std::string_view::npos) return wrong("no '->' in", text);
    return std::pair(text.substr(0, arrow), text.substr(arrow + 2));
  }

  Status parse_side(std::string_view types, std::string_view layouts, std::vector<OperandRule>& rules) {
    const auto words = split(types, ',');
    const auto layout_words = split(layouts, ',');
    if (layout_words.size() > words.size()) return wrong("more layouts than types in", layouts);
    if (layout_words.empty() && !words.empty()) return wrong("no layout in", layouts_);
    for (size_t i = 0; i < words.size(); ++i) {
      OperandRule rule;
      std::string_view word = words[i];
      if (word.ends_with("...")) {
        if (i + 1 != words.size()) return wrong("'...' before the end of", types);
        rule.repeated = true;
        word.remove_suffix(3);
      }
      if (word.ends_with('?')) {
        rule.presence = OperandRule::Presence::optional;
        word.remove_suffix(1);
      }
      if (word == "-")
        rule.presence = OperandRule::Presence::absent;
      else
        TESSERA_TRY(parse_types(word, rule));
      const std::string_view layout = layout_words[std::min(i, layout_words.size() - 1)];
      TESSERA_ASSIGN(rule.layout, layout_of(layout));
      rules.push_back(rule);
    }
    return {};
  }

  Result<Layout> layout_of(std::string_view word) const {
    if (word == "dense") return Layout::dense;
    if (word == "rows") return Layout::rows;
    if (word == "strided") return Layout::strided;
    if (word == "packed") return Layout::packed;
    return wrong("unknown layout", word);
  }

  Status parse_types(std::string_view word, OperandRule& rule) {
    if (!word.empty() && word[0] >= 'A' && word[0] <= 'Z') {
      rule.letter = word[0];
      if (word.size() == 1) {
        if (!letters_.contains(rule.letter)) return wrong("letter without types", word);
        rule.types = letters_[rule.letter];
        return {};
      }
      if (word[1] != ':') return wrong("expected ':' after the letter in", word);
      word.remove_prefix(2);
    }
    for (std::string_view alternative : split(word, '|')) {
      const uint64_t types = types_of(alternative);
      if (types == 0) return wrong("unknown type", alternative);
      rule.types |= types;
    }
    if (rule.types == 0) return wrong("no type in", types_);
    if (rule.letter != 0) letters_[rule.letter] = rule.types;
    return {};
  }

  std::string_view kernel_, types_, layouts_;
  std::map<char, uint64_t> letters_;
};

bool fits_side(const KernelRule& rule, bool results, OperandTypes types, ConstantOperands constants,
               std::map<char, DType>& letters) {
  const std::vector<OperandRule>& rules = results ? rule.results : rule.operands;
  for (size_t i = 0; i < std::max(types.size(), rules.size()); ++i) {
    const OperandRule* wanted = results ? rule.result(i) : rule.operand(i);
    const bool present = i < types.size() && types[i].has_value();
    if (wanted == nullptr) {
      if (present) return false;
      continue;
    }
    if (!present) {
      // Repeated operands may be none, but one that is named and absent is not an operand.
      if (wanted->presence == OperandRule::Presence::required && !(wanted->repeated && i >= types.size())) return false;
      continue;
    }
    if (wanted->presence == OperandRule::Presence::absent || (wanted->types & bit(*types[i])) == 0) return false;
    if (wanted->layout == Layout::packed && (i >= 64 || (constants >> i & 1) == 0)) return false;
    if (wanted->letter != 0 && letters.emplace(wanted->letter, *types[i]).first->second != *types[i]) return false;
  }
  return true;
}

const std::map<std::string_view, std::vector<KernelRule>>& all_rules() {
  static const auto rules = [] {
    std::map<std::string_view, std::vector<KernelRule>> by_op;
    for (const kernels::KernelDesc& desc : kernels::kernel_table()) {
      Result<KernelRule> rule = parse_rule(desc.op, desc.kernel, desc.types, desc.layouts, desc.in_place);
      TESSERA_CHECK(rule.has_value());
      by_op[desc.op].push_back(std::move(*rule));
    }
    return by_op;
  }();
  return rules;
}

}  // namespace

Result<KernelRule> parse_rule(std::string_view op, std::string_view kernel, std::string_view types,
                              std::string_view layouts, uint32_t in_place) {
  KernelRule rule;
  rule.op = op;
  rule.kernel = kernel;
  rule.in_place = in_place;
  TESSERA_TRY(RuleParser(kernel, types, layouts).parse(rule));
  return rule;
}

bool fits(const KernelRule& rule, OperandTypes operands, OperandTypes results, ConstantOperands constants) {
  std::map<char, DType> letters;
  return fits_side(rule, false, operands, constants, letters) && fits_side(rule, true, results, 0, letters);
}

std::span<const KernelRule> rules_for(std::string_view op) {
  auto found = all_rules().find(op);
  return found == all_rules().end() ? std::span<const KernelRule>() : std::span<const KernelRule>(found->second);
}

const KernelRule* select_kernel(std::string_view op, OperandTypes operands, OperandTypes results,
                                ConstantOperands constants) {
  for (const KernelRule& rule : rules_for(op))
    if (fits(rule, operands, results, constants)) return &rule;
  return nullptr;
}

const KernelRule* find_rule(std::string_view op, std::string_view kernel, OperandTypes operands, OperandTypes results) {
  for (const KernelRule& rule : rules_for(op))
    if (rule.kernel == kernel && fits(rule, operands, results)) return &rule;
  return nullptr;
}

}  // namespace tessera::plan
