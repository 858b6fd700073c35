// From a routine and the sizes of one call to an instance: every size that is known at the start, and where each buffer
// lies.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "kernels/abi.h"
#include "plan/prepare.h"
#include "plan/sizes.h"
#include "tessera/error.h"

namespace tessera::plan {

constexpr size_t kArenaAlignment = 64;  // a cache line, and the widest vector

// Where a buffer lies.
struct Place {
  enum class In : uint8_t {
    nowhere,  // the value is no buffer
    arena,    // at `offset`
    output,   // the memory of output `output`
    late,     // its size is not known at the start: allocated by the step that makes it
  };
  In in = In::nowhere;
  uint32_t output = 0;
  size_t offset = 0;
  size_t bytes = 0;
};

// Immutable: runs of the same sizes share it.
struct Instance {
  Bindings symbols;  // those known at the start
  Sizes sizes;
  std::vector<Place> places;  // by value
  std::vector<bool> checked;  // by step: a kernel step of known sizes, which check_kernel_step has passed
  size_t arena_bytes = 0;
  size_t scratch_bytes = 0;  // the most that a kernel of known sizes asks for
  // As reference numbers: the most bytes of intermediates and outputs that live in one step, of those with sizes known
  // at the start; memory shared in place counts once. No arena and outputs can be smaller.
  size_t live_set_bound_bytes = 0;
  size_t output_bytes = 0;  // of the outputs that buffers become
};

// Checks the inputs of a call against the routine and binds the symbols that they decide. `outer` are the caller's
// symbols, empty for routine 0. `inputs` has one entry an input, none null.
// Looks at element types, ranks and bounds: E0302, E0303, E0312 and E0316 name the input, what was expected and what
// was given.
Result<Bindings> bind_inputs(const Routine& routine, const PreparedRoutine& prepared,
                             std::span<const tessera::Value* const> inputs, const Bindings& outer);
// Checks the inputs' sizes once they have been evaluated: E0312, E0313.
Status check_inputs(const Routine& routine, const Sizes& sizes, std::span<const tessera::Value* const> inputs);

// Whether `given` is a tensor, a sequence or an optional as declared. E0302.
Status check_kind(const Value& declared, const tessera::Value& given, std::string_view what);

// Binds one symbol, from the tensor that decides it. E0312 when it is bound to another number already, E0316 when the
// number is out of its bounds. `what` names the tensor in messages.
Status bind_symbol(const Symbol& symbol, const Tensor& tensor, std::string_view what, std::optional<int64_t>& bound);

// Whether `tensor` has the declared type of `value`, as far as sizes are known. E0302, E0303, E0312, E0313.
Status check_type(const Routine& routine, const Sizes& sizes, ValueId value, const Tensor& tensor,
                  std::string_view what);

// The first guard that is known not to hold.
std::optional<uint32_t> failed_guard(const Routine& routine, const Sizes& sizes);

// Plans the memory of one call; `sizes` are those of `symbols`. E0313 when a size is impossible, E0503 when no memory
// could hold it.
Result<Instance> instantiate(const Prepared& prepared, uint32_t routine, Bindings symbols, Sizes sizes);

// Bytes of a tensor value of known sizes; nullopt when they are not known. E0313, E0503 as above.
Result<std::optional<size_t>> bytes_of(const Routine& routine, const Sizes& sizes, ValueId value);

// The value as a kernel sees it, `memory` being that of its owner. Its sizes are known and have been checked.
kernels::View view_of(const Routine& routine, const Sizes& sizes, ValueId value, void* memory);

// Whether all sizes that reading the value takes are known; if so its view, if it is one, has been checked against its
// base and the layout.
Result<bool> check_operand(const Routine& routine, const Sizes& sizes, ValueId value, Layout layout);

// Whether all sizes that the step needs are known; E0603 when a view leaves its base or has not the layout that the
// kernel takes: a plan that was tampered with. Kernel steps only.
Result<bool> check_kernel_step(const Routine& routine, const BoundKernel& kernel, const Step& step, const Sizes& sizes);

// Arguments of a kernel call. Reused between calls, so that the hot path does not allocate.
class KernelCall {
 public:
  // `memory(v)` gives the memory of value v's owner.
  template <class F>
  kernels::Args& build(const Routine& routine, const Step& step, const Sizes& sizes, const F& memory) {
    in_.clear();
    out_.clear();
    for (ValueId v : routine.operands(step))
      in_.push_back(v == kNone ? kernels::View{} : view_of(routine, sizes, v, memory(v)));
    for (ValueId v : routine.results(step)) out_.push_back(view_of(routine, sizes, v, memory(v)));
    return finish(routine, step, sizes);
  }

  // The attributes of a step alone; they last as long as the call and its next use.
  std::span<const kernels::Attr> attributes(const Routine& routine, const Step& step, const Sizes& sizes);

 private:
  kernels::Args& finish(const Routine& routine, const Step& step, const Sizes& sizes);
  std::vector<kernels::View> in_, out_;
  std::vector<kernels::Attr> attrs_;
  std::vector<int64_t> numbers_;
  kernels::Args args_ = {};
};

}  // namespace tessera::plan
