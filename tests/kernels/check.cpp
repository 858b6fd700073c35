#include "check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/memory.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "ir/interpreter.h"
#include "kernels/dispatch.h"
#include "ops/ops.h"
#include "plan/kernel_desc.h"
#include "tensor/block.h"
#include "tensor/scalar.h"

namespace tessera::kernel_test {
namespace {

// How an operand lies in memory, as far as its kernel allows.
enum class Lay { dense, reversed, gaps, backward };
constexpr Lay kLays[] = {Lay::dense, Lay::reversed, Lay::gaps, Lay::backward};

Tensor draw(const Operand& o, std::mt19937& random) {
  Result<Tensor> made = Tensor::make(o.type, o.shape);
  TESSERA_CHECK(made.has_value());
  Tensor t = std::move(*made);
  if (is_block(o.type)) {
    std::vector<float> values(static_cast<size_t>(t.count()));
    for (float& v : values) v = static_cast<float>(std::uniform_real_distribution<double>(o.lo, o.hi)(random));
    encode_blocks(o.type, values, t.mutable_data());
    return t;
  }
  constexpr double kSpecial[] = {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL, -HUGE_VAL, 0.0, -0.0, 1e-42, 1e30};
  for (int64_t i = 0; i < t.count(); ++i) {
    double value = 0;
    if (!o.values.empty()) {
      value = o.values[static_cast<size_t>(i) % o.values.size()];
    } else if (o.type == DType::boolean) {
      value = random() % 2;
    } else if (is_int(o.type)) {
      value = std::floor(std::uniform_real_distribution<double>(o.lo, o.hi + 1)(random));
    } else {
      value = std::uniform_real_distribution<double>(o.lo, o.hi)(random);
      if (o.special && random() % 4 == 0) value = kSpecial[random() % std::size(kSpecial)];
    }
    encode(o.type, t.mutable_data(), i, value);
  }
  return t;
}

// A tensor's elements in memory of its own, in some layout.
struct Placed {
  std::vector<char> memory;
  AlignedBuffer packed;  // where the kernel takes it so
  kernels::View view = {};
};

kernels::View view_of(DType type, const Dims& shape) {
  kernels::View v = {};
  v.type = static_cast<uint8_t>(type);
  v.rank = static_cast<uint8_t>(shape.size());
  v.present = 1;
  int64_t stride = 1;
  for (size_t a = shape.size(); a-- > 0;) {
    v.shape[a] = shape[a];
    v.stride[a] = stride;
    stride *= shape[a];
  }
  return v;
}

Placed place(const Tensor& t, Lay lay, plan::Layout allowed) {
  Placed p;
  p.view = view_of(t.dtype(), t.shape());
  const int rank = p.view.rank;
  const int64_t bytes = bits(t.dtype()) / 8;
  if (is_block(t.dtype())) {
    p.memory.assign(static_cast<const char*>(t.data()), static_cast<const char*>(t.data()) + t.bytes());
    p.view.data = p.memory.data();
    return p;
  }
  if (allowed == plan::Layout::dense) lay = Lay::dense;
  if (allowed == plan::Layout::rows && lay != Lay::dense) lay = Lay::gaps;
  int64_t stride = lay == Lay::gaps && allowed == plan::Layout::strided ? 2 : 1;
  int64_t base = 0;
  for (int i = 0; i < rank; ++i) {
    const int a = lay == Lay::reversed ? i : rank - 1 - i;
    p.view.stride[a] = stride;
    stride *= p.view.shape[a];
    if (lay == Lay::gaps) stride += 3;
    if (lay == Lay::backward && p.view.shape[a] > 0) {
      base += p.view.stride[a] * (p.view.shape[a] - 1);
      p.view.stride[a] = -p.view.stride[a];
    }
  }
  p.memory.assign(static_cast<size_t>((stride + 1) * bytes), 0x55);
  if (t.count() == 0) return p;
  char* origin = p.memory.data() + base * bytes;
  for (int64_t i = 0; i < t.count(); ++i) {
    int64_t rest = i, at = 0;
    for (int a = rank - 1; a >= 0; --a) {
      at += rest % p.view.shape[a] * p.view.stride[a];
      rest /= p.view.shape[a];
    }
    std::memcpy(origin + at * bytes, static_cast<const char*>(t.data()) + i * bytes, static_cast<size_t>(bytes));
  }
  p.view.data = origin;
  return p;
}

struct Attributes {
  std::vector<std::vector<int64_t>> lists;
  std::vector<kernels::Attr> attrs;
};
Attributes attributes(const std::vector<ir::AttrValue>& values) {
  Attributes result;
  for (const ir::AttrValue& value : values) {
    kernels::Attr attr = {};
    std::vector<int64_t> list;
    if (const auto* i = std::get_if<int64_t>(&value)) attr.i = *i;
    if (const auto* f = std::get_if<double>(&value)) attr.f = *f;
    if (const auto* l = std::get_if<std::vector<int64_t>>(&value)) list = *l;
    if (const auto* s = std::get_if<Shape>(&value))
      for (const Dim& d : *s) list.push_back(d.value());
    attr.length = static_cast<int32_t>(list.size());
    result.lists.push_back(std::move(list));
    result.attrs.push_back(attr);
  }
  for (size_t i = 0; i < result.attrs.size(); ++i) result.attrs[i].list = result.lists[i].data();
  return result;
}

double tolerance(DType t) {
  switch (t) {
    case DType::f64:
      return 1e-13;
    case DType::f16:
      return 1e-3;
    case DType::bf16:
      return 8e-3;
    default:
      return 5e-7;
  }
}

std::string difference(const Case& c, const Tensor& expected, const char* got) {
  for (int64_t i = 0; i < expected.count(); ++i) {
    const DType t = expected.dtype();
    if (!is_float(t)) {
      const Int128 a = decode_int(t, got, i), b = decode_int(t, expected.data(), i);
      if (a != b) return fmt::format("element {} is {}, not {}", i, static_cast<int64_t>(a), static_cast<int64_t>(b));
      continue;
    }
    const double a = decode(t, got, i), b = decode(t, expected.data(), i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b) continue;
    const double limit = c.atol + (c.rtol != 0 ? std::max(c.rtol, tolerance(t)) : tolerance(t)) * std::fabs(b);
    if (!(std::fabs(a - b) <= limit)) return fmt::format("element {} is {}, not {}", i, a, b);
  }
  return "";
}

void run_threads(void* pool, int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
  static_cast<ThreadPool*>(pool)->parallel_for(n, grain, body, context);
}

struct Run {
  int rc;
  std::vector<std::vector<char>> results;
};
constexpr size_t kGuard = 64;

Run run(const kernels::KernelEntry& kernel, std::vector<kernels::View> in, const std::vector<Tensor>& expected,
        const Attributes& attributes, ThreadPool* pool, int in_place) {
  Run result;
  std::vector<kernels::View> out;
  for (const Tensor& t : expected) {
    result.results.emplace_back(t.bytes() + 2 * kGuard, 0x77);
    out.push_back(view_of(t.dtype(), t.shape()));
    out.back().data = result.results.back().data() + kGuard;
  }
  if (in_place >= 0) {
    auto& operand = in[static_cast<size_t>(in_place)];
    if (expected[0].count() > 0) std::memcpy(out[0].data, operand.data, expected[0].bytes());
    operand.data = out[0].data;
  }
  kernels::Parallel parallel = {pool, pool == nullptr ? 1 : pool->threads(), run_threads};
  kernels::Args args = {};
  args.in = in.data();
  args.n_in = static_cast<int>(in.size());
  args.out = out.data();
  args.n_out = static_cast<int>(out.size());
  args.attrs = attributes.attrs.data();
  args.n_attrs = static_cast<int>(attributes.attrs.size());
  if (pool != nullptr) args.parallel = &parallel;
  std::vector<char> scratch;
  if (kernel.scratch != nullptr) {
    const size_t bytes = kernel.scratch(args);
    scratch.assign(bytes + 128, 0x33);
    args.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
    std::memset(static_cast<char*>(args.scratch) + bytes, 0x44, 1);
    result.rc = kernel.fn(args);
    EXPECT_EQ(static_cast<char*>(args.scratch)[bytes], 0x44) << "wrote past the scratch";
  } else {
    result.rc = kernel.fn(args);
  }
  for (std::vector<char>& memory : result.results) {
    const auto intact = [](char byte) { return byte == 0x77; };
    EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + kGuard, intact)) << "wrote before the result";
    EXPECT_TRUE(std::all_of(memory.end() - kGuard, memory.end(), intact)) << "wrote past the result";
  }
  return result;
}

// Lays the operand out as the kernel wants it, with guards around.
void pack(const kernels::KernelEntry& kernel, int index, const Attributes& attributes, ThreadPool* pool, Placed& p) {
  const kernels::View strided = p.view;
  const kernels::Parallel parallel = {pool, pool->threads(), run_threads};
  const kernels::PackArgs args = {&strided, index, attributes.attrs.data(), static_cast<int>(attributes.attrs.size()),
                                  &parallel};
  const size_t bytes = kernel.packed_size(args);
  Result<AlignedBuffer> made = AlignedBuffer::make(bytes + kBufferAlignment);
  TESSERA_CHECK(made.has_value());
  std::memset(made->data() + bytes, 0x44, kBufferAlignment);
  kernel.pack(args, made->data());
  EXPECT_EQ(static_cast<char>(made->data()[bytes]), 0x44) << "wrote past the packed operand";
  p.packed = std::move(*made);
  int64_t stride = 1;
  for (int a = p.view.rank - 1; a >= 0; --a) {
    p.view.stride[a] = stride;
    stride *= p.view.shape[a];
  }
  p.view.data = p.packed.data();
}

std::string describe(const Case& c) {
  std::string text = c.op;
  for (const Operand& o : c.operands)
    text += o.present ? fmt::format(" {}[{}]", name(o.type), fmt::join(o.shape, ", ")) : " -";
  return text;
}

// One kernel on every instruction set and layout.
void check_rule(const Case& c, const plan::KernelRule& rule, const std::vector<Tensor>& operands,
                std::vector<Tensor> expected) {
  static ThreadPool pool(3);
  const Attributes attrs = attributes(c.attrs);
  for (const kernels::KernelSet* set : kernels::runnable_sets()) {
    const kernels::KernelEntry* kernel = set->find(rule.kernel);
    ASSERT_NE(kernel, nullptr);
    for (Lay lay : kLays) {
      SCOPED_TRACE(fmt::format("{} on {}, layout {}", rule.kernel, set->isa(), static_cast<int>(lay)));
      std::vector<Placed> placed;
      std::vector<kernels::View> in;
      for (size_t i = 0; i < operands.size(); ++i) {
        const plan::Layout layout = c.operands[i].present ? rule.operand(i)->layout : plan::Layout::dense;
        placed.push_back(c.operands[i].present ? place(operands[i], lay, layout) : Placed());
        if (layout == plan::Layout::packed) pack(*kernel, static_cast<int>(i), attrs, &pool, placed.back());
        in.push_back(placed.back().view);
      }
      std::vector<kernels::View> out_room;
      if (c.failure != 0) {
        // The shape that the result would have is the first operand's here.
        expected[0] = operands[0];
      }
      const Run one = run(*kernel, in, expected, attrs, nullptr, -1);
      ASSERT_EQ(one.rc, c.failure);
      if (c.failure != 0) continue;
      for (size_t r = 0; r < expected.size(); ++r) {
        const std::string wrong = difference(c, expected[r], one.results[r].data() + kGuard);
        ASSERT_EQ(wrong, "") << "result " << r;
      }
      const Run many = run(*kernel, in, expected, attrs, &pool, -1);
      ASSERT_TRUE(many.rc == 0 && many.results == one.results) << "more threads gave other bits";
      if (lay != Lay::dense) continue;
      for (int i = 0; i < static_cast<int>(operands.size()); ++i) {
        const Tensor& operand = operands[static_cast<size_t>(i)];
        if ((rule.in_place >> i & 1) == 0 || !c.operands[static_cast<size_t>(i)].present ||
            operand.shape() != expected[0].shape() || bits(operand.dtype()) != bits(expected[0].dtype()))
          continue;
        const Run inside = run(*kernel, in, expected, attrs, &pool, i);
        ASSERT_TRUE(inside.rc == 0 && inside.results == one.results) << "in place of operand " << i;
      }
    }
  }
}

}  // namespace

void check(const Case& c) {
  SCOPED_TRACE(describe(c));
  std::mt19937 random(17);
  const ir::OpDef* op = ops::find_op(c.op);
  ASSERT_NE(op, nullptr);
  std::vector<Tensor> operands;
  std::vector<ir::RefValue> references;
  std::vector<const ir::RefValue*> pointers;
  std::vector<std::optional<DType>> types;
  references.reserve(c.operands.size());
  for (const Operand& o : c.operands) {
    operands.push_back(o.present ? draw(o, random) : Tensor());
    types.push_back(o.present ? std::optional(o.type) : std::nullopt);
    if (o.present) {
      Result<ir::RefValue> reference = ir::to_ref(Value(operands.back()));
      ASSERT_TRUE(reference.has_value());
      references.push_back(std::move(*reference));
    }
    pointers.push_back(o.present ? &references.back() : nullptr);
  }
  Result<std::vector<ir::RefValue>> reference =
      ir::Interpreter().run_node(*op, ir::Attrs{c.attrs}, pointers, {}, {}, nullptr, nullptr);
  std::vector<Tensor> expected;
  std::vector<std::optional<DType>> result_types;
  if (c.failure != 0) {
    ASSERT_FALSE(reference.has_value());
    // Tables of blocks give f32.
    result_types = {is_block(c.operands[0].type) ? DType::f32 : c.operands[0].type};
    Result<Tensor> room = Tensor::make(c.operands[0].type, {4096});
    ASSERT_TRUE(room.has_value());
    expected.push_back(room->reshaped({4096}));
  } else {
    ASSERT_TRUE(reference.has_value()) << reference.error().to_string();
    for (const ir::RefValue& value : *reference) {
      Result<Value> result = ir::from_ref(value);
      ASSERT_TRUE(result.has_value());
      expected.push_back(*result->tensor());
      result_types.push_back(expected.back().dtype());
    }
  }
  // The line that a compiler would choose, and the one for constants beside or instead of it.
  const plan::KernelRule* rule = plan::select_kernel(c.op, types, result_types);
  const plan::KernelRule* packed = plan::select_kernel(c.op, types, result_types, plan::kAllConstant);
  ASSERT_NE(packed, nullptr) << "no line of the table fits";
  if (rule != nullptr) check_rule(c, *rule, operands, expected);
  if (packed != rule) check_rule(c, *packed, operands, expected);
}

std::vector<std::vector<char>> results(const Case& c) {
  std::mt19937 random(17);
  std::vector<Placed> placed;
  std::vector<kernels::View> in;
  std::vector<std::optional<DType>> types;
  std::vector<Tensor> expected;
  for (const Operand& o : c.operands) {
    types.push_back(o.present ? std::optional(o.type) : std::nullopt);
    const Tensor operand = o.present ? draw(o, random) : Tensor();
    placed.push_back(o.present ? place(operand, Lay::dense, plan::Layout::dense) : Placed());
    in.push_back(placed.back().view);
    if (expected.empty()) expected.push_back(operand);
  }
  std::vector<std::vector<char>> all;
  const plan::KernelRule* rule = plan::select_kernel(c.op, types, std::span(types).first(1));
  EXPECT_NE(rule, nullptr);
  if (rule == nullptr) return all;
  for (const kernels::KernelSet* set : kernels::runnable_sets()) {
    Run made = run(*set->find(rule->kernel), in, expected, attributes(c.attrs), nullptr, -1);
    EXPECT_EQ(made.rc, 0);
    all.push_back(std::move(made.results[0]));
  }
  return all;
}

}  // namespace tessera::kernel_test
