#include "planner/evaluate.hpp"

namespace shardline {

Metrics metrics(Seconds ttl, const Plan& plan) {
  Metrics m;
  m.ttl = ttl;
  m.users = static_cast<double>(plan.users());
  m.tokens_per_s_user = 1 / ttl.value;
  m.tokens_per_s_gpu = m.users / (ttl.value * plan.gpus());
  return m;
}

Evaluator::Evaluator(const Case& c, AllReduceRule rule, std::shared_ptr<FabricCache> cache)
    : case_(&c), cost_(c.system, rule, std::move(cache)), scratch_(cost_) {}

Seconds Evaluator::simulate(const Plan& plan) {
  strategy(plan.strategy).lower(schedule_, *case_, plan);
  return token_time(schedule_, simulate_pass(schedule_, cost_, scratch_));
}

Seconds Evaluator::bound(const Plan& plan) {
  strategy(plan.strategy).lower(schedule_, *case_, plan);
  return token_time(schedule_, bound_pass(schedule_, cost_, scratch_));
}

Breakdown break_down(Evaluator& evaluator, const Plan& plan) {
  Breakdown b;
  b.ttl = evaluator.simulate(plan);
  const Schedule& s = evaluator.schedule();
  PassScratch scratch(evaluator.cost());
  Seconds pass;
  const std::vector<double> runs = executions(s);
  for (BlockIndex i = 0; i < s.blocks.size(); ++i) {
    const Block& block = s.blocks[i];
    lower_block(s, block, evaluator.cost(), scratch.graph);
    scratch.engine.run(scratch.graph, scratch.machine, scratch.timeline);
    const std::vector<TaskId> path = critical_path(scratch.graph, scratch.timeline);
    const auto length = [&](TaskId t) {
      return scratch.timeline.spans[t].end - scratch.timeline.spans[t].start;
    };
    Seconds on_path;
    for (const TaskId t : path) {
      const Op& op = s.ops[block.first + t];
      b.parts[static_cast<std::size_t>(op.part)] += length(t) * runs[i];
      b.kinds[static_cast<std::size_t>(op.kind)] += length(t) * runs[i];
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
  b.waiting = b.ttl - pass;
  return b;
}

}  // namespace shardline
