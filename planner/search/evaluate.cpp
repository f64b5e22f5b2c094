#include "planner/search/evaluate.hpp"

#include <algorithm>

#include "planner/layers/drafts.hpp"
#include "planner/layers/host_work.hpp"
#include "planner/search/memory_need.hpp"
#include "planner/search/plan_errors.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/work_progress.hpp"

namespace shardline {

long long users_of(const Case& c, const Plan& plan) { return plan.users() * requests_in(c.batch.decode); }

DecodeMetrics decode_metrics(const Case& c, Seconds ttl, const Plan& plan, double decoding) {
  DecodeMetrics m;
  m.ttl = ttl;
  m.users = static_cast<double>(users_of(c, plan));
  m.tokens_per_s_user = 1 / ttl.value;
  m.tokens_per_s_gpu = m.users * decoding / (ttl.value * plan.gpus());
  m.prefilled_per_s_gpu =
      static_cast<double>(c.fresh_tokens()) * static_cast<double>(plan.users()) /
      (ttl.value * tokens_per_step(c, plan) * plan.gpus());  // once a step, which may yield several tokens
  return m;
}

PrefillMetrics prefill_metrics(const Case& c, Seconds ttft, const Plan& plan) {
  const auto entries = static_cast<double>(plan.users());
  PrefillMetrics m;
  m.ttft = ttft;
  m.requests = static_cast<double>(requests_in(c.batch.prefill)) * entries;
  m.new_tokens = static_cast<double>(c.fresh_tokens()) * entries;
  m.new_tokens_per_s_gpu = m.new_tokens / ttft.value / plan.gpus();
  m.gpu_seconds_per_request = ttft.value * plan.gpus() / m.requests;
  return m;
}

Evaluator::Evaluator(const Case& c, AllReduceRule rule, std::shared_ptr<FabricCache> cache)
    : case_(&c), rule_(rule), cost_(c.system, rule, std::move(cache)), scratch_(cost_) {}

void Evaluator::lower_step(const Plan& plan) {
  check_cancelled();
  if (rounds_of(*case_, plan) > kManyRounds) require_memory(need_of_step(*case_, plan));
  lower(schedule_, *case_, plan);
  host_work_ = work_beside(*case_, plan);
  yielded_ = tokens_per_step(*case_, plan);
}

Seconds Evaluator::step_time(const PassTime& pass) {
  const Seconds kernels = token_time(schedule_, pass), step = beside_host(kernels, host_work_);
  host_added_ = (step - kernels) / yielded_;
  return step / yielded_;
}

std::vector<FrameworkTime> Evaluator::by_other_frameworks(const Plan& plan) {
  if (!others_) others_ = std::make_unique<OtherFrameworks>(*case_, rule_);
  return others_->times(*case_, plan);
}

Seconds Evaluator::simulate(const Plan& plan) {
  lower_step(plan);
  return step_time(simulate_pass(schedule_, cost_, scratch_));
}

Seconds Evaluator::simulate_below(Seconds known, const Plan& plan) {
  constexpr double kRounding = 1e-9;  // events add the same costs in another order
  lower_step(plan);
  if (plays_all_layers(schedule_)) {
    if (const auto replayed = replay_layers(schedule_, cost_, scratch_)) return step_time(*replayed);
    const Seconds least = step_time(bound_pass(schedule_, cost_, scratch_)) * (1 - kRounding);
    if (least >= known) return least;
  }
  return step_time(simulate_pass(schedule_, cost_, scratch_));
}

Seconds Evaluator::bound(const Plan& plan) {
  lower_step(plan);
  return step_time(bound_pass(schedule_, cost_, scratch_));
}

namespace {

// Ranks of several classes wait for one another across layers: all of them are played, and the critical path
// may change rank at every message.
void break_down_classes(Evaluator& evaluator, const Schedule& s, Breakdown& b) {
  TaskGraph graph;
  lower_unfolded(s, evaluator.cost(), graph, Players::classes);
  int count = 0;
  for (const Stage& stage : s.stages) count += stage.copies;
  const Timeline timeline = simulate(graph, evaluator.cost().machine(count * players(s, Players::classes)));
  const auto length = [&](TaskId t) { return timeline.spans[t].end - timeline.spans[t].start; };
  const auto op_of = [&](TaskId t) -> const Op* {
    return graph.tag(t) == kJoinTag ? nullptr : &s.ops[graph.tag(t) % s.ops.size()];
  };
  for (const TaskId t : critical_path(graph, timeline)) {
    const Op* op = op_of(t);
    if (!op) continue;
    const auto player = static_cast<int>(graph.tag(t) / s.ops.size());
    const auto index = static_cast<OpIndex>(graph.tag(t) % s.ops.size());
    const OpCost cost = evaluator.cost().price(s.op_of_class(index, player));
    b.add(evaluator.cost(), *op, cost, length(t));
    if (is_communication(op->kind)) b.exposed_communication += length(t);
  }
  Seconds all;  // of the average rank
  for (TaskId t = 0; t < graph.size(); ++t) {
    const Op* op = op_of(t);
    if (op && is_communication(op->kind)) all += length(t) / static_cast<double>(s.classes);
  }
  b.hidden_communication = std::max(Seconds(0), all - b.exposed_communication);
  b.waiting = b.time - evaluator.host_added() - timeline.makespan();
  b.errors = errors_of_classes(evaluator.cost(), s, graph, timeline, evaluator.host_work());
}

}  // namespace

void Breakdown::add(const CostModel& model, const Op& op, const OpCost& cost, Seconds taken, double runs) {
  const auto part = static_cast<std::size_t>(op.part);
  const Seconds latency = std::min(cost.latency, taken);
  add(op.part, op.kind, cost.basis, taken * runs);
  limit_parts[static_cast<std::size_t>(Limit::overhead)][part] += latency * runs;
  limit_parts[static_cast<std::size_t>(model.limit(cost))][part] += (taken - latency) * runs;
}

void Breakdown::add(Part of, OpKind kind, Basis by, Seconds taken) {
  const auto part = static_cast<std::size_t>(of), basis = static_cast<std::size_t>(by);
  parts[part] += taken;
  kinds[static_cast<std::size_t>(kind)] += taken;
  bases[basis] += taken;
  basis_parts[basis][part] += taken;
}

namespace {

// By the kernels of the case's own system.
Breakdown break_down_own(Evaluator& evaluator, const Plan& plan) {
  Breakdown b;
  b.time = evaluator.simulate(plan);
  // Fitted to measured serving.
  b.add(Part::host, OpKind::elementwise, Basis::fitted, evaluator.host_added());
  b.limit_parts[static_cast<std::size_t>(Limit::overhead)][static_cast<std::size_t>(Part::host)] +=
      evaluator.host_added();
  const Schedule& s = evaluator.schedule();
  if (s.classes > 1 || s.detached) {
    break_down_classes(evaluator, s, b);
    return b;
  }
  PassScratch scratch(evaluator.cost());
  Seconds pass;
  std::vector<double> runs = executions(s);  // for each token of a request
  BlockErrors errors(evaluator.cost(), s, evaluator.host_work());
  if (s.rounds > 1) {
    simulate_pass(s, evaluator.cost(), scratch);
    runs = executions_on_path(s, play_rounds(s, scratch.makespans));
  }
  for (double& r : runs) r /= tokens_per_step(evaluator.study(), plan);
  for (BlockIndex i = 0; i < s.blocks.size(); ++i) {
    const Block& block = s.blocks[i];
    tell_work("blocks", i, s.blocks.size());
    lower_block(s, block, evaluator.cost(), scratch.graph);
    scratch.engine.run(scratch.graph, scratch.machine, scratch.timeline);
    errors.add(i, scratch.graph, scratch.timeline);
    const std::vector<TaskId> path = critical_path(scratch.graph, scratch.timeline);
    const auto length = [&](TaskId t) {
      return scratch.timeline.spans[t].end - scratch.timeline.spans[t].start;
    };
    Seconds on_path;
    for (const TaskId t : path) {
      const Op& op = s.ops[block.first + t];
      b.add(evaluator.cost(), op, evaluator.cost().price(op), length(t), runs[i]);
      if (is_communication(op.kind)) on_path += length(t);
    }
    Seconds all;
    for (OpIndex o = block.first; o < block.last; ++o) {
      if (is_communication(s.ops[o].kind)) all += length(o - block.first);
    }
    b.exposed_communication += on_path * runs[i];
    b.hidden_communication += (all - on_path) * runs[i];
    pass += scratch.timeline.makespan() * runs[i];
  }
  b.waiting = b.time - evaluator.host_added() - pass;
  b.errors = errors.terms();
  return b;
}

}  // namespace

Breakdown break_down(Evaluator& evaluator, const Plan& plan) {
  Breakdown b = break_down_own(evaluator, plan);
  b.others = evaluator.by_other_frameworks(plan);
  std::vector<LibraryChange> changes;
  for (const FrameworkTime& other : b.others) changes.push_back({other.framework, other.time / b.time - 1});
  b.errors.set_libraries(std::move(changes));
  b.errors += acceptance_errors(evaluator.study(), plan);
  return b;
}

}  // namespace shardline
