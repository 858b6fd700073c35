// Signatures: "x[*B, M, K], w[N, K], b?[N] -> y[*B, M, N]". One line gives shape inference, verification, error text
// and docs.
//
//   signature = [operands] "->" results                       both: operand {"," operand}
//   operand   = name ["?"] ["..."] "[" [axis {"," axis}] "]"  "?" optional, "..." one or more ("?...": or none) of this
//                                                             form
//   axis      = "*" Letters ["|1"]                            a run of axes; with |1 it broadcasts as numpy does
//             | term ["|1"]                                   |1: may be 1 where the letter's other uses are larger
//   term      = factor {"*" factor} ["/" number]              "H*D", "D/2" (without remainder), "2*D", "1"
//   factor    = Letters | number
//
// Letters that stand in a "..." operand only are each of its items' own: "xs...[*S] -> y[*R]" are any shapes,
// "xs...[*S] -> y[*S]" equal ones. Where nothing else tells how the axes of "[*B, *C]" divide, *B takes them all.
//
// Types: "x, w, y: float; i: i64|i32". A clause names values that share one type out of the alternatives; "each" before
// the names ("each x, w: float") lets them differ. Alternatives are type names or the classes float (f32|f16|bf16|f64),
// int, number (float|int), index (i64|i32), block (the
// types of quantized weights) and any (all but block and string). "-> attr" as the only alternative means the type
// that the attribute of this name gives. Without types, any will do; without a signature, operands are not checked.
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
  uint64_t types = 0;   // bit set of allowed DTypes
  int type_group = -1;  // values of one group share their type; -1: free
  int type_attr = -1;   // the type is that of this attribute
};
struct Signature {
  std::vector<std::string> letters;
  std::vector<SignatureOperand> operands;
  std::vector<SignatureOperand> results;
  int min_operands() const;
  std::string form(const SignatureOperand& operand) const;  // "[*B, M, 2*D]"
  std::string form(const SignatureAxis& axis) const;
  bool repeated() const { return !operands.empty() && operands.back().repeated; }
};

// Parses an OpDef's signature and types. An OpDef that does not parse is a bug of ours: E0901.
Result<Signature> parse_signature(const OpDef& op);
// The parsed signature of `op`, parsed once a process and kept: `op` must live as long. Thread-safe.
const Signature& signature_of(const OpDef& op);

// Checks operand count (E0301), types (E0302), ranks (E0303) and shapes (E0312; guards where neither provable nor
// refuted) and, when the op has no infer function, sets infer.results. Messages name the operand, the letter, the axis
// and both facts: "linear: K is 64 in x[2, 5, 64] (axis 2) but 32 in w[128, 32] (axis 1)". Operands of unknown rank
// match anything and make results of unknown rank unless their axes are known otherwise.
Status apply_signature(Infer& infer);

// Concrete shapes that satisfy the signature, for tests and benchmarks: for each declared operand the shapes of those
// given (an optional one has none now and then, a repeated one several). Equal seeds give equal shapes; none is empty.
std::vector<std::vector<Dims>> random_shapes(const Signature& signature, uint64_t seed);

}  // namespace tessera::ir
