#include <algorithm>
#include <cmath>

#include "hardware/timing/stage_times.hpp"
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
// it found them, so will all that follow; and so will they once no kernel of a layer waits for a host, whose
// lead over the others only grows [H19].
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

  // A stage hands on what is not of its own work.
  std::vector<StagePass> stages() {
    std::vector<StagePass> out;
    double before = 0;
    for (const Stage& stage : schedule_.stages) {
      for (int copy = 0; copy < stage.copies; ++copy) {
        const Seconds own = busy(stage);
        out.push_back({own, std::max(Seconds(0), Seconds(latest() - before) - own)});
        before = latest();
      }
    }
    return out;
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
      host_waited_for_ = false;
      const double begun = base_;
      for (const BlockIndex b : schedule_.blocks_of(repeat)) {
        play(schedule_.blocks[b]);
        if (!schedule_.blocks[b].handoff) end_ = latest();
      }
      rebase();
      const double period = base_ - begun;
      const double others = repeat.times - 1 - t;
      if (repeats(period)) {
        base_ += period * others;
        end_ += period * others;
        return;
      }
      if (others > 0 && hosts_lead(period)) return lead(period, others);
    }
  }

  // Kernels waited for no host and left their times as far apart as they found them, and no host took longer
  // than they did: then the next layer finds each host further ahead, waits for it even less, and takes the
  // same time. A host waits for itself alone, so it takes as long as in this layer, too.
  bool hosts_lead(double period) const {
    if (host_waited_for_) return false;
    const double kernels = now_.at[0] - before_.at[0] + period;
    const auto moved = [&](double now, double before) {
      return std::abs((now - now_.at[0]) - (before - before_.at[0])) <= 1e-14 * kernels;
    };
    if (!std::equal(now_.at.begin(), now_.at.end(), before_.at.begin(), moved)) return false;
    for (std::size_t p = 0; p < now_.tails.size(); ++p) {
      for (std::size_t l = 0; l < kLanes; ++l) {
        const double now = now_.tails[p][l], before = before_.tails[p][l];
        if (now < 0 && before < 0) continue;
        if (now < 0 || before < 0) return false;  // begun in this layer
        const bool host = static_cast<Lane>(l) == Lane::host;
        if (host ? now - before + period > kernels : !moved(now, before)) return false;
      }
    }
    return true;
  }

  // So many more layers.
  void lead(double period, double layers) {
    const double kernels = (now_.at[0] - before_.at[0] + period) * layers;
    for (double& t : now_.at) t += kernels;
    for (std::size_t p = 0; p < now_.tails.size(); ++p) {
      for (std::size_t l = 0; l < kLanes; ++l) {
        double& t = now_.tails[p][l];
        if (t < 0) continue;
        const double of_host = (t - before_.tails[p][l] + period) * layers;
        t += static_cast<Lane>(l) == Lane::host ? of_host : kernels;
      }
    }
    end_ += kernels;
  }

  void play(const Block& block) {
    scratch_.graph.clear();
    unfolder_.release(now_);
    unfolder_.block(block);
    scratch_.engine.run(scratch_.graph, scratch_.wide, scratch_.timeline);
    host_waited_for_ = host_waited_for_ || unfolder_.waits_for_host(scratch_.timeline);
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
  bool host_waited_for_ = false;  // by a kernel of the repetition being played
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

std::vector<StagePass> stages_of_classes(const Schedule& schedule, CostModel& cost, PassScratch& scratch) {
  return BlockPlay(schedule, cost, scratch).stages();
}

PassTime play_classes(const Schedule& schedule, CostModel& cost, PassScratch& scratch) {
  if (!plays_all_layers(schedule)) return BlockPlay(schedule, cost, scratch).pass();
  const std::optional<PassTime> replayed = replay_layers(schedule, cost, scratch);
  return replayed ? *replayed : play_whole(schedule, cost, scratch);
}

}  // namespace shardline
