#include "plan/verify.h"

#include <gtest/gtest.h>

#include <functional>

#include "plan/plan_maker.h"

namespace tessera::plan {
namespace {

// x -> copy -> view -> copy -> y, and a loop around a host step.
PlanMaker sound() {
  PlanMaker m;
  const ValueId x = m.input("x", DType::f32, {-1, 4});
  const ValueId trips = m.input("trips", DType::i64, {});
  const ExprId n = m.r().shape(x)[0];
  const ValueId a = m.copy(x);
  const ValueId t = m.view(a, {m.c(4), n}, {m.c(1), m.c(4)}, m.c(0));
  m.output(m.copy(t), "y");
  const ValueId last = m.value(Storage::boxed, DType::f32, m.shape_of(x));
  Step& loop = m.step(StepKind::loop, {trips, kNone, x}, {last});
  loop.carried = 1;
  loop.routines[0] = 1;
  m.output(last, "z");
  m.routine();
  m.input("i", DType::i64, {});
  const ValueId condition = m.input("condition", DType::boolean, {});
  const ValueId c = m.input("c", DType::f32, {-1, -1});
  m.output(condition);
  m.output(m.host("next", {c}, DType::f32, m.shape_of(c)));
  return m;
}

TEST(Verify, ASoundPlanPasses) {
  const Status ok = verify(sound().plan);
  EXPECT_TRUE(ok.has_value()) << ok.error().to_string();
}

TEST(Verify, EachBrokenRuleIsFound) {
  using Break = std::function<void(Plan&)>;
  const std::vector<std::pair<const char*, Break>> breaks = {
      {"no routine", [](Plan& p) { p.routines.clear(); }},
      {"uncalled routine", [](Plan& p) { p.routines.emplace_back(); }},
      {"forward expression",
       [](Plan& p) {
         p.routines[0].exprs.push_back({ExprOp::add, 99, 0, 0});
       }},
      {"unknown operator", [](Plan& p) { p.routines[0].exprs[0].op = static_cast<ExprOp>(77); }},
      {"symbol of no value", [](Plan& p) { p.routines[0].symbols[0].value = 1000; }},
      {"symbol past the rank", [](Plan& p) { p.routines[0].symbols[0].index = 2; }},
      {"outer symbol of the outermost", [](Plan& p) { p.routines[0].symbols[0].source = Symbol::Source::outer; }},
      {"outer symbol not there",
       [](Plan& p) { p.routines[1].symbols[0] = {"s", 0, 1, Symbol::Source::outer, kNone, 55}; }},
      {"list out of range",
       [](Plan& p) {
         p.routines[0].values[0].shape = {UINT32_MAX, 2};
       }},
      {"list overflow",
       [](Plan& p) {
         p.routines[0].steps[0].operands = {1, UINT32_MAX};
       }},
      {"shape of no expression", [](Plan& p) { p.routines[0].lists[p.routines[0].values[0].shape.first] = 4444; }},
      {"input index", [](Plan& p) { p.routines[0].values[0].index = 1; }},
      {"input twice", [](Plan& p) { p.routines[0].inputs.push_back(0); }},
      {"input that is none", [](Plan& p) { p.routines[0].inputs.push_back(2); }},
      {"constant not there",
       [](Plan& p) {
         p.routines[0].values[0].storage = Storage::constant;
         p.routines[0].values[0].index = 5;
       }},
      {"view before its base", [](Plan& p) { p.routines[0].values[3].base = 3; }},
      {"view of another type", [](Plan& p) { p.routines[0].values[3].dtype = DType::i32; }},
      {"view without strides", [](Plan& p) { p.routines[0].values[3].strides = {}; }},
      {"unknown type", [](Plan& p) { p.routines[0].values[3].dtype = static_cast<DType>(200); }},
      {"unknown storage", [](Plan& p) { p.routines[0].values[2].storage = static_cast<Storage>(9); }},
      {"read before made", [](Plan& p) { std::swap(p.routines[0].steps[0], p.routines[0].steps[1]); }},
      {"made twice", [](Plan& p) { p.routines[0].steps[1].results = p.routines[0].steps[0].results; }},
      {"boxed by a kernel", [](Plan& p) { p.routines[0].values[2].storage = Storage::boxed; }},
      {"kernel not there", [](Plan& p) { p.routines[0].steps[0].op = 9; }},
      {"kernel not in the table", [](Plan& p) { p.kernels[0].kernel = "memset"; }},
      {"kernel for another type",
       [](Plan& p) {
         for (Value& v : p.routines[0].values) v.dtype = DType::i4;
       }},
      {"attributes out of range", [](Plan& p) { p.routines[0].steps[0].n_attrs = 1; }},
      {"host operator not there", [](Plan& p) { p.host_ops.clear(); }},
      {"step of no kind", [](Plan& p) { p.routines[0].steps[0].kind = static_cast<StepKind>(8); }},
      {"source not there", [](Plan& p) { p.routines[0].steps[0].source = 0; }},
      {"routine called twice", [](Plan& p) { p.routines[0].steps.push_back(p.routines[0].steps[2]); }},
      {"routine calls itself", [](Plan& p) { p.routines[0].steps[2].routines[0] = 0; }},
      {"too many carried", [](Plan& p) { p.routines[0].steps[2].carried = 2; }},
      {"body with fewer inputs", [](Plan& p) { p.routines[1].inputs.pop_back(); }},
      {"output of nothing", [](Plan& p) { p.routines[0].outputs[0] = 1000; }},
      {"output without a name", [](Plan& p) { p.routines[0].output_names.pop_back(); }},
      {"guard of nothing",
       [](Plan& p) {
         p.routines[0].guards.push_back({Guard::Kind::equal, 9999, 0, ""});
       }},
      {"attribute of nothing",
       [](Plan& p) {
         p.routines[0].attrs.push_back({0, 0, {9999, 1}});
       }},
  };
  for (const auto& [what, breaking] : breaks) {
    Plan plan = sound().plan;
    breaking(plan);
    const Status status = verify(plan);
    ASSERT_FALSE(status.has_value()) << what;
    EXPECT_EQ(status.error().code, Code::plan_invalid) << what;
  }
}

TEST(Verify, AStateIsConsumedOnceAndNotReadAfterwards) {
  auto with_state = [](bool read_again, bool consume_again) {
    PlanMaker m;
    const ValueId kv = m.input("kv", DType::f32, {8});
    m.r().values[kv].kind = Kind::state;
    auto successor = [&] {
      const ValueId next = m.value(Storage::successor, DType::f32, m.shape_of(kv));
      m.r().values[next].kind = Kind::state;
      m.r().values[next].base = kv;
      m.plan.kernels.push_back({"copy", "copy"});
      m.step(StepKind::kernel, {kv}, {next}).op = 0;
      return next;
    };
    m.output(successor());
    if (read_again) m.output(m.copy(kv));
    if (consume_again) m.output(successor());
    return verify(m.plan);
  };
  EXPECT_TRUE(with_state(false, false).has_value());
  EXPECT_FALSE(with_state(true, false).has_value());
  EXPECT_FALSE(with_state(false, true).has_value());
}

}  // namespace
}  // namespace tessera::plan
