#include "plan/pack.h"

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "plan/instantiate.h"

namespace tessera::plan {
namespace {

constexpr size_t kMaxConstantBytes = size_t{1} << 44;  // of a constant to be packed: more than any machine has

// The call of a kernel's packing functions: one operand, its data null, and the step's attributes.
struct Call {
  kernels::View view = {};
  KernelCall attributes;
  kernels::PackArgs args = {};
};

Result<std::unique_ptr<Call>> call_of(const Routine& r, const Step& step, size_t index, const Sizes& sizes) {
  const ValueId operand = r.operands(step)[index];
  auto call = std::make_unique<Call>();
  TESSERA_ASSIGN(bool known, check_operand(r, sizes, operand, Layout::strided));
  TESSERA_ASSIGN(const std::optional<size_t> plain, bytes_of(r, sizes, operand));
  // Packing functions multiply sizes without a look at overflow.
  if (plain && *plain > kMaxConstantBytes)
    return fail(Code::plan_invalid, "operand {} of a kernel has {} bytes", index, *plain);
  for (uint32_t a = 0; a < step.n_attrs; ++a)
    for (ExprId id : r.list(r.attrs[step.attrs + a].list)) known &= sizes.known(id);
  if (!known)
    return fail(Code::plan_invalid, "operand {} of a kernel is packed, but its shape depends on a run", index);
  call->view = view_of(r, sizes, operand, nullptr);
  const std::span<const kernels::Attr> attrs = call->attributes.attributes(r, step, sizes);
  call->args = {&call->view, static_cast<int>(index), attrs.data(), static_cast<int>(attrs.size()), nullptr};
  return call;
}

class Packer {
 public:
  Packer(Plan& plan, const kernels::KernelSet& kernels, const PackOptions& options)
      : plan_(plan), kernels_(kernels), options_(options), readers_(plan.constants.size(), 0) {}

  Status run() {
    for (Routine& r : plan_.routines) find(r);
    if (places_.empty()) return {};
    TESSERA_TRY(lay_out());
    // Readers that take a constant packed, and those that are left and take it as it is.
    std::vector<uint32_t> packs(plan_.constants.size(), 0);
    for (const Place& place : places_) {
      const uint32_t source = constant_of(*place.routine, operand_of(place));
      ++packs[source];
      --readers_[source];
    }
    for (const Place& place : places_) {
      const uint32_t source = constant_of(*place.routine, operand_of(place));
      TESSERA_TRY(pack(place));
      if (--packs[source] == 0 && readers_[source] == 0) drop(source);
    }
    plan_.isa = kernels_.isa();
    retire();
    return {};
  }

 private:
  // One form of a constant, which all who want it share.
  struct Packed {
    size_t offset = 0;  // in the memory of all
    size_t bytes = 0;
    uint32_t constant = kNone;  // of the plan, once packed
  };

  // An operand to be packed.
  struct Place {
    Routine* routine;
    const kernels::KernelEntry* entry;
    uint32_t step;
    uint32_t index;
    Packed* packed = nullptr;
  };

  static uint32_t owner_of(const Routine& r, ValueId v) {
    return r.values[v].storage == Storage::view ? r.values[v].base : v;
  }
  static ValueId operand_of(const Place& place) {
    return place.routine->operands(place.routine->steps[place.step])[place.index];
  }
  static uint32_t constant_of(const Routine& r, ValueId v) { return r.values[owner_of(r, v)].index; }
  static bool is_constant(const Routine& r, ValueId v) {
    return v != kNone && r.values[owner_of(r, v)].storage == Storage::constant;
  }

  // Counts the readers of constants, and notes those that take them packed.
  void find(Routine& r) {
    for (ValueId v : r.outputs)
      if (is_constant(r, v)) ++readers_[constant_of(r, v)];
    for (uint32_t s = 0; s < r.steps.size(); ++s) {
      const Step& step = r.steps[s];
      const auto operands = r.operands(step);
      const KernelRule* rule = step.kind == StepKind::kernel ? rule_of(plan_, r, step) : nullptr;
      for (uint32_t i = 0; i < operands.size(); ++i) {
        if (!is_constant(r, operands[i])) continue;
        ++readers_[constant_of(r, operands[i])];
        if (rule == nullptr || r.values[operands[i]].packed || rule->operand(i)->layout != Layout::packed) continue;
        places_.push_back({&r, kernels_.find(rule->kernel), s, i, nullptr});
      }
    }
  }

  // The same elements for the same kernel.
  static std::string key_of(const Place& place, const Call& call, uint32_t source, int64_t offset) {
    std::string key = place.entry->name;
    auto add = [&](int64_t number) { key.append(reinterpret_cast<const char*>(&number), sizeof(number)); };
    add(place.index);
    add(source);
    add(offset);
    for (int a = 0; a < call.view.rank; ++a) {
      add(call.view.shape[a]);
      add(call.view.stride[a]);
    }
    for (int a = 0; a < call.args.n_attrs; ++a) {
      const kernels::Attr& attr = call.args.attrs[a];
      add(attr.i);
      key.append(reinterpret_cast<const char*>(&attr.f), sizeof(attr.f));
      for (int i = 0; i < attr.length; ++i) add(attr.list[i]);
    }
    return key;
  }

  // Where each packed constant will lie. One buffer for all: large pages take fewer faults.
  Status lay_out() {
    size_t total = 0;
    for (Place& place : places_) {
      const Routine& r = *place.routine;
      const Step& step = r.steps[place.step];
      if (place.entry == nullptr || place.entry->pack == nullptr)
        return fail(Code::plan_invalid, "{}: the {} kernels cannot pack its operand {}", describe(plan_, step),
                    kernels_.isa(), place.index);
      const ValueId operand = operand_of(place);
      TESSERA_ASSIGN(const std::unique_ptr<Call> call, call_of(r, step, place.index, sizes_of(r)));
      const bool view = r.values[operand].storage == Storage::view;
      const int64_t offset = view ? sizes_of(r)[r.values[operand].offset] : 0;
      const auto [at, fresh] = packed_.try_emplace(key_of(place, *call, constant_of(r, operand), offset));
      place.packed = &at->second;
      if (!fresh) continue;
      at->second.offset = total;
      at->second.bytes = place.entry->packed_size(call->args);
      total += (at->second.bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    }
    TESSERA_ASSIGN(AlignedBuffer made, AlignedBuffer::make(total, Pages::huge));
    memory_ = std::make_shared<AlignedBuffer>(std::move(made));
    return {};
  }

  const Sizes& sizes_of(const Routine& r) {
    if (sizes_routine_ != &r) sizes_ = Sizes(r, Bindings(r.symbols.size()));
    sizes_routine_ = &r;
    return sizes_;
  }

  Status pack(const Place& place) {
    Routine& r = *place.routine;
    const Step& step = r.steps[place.step];
    const ValueId operand = operand_of(place);
    Packed& packed = *place.packed;
    if (packed.constant == kNone) {
      TESSERA_ASSIGN(const std::unique_ptr<Call> call, call_of(r, step, place.index, sizes_of(r)));
      call->view = view_of(r, sizes_of(r), operand, const_cast<void*>(plan_.constants[constant_of(r, operand)].data()));
      call->args.parallel = options_.parallel;
      std::byte* out = memory_->data() + packed.offset;
      place.entry->pack(call->args, out);
      packed.constant = static_cast<uint32_t>(plan_.constants.size());
      plan_.constants.push_back(Tensor::borrow(DType::u8, {static_cast<int64_t>(packed.bytes)}, out, memory_));
    }
    Value value;
    value.dtype = r.values[operand].dtype;
    value.storage = Storage::constant;
    value.packed = true;
    value.index = packed.constant;
    value.shape = r.values[operand].shape;
    value.name = r.values[operand].name.empty() ? r.values[owner_of(r, operand)].name : r.values[operand].name;
    r.lists[step.operands.first + place.index] = r.add_value(std::move(value));
    return {};
  }

  void drop(uint32_t constant) {
    Tensor& tensor = plan_.constants[constant];
    if (options_.release_source && tensor.bytes() > 0) options_.release_source(tensor.data(), tensor.bytes());
    tensor = Tensor();
    dropped_.resize(plan_.constants.size(), false);
    dropped_[constant] = true;
  }

  // Values of dropped constants, which nothing reads, become an empty constant, and the others move together.
  void retire() {
    dropped_.resize(plan_.constants.size(), false);
    std::vector<Tensor> kept = {Tensor::borrow(DType::u8, {0}, nullptr, nullptr)};
    std::vector<uint32_t> moved(plan_.constants.size(), 0);
    for (size_t i = 0; i < plan_.constants.size(); ++i) {
      if (dropped_[i]) continue;
      moved[i] = static_cast<uint32_t>(kept.size());
      kept.push_back(std::move(plan_.constants[i]));
    }
    for (Routine& r : plan_.routines) {
      std::optional<List> empty;
      for (ValueId v = 0; v < r.values.size(); ++v) {
        Value& value = r.values[v];
        const bool view = value.storage == Storage::view;
        // Bases come before what lies on them: they have been retired already.
        const bool gone = view ? r.values[value.base].storage == Storage::constant && r.values[value.base].index == 0
                               : value.storage == Storage::constant && moved[value.index] == 0;
        if (gone) {
          if (!empty) {
            const ExprId none[] = {r.add_constant(0)};
            empty = r.add_list(none);
          }
          Value nothing;
          nothing.dtype = DType::u8;
          nothing.storage = Storage::constant;
          nothing.shape = *empty;
          value = nothing;
        } else if (value.storage == Storage::constant) {
          value.index = moved[value.index];
        }
      }
    }
    plan_.constants = std::move(kept);
  }

  Plan& plan_;
  const kernels::KernelSet& kernels_;
  const PackOptions& options_;
  std::vector<Place> places_;
  std::vector<uint32_t> readers_;  // by constant: operands and outputs that it is
  std::vector<bool> dropped_;      // by constant
  std::unordered_map<std::string, Packed> packed_;
  std::shared_ptr<AlignedBuffer> memory_;  // of the packed constants
  const Routine* sizes_routine_ = nullptr;
  Sizes sizes_;
};

}  // namespace

Status pack_constants(Plan& plan, const kernels::KernelSet& kernels, const PackOptions& options) {
  return Packer(plan, kernels, options).run();
}

Result<size_t> packed_bytes(const Routine& routine, const Step& step, size_t index, const kernels::KernelEntry& entry,
                            const Sizes& sizes) {
  if (entry.packed_size == nullptr)
    return fail(Code::plan_invalid, "the kernel '{}' packs no operand, but operand {} is packed", entry.name, index);
  TESSERA_ASSIGN(const std::unique_ptr<Call> call, call_of(routine, step, index, sizes));
  return entry.packed_size(call->args);
}

}  // namespace tessera::plan
