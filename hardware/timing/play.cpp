#include <algorithm>
#include <cmath>

#include "hardware/timing/unfolder.hpp"

namespace shardline {

namespace {

void ready_machine(CostModel& cost, PassScratch& scratch, int count) {
  if (scratch.wide_players == count) return;
  scratch.wide = cost.machine(count);
  scratch.wide_players = count;
}

// All stages in one graph.
PassTime play_whole(const Schedule& schedule, CostModel& cost, PassScratch& scratch) {
  int stages = 0;
  for (const Stage& stage : schedule.stages) stages += stage.copies;
  ready_machine(cost, scratch, stages * players(schedule, Players::classes));
  scratch.graph.clear();
  Unfolder unfolder(schedule, cost, scratch.graph, Players::classes);
  const std::vector<StageMarks> marks = unfold_stages(schedule, unfolder);
  const std::vector<TaskId> end = unfolder.barriers();
  scratch.engine.run(scratch.graph, scratch.wide, scratch.timeline);
  return pass_of(marks, end, scratch.timeline);
}

}  // namespace

// Messages of chains outlast their block. Where collectives use the same ports, blocks cannot be played one
// by one.
bool plays_all_layers(const Schedule& s) {
  bool hops = false, others = false;
  for (const Op& op : s.ops) {
    if (!is_communication(op.kind)) continue;
    (is_hop(op) ? hops : others) = true;
  }
  return hops && others;
}

// A block ends in a barrier on each player alone, so all that one block tells the next is when each player
// and its detached lanes are free. Once a layer leaves those times as far apart as it found them, so will all
// that follow [H19].
PassTime play_classes(const Schedule& schedule, CostModel& cost, PassScratch& scratch) {
  if (plays_all_layers(schedule)) return play_whole(schedule, cost, scratch);
  Unfolder unfolder(schedule, cost, scratch.graph, Players::classes);
  const int count = players(schedule, Players::classes);
  ready_machine(cost, scratch, count);
  constexpr std::array<double, kLanes> kUnused{-1, -1, -1, -1};
  Unfolder::State now, before;
  now.at.assign(static_cast<std::size_t>(count), 0);
  now.tails.assign(now.at.size(), kUnused);
  double base = 0;  // of the state: times stay small, so that rounding does
  const auto rebase = [&] {
    double least = *std::min_element(now.at.begin(), now.at.end());
    for (const auto& tails : now.tails) {
      for (const double t : tails) least = t < 0 ? least : std::min(least, t);
    }
    for (double& t : now.at) t -= least;
    for (auto& tails : now.tails) {
      for (double& t : tails) t = t < 0 ? t : t - least;
    }
    base += least;
  };
  const auto latest = [&] { return base + *std::max_element(now.at.begin(), now.at.end()); };
  const auto play = [&](const Block& block) {
    scratch.graph.clear();
    unfolder.release(now);
    unfolder.block(block);
    scratch.engine.run(scratch.graph, scratch.wide, scratch.timeline);
    unfolder.ends(scratch.timeline, now);
  };
  const auto repeats = [&](double period) {
    const auto same = [&](double x, double y) { return std::abs(x - y) <= 1e-14 * period; };
    if (!std::equal(now.at.begin(), now.at.end(), before.at.begin(), same)) return false;
    for (std::size_t p = 0; p < now.tails.size(); ++p) {
      if (!std::equal(now.tails[p].begin(), now.tails[p].end(), before.tails[p].begin(), same)) return false;
    }
    return true;
  };
  PassTime pass;
  for (const Stage& stage : schedule.stages) {
    for (int copy = 0; copy < stage.copies; ++copy) {
      now.tails.assign(now.at.size(), kUnused);
      rebase();
      const double start = base + *std::min_element(now.at.begin(), now.at.end());
      double end = start;
      for (const Repeat& repeat : schedule.program_of(stage)) {
        for (int t = 0; t < repeat.times; ++t) {
          rebase();
          before = now;
          const double begun = base;
          for (const BlockIndex b : schedule.blocks_of(repeat)) {
            play(schedule.blocks[b]);
            if (!schedule.blocks[b].handoff) end = latest();
          }
          rebase();
          const double period = base - begun;
          if (!repeats(period)) continue;
          const double rest = period * (repeat.times - 1 - t);
          base += rest;
          end += rest;
          break;
        }
      }
      pass.busiest = std::max(pass.busiest, Seconds(end - start));
    }
  }
  pass.latency = Seconds(latest());
  return pass;
}

}  // namespace shardline
