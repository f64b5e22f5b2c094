#include "calibrate/validate/context_model.hpp"

#include <fmt/format.h>

#include "models/model/catalog.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

// FFN weights in row-wise FP8, the rest in BF16 (section 4.1). Row-wise scales of activations are found while
// serving
// ("The Llama 3 Herd of Models", arXiv 2407.21783, section 6.2): fp8_dynamic, not a static checkpoint's fp8.
constexpr Precision kPrecision{Dtype::bf16, Dtype::bf16,        Dtype::bf16, Dtype::bf16,
                               Dtype::bf16, Dtype::fp8_dynamic, Dtype::fp8};

Plan plan_of(const ContextPlan& p, StepKind kind) {
  Plan plan;
  plan.cp = p.cp;
  plan.tpa = plan.tpf = p.tpa;
  plan.strategy = p.cp == 1                  ? strategy_id("tensor")
                  : kind == StepKind::decode ? strategy_id("ring_decode")
                  : p.pass_q                 ? strategy_id("ring_pass_q")
                                             : strategy_id("ring_pass_kv");
  return plan;
}

void require_possible(const Case& c, const Plan& p) {
  if (const auto reason = check_plan(c, p)) {
    throw UserError(fmt::format("plan {} is impossible for {}: {}", to_string(p), c.model.name, *reason));
  }
}

// Times of all ops of a name, in order.
std::vector<Seconds> times(CostModel& cost, const Schedule& s, std::string_view name) {
  std::vector<Seconds> out;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (s.ops[i].name == name) out.push_back(cost.time(s.op_of_class(i, 0)));
  }
  return out;
}

Seconds sum(const std::vector<Seconds>& list) {
  Seconds s;
  for (const Seconds t : list) s += t;
  return s;
}

}  // namespace

ContextModel::ContextModel(const std::string& system, const Catalogs& catalogs)
    : ContextModel(load_model("llama-3.1-405b", catalogs.models), load_system(system, catalogs.systems)) {}

ContextModel::ContextModel(Model model, System system)
    : model_(std::move(model)),
      system_(std::move(system)),
      fabric_(std::make_shared<FabricCache>(system_.fabric)) {}

Case ContextModel::prefill(long long cached, long long fresh, bool persistent) const {
  Case c = make_case(model_, system_, kPrecision, 0, 16, Routing{});
  c.batch = prefill_batch({{cached, fresh}});
  c.persistent_kv = persistent;
  return c;
}

Case ContextModel::decode(long long context) const {
  Case c = make_case(model_, system_, kPrecision, context, 16, Routing{});
  c.kernels = {true, true};
  return c;
}

Seconds ContextModel::ttft(const ContextPlan& p, long long cached, long long fresh, bool persistent) const {
  const Case c = prefill(cached, fresh, persistent);
  const Plan plan = plan_of(p, StepKind::prefill);
  require_possible(c, plan);
  return Evaluator(c, AllReduceRule::fastest, fabric_).simulate(plan);
}

RingParts ContextModel::ring_parts(const ContextPlan& p, long long cached, long long fresh,
                                   bool persistent) const {
  const Case c = prefill(cached, fresh, persistent);
  const Plan plan = plan_of(p, StepKind::prefill);
  require_possible(c, plan);
  Evaluator e(c, AllReduceRule::fastest, fabric_);
  e.simulate(plan);
  RingParts parts;
  parts.attend = times(e.cost(), e.schedule(), "attend").back();
  const auto messages = times(e.cost(), e.schedule(), p.pass_q ? "pass Q" : "pass KV");
  if (!messages.empty()) parts.send_recv = messages.front();
  parts.all_to_all = sum(times(e.cost(), e.schedule(), "send partial outputs home"));
  return parts;
}

Seconds ContextModel::ttit(const ContextPlan& p, long long context, int batch) const {
  const Case c = decode(context);
  Plan plan = plan_of(p, StepKind::decode);
  plan.batch = batch;
  require_possible(c, plan);
  return Evaluator(c, AllReduceRule::fastest, fabric_).simulate(plan);
}

DecodeParts ContextModel::decode_parts(const ContextPlan& p, long long context, int batch) const {
  const Case c = decode(context);
  Plan plan = plan_of(p, StepKind::decode);
  plan.batch = batch;
  require_possible(c, plan);
  Evaluator e(c, AllReduceRule::fastest, fabric_);
  e.simulate(plan);
  DecodeParts parts;
  const auto attends = times(e.cost(), e.schedule(), "attend");
  parts.attend = attends.front();
  parts.loop = sum(attends);
  parts.send_recv = sum(times(e.cost(), e.schedule(), "pass Q"));
  parts.all_to_all = sum(times(e.cost(), e.schedule(), "send partial outputs home"));
  // The parts follow one another; the merge after them is a kernel of its own.
  parts.whole = parts.loop + parts.send_recv + parts.all_to_all;
  if (p.cp > 1) parts.whole += sum(times(e.cost(), e.schedule(), "merge"));
  return parts;
}

Flops ContextModel::appendix_a_flops(long long fresh) const {
  const auto t = static_cast<double>(fresh);
  const double width =
      static_cast<double>(model_.attentions.front().q_heads) * model_.attentions.front().head_dim;
  return Flops(2 * parameter_count(model_) * t + 0.5 * 4 * t * t * width * model_.layers());
}

}  // namespace shardline
