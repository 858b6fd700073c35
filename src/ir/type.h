// Types of values in a graph.
#pragma once

#include <string>

#include "tensor/dim.h"
#include "tessera/dtype.h"

namespace tessera::ir {

enum class Kind : uint8_t {
  tensor,
  sequence,  // list of `element`s
  optional,  // `element` or nothing
  nothing,   // the items of a list that has none yet: becomes the type of the first one put in
  state,     // a tensor that lives between runs and is consumed by the operator that changes it (linear)
};

// Interned by Context: two types of one context are equal exactly when their addresses are.
struct Type {
  Kind kind = Kind::tensor;
  DType dtype = DType::f32;       // tensor, state
  bool ranked = true;             // tensor: false when not even the rank is known before the run
  Shape shape = {};               // tensor, state; empty when !ranked
  const Type* element = nullptr;  // sequence, optional

  int rank() const { return static_cast<int>(shape.size()); }
  bool is_tensor() const { return kind == Kind::tensor; }
  bool operator==(const Type&) const = default;
};
using TypeRef = const Type*;

// "f32[batch, seq, 768]", "i64[]", "f32[*]" (rank unknown), "seq<f32[n]>", "opt<i64[]>", "state f32[b, 12, cap, 64]".
std::string to_string(const Type& type);

}  // namespace tessera::ir
