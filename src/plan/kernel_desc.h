// The kernel table with its constraints parsed: what compile selects from, and what a plan is verified against.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/dtype.h"
#include "tessera/error.h"

namespace tessera::plan {

constexpr int kMaxKernelRank = 12;  // as kernels::kMaxRank

enum class Layout : uint8_t {
  dense,
  rows,
  strided,  // each allows those before it
  packed,   // a constant, laid out once by the kernel's own function: plan/pack.h
};

// What a kernel takes in one place. The grammar stands in kernels/table.def.
struct OperandRule {
  enum class Presence : uint8_t { required, optional, absent };
  uint64_t types = 0;  // bit set over DType
  char letter = 0;     // operands with one letter have one type
  Presence presence = Presence::required;
  bool repeated = false;  // the last of its list only: any number, none too
  Layout layout = Layout::dense;
};

struct KernelRule {
  std::string_view op;
  std::string_view kernel;
  std::vector<OperandRule> operands;
  std::vector<OperandRule> results;
  uint32_t in_place = 0;  // bit i: result 0 may lie in the memory of operand i

  // The rule for operand (or result) i of a call with any number of them; nullptr when there are too many.
  const OperandRule* operand(size_t i) const { return at(operands, i); }
  const OperandRule* result(size_t i) const { return at(results, i); }

 private:
  static const OperandRule* at(const std::vector<OperandRule>& rules, size_t i) {
    if (i < rules.size()) return &rules[i];
    return !rules.empty() && rules.back().repeated ? &rules.back() : nullptr;
  }
};

// nullopt stands for an absent operand.
using OperandTypes = std::span<const std::optional<DType>>;

// Bit i: operand i is a constant. Those beyond 63 count as none.
using ConstantOperands = uint64_t;
constexpr ConstantOperands kAllConstant = ~uint64_t{0};

// Whether the kernel takes operands and results of these types.
bool fits(const KernelRule& rule, OperandTypes operands, OperandTypes results,
          ConstantOperands constants = kAllConstant);

// The lines of the table for `op`, in order; empty when there are none.
std::span<const KernelRule> rules_for(std::string_view op);
// The first of them that fits; nullptr when none does.
const KernelRule* select_kernel(std::string_view op, OperandTypes operands, OperandTypes results,
                                ConstantOperands constants = 0);
// The first of them that fits and names this kernel; nullptr when none does.
const KernelRule* find_rule(std::string_view op, std::string_view kernel, OperandTypes operands, OperandTypes results);

// Parses the columns of one line; E0901 on a line that breaks the grammar.
Result<KernelRule> parse_rule(std::string_view op, std::string_view kernel, std::string_view types,
                              std::string_view layouts, uint32_t in_place);

}  // namespace tessera::plan
