#include "hardware/lowering.hpp"

#include <algorithm>
#include <array>

#include "sim/base/error.hpp"
#include "sim/fold.hpp"

namespace shardline {

namespace {

std::size_t demands_of(const OpCost& c, ResourceId base, std::array<Demand, 4>& out) {
  std::size_t n = 0;
  const auto put = [&](RankResource r, auto amount) {
    if (amount.value > 0) out[n++] = Demand::on(base + static_cast<ResourceId>(r), amount);
  };
  put(RankResource::tensor, c.tensor);
  put(RankResource::memory, c.memory);
  put(RankResource::exponentials, c.exponentials);
  put(c.port_resource, c.port);
  return n;
}

Sharing sharing_of(const Op& op) {
  return is_communication(op.kind) ? Sharing::equal_rate : Sharing::equal_slowdown;
}

}  // namespace

void lower_block(const Schedule& schedule, const Block& block, CostModel& cost, TaskGraph& graph) {
  graph.clear();
  std::array<Demand, 4> demands;
  std::array<TaskId, 8> deps;
  std::array<std::int64_t, 2> last_of_lane{-1, -1};
  for (OpIndex i = block.first; i < block.last; ++i) {
    const Op& op = schedule.ops[i];
    std::size_t n = 0;
    const auto own = schedule.dependencies_of(op);
    SL_CHECK(own.size() < deps.size(), "an op has at most seven dependencies");
    for (const OpIndex d : own) deps[n++] = d - block.first;
    auto& previous = last_of_lane[static_cast<std::size_t>(op.lane)];
    const auto id = static_cast<std::int64_t>(i - block.first);
    if (previous >= 0 &&
        std::find(deps.begin(), deps.begin() + n, static_cast<TaskId>(previous)) == deps.begin() + n) {
      deps[n++] = static_cast<TaskId>(previous);
    }
    previous = id;
    const OpCost c = cost.price(op);
    const std::size_t count = demands_of(c, 0, demands);
    graph.add(c.latency, {demands.data(), count}, {deps.data(), n}, sharing_of(op), i);
  }
}

namespace {

// Blocks end in barriers, so a pass is the sum of its blocks' makespans [H16].
PassTime add_up(const Schedule& schedule, const std::vector<double>& makespans) {
  PassTime pass;
  for (const Stage& stage : schedule.stages) {
    double all = 0, busy = 0;
    for (const Repeat& repeat : schedule.program_of(stage)) {
      for (const BlockIndex b : schedule.blocks_of(repeat)) {
        const double t = makespans[b] * repeat.times;
        all += t;
        if (!schedule.blocks[b].handoff) busy += t;
      }
    }
    pass.latency += Seconds(all * stage.copies);
    pass.busiest = std::max(pass.busiest, Seconds(busy));
  }
  return pass;
}

}  // namespace

PassTime simulate_pass(const Schedule& schedule, CostModel& cost, PassScratch& scratch) {
  scratch.makespans.clear();
  for (const Block& block : schedule.blocks) {
    lower_block(schedule, block, cost, scratch.graph);
    scratch.engine.run(scratch.graph, scratch.machine, scratch.timeline);
    scratch.makespans.push_back(scratch.timeline.makespan().value);
  }
  return add_up(schedule, scratch.makespans);
}

PassTime bound_pass(const Schedule& schedule, CostModel& cost, PassScratch& scratch) {
  scratch.makespans.clear();
  std::vector<double>& ends = scratch.ends;
  for (const Block& block : schedule.blocks) {
    ends.resize(block.last - block.first);
    double makespan = 0;
    for (OpIndex i = block.first; i < block.last; ++i) {
      const Op& op = schedule.ops[i];
      double start = 0;
      for (const OpIndex d : schedule.dependencies_of(op)) start = std::max(start, ends[d - block.first]);
      const double end = start + cost.time(op).value;
      ends[i - block.first] = end;
      makespan = std::max(makespan, end);
    }
    // The engine adds the same times in another order; the margin keeps its rounding above the bound.
    scratch.makespans.push_back(makespan * (1 - 1e-12));
  }
  return add_up(schedule, scratch.makespans);
}

Seconds token_time(const Schedule& schedule, const PassTime& pass) {
  return steady_period(pass.latency, pass.busiest, schedule.in_flight);
}

void lower_unfolded(const Schedule& schedule, CostModel& cost, TaskGraph& graph) {
  graph.clear();
  const int ranks = schedule.ranks_per_stage;
  const auto resources = static_cast<ResourceId>(RankResource::count);
  std::array<Demand, 4> demands;
  std::vector<TaskId> deps, joins;
  // Per local rank: tasks that everything of the next block waits for.
  std::vector<std::vector<TaskId>> barrier(static_cast<std::size_t>(ranks));
  std::vector<std::vector<TaskId>> done;  // [local rank][op of the block]
  std::vector<std::array<std::int64_t, 2>> last_of_lane;

  int stage_index = 0;
  for (const Stage& stage : schedule.stages) {
    for (int copy = 0; copy < stage.copies; ++copy, ++stage_index) {
      for (const Repeat& repeat : schedule.program_of(stage)) {
        for (std::size_t step = 0;
             step < schedule.blocks_of(repeat).size() * static_cast<std::size_t>(repeat.times); ++step) {
          const Block& block =
              schedule.blocks[schedule.blocks_of(repeat)[step % schedule.blocks_of(repeat).size()]];
          done.assign(static_cast<std::size_t>(ranks), {});
          last_of_lane.assign(static_cast<std::size_t>(ranks), {-1, -1});
          const auto own_dependencies = [&](const Op& op, std::size_t r, std::vector<TaskId>& out) {
            const auto list = schedule.dependencies_of(op);
            for (const OpIndex d : list) out.push_back(done[r][d - block.first]);
            const std::int64_t previous = last_of_lane[r][static_cast<std::size_t>(op.lane)];
            if (previous >= 0) out.push_back(static_cast<TaskId>(previous));
            if (list.empty() && previous < 0) out.insert(out.end(), barrier[r].begin(), barrier[r].end());
          };
          for (OpIndex i = block.first; i < block.last; ++i) {
            const Op& op = schedule.ops[i];
            const OpCost c = cost.price(op);
            joins.assign(static_cast<std::size_t>(ranks), 0);
            const bool joined = is_communication(op.kind) && op.kind != OpKind::send_recv;
            if (joined) {
              SL_CHECK(ranks % (op.group.size * op.group.stride) == 0, "groups tile the ranks of a stage");
              const int span = op.group.size * op.group.stride;
              for (int base = 0; base < ranks; ++base) {
                if ((base % span) >= op.group.stride) continue;
                deps.clear();
                for (int m = 0; m < op.group.size; ++m) {
                  own_dependencies(op, static_cast<std::size_t>(base + m * op.group.stride), deps);
                }
                const TaskId join = graph.add(Seconds(0), {}, deps);
                for (int m = 0; m < op.group.size; ++m)
                  joins[static_cast<std::size_t>(base + m * op.group.stride)] = join;
              }
            }
            for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
              deps.clear();
              if (joined)
                deps.push_back(joins[r]);
              else
                own_dependencies(op, r, deps);
              const auto rank = static_cast<ResourceId>(stage_index * ranks) + static_cast<ResourceId>(r);
              const std::size_t n = demands_of(c, rank * resources, demands);
              const TaskId id = graph.add(c.latency, {demands.data(), n}, deps, sharing_of(op), i);
              done[r].push_back(id);
              last_of_lane[r][static_cast<std::size_t>(op.lane)] = id;
            }
          }
          for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) barrier[r] = done[r];
        }
      }
    }
  }
}

}  // namespace shardline
