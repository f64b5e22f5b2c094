#include "hardware/timing/lowering.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "hardware/timing/unfolder.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/work_progress.hpp"
#include "sim/engine/fold.hpp"

namespace shardline {

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

void lower_block(const Schedule& schedule, const Block& block, CostModel& cost, TaskGraph& graph) {
  graph.clear();
  std::array<Demand, 4> demands;
  std::array<TaskId, 8> deps;
  std::array<std::int64_t, kLanes> last_of_lane;
  last_of_lane.fill(-1);
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

// Blocks end in barriers, so a pass is the sum of its blocks' makespans [H16]. Of `count` passes at once, in
// one round: makespans[block * count + i].
struct PassSums {
  std::span<double> latency, busiest;
};
PassSums add_up_stages(const Schedule& schedule, std::span<const double> makespans, std::size_t count) {
  SL_CHECK(schedule.rounds == 1 && makespans.size() == schedule.blocks.size() * count,
           "a time of every block");
  thread_local std::vector<double> sums;
  sums.assign(4 * count, 0);
  const auto part = [&](std::size_t i) { return std::span(sums).subspan(i * count, count); };
  const std::span<double> latency = part(0), busiest = part(1), all = part(2), busy = part(3);
  for (const Stage& stage : schedule.stages) {
    std::fill(all.begin(), all.end(), 0);
    std::fill(busy.begin(), busy.end(), 0);
    for (const Repeat& repeat : schedule.program_of(stage)) {
      for (const BlockIndex b : schedule.blocks_of(repeat)) {
        const std::span<const double> of_block = makespans.subspan(b * count, count);
        for (std::size_t i = 0; i < count; ++i) all[i] += of_block[i] * repeat.times;
        if (schedule.blocks[b].handoff) continue;
        for (std::size_t i = 0; i < count; ++i) busy[i] += of_block[i] * repeat.times;
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      latency[i] += all[i] * stage.copies;
      busiest[i] = std::max(busiest[i], busy[i]);
    }
  }
  return {latency, busiest};
}

}  // namespace

PassTime add_up(const Schedule& schedule, const std::vector<double>& makespans) {
  PassTime pass;
  if (schedule.rounds == 1) {
    const PassSums one = add_up_stages(schedule, makespans, 1);
    return {Seconds(one.latency.front()), Seconds(one.busiest.front())};
  }
  double busy = 0;
  for (const RoundTime& r : play_rounds(schedule, makespans)) {
    busy = r.round == 0 ? 0 : busy;
    busy += (r.end - r.start).value;
    pass.latency = r.sent;
    pass.busiest = std::max(pass.busiest, Seconds(busy));
  }
  return pass;
}

void token_times(const Schedule& schedule, std::span<const double> makespans, std::span<double> out) {
  const PassSums all = add_up_stages(schedule, makespans, out.size());
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = token_time(schedule, {Seconds(all.latency[i]), Seconds(all.busiest[i])}).value;
}

double simulate_block(const Schedule& schedule, const Block& block, CostModel& cost, PassScratch& scratch) {
  lower_block(schedule, block, cost, scratch.graph);
  scratch.engine.run(scratch.graph, scratch.machine, scratch.timeline);
  return scratch.timeline.makespan().value;
}

PassTime simulate_pass(const Schedule& schedule, CostModel& cost, PassScratch& scratch) {
  if (schedule.classes > 1 || schedule.detached) return play_classes(schedule, cost, scratch);
  scratch.makespans.clear();
  constexpr std::size_t kLasts = 1000;  // blocks; sweeps simulate millions of passes that have fewer
  const bool lasts = schedule.blocks.size() > kLasts;
  for (const Block& block : schedule.blocks) {
    if (lasts) tell_work("blocks", scratch.makespans.size(), schedule.blocks.size());
    scratch.makespans.push_back(simulate_block(schedule, block, cost, scratch));
  }
  return add_up(schedule, scratch.makespans);
}

std::vector<RoundTime> play_rounds(const Schedule& schedule, const std::vector<double>& makespans) {
  SL_CHECK(makespans.size() == schedule.blocks.size(), "a time of every block");
  std::vector<RoundTime> out;
  const auto rounds = static_cast<std::size_t>(schedule.rounds);
  std::vector<double> busy(rounds), hand_off(rounds), arrived(rounds, 0);
  int index = 0;
  CancelCheck check;
  for (const Stage& stage : schedule.stages) {
    busy.assign(rounds, 0);
    hand_off.assign(rounds, 0);
    for (const Repeat& repeat : schedule.program_of(stage)) {
      check();
      for (const BlockIndex b : schedule.blocks_of(repeat)) {
        auto& sum = schedule.blocks[b].handoff ? hand_off : busy;
        sum[static_cast<std::size_t>(repeat.round)] += makespans[b] * repeat.times;
      }
    }
    for (int copy = 0; copy < stage.copies; ++copy, ++index) {
      double free = 0, link_free = 0;
      for (std::size_t r = 0; r < rounds; ++r) {
        check();
        const double start = std::max(free, arrived[r]);
        free = start + busy[r];
        link_free = std::max(free, link_free) + hand_off[r];
        arrived[r] = link_free;
        out.push_back({index, static_cast<int>(r), Seconds(start), Seconds(free), Seconds(link_free)});
      }
    }
  }
  return out;
}

std::vector<double> executions_on_path(const Schedule& schedule, const std::vector<RoundTime>& rounds) {
  std::vector<const Stage*> stages;
  for (const Stage& s : schedule.stages) stages.insert(stages.end(), static_cast<std::size_t>(s.copies), &s);
  std::vector<double> times(schedule.blocks.size(), 0);
  // Rounds are in order, hence each is found without a look at the others: a prompt may have a million.
  for (const Stage& s : schedule.stages)
    SL_CHECK(std::ranges::is_sorted(schedule.program_of(s), {}, &Repeat::round), "a program is by round");
  const auto add = [&](const RoundTime& at, bool handoff) {
    const auto program = schedule.program_of(*stages[static_cast<std::size_t>(at.stage)]);
    const auto before = [](const Repeat& repeat, int round) { return repeat.round < round; };
    for (auto repeat = std::lower_bound(program.begin(), program.end(), at.round, before);
         repeat != program.end() && repeat->round == at.round; ++repeat) {
      for (const BlockIndex b : schedule.blocks_of(*repeat)) {
        if (schedule.blocks[b].handoff == handoff) times[b] += repeat->times;
      }
    }
  };
  // Backwards from the end: what each round waited for, in its stage or on its link.
  const auto cell = [&](int stage, int round) -> const RoundTime& {
    return rounds[static_cast<std::size_t>(stage * schedule.rounds + round)];
  };
  RoundTime at = rounds.back();
  CancelCheck check;
  for (bool sending = true;;) {
    check();
    add(at, sending);
    if (sending) {
      const bool queued = at.round > 0 && cell(at.stage, at.round - 1).sent > at.end;
      if (queued) {
        at = cell(at.stage, at.round - 1);
      } else {
        sending = false;
      }
      continue;
    }
    if (at.round > 0 && cell(at.stage, at.round - 1).end == at.start) {
      at = cell(at.stage, at.round - 1);
    } else if (at.stage > 0) {
      at = cell(at.stage - 1, at.round);
      sending = true;
    } else {
      return times;
    }
  }
}

Seconds token_time(const Schedule& schedule, const PassTime& pass) {
  return steady_period(pass.latency, pass.busiest, schedule.in_flight);
}

}  // namespace shardline
