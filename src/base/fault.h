// Faults that tests plant, to prove that what looks for faults finds them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/error.h"

namespace tessera {

// TESSERA_INJECT_FAULT=WHERE:NAME[:HOW][:N]
//   rule:NAME    the result of the N-th rewrite by this rule (default: the first) is wrong
//   pass:NAME    the same, by any rule of this pass
//   kernel:NAME  the last element of the first result of each call of this kernel is wrong
// HOW a rewrite is wrong: `scale` (default) multiplies floats by 1.25, adds 1 to integers and negates booleans, `swap`
// exchanges two operands of the new node, `drop` leaves out its last operand where it is optional.
struct PlantedFault {
  enum class Where : uint8_t { rule, pass, kernel } where = Where::rule;
  enum class How : uint8_t { scale, swap, drop } how = How::scale;
  std::string name;
  int64_t nth = 1;
};

// What the environment asks for; E0801 when it cannot be understood.
Result<std::optional<PlantedFault>> planted_fault();

}  // namespace tessera
