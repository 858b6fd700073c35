// Writes one routine of a plan from one graph.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compile/lower.h"
#include "ir/op_def.h"
#include "ir/view.h"
#include "plan/kernel_desc.h"

namespace tessera::compile {

// What the writers of all routines of a plan share.
struct PlanWriter {
  Lowered lowered;
  std::vector<const ir::Guard*> guards;                           // not yet attached to a routine
  std::unordered_map<uint32_t, uint32_t> constants;               // of the context -> of the plan
  std::unordered_map<const plan::KernelRule*, uint32_t> kernels;  // -> Plan::kernels
  std::unordered_map<ir::LocId, uint32_t> sources;                // -> Plan::sources

  uint32_t constant(const ir::Context& context, uint32_t id);
  uint32_t kernel(const plan::KernelRule& rule);
  uint32_t source(const ir::Graph& graph, ir::NodeId node);
};

class RoutineWriter {
 public:
  // `parent` writes the routine that calls this one; null for routine 0.
  RoutineWriter(PlanWriter& shared, const ir::Graph& graph, uint32_t index, RoutineWriter* parent);

  Status write();

 private:
  // A view node whose elements have not been needed yet.
  struct PendingView {
    plan::ValueId base = plan::kNone;
    ir::LinearView linear;
    ir::NodeId node = ir::kNoNode;
    plan::ValueId strided = plan::kNone;  // as a view value, once made
    plan::ValueId copied = plan::kNone;   // as a dense copy, once made
  };
  struct Definer {
    plan::Symbol::Source source;
    plan::ValueId value;
    uint32_t index;
  };

  Status write_inputs();
  Status write_node(ir::NodeId node);
  Status write_constant(ir::NodeId node);
  Status write_view(ir::NodeId node);
  Status write_kernel(ir::NodeId node, const plan::KernelRule& rule);
  Status write_host(ir::NodeId node);
  Status write_control(ir::NodeId node, plan::StepKind kind);
  Status write_outputs();
  Status attach_guards();

  // Sizes.
  Result<plan::ExprId> expr(Dim dim);
  Result<plan::ExprId> symbol(int index);
  plan::ExprId constant(int64_t value);
  Result<plan::List> exprs(std::span<const Dim> dims);
  bool resolvable(Dim dim) const;
  bool resolvable_symbol(int index) const;
  bool decides(Dim dim) const;  // whether one of its symbols is decided by a value of this routine
  void define_symbols(ir::ValueId value, plan::ValueId planned);
  void define_sizes(ir::TypeRef type, plan::ValueId planned);

  // Values.
  Result<plan::ValueId> add_value(plan::Storage storage, ir::ValueId value);
  Result<plan::ValueId> operand(ir::ValueId value, plan::Layout layout);
  Result<plan::ValueId> elements(ir::ValueId value);
  Result<plan::ValueId> strided(PendingView& view, DType dtype);
  Result<plan::ValueId> copied(ir::ValueId value, PendingView& view);
  Result<plan::ValueId> fold(const PendingView& view, ir::TypeRef type);
  Result<plan::ValueId> view_value(plan::ValueId base, DType dtype, std::span<const ir::LinearDigit> digits,
                                   Dim offset);
  Result<plan::Attr> attr(const ir::AttrSpec& spec, const ir::AttrValue& value);
  Result<plan::List> operands(ir::NodeId node, const plan::KernelRule* rule);
  plan::Step& add_step(plan::StepKind kind, plan::List operands, std::span<const plan::ValueId> results,
                       ir::NodeId node);

  PlanWriter& shared_;
  const ir::Graph& graph_;
  uint32_t index_;
  RoutineWriter* parent_;
  plan::Routine out_;
  std::vector<Origin> origins_;         // by step of out_
  std::vector<plan::ValueId> planned_;  // by ir::ValueId; kNone for views that are still pending
  std::unordered_map<ir::ValueId, PendingView> views_;
  std::unordered_map<Dim, plan::ExprId> dims_;
  std::unordered_map<int, plan::ExprId> symbols_;
  std::unordered_map<int, Definer> definers_;  // by symbol of the graph's table: those decided so far
  std::unordered_map<int64_t, plan::ExprId> constants_;
};

}  // namespace tessera::compile
