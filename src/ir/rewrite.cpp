#include "ir/rewrite.h"

#include "base/result.h"
#include "ir/equation.h"

namespace tessera::ir {

bool provably_equal(const Context& context, TypeRef a, TypeRef b) {
  if (a == b) return true;
  if (a->kind != b->kind || a->dtype != b->dtype || a->ranked != b->ranked || a->rank() != b->rank()) return false;
  if ((a->element != nullptr) != (b->element != nullptr)) return false;
  if (a->element != nullptr && !provably_equal(context, a->element, b->element)) return false;
  for (size_t i = 0; i < a->shape.size(); ++i)
    if (!context.dims().proves_eq(a->shape[i], b->shape[i])) return false;
  return a->ranked || a->element != nullptr;  // tensors of unknown rank need not be of the same
}

ValueId Rewrite::resolve(ValueId value) const {
  while (value != kNoValue && value < forward_.size() && forward_[value] != kNoValue) value = forward_[value];
  return value;
}

bool Rewrite::replace(ValueId from, ValueId to, std::string_view rule) {
  from = resolve(from);
  to = resolve(to);
  if (from == to || to == kNoValue || exhausted()) return false;
  if (!provably_equal(graph_.context(), graph_.type(from), graph_.type(to))) return false;
  if (limit_.spoiler != nullptr) to = (*limit_.spoiler)(builder_, to, rule);
  if (forward_.size() < graph_.value_count()) forward_.resize(graph_.value_count(), kNoValue);
  forward_[from] = to;
  const ValueInfo old = graph_.value(from);
  if (graph_.value(to).name == 0 && old.name != 0) graph_.copy_name(from, to);
  const bool node = old.def != kNoNode;
  journal_.push_back({std::string(rule), old.def, node ? graph_.node(old.def).location : 0, {}, {}});
  if (exhausted()) {
    journal_.back().place = node ? graph_.describe(old.def) : graph_.describe_value(from);
    journal_.back().equation = equation(graph_, from, to, first_new_);
  }
  return true;
}

Status Rewrite::finish() {
  TESSERA_TRY(builder_.take_status());
  for (NodeId n = 0; n < graph_.node_count(); ++n)
    for (ValueId& v : graph_.mutable_operands(n)) v = resolve(v);
  for (ValueId& v : graph_.outputs) v = resolve(v);
  forward_.clear();
  return graph_.compact();
}

}  // namespace tessera::ir
