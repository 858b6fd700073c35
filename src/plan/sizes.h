// Evaluates the size expressions of a routine.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace tessera::plan {

// Values of a routine's symbols, by index; nullopt where not yet known.
using Bindings = std::vector<std::optional<int64_t>>;

// The values of all expressions of one routine. Copied by runs that learn more symbols on the way.
class Sizes {
 public:
  Sizes() = default;
  Sizes(const Routine& routine, const Bindings& symbols);

  bool known(ExprId id) const { return states_[id] == State::known; }
  // Overflow, or a division by zero.
  bool impossible(ExprId id) const { return states_[id] == State::impossible; }
  int64_t operator[](ExprId id) const { return values_[id]; }  // only when known
  // nullopt when not known.
  std::optional<int64_t> get(ExprId id) const { return known(id) ? std::optional<int64_t>(values_[id]) : std::nullopt; }
  // Evaluates what could not be before, now that more symbols are known.
  void update(const Routine& routine, const Bindings& symbols);
  bool complete() const { return open_.empty(); }
  // That it takes.
  size_t bytes() const { return values_.size() * (sizeof(int64_t) + sizeof(State)) + open_.size() * sizeof(ExprId); }

 private:
  enum class State : uint8_t { open, known, impossible };
  State evaluate(const Expr& expr, const Bindings& symbols, int64_t& value) const;
  std::vector<int64_t> values_;
  std::vector<State> states_;
  std::vector<ExprId> open_;  // ascending
};

// "2*seq + 1", for messages.
std::string print(const Routine& routine, ExprId id);
// "[batch, 4, 2*seq]"
std::string print_shape(const Routine& routine, ValueId value);

}  // namespace tessera::plan
