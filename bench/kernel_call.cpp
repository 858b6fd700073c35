#include "bench/kernel_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "base/cpu.h"
#include "base/result.h"
#include "ir/interpreter.h"
#include "ops/ops.h"
#include "plan/kernel_desc.h"
#include "tensor/block.h"
#include "tensor/large.h"
#include "tensor/scalar.h"

namespace tessera::bench {
namespace {

void run_threads(void* pool, int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
  static_cast<ThreadPool*>(pool)->parallel_for(n, grain, body, context);
}

// In large pages, as the runtime has weights and caches, and as the memory's limits are measured.
Result<Tensor> draw(const Operand& o, std::minstd_rand& random) {
  TESSERA_ASSIGN(Tensor t, make_in_large_pages(o.type, o.shape));
  const auto unit = [&] { return static_cast<double>(random()) / 2147483647.0; };
  if (is_block(o.type)) {
    std::vector<float> values(static_cast<size_t>(t.count()));
    for (float& v : values) v = static_cast<float>(2 * unit() - 1);
    encode_blocks(o.type, values, t.mutable_data());
    return t;
  }
  for (int64_t i = 0; i < t.count(); ++i)
    encode(o.type, t.mutable_data(), i,
           !o.values.empty() ? static_cast<double>(o.values[static_cast<size_t>(i)])
           : is_int(o.type)  ? std::floor(unit() * 255) - (o.type == DType::u8 ? 0 : 127)
                             : o.most * (2 * unit() - 1));
  return t;
}

kernels::View view_of(DType type, const Dims& shape, void* data) {
  kernels::View v = {};
  v.data = data;
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

// Some indices of [0, n): the first and last, and others between.
std::vector<int64_t> sample(int64_t n, int64_t count) {
  std::vector<int64_t> at;
  for (int64_t i = 0; i < std::min(n, count); ++i)
    at.push_back(n <= count ? i : i == count - 1 ? n - 1 : i * (n / count));
  return at;
}

Result<Tensor> take(const Tensor& t, const std::vector<int64_t>& rows) {
  Dims shape = t.shape();
  shape[0] = static_cast<int64_t>(rows.size());
  TESSERA_ASSIGN(Tensor part, Tensor::make(t.dtype(), shape));
  const size_t row = t.bytes() / static_cast<size_t>(t.shape()[0]);
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(static_cast<char*>(part.mutable_data()) + i * row,
                static_cast<const char*>(t.data()) + static_cast<size_t>(rows[i]) * row, row);
  return part;
}

}  // namespace

Result<KernelCall> KernelCall::make(const Case& c, const kernels::KernelSet& set, ThreadPool& pool) {
  KernelCall call;
  call.case_ = &c;
  call.set_ = &set;
  call.pool_ = &pool;
  std::minstd_rand random(7);
  std::vector<std::optional<DType>> types;
  plan::ConstantOperands constants = 0;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    if (!c.operands[i].present) {
      call.in_.emplace_back();
      call.drawn_.emplace_back();
      types.emplace_back();
      continue;
    }
    TESSERA_ASSIGN(Tensor t, draw(c.operands[i], random));
    call.in_.push_back(view_of(t.dtype(), t.shape(), t.mutable_data()));
    call.drawn_.push_back(std::move(t));
    types.push_back(c.operands[i].type);
    if (c.operands[i].constant) constants |= plan::ConstantOperands{1} << i;
  }
  TESSERA_ASSIGN(Tensor result, make_in_large_pages(c.result_type, c.result));
  if (c.in_place) {
    // What was drawn stays, for the check.
    std::memcpy(result.mutable_data(), call.drawn_[0].data(), result.bytes());
    call.in_[0].data = result.mutable_data();
  }
  call.out_.push_back(view_of(result.dtype(), result.shape(), result.mutable_data()));
  std::vector<std::optional<DType>> result_types = {result.dtype()};
  call.results_.push_back(std::move(result));
  for (const Dims& shape : c.more_results) {
    TESSERA_ASSIGN(Tensor more, Tensor::make(DType::f32, shape));
    call.out_.push_back(view_of(DType::f32, shape, more.mutable_data()));
    result_types.push_back(DType::f32);
    call.results_.push_back(std::move(more));
  }
  const plan::KernelRule* rule = plan::select_kernel(c.op, types, result_types, constants);
  if (rule == nullptr) return fail(Code::unsupported_op, "{}: no kernel takes these types", c.op);
  call.name_ = rule->kernel;
  call.kernel_ = set.find(rule->kernel);
  TESSERA_CHECK(call.kernel_ != nullptr);
  for (const ir::AttrValue& value : c.attrs) {
    kernels::Attr attr = {};
    if (const auto* i = std::get_if<int64_t>(&value)) attr.i = *i;
    if (const auto* f = std::get_if<double>(&value)) attr.f = *f;
    std::vector<int64_t> list;
    if (const auto* given = std::get_if<std::vector<int64_t>>(&value)) list = *given;
    if (const auto* dims = std::get_if<Shape>(&value))
      for (const Dim& d : *dims) list.push_back(d.value());
    attr.length = static_cast<int32_t>(list.size());
    call.lists_.push_back(std::move(list));
    attr.list = call.lists_.back().data();
    call.attrs_.push_back(attr);
  }
  const CacheSizes sizes = cache_sizes();
  call.parallel_ = {
      &pool, pool.threads(), run_threads, {static_cast<int64_t>(sizes.l1d), static_cast<int64_t>(sizes.l2)}};
  call.packed_.resize(c.operands.size());
  for (size_t i = 0; i < c.operands.size(); ++i) {
    if (rule->operand(i)->layout != plan::Layout::packed) continue;
    const kernels::PackArgs args = {&call.in_[i], static_cast<int>(i), call.attrs_.data(),
                                    static_cast<int>(call.attrs_.size()), &call.parallel_};
    for (int s = 0; s < c.sets; ++s) {
      TESSERA_ASSIGN(AlignedBuffer packed, AlignedBuffer::make(call.kernel_->packed_size(args), Pages::huge));
      if (s == 0)
        call.kernel_->pack(args, packed.data());
      else
        std::memcpy(packed.data(), call.packed_[i][0].data(), packed.size());
      call.packed_[i].push_back(std::move(packed));
    }
  }
  for (size_t i = 0; i < call.in_.size(); ++i)
    if (!call.packed_[i].empty()) call.in_[i].data = call.packed_[i][0].data();
  if (call.kernel_->scratch != nullptr) {
    kernels::Args args = {
        call.in_.data(),    static_cast<int>(call.in_.size()),    call.out_.data(), static_cast<int>(call.out_.size()),
        call.attrs_.data(), static_cast<int>(call.attrs_.size()), &call.parallel_,  nullptr};
    TESSERA_ASSIGN(call.scratch_, AlignedBuffer::make(call.kernel_->scratch(args), Pages::huge));
  }
  return call;
}

void KernelCall::run(int64_t i) const {
  std::vector<kernels::View> in = in_;
  for (size_t k = 0; k < in.size(); ++k)
    if (!packed_[k].empty())
      in[k].data = const_cast<std::byte*>(packed_[k][static_cast<size_t>(i) % packed_[k].size()].data());
  const kernels::Args args = {
      in.data(),     static_cast<int>(in.size()),     out_.data(), static_cast<int>(out_.size()),
      attrs_.data(), static_cast<int>(attrs_.size()), &parallel_,  const_cast<std::byte*>(scratch_.data())};
  TESSERA_CHECK(kernel_->fn(args) == kernels::kDone);
}

Status KernelCall::check() const {
  if (case_->checked.empty()) return compare();
  Case small = *case_;
  small.checked.clear();
  small.sets = 1;
  for (size_t i = 0; i < small.operands.size(); ++i) {
    small.operands[i].shape = case_->checked[i];
    small.operands[i].runs_along = -1;
  }
  small.result = case_->checked.back();
  TESSERA_ASSIGN(const KernelCall call, make(small, *set_, *pool_));
  return call.compare();
}

Status KernelCall::compare() const {
  run(0);
  const int axes = static_cast<int>(case_->result.size());
  std::vector<std::vector<int64_t>> chosen;
  for (int a = 0; a < axes; ++a) {
    const int64_t size = case_->result[static_cast<size_t>(a)];
    const bool some = std::any_of(case_->operands.begin(), case_->operands.end(),
                                  [&](const Operand& o) { return o.runs_along == a; });
    chosen.push_back(sample(size, some ? 7 : size));
  }
  std::vector<ir::RefValue> references;
  std::vector<const ir::RefValue*> pointers;
  references.reserve(drawn_.size());
  for (size_t i = 0; i < drawn_.size(); ++i) {
    if (!case_->operands[i].present) {
      pointers.push_back(nullptr);
      continue;
    }
    Tensor part = drawn_[i];
    const int along = case_->operands[i].runs_along;
    if (along >= 0) {
      TESSERA_ASSIGN(part, take(drawn_[i], chosen[static_cast<size_t>(along)]));
    }
    TESSERA_ASSIGN(ir::RefValue reference, ir::to_ref(Value(part)));
    references.push_back(std::move(reference));
    pointers.push_back(&references.back());
  }
  TESSERA_ASSIGN(std::vector<ir::RefValue> expected,
                 ir::Interpreter().run_node(*ops::find_op(case_->op), ir::Attrs{case_->attrs}, pointers, {}, {},
                                            nullptr, nullptr));
  TESSERA_ASSIGN(Value value, ir::from_ref(expected[0]));
  const Tensor& want = *value.tensor();
  double largest = 0, worst = 0;
  for (int64_t i = 0; i < want.count(); ++i) {
    int64_t rest = i, at = 0, stride = 1;
    for (int a = axes - 1; a >= 0; --a) {
      const std::vector<int64_t>& indices = chosen[static_cast<size_t>(a)];
      const auto count = static_cast<int64_t>(indices.size());
      at += indices[static_cast<size_t>(rest % count)] * stride;
      rest /= count;
      stride *= case_->result[static_cast<size_t>(a)];
    }
    const double right = decode(want.dtype(), want.data(), i), got = decode(want.dtype(), results_[0].data(), at);
    largest = std::max(largest, std::fabs(right));
    worst = std::isnan(got) ? HUGE_VAL : std::max(worst, std::fabs(right - got));
  }
  if (worst > case_->tolerance * std::max(largest, 1e-30))
    return fail(Code::internal, "{} {}: the kernel {} is off by {:.3g}, where the largest element is {:.3g}", case_->op,
                case_->shape, name_, worst, largest);
  return {};
}

}  // namespace tessera::bench
