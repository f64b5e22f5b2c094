// One schedule, op by op: measured beside simulated.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "cuda_probe/cli/execute.hpp"
#include "cuda_probe/cli/random_inputs.hpp"
#include "cuda_probe/execute/cuda/compare.hpp"
#include "cuda_probe/execute/cuda/supported.hpp"
#include "hardware/cost/kernel_cost.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "reports/table.hpp"

namespace shardline::probe_cli {

namespace {

constexpr double kCheckedPairs = 2e6;  // (q, k, head) the CPU executor takes about a second for

/// What the host can give without swapping; 16 GB where it does not say.
double available_memory() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    double kilobytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %lf kB", &kilobytes) == 1) return 1024 * kilobytes;
  }
  return 16e9;
}

// What is to be run: in bfloat16, as all that is executed, and as long as asked for.
Case case_of(const ExecuteOptions& o) {
  Case c = study_of(scenario_named(o.scenario), o.model).study;
  c.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}};
  if (!o.system.empty()) c.system = load_system(o.system, shipped_catalogs().systems);
  if (!o.tokens) return c;
  if (*o.tokens < 1) throw UserError("--tokens must be at least 1");
  if (c.batch.decodes() && (c.batch.prefills() || c.batch.decode.size() > 1))
    throw UserError("--tokens is for steps of requests of one length; this scenario has several");
  if (c.batch.decodes()) c.batch.decode.front().cached = *o.tokens - 1;
  // Cached and new ones in the scenario's proportion; where the cache lies is not known for another length.
  c.placement = nullptr;
  for (Segment& r : c.batch.prefill) {
    const double all = static_cast<double>(r.cached + r.fresh);
    r.fresh = std::max(
        1LL, static_cast<long long>(static_cast<double>(r.fresh) / all * static_cast<double>(*o.tokens)));
    r.cached = *o.tokens - r.fresh;
  }
  return c;
}

Schedule schedule_of(const ExecuteOptions& o, const Case& c) {
  const Scenario scenario = scenario_named(o.scenario);
  const auto* sweep = std::get_if<Sweep>(&study_of(scenario, o.model).question);
  const Plan plan = plan_of(c, sweep != nullptr ? sweep->search.space : SearchSpace{}, o.plan);
  if (const auto why = check_plan(c, plan))
    throw UserError(fmt::format("plan {} is impossible for {}: {}", to_string(plan), c.model.name, *why));
  Schedule s;
  s.flow = std::make_shared<Dataflow>();
  lower(s, c, plan);
  if (const auto why = unsupported(s)) throw UserError("cannot be run: " + *why);
  // Inputs in float, a part of them in flight to a device, and that device where it is made of host memory.
  const double bytes = random_input_bytes(*s.flow) * (o.emulate ? 2 : 1.25), most = 0.8 * available_memory();
  if (bytes > most)
    throw UserError(
        fmt::format("its inputs take {} of host memory, {} can be had; take fewer --tokens, or a "
                    "scenario with cached tokens (attention alone)",
                    to_string(Bytes(bytes)), to_string(Bytes(most))));
  return s;
}

Seconds simulated(const Schedule& s, OpIndex op, CostModel& cost) {
  Seconds most;
  for (int k = 0; k < s.classes; ++k) most = std::max(most, cost.time(s.op_of_class(op, k)));
  return most;
}

struct LaneTimes {
  Seconds measured[2], simulated[2];
};

// Ops that move or compute data, in the order in which they run.
LaneTimes print_ops(const Schedule& s, const DeviceResult& run, CostModel& cost) {
  Table table({"op", "lane", "start", "measured", "simulated", "measured / simulated"});
  LaneTimes all;
  std::vector<Seconds> of_ranks[2];
  for (auto& lane : of_ranks) lane.resize(static_cast<std::size_t>(run.ranks));
  for (const BlockIndex b : block_order(s)) {
    for (OpIndex op = s.blocks[b].first; op < s.blocks[b].last && op < s.flow->ops.size(); ++op) {
      if (s.flow->ops[op].actions + s.flow->ops[op].moves == 0) continue;
      const std::size_t lane = s.ops[op].lane == Lane::compute ? 0 : 1;
      Seconds longest, start = run.time(op, 0).start;
      for (int r = 0; r < run.ranks; ++r) {
        const OpTime& t = run.time(op, r);
        longest = std::max(longest, t.duration());
        start = std::min(start, t.start);
        of_ranks[lane][static_cast<std::size_t>(r)] += t.duration();
      }
      const Seconds model = simulated(s, op, cost);
      all.simulated[lane] += model;
      table.add({s.ops[op].name, std::string(to_string(s.ops[op].lane)), to_string(start), to_string(longest),
                 to_string(model), model > Seconds(0) ? fmt::format("{:.2f}", longest / model) : "-"});
    }
  }
  for (std::size_t lane = 0; lane < 2; ++lane)
    all.measured[lane] = *std::max_element(of_ranks[lane].begin(), of_ranks[lane].end());
  fmt::print("{}\n", table.text());
  return all;
}

void print_overlap(const LaneTimes& lanes, Seconds makespan) {
  Table table({"", "measured", "simulated, each op alone"});
  table.add({"compute lane, fullest rank", to_string(lanes.measured[0]), to_string(lanes.simulated[0])});
  table.add(
      {"communication lane, fullest rank", to_string(lanes.measured[1]), to_string(lanes.simulated[1])});
  table.add({"from start to end", to_string(makespan), "-"});
  fmt::print("{}", table.text());
  const Seconds shorter = std::min(lanes.measured[0], lanes.measured[1]);
  const Seconds both = lanes.measured[0] + lanes.measured[1];
  if (shorter > Seconds(0))
    fmt::print("  {:.0f} % of the shorter lane is hidden behind the other\n",
               100 * std::max(0.0, std::min(1.0, (both - makespan) / shorter)));
}

double pairs_of(const Schedule& s) {
  double all = 0;
  for (const Action& a : s.flow->actions) {
    if (a.function == Function::attend)
      all += static_cast<double>(
          a.heads * causal_pairs(s.flow->token_list(a.queries), s.flow->token_list(a.keys), a.reach));
  }
  return all;
}

}  // namespace

int execute_schedule(const ExecuteOptions& o) {
  const Case c = case_of(o);
  const Schedule s = schedule_of(o, c);
  const Ranks ranks = ranks_for(o, ranks_of(s));
  if (!ranks.transport) {
    fmt::print(stderr, "no GPU to run on; --emulate runs on a device made up of CPU code\n");
    return 3;
  }
  const Tensors<float> inputs = random_inputs(*s.flow, o.seed);
  DeviceOptions device;
  device.collectives = o.collectives;
  Lanes lanes(*ranks.transport);
  DeviceExecutor executor(s, inputs, lanes, device);
  DeviceResult run = executor.run();
  for (int again = o.emulate ? 3 : 0; again < 3; ++again) {  // the first warms up
    DeviceResult next = executor.run();
    if (next.makespan() < run.makespan() || again == 0) run = std::move(next);
  }
  fmt::print("{} {}, {} ranks over {} on {}, in bfloat16; simulated on {}\n", c.model.name, o.plan, run.ranks,
             ranks.transport->name(), ranks.transport->gpu(0).name(), c.system.name);
  if (o.emulate) fmt::print("  measured times are INVENTED: no GPU ran this\n");
  if (!o.emulate && ranks.transport->name() == "loopback")
    fmt::print("  all ranks share one device: its times are not those of a rank with one to itself\n");
  CostModel cost(c.system);
  const LaneTimes times = print_ops(s, run, cost);
  print_overlap(times, run.makespan());
  if (pairs_of(s) > kCheckedPairs) {
    fmt::print("  results not checked: too long for the CPU executor\n");
    return 0;
  }
  const DeviceCheck check = compare(s, run, Executor<float>(s, inputs).run());
  fmt::print("  results {} the CPU executor's: largest error {:.1e}, {:.0f} % of what is allowed\n",
             check.passed() ? "equal" : "DIFFER from", check.error(), 100 * check.share_of_allowed());
  return check.passed() ? 0 : 1;
}

}  // namespace shardline::probe_cli
