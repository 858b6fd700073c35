// Signatures: "x[*B, M, K], w[N, K], b?[N] -> y[*B, M, N]". One line gives shape inference, verification, error text
// and docs.
//
//   signature = operands "->" operands
//   operand   = name ["?"] ["..."] "[" [axis {"," axis}] "]"     "?" optional, "..." any number of operands of this
//   form axis      = "*" Letters ["|1"]                                a run of axes; with |1 numpy-broadcast against
//   its other uses
//             | term ["|1"]                                       |1: may be 1 where the others are larger
//   term      = factor {"*" factor} ["/" number]                  "H*D", "D/2", "2*D", "1"
//   factor    = Letters | number
//
// Types: "x, w, y: float; i: i64|i32". A clause names values that share one type out of the alternatives; "each" before
// the names
// ("each x, w: float") lets them differ. Alternatives are type names or the classes float, int, number (float|int), any
// (number|bool), index (i64|i32). "-> attr" as the only alternative means the type that the attribute of this name
// gives.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/op_def.h"

namespace tessera::ir {

struct SignatureAxis {
  bool variadic = false;     // *B
  bool broadcast = false;    // |1
  int64_t factor = 1;        // 2*D
  int64_t divisor = 1;       // D/2
  std::vector<int> letters;  // indices into Signature::letters; empty: the number `factor`
};
struct SignatureOperand {
  std::string name;
  bool optional = false;
  bool repeated = false;
  std::vector<SignatureAxis> axes;
  uint32_t types = 0;   // bit set of allowed DTypes
  int type_group = -1;  // values of one group share their type; -1: free
  int type_attr = -1;   // the type is that of this attribute
};
struct Signature {
  std::vector<std::string> letters;
  std::vector<SignatureOperand> operands;
  std::vector<SignatureOperand> results;
  int min_operands() const;
  bool repeated() const { return !operands.empty() && operands.back().repeated; }
};

// Parses an OpDef's signature and types. An OpDef that does not parse is a bug of ours: E0901.
Result<Signature> parse_signature(const OpDef& op);
// The parsed signature of `op`, parsed once a process and kept (thread-safe).
const Signature& signature_of(const OpDef& op);

// Checks operand count (E0301), types (E0302), ranks (E0303) and shapes (E0312; guards where neither provable nor
// refuted) and, when the op has no infer function, sets infer.results. Messages name the operand, the letter, the axis
// and both facts: "linear: K is 64 in x[2, 5, 64] (axis 2) but 32 in w[128, 32] (axis 1)". Operands of unknown rank
// match anything and make results of unknown rank unless their axes are known otherwise.
Status apply_signature(Infer& infer);

}  // namespace tessera::ir
