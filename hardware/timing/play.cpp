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

// Plays blocks one at a time. A block ends in a barrier on each player alone, so all that one block tells the
// next is when each player and its detached lanes are free. Once a layer leaves those times as far apart as
// it found them, so will all that follow [H19].
class BlockPlay {
 public:
  BlockPlay(const Schedule& schedule, CostModel& cost, PassScratch& scratch)
      : schedule_(schedule), scratch_(scratch), unfolder_(schedule, cost, scratch.graph, Players::classes) {
    const int count = players(schedule, Players::classes);
    ready_machine(cost, scratch, count);
    now_.at.assign(static_cast<std::size_t>(count), 0);
  }

  PassTime pass() {
    PassTime pass;
    for (const Stage& stage : schedule_.stages) {
      for (int copy = 0; copy < stage.copies; ++copy) pass.busiest = std::max(pass.busiest, busy(stage));
    }
    pass.latency = Seconds(latest());
    return pass;
  }

 private:
  static constexpr std::array<double, kLanes> kUnused{-1, -1, -1, -1};

  // From when the stage starts until its last block ends that hands nothing over.
  Seconds busy(const Stage& stage) {
    now_.tails.assign(now_.at.size(), kUnused);
    rebase();
    const double start = base_ + *std::min_element(now_.at.begin(), now_.at.end());
    end_ = start;
    for (const Repeat& repeat : schedule_.program_of(stage)) play(repeat);
    return Seconds(end_ - start);
  }

  void play(const Repeat& repeat) {
    for (int t = 0; t < repeat.times; ++t) {
      rebase();
      before_ = now_;
      const double begun = base_;
      for (const BlockIndex b : schedule_.blocks_of(repeat)) {
        play(schedule_.blocks[b]);
        if (!schedule_.blocks[b].handoff) end_ = latest();
      }
      rebase();
      const double period = base_ - begun;
      if (!repeats(period)) continue;
      const double rest = period * (repeat.times - 1 - t);
      base_ += rest;
      end_ += rest;
      return;
    }
  }

  void play(const Block& block) {
    scratch_.graph.clear();
    unfolder_.release(now_);
    unfolder_.block(block);
    scratch_.engine.run(scratch_.graph, scratch_.wide, scratch_.timeline);
    unfolder_.ends(scratch_.timeline, now_);
  }

  void rebase() {
    double least = *std::min_element(now_.at.begin(), now_.at.end());
    for (const auto& tails : now_.tails) {
      for (const double t : tails) least = t < 0 ? least : std::min(least, t);
    }
    for (double& t : now_.at) t -= least;
    for (auto& tails : now_.tails) {
      for (double& t : tails) t = t < 0 ? t : t - least;
    }
    base_ += least;
  }

  double latest() const { return base_ + *std::max_element(now_.at.begin(), now_.at.end()); }

  bool repeats(double period) const {
    const auto same = [&](double x, double y) { return std::abs(x - y) <= 1e-14 * period; };
    if (!std::equal(now_.at.begin(), now_.at.end(), before_.at.begin(), same)) return false;
    for (std::size_t p = 0; p < now_.tails.size(); ++p) {
      const auto &now = now_.tails[p], &before = before_.tails[p];
      if (!std::equal(now.begin(), now.end(), before.begin(), same)) return false;
    }
    return true;
  }

  const Schedule& schedule_;
  PassScratch& scratch_;
  Unfolder unfolder_;
  Unfolder::State now_, before_;  // before_: as the repetition being played found it
  double base_ = 0;               // of the state: times stay small, so that rounding does
  double end_ = 0;                // of the stage's work so far
};

}  // namespace

// Messages of chains outlast their block. Where collectives use the same ports, blocks cannot be played one
// by one. Nor can rounds that fill several stages, for a rank takes its part of a round as soon as it is
// handed on.
bool plays_all_layers(const Schedule& s) {
  if (s.rounds > 1 && (s.stages.size() > 1 || s.stages.front().copies > 1)) return true;
  bool hops = false, others = false;
  for (const Op& op : s.ops) {
    if (!is_communication(op.kind)) continue;
    (is_hop(op) ? hops : others) = true;
  }
  return hops && others;
}

PassTime play_classes(const Schedule& schedule, CostModel& cost, PassScratch& scratch) {
  if (!plays_all_layers(schedule)) return BlockPlay(schedule, cost, scratch).pass();
  const std::optional<PassTime> replayed = replay_layers(schedule, cost, scratch);
  return replayed ? *replayed : play_whole(schedule, cost, scratch);
}

}  // namespace shardline
