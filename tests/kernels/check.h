// Compares the kernels that table.def names with the reference interpreter.
#pragma once

#include <utility>
#include <vector>

#include "ir/attrs.h"
#include "tessera/tensor.h"

namespace tessera::kernel_test {

struct Operand {
  DType type = DType::f32;
  Dims shape = {};
  double lo = -3, hi = 3;           // elements are drawn from here
  bool special = false;             // with NaN, infinities, zeroes and tiny numbers among them
  std::vector<double> values = {};  // instead of drawn ones
  bool present = true;
};
inline Operand absent() { return {.present = false}; }
inline Operand f32(Dims shape, double lo = -3, double hi = 3) { return {DType::f32, std::move(shape), lo, hi}; }

struct Case {
  const char* op;
  std::vector<Operand> operands;
  std::vector<ir::AttrValue> attrs = {};
  double rtol = 0;  // 0: a few units in the last place of the result's type
  double atol = 1e-40;
  int failure = 0;  // kernels::Failure that is expected; the reference must refuse too
};

// Runs the kernel that the table selects on every instruction set of this machine, with one thread and several, in
// place where the table allows it, and over every layout that it takes; each must agree with the reference, and with
// itself bit for bit over the number of threads. Reports through GoogleTest.
void check(const Case& c);

// The bytes of result 0, which has operand 0's shape and type, on every instruction set of this machine: for operands
// on which the reference would not tell what is wanted.
std::vector<std::vector<char>> results(const Case& c);

}  // namespace tessera::kernel_test
