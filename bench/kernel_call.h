// A kernel with operands of a case: packed, called, and checked against the reference.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "bench/cases.h"
#include "kernels/abi.h"
#include "kernels/dispatch.h"
#include "tessera/error.h"

namespace tessera::bench {

class KernelCall {
 public:
  // The kernel that the table selects for the case, with random operands.
  static Result<KernelCall> make(const Case& c, const kernels::KernelSet& set, ThreadPool& pool);

  // Runs once; constants are those of set `i` modulo their number.
  void run(int64_t i) const;
  // Some elements of the result against the reference interpreter's, those of the case's smaller shapes where it has
  // them; E0901 when they differ.
  Status check() const;

  std::string_view kernel() const { return name_; }
  size_t scratch_bytes() const { return scratch_.size(); }
  // Elements of operand i as they were drawn, row-major.
  const Tensor& drawn(size_t i) const { return drawn_[i]; }
  float* result() const { return static_cast<float*>(out_[0].data); }

 private:
  Status compare() const;

  const Case* case_ = nullptr;
  const kernels::KernelSet* set_ = nullptr;
  ThreadPool* pool_ = nullptr;
  std::string_view name_;
  const kernels::KernelEntry* kernel_ = nullptr;
  std::vector<Tensor> drawn_, results_;
  std::vector<std::vector<AlignedBuffer>> packed_;  // of each operand: a copy a set
  std::vector<kernels::View> in_, out_;
  std::vector<kernels::Attr> attrs_;
  std::vector<std::vector<int64_t>> lists_;  // what attributes point to
  kernels::Parallel parallel_ = {};
  AlignedBuffer scratch_;
};

}  // namespace tessera::bench
