// What is measured: one line a case.
#pragma once

#include <string>
#include <vector>

#include "ir/attrs.h"
#include "tessera/tensor.h"

namespace tessera::bench {

// The limit that a case is held against.
enum class Limit {
  f32_peak,
  bf16_peak,
  int8_peak,
  read,  // memory, read once, plainly; what four streams reach is named too
  copy,  // memory, read and written
};

struct Operand {
  DType type = DType::f32;
  Dims shape = {};
  bool constant = false;
  // The axis of result 0 along which this operand's axis 0 runs, so that a check may look at some of it; -1 for all.
  int runs_along = -1;
  std::vector<int64_t> values = {};  // instead of drawn ones
  double most = 1;                   // of drawn floats
  bool present = true;
};

struct Case {
  std::string op;
  std::string shape;  // as it is printed
  std::vector<Operand> operands = {};
  std::vector<ir::AttrValue> attrs = {};
  Limit limit = Limit::copy;
  double work = 0;       // operations, or bytes
  double tolerance = 0;  // of the result's largest element
  int sets = 1;          // of constants, used in turn so that no cache holds them
  Dims result = {};      // of result 0
  DType result_type = DType::f32;
  std::vector<Dims> more_results = {};  // f32; not compared
  int64_t m = 0, n = 0, k = 0;          // of a matrix product, for the peers
  bool in_place = false;                // result 0 is the memory of operand 0
  // The same kernel on shapes that the reference can do, where it cannot do these: a shape each operand, and the
  // result's.
  std::vector<Dims> checked = {};

  // What tells the case's types: those of the operands that are drawn.
  std::string types() const;
};

std::vector<Case> cases();

// What two cases, which differ in their shapes, must be to each other.
struct Ratio {
  enum What { time, scratch } what = time;
  std::string op, types, shape, than;
  double most = 0;  // the first's share of the second's
};
std::vector<Ratio> ratios();

}  // namespace tessera::bench
