#include "plan/instantiate.h"

#include <algorithm>

#include "base/result.h"
#include "plan/colour.h"

namespace tessera::plan {
namespace {

// No machine has this much: sums of such sizes cannot overflow.
constexpr size_t kMaxArenaBytes = size_t{1} << 46;
constexpr int64_t kMaxCount = int64_t{1} << 46;

std::string describe_value(const Routine& r, ValueId v) {
  const std::string& name = r.values[v].name;
  return name.empty() ? fmt::format("value {} {}", v, print_shape(r, v)) : fmt::format("'{}'", name);
}

bool shape_known(const Routine& r, const Sizes& sizes, ValueId v) {
  auto shape = r.shape(v);
  return std::all_of(shape.begin(), shape.end(), [&](ExprId id) { return sizes.known(id); });
}

Result<std::optional<int64_t>> count_of(const Routine& r, const Sizes& sizes, ValueId v) {
  int64_t count = 1;
  bool empty = false, known = true;
  for (ExprId id : r.shape(v)) {
    if (sizes.impossible(id))
      return fail(Code::shape_invalid, "the size {} of {} overflows or divides by zero", print(r, id),
                  describe_value(r, v));
    known &= sizes.known(id);
    if (!sizes.known(id)) continue;
    if (sizes[id] < 0)
      return fail(Code::shape_invalid, "the size {} of {} is {}", print(r, id), describe_value(r, v), sizes[id]);
    empty |= sizes[id] == 0;
  }
  if (!known) return std::nullopt;
  if (empty) return 0;
  for (ExprId id : r.shape(v))
    if (__builtin_mul_overflow(count, sizes[id], &count) || count > kMaxCount)
      return fail(Code::out_of_memory, "{} has more than 2^46 elements", describe_value(r, v));
  return count;
}

// Row-major without gaps, whatever the strides of axes of size 1.
bool is_dense(const Routine& r, const Sizes& sizes, const Value& v) {
  auto shape = r.list(v.shape), strides = r.list(v.strides);
  int64_t expected = 1;
  for (size_t a = shape.size(); a-- > 0;) {
    if (sizes[shape[a]] != 1 && sizes[strides[a]] != expected) return false;
    expected *= sizes[shape[a]];
  }
  return true;
}

// Whether the view is all of its base in order, under another shape.
bool is_whole(const Routine& r, const Sizes& sizes, ValueId v) {
  Result<bool> usable = check_operand(r, sizes, v, Layout::dense);
  if (!usable || !*usable || sizes[r.values[v].offset] != 0) return false;
  Result<std::optional<size_t>> bytes = bytes_of(r, sizes, v), base = bytes_of(r, sizes, r.values[v].base);
  return bytes && base && *bytes && *bytes == *base;
}

// Whether the view can be used; its sizes are known and its count fits.
Status check_view(const Routine& r, const Sizes& sizes, ValueId id, int64_t count, Layout layout) {
  const Value& v = r.values[id];
  TESSERA_ASSIGN(const std::optional<int64_t> base_count, count_of(r, sizes, v.base));
  if (!base_count) return fail(Code::plan_invalid, "the base of the view {} has no size", describe_value(r, id));
  auto shape = r.list(v.shape), strides = r.list(v.strides);
  if (count == 0) return {};
  int64_t low = sizes[v.offset], high = low;
  for (size_t a = 0; a < shape.size(); ++a) {
    int64_t reach = 0;
    int64_t& end = sizes[strides[a]] < 0 ? low : high;
    if (__builtin_mul_overflow(sizes[strides[a]], sizes[shape[a]] - 1, &reach) ||
        __builtin_add_overflow(end, reach, &end))
      return fail(Code::plan_invalid, "the view {} overflows", describe_value(r, id));
  }
  if (low < 0 || high >= *base_count)
    return fail(Code::index_out_of_range, "{} reads elements {} to {} of {}, which has {}", describe_value(r, id), low,
                high, describe_value(r, v.base), *base_count);
  const bool packed = bits(v.dtype) < 8;
  const bool fits = layout == Layout::dense || packed ? is_dense(r, sizes, v) && (!packed || sizes[v.offset] == 0)
                    : layout == Layout::rows ? shape.empty() || sizes[shape.back()] == 1 || sizes[strides.back()] == 1
                                             : true;
  if (!fits)
    return fail(Code::plan_invalid, "the view {} has not the layout that it is read in", describe_value(r, id));
  return {};
}

// The chains of buffers that share memory because each is made in the place of the one before.
class Memory {
 public:
  Memory(const Prepared& prepared, uint32_t index, Instance& instance)
      : plan_(*prepared.plan),
        r_(prepared.plan->routines[index]),
        prepared_(prepared.routines[index]),
        reuse_(prepared.reuse_memory),
        instance_(instance),
        merged_(r_.values.size()) {}

  Status plan() {
    for (ValueId v = 0; v < r_.values.size(); ++v) {
      merged_[v] = v;
      if (Status placed = place(v); !placed) return made_by(v, std::move(placed.error()));
    }
    for (uint32_t i = 0; i < r_.outputs.size(); ++i) {
      const ValueId v = r_.outputs[i];
      // A buffer given out under another shape lies in the output's memory too.
      const bool whole = r_.values[v].storage == Storage::view && is_whole(r_, instance_.sizes, v);
      Place& place = instance_.places[whole ? r_.values[v].base : v];
      if (place.in != Place::In::arena) continue;  // late, not a buffer, or the same value as an earlier output
      place.in = Place::In::output;
      place.output = i;
      instance_.output_bytes += place.bytes;
    }
    for (uint32_t s = 0; reuse_ && s < r_.steps.size(); ++s)
      if (r_.steps[s].kind == StepKind::kernel) try_in_place(s);
    return colour_all();
  }

 private:
  // Values inside of nodes have no names that a user knows: the node has.
  tl::unexpected<Error> made_by(ValueId v, Error error) const {
    for (const Step& step : r_.steps)
      if (std::ranges::find(r_.list(step.results), v) != r_.list(step.results).end())
        return tl::unexpected<Error>(std::move(error).within("planning memory for " + describe(plan_, step)));
    return tl::unexpected<Error>(std::move(error));
  }

  Status place(ValueId v) {
    if (r_.values[v].storage != Storage::buffer) return {};
    TESSERA_ASSIGN(const std::optional<size_t> bytes, bytes_of(r_, instance_.sizes, v));
    Place& place = instance_.places[v];
    place.in = bytes ? Place::In::arena : Place::In::late;
    place.bytes = bytes.value_or(0);
    return {};
  }

  ValueId head(ValueId v) const {
    while (merged_[v] != v) v = merged_[v];
    return v;
  }

  bool same_shape(ValueId a, ValueId b) const {
    return std::ranges::equal(r_.shape(a), r_.shape(b), [&](ExprId x, ExprId y) {
      return x == y ||
             (instance_.sizes.known(x) && instance_.sizes.known(y) && instance_.sizes[x] == instance_.sizes[y]);
    });
  }

  // Lets result 0 lie where an operand that dies here lies, when the kernel allows it and both address their elements
  // alike.
  void try_in_place(uint32_t s) {
    const Step& step = r_.steps[s];
    const uint32_t allowed = prepared_.kernels[s].rule->in_place;
    const auto operands = r_.operands(step);
    if (allowed == 0 || step.results.count == 0) return;
    const ValueId result = r_.results(step)[0];
    const Place& to = instance_.places[result];
    if (to.in != Place::In::arena && to.in != Place::In::output) return;
    const auto& l = prepared_.lifetimes;
    for (size_t i = 0; i < operands.size() && i < 32; ++i) {
      const ValueId v = operands[i];
      if ((allowed >> i & 1) == 0 || v == kNone || r_.values[v].storage != Storage::buffer) continue;
      const Place& from = instance_.places[v];
      if (from.in != Place::In::arena || from.bytes != to.bytes || l.last[v] != s || !same_shape(v, result)) continue;
      if (bits(r_.values[v].dtype) != bits(r_.values[result].dtype)) continue;
      const bool read_elsewhere = std::ranges::any_of(
          operands, [&](ValueId other) { return other != kNone && other != v && l.owner[other] == v; });
      // An output's memory can stand at the end of a chain only: head() must find it there.
      if (read_elsewhere) continue;
      merged_[v] = result;
      return;
    }
  }

  Status colour_all() {
    const auto& l = prepared_.lifetimes;
    const auto n = static_cast<uint32_t>(r_.values.size());
    const auto end = static_cast<uint32_t>(r_.steps.size());
    std::vector<uint32_t> first(n, UINT32_MAX);
    for (ValueId v = 0; v < n; ++v) first[head(v)] = std::min(first[head(v)], l.first[v]);
    std::vector<Interval> arena, all;
    std::vector<ValueId> which;
    for (ValueId v = 0; v < n; ++v) {
      if (merged_[v] != v) continue;
      const Place& place = instance_.places[v];
      const Interval interval = {first[v], std::min(l.last[v], end), place.bytes};
      if (place.in == Place::In::arena) {
        arena.push_back(reuse_ ? interval : Interval{0, end, place.bytes});
        which.push_back(v);
      }
      if (place.in == Place::In::arena || place.in == Place::In::output) {
        all.push_back(interval);
      } else if (r_.values[v].storage == Storage::boxed && r_.values[v].kind == Kind::tensor && r_.values[v].ranked &&
                 r_.values[v].dtype != DType::string) {
        TESSERA_ASSIGN(const std::optional<size_t> bytes, bytes_of(r_, instance_.sizes, v));
        all.push_back({interval.first, interval.last, bytes.value_or(0)});
      }
    }
    size_t sum = 0;
    for (const Interval& interval : all) sum = std::min(sum + interval.bytes, kMaxArenaBytes);
    if (sum == kMaxArenaBytes) {
      ValueId largest = 0;
      for (ValueId v = 0; v < n; ++v)
        if (instance_.places[v].bytes > instance_.places[largest].bytes) largest = v;
      return made_by(largest,
                     fail(Code::out_of_memory, "the intermediates of one run take more than 2^46 bytes, {} of them {}",
                          instance_.places[largest].bytes, describe_value(r_, largest))
                         .value());
    }
    Colouring colouring = colour(arena, kArenaAlignment);
    for (size_t i = 0; i < which.size(); ++i) instance_.places[which[i]].offset = colouring.offsets[i];
    for (ValueId v = 0; v < n; ++v)
      if (merged_[v] != v) instance_.places[v] = instance_.places[head(v)];
    instance_.arena_bytes = colouring.total;
    instance_.live_set_bound_bytes = live_set_bound(all);
    return {};
  }

  const Plan& plan_;
  const Routine& r_;
  const PreparedRoutine& prepared_;
  const bool reuse_;
  Instance& instance_;
  std::vector<ValueId> merged_;  // the buffer made in this one's place; itself when there is none
};

}  // namespace

std::optional<uint32_t> failed_guard(const Routine& r, const Sizes& sizes) {
  for (uint32_t i = 0; i < r.guards.size(); ++i) {
    const Guard& g = r.guards[i];
    if (!sizes.known(g.a) || !sizes.known(g.b)) continue;
    const int64_t a = sizes[g.a], b = sizes[g.b];
    const bool holds = g.kind == Guard::Kind::equal       ? a == b
                       : g.kind == Guard::Kind::not_equal ? a != b
                       : g.kind == Guard::Kind::at_most   ? a <= b
                                                          : b != 0 && (b == -1 || a % b == 0);
    if (!holds) return i;
  }
  return std::nullopt;
}

Result<std::optional<size_t>> bytes_of(const Routine& r, const Sizes& sizes, ValueId v) {
  TESSERA_ASSIGN(const std::optional<int64_t> count, count_of(r, sizes, v));
  if (!count) return std::nullopt;
  return storage_bytes(r.values[v].dtype, *count);
}

Result<bool> check_operand(const Routine& r, const Sizes& sizes, ValueId v, Layout layout) {
  TESSERA_ASSIGN(const std::optional<int64_t> count, count_of(r, sizes, v));
  const Value& value = r.values[v];
  if (value.storage != Storage::view) return count.has_value();
  auto strides = r.list(value.strides);
  if (sizes.impossible(value.offset) || std::ranges::any_of(strides, [&](ExprId id) { return sizes.impossible(id); }))
    return fail(Code::shape_invalid, "the strides of {} overflow", describe_value(r, v));
  if (!count || !sizes.known(value.offset) || !shape_known(r, sizes, value.base) ||
      !std::ranges::all_of(strides, [&](ExprId id) { return sizes.known(id); }))
    return false;
  TESSERA_TRY(check_view(r, sizes, v, *count, layout));
  return true;
}

Result<bool> check_kernel_step(const Routine& r, const BoundKernel& kernel, const Step& step, const Sizes& sizes) {
  auto operands = r.operands(step);
  bool known = true;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] == kNone) continue;
    TESSERA_ASSIGN(const bool operand_known, check_operand(r, sizes, operands[i], kernel.rule->operand(i)->layout));
    known &= operand_known;
  }
  for (ValueId v : r.results(step)) {
    TESSERA_ASSIGN(const std::optional<int64_t> count, count_of(r, sizes, v));
    known &= count.has_value();
  }
  for (uint32_t a = 0; a < step.n_attrs; ++a)
    for (ExprId id : r.list(r.attrs[step.attrs + a].list)) {
      if (sizes.impossible(id)) return fail(Code::shape_invalid, "the attribute {} overflows", print(r, id));
      known &= sizes.known(id);
    }
  return known;
}

kernels::View view_of(const Routine& r, const Sizes& sizes, ValueId id, void* memory) {
  const Value& v = r.values[id];
  kernels::View view = {};
  view.type = static_cast<uint8_t>(v.dtype);
  view.present = 1;
  view.data = memory;
  view.rank = static_cast<uint8_t>(v.shape.count);
  auto shape = r.list(v.shape), strides = r.list(v.strides);
  int64_t stride = 1;
  bool empty = false;
  for (size_t a = shape.size(); a-- > 0;) {
    view.shape[a] = sizes[shape[a]];
    view.stride[a] = v.storage == Storage::view ? sizes[strides[a]] : stride;
    // Beside an axis of size 0 the others may be too large to multiply; nothing is read then.
    if (__builtin_mul_overflow(stride, view.shape[a], &stride)) stride = 0;
    empty |= view.shape[a] == 0;
  }
  if (v.storage == Storage::view && memory != nullptr && !empty)
    view.data = static_cast<char*>(memory) + sizes[v.offset] * (bits(v.dtype) / 8);  // packed types have no offset
  return view;
}

std::span<const kernels::Attr> KernelCall::attributes(const Routine& r, const Step& step, const Sizes& sizes) {
  attrs_.clear();
  numbers_.clear();
  for (uint32_t a = 0; a < step.n_attrs; ++a)
    for (ExprId id : r.list(r.attrs[step.attrs + a].list)) numbers_.push_back(sizes[id]);
  size_t first = 0;
  for (uint32_t a = 0; a < step.n_attrs; ++a) {
    const Attr& attr = r.attrs[step.attrs + a];
    attrs_.push_back({attr.i, attr.f, numbers_.data() + first, static_cast<int32_t>(attr.list.count)});
    first += attr.list.count;
  }
  return attrs_;
}

kernels::Args& KernelCall::finish(const Routine& r, const Step& step, const Sizes& sizes) {
  attributes(r, step, sizes);
  args_ = {};
  args_.in = in_.data();
  args_.n_in = static_cast<int>(in_.size());
  args_.out = out_.data();
  args_.n_out = static_cast<int>(out_.size());
  args_.attrs = attrs_.data();
  args_.n_attrs = static_cast<int>(attrs_.size());
  return args_;
}

Result<Instance> instantiate(const Prepared& prepared, uint32_t index, Bindings symbols, Sizes sizes) {
  const Routine& r = prepared.plan->routines[index];
  Instance instance;
  instance.symbols = std::move(symbols);
  instance.sizes = std::move(sizes);
  instance.places.resize(r.values.size());
  instance.checked.resize(r.steps.size());
  TESSERA_TRY(Memory(prepared, index, instance).plan());
  KernelCall call;
  for (uint32_t s = 0; s < r.steps.size(); ++s) {
    const Step& step = r.steps[s];
    if (step.kind != StepKind::kernel) continue;
    const BoundKernel& kernel = prepared.routines[index].kernels[s];
    TESSERA_ASSIGN(const bool known, check_kernel_step(r, kernel, step, instance.sizes));
    instance.checked[s] = known;
    if (!known || kernel.entry == nullptr || kernel.entry->scratch == nullptr) continue;
    const kernels::Args& args =
        call.build(r, step, instance.sizes, [](ValueId) { return static_cast<void*>(nullptr); });
    instance.scratch_bytes = std::max(instance.scratch_bytes, kernel.entry->scratch(args));
  }
  return instance;
}

}  // namespace tessera::plan
