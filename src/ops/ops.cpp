#include "ops/ops.h"

#include <unordered_map>

#include "ir/core_ops.h"

namespace tessera::ops {
namespace {

constexpr const ir::OpDef* kOps[] = {
    &ir::core::constant,
    &ir::core::dims,
    &ir::core::view,
    &ir::core::copy,
#define TESSERA_OP(name) &name##_op,
#include "ops/ops.def"
#undef TESSERA_OP
};

}  // namespace

std::span<const ir::OpDef* const> all_ops() { return kOps; }

const ir::OpDef* find_op(std::string_view name) {
  static const auto* const by_name = [] {
    auto* map = new std::unordered_map<std::string_view, const ir::OpDef*>();
    for (const ir::OpDef* op : kOps) map->emplace(op->name, op);
    return map;
  }();
  auto found = by_name->find(name);
  return found == by_name->end() ? nullptr : found->second;
}

}  // namespace tessera::ops
