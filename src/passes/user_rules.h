// Rules that users write. The grammar stands in docs/rules.md.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "passes/driver.h"
#include "passes/patterns.h"

namespace tessera::passes {

class UserRules {
 public:
  UserRules() = default;
  UserRules(const UserRules&) = delete;

  // As they were written, and with what the built-in rules make of their left sides.
  const RuleSet& plain() const { return plain_; }
  const RuleSet& raised() const { return raised_; }
  bool has(std::string_view name) const;

 private:
  friend Result<std::shared_ptr<const UserRules>> parse_rules(std::string_view text);
  std::deque<std::string> texts_;  // that rules refer to
  std::deque<Rule> rules_;
  RuleSet plain_, raised_;
};

// Reads rules and checks each on random inputs: both sides must give the same, bit for bit or up to rounding as its
// class says. The text is untrusted. E0205 with line and column where it breaks the grammar; E0206 names a rule whose
// sides differ, with the inputs' sizes and both results; what reading its graphs finds.
Result<std::shared_ptr<const UserRules>> parse_rules(std::string_view text);

}  // namespace tessera::passes
