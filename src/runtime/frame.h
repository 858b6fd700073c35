// The memory of one call of a routine.
#pragma once

#include <memory>
#include <vector>

#include "base/memory.h"
#include "plan/instantiate.h"
#include "tessera/tensor.h"

namespace tessera::runtime {

// Memory that runs use again. It follows a lasting fall in need, not a single one: shapes that alternate would
// otherwise take and give pages all the time.
class Workspace {
 public:
  // At the start of a run that needs `bytes` at least.
  Status begin(size_t bytes);
  // In the middle of one; what lay there is lost when it moves.
  Status grow(size_t bytes);
  std::byte* data() { return buffer_.data(); }
  size_t size() const { return buffer_.size(); }

 private:
  AlignedBuffer buffer_;
  size_t used_ = 0;   // by the run that is on, or was the last
  int spacious_ = 0;  // runs in a row that needed less than half
};

// Reused by later calls of the same routine. A routine is active at most once in a run, so a run has one of each.
struct Frame {
  Workspace arena;
  Workspace scratch;
  std::shared_ptr<const plan::Instance> instance;
  plan::Bindings symbols;  // those of the instance, and those learnt on the way
  plan::Sizes own_sizes;   // used once symbols have been learnt
  const plan::Sizes* sizes = nullptr;
  std::vector<void*> memory;    // by value; set for owners of plain tensors
  std::vector<Value> values;    // by value: inputs and constants (shared), boxed values, late buffers
  std::vector<Tensor> outputs;  // by output: the memory of those that buffers become
  plan::KernelCall call;
};

// Bytes that a run holds, and the most that it held.
class LiveBytes {
 public:
  void add(size_t bytes) {
    now_ += bytes;
    if (now_ > peak_) peak_ = now_;
  }
  void remove(size_t bytes) { now_ -= bytes; }
  size_t peak() const { return peak_; }

 private:
  size_t now_ = 0;
  size_t peak_ = 0;
};

// Bytes of the tensors in a value.
size_t bytes_of(const Value& value);
// The same elements at an address that their type allows: `tensor` itself, or a copy.
Result<Tensor> aligned(const Tensor& tensor);
bool is_aligned(const Tensor& tensor);
Result<Tensor> copy_of(const Tensor& tensor);

}  // namespace tessera::runtime
