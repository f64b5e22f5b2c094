#include "hardware/lowering.hpp"

#include <algorithm>
#include <array>
#include <cmath>

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

namespace {

PassTime play_classes(const Schedule& schedule, CostModel& cost, PassScratch& scratch);

}  // namespace

PassTime simulate_pass(const Schedule& schedule, CostModel& cost, PassScratch& scratch) {
  if (schedule.classes > 1) return play_classes(schedule, cost, scratch);
  scratch.makespans.clear();
  for (const Block& block : schedule.blocks) {
    lower_block(schedule, block, cost, scratch.graph);
    scratch.engine.run(scratch.graph, scratch.machine, scratch.timeline);
    scratch.makespans.push_back(scratch.timeline.makespan().value);
  }
  return add_up(schedule, scratch.makespans);
}

namespace {

template <class Time>
PassTime longest_path(const Schedule& schedule, PassScratch& scratch, Time time) {
  std::vector<double>& ends = scratch.ends;
  PassTime bound;
  for (int k = 0; k < schedule.classes; ++k) {
    scratch.makespans.clear();
    for (const Block& block : schedule.blocks) {
      ends.resize(block.last - block.first);
      double makespan = 0;
      for (OpIndex i = block.first; i < block.last; ++i) {
        const Op& op = schedule.ops[i];
        double start = 0;
        for (const OpIndex d : schedule.dependencies_of(op)) start = std::max(start, ends[d - block.first]);
        const Seconds own = op.variants == kAlike ? time(op) : time(schedule.op_of_class(i, k));
        const double end = start + own.value;
        ends[i - block.first] = end;
        makespan = std::max(makespan, end);
      }
      // The engine adds the same times in another order; the margin keeps its rounding above the bound.
      scratch.makespans.push_back(makespan * (1 - 1e-12));
    }
    const PassTime own = add_up(schedule, scratch.makespans);
    bound.latency = std::max(bound.latency, own.latency);
    bound.busiest = std::max(bound.busiest, own.busiest);
  }
  return bound;
}

}  // namespace

PassTime bound_pass(const Schedule& schedule, CostModel& cost, PassScratch& scratch) {
  return longest_path(schedule, scratch, [&](const Op& op) { return cost.time(op); });
}

PassTime floor_pass(const Schedule& schedule, CostModel& cost, PassScratch& scratch) {
  return longest_path(schedule, scratch, [&](const Op& op) { return cost.floor(op); });
}

Seconds token_time(const Schedule& schedule, const PassTime& pass) {
  return steady_period(pass.latency, pass.busiest, schedule.in_flight);
}

int players(const Schedule& schedule, Players who) {
  return who == Players::ranks ? schedule.ranks_per_stage : schedule.classes;
}

namespace {

// Builds the graph of all players of all stages.
class Unfolder {
 public:
  Unfolder(const Schedule& schedule, CostModel& cost, TaskGraph& graph, Players who)
      : s_(schedule), graph_(graph), who_(who), players_(static_cast<std::size_t>(players(schedule, who))) {
    barrier_.resize(players_);
    lanes_.resize(players_);
    groups_.resize(s_.ops.size());
    for (OpIndex i = 0; i < s_.ops.size(); ++i) {
      for (int k = 0; k < s_.classes; ++k) costs_.push_back(cost.price(s_.op_of_class(i, k)));
      const Block& block = *std::find_if(s_.blocks.begin(), s_.blocks.end(),
                                         [&](const Block& b) { return i >= b.first && i < b.last; });
      if (is_communication(s_.ops[i].kind) && !block.handoff) groups_[i] = player_groups(s_.ops[i].group);
    }
  }

  void stage() { ++stage_; }

  /// Lets the next block start on each player at its own time.
  void release(const std::vector<double>& at) {
    stage_ = 0;
    for (std::size_t p = 0; p < players_; ++p)
      barrier_[p].assign({graph_.add(Seconds(at[p]), {}, {}, Sharing::equal_slowdown, kJoinTag)});
  }
  /// When each player has ended the last block.
  void ends(const Timeline& timeline, std::vector<double>& at) const {
    at.assign(players_, 0);
    for (std::size_t p = 0; p < players_; ++p) {
      for (const TaskId t : barrier_[p]) at[p] = std::max(at[p], timeline.spans[t].end.value);
    }
  }

  void block(const Block& b) {
    done_.assign(players_ * (b.last - b.first), 0);
    lanes_.assign(players_, {kNone, kNone});
    for (OpIndex i = b.first; i < b.last; ++i) {
      if (groups_[i].empty()) {
        for (std::size_t p = 0; p < players_; ++p) {
          deps_.clear();
          wait_for(b, i, p);
          finish(b, i, p, add(i, p));
        }
      } else if (s_.ops[i].kind == OpKind::send_recv) {
        ring(b, i);
      } else {
        meeting(b, i);
      }
    }
    for (std::size_t p = 0; p < players_; ++p) {
      barrier_[p].clear();
      for (const TaskId last : lanes_[p]) {
        if (last != kNone) barrier_[p].push_back(last);
      }
    }
  }

 private:
  static constexpr TaskId kNone = ~TaskId{0};

  std::size_t player_of(int rank) const {
    return static_cast<std::size_t>(who_ == Players::ranks ? rank : s_.class_of(rank));
  }

  // The groups in terms of players, each once; none where a group is one player.
  std::vector<std::vector<std::size_t>> player_groups(Group g) const {
    std::vector<std::vector<std::size_t>> out;
    std::vector<bool> seen(players_, false);
    const int span = g.size * g.stride;
    SL_CHECK(s_.ranks_per_stage % span == 0, "groups tile the ranks of a stage");
    for (int base = 0; base < s_.ranks_per_stage; ++base) {
      if (base % span >= g.stride || seen[player_of(base)]) continue;
      std::vector<std::size_t> members;
      for (int m = 0; m < g.size; ++m) {
        const std::size_t p = player_of(base + m * g.stride);
        if (std::find(members.begin(), members.end(), p) == members.end()) members.push_back(p);
        seen[p] = true;
      }
      out.push_back(std::move(members));
    }
    if (std::all_of(out.begin(), out.end(), [](const auto& m) { return m.size() == 1; })) out.clear();
    return out;
  }

  void wait_for(const Block& b, OpIndex i, std::size_t p) {
    const auto list = s_.dependencies_of(s_.ops[i]);
    for (const OpIndex d : list) deps_.push_back(done_[p * (b.last - b.first) + d - b.first]);
    const TaskId previous = lanes_[p][static_cast<std::size_t>(s_.ops[i].lane)];
    if (previous != kNone) deps_.push_back(previous);
    if (list.empty() && previous == kNone) deps_.insert(deps_.end(), barrier_[p].begin(), barrier_[p].end());
  }

  TaskId add(OpIndex i, std::size_t p) {
    const int rank_class = who_ == Players::ranks ? s_.class_of(static_cast<int>(p)) : static_cast<int>(p);
    const OpCost& c = costs_[i * static_cast<std::size_t>(s_.classes) + static_cast<std::size_t>(rank_class)];
    const auto resources = static_cast<ResourceId>(RankResource::count);
    const auto rank = static_cast<ResourceId>(static_cast<std::size_t>(stage_) * players_ + p);
    std::array<Demand, 4> demands;
    const std::size_t n = demands_of(c, rank * resources, demands);
    return graph_.add(c.latency, {demands.data(), n}, deps_, sharing_of(s_.ops[i]),
                      static_cast<std::uint32_t>(p * s_.ops.size() + i));
  }

  TaskId join() { return graph_.add(Seconds(0), {}, deps_, Sharing::equal_slowdown, kJoinTag); }

  void finish(const Block& b, OpIndex i, std::size_t p, TaskId task) {
    done_[p * (b.last - b.first) + i - b.first] = task;
    lanes_[p][static_cast<std::size_t>(s_.ops[i].lane)] = task;
  }

  // Player p sends to the next of its group; its op ends when it has sent and received.
  void ring(const Block& b, OpIndex i) {
    for (const auto& members : groups_[i]) {
      std::vector<TaskId> sent;
      for (std::size_t m = 0; m < members.size(); ++m) {
        deps_.clear();
        wait_for(b, i, members[m]);
        wait_for(b, i, members[(m + 1) % members.size()]);
        sent.push_back(add(i, members[m]));
      }
      for (std::size_t m = 0; m < members.size(); ++m) {
        deps_.assign({sent[m], sent[(m + members.size() - 1) % members.size()]});
        finish(b, i, members[m], join());
      }
    }
  }

  void meeting(const Block& b, OpIndex i) {
    for (const auto& members : groups_[i]) {
      deps_.clear();
      for (const std::size_t p : members) wait_for(b, i, p);
      deps_.assign({join()});
      std::vector<TaskId> own;
      for (const std::size_t p : members) own.push_back(add(i, p));
      if (s_.ops[i].variants == kAlike) {
        for (std::size_t m = 0; m < members.size(); ++m) finish(b, i, members[m], own[m]);
        continue;
      }
      deps_ = own;
      const TaskId all = join();
      for (const std::size_t p : members) finish(b, i, p, all);
    }
  }

  const Schedule& s_;
  TaskGraph& graph_;
  Players who_;
  std::size_t players_;
  int stage_ = -1;
  std::vector<OpCost> costs_;                                  // [op][class]
  std::vector<std::vector<std::vector<std::size_t>>> groups_;  // [op][group][member]
  std::vector<std::vector<TaskId>> barrier_;                   // [player]: what its next block waits for
  std::vector<std::array<TaskId, 2>> lanes_;                   // [player]: last task of each lane
  std::vector<TaskId> done_;                                   // [player][op of the block]
  std::vector<TaskId> deps_;
};

}  // namespace

void lower_unfolded(const Schedule& schedule, CostModel& cost, TaskGraph& graph, Players who) {
  graph.clear();
  Unfolder unfolder(schedule, cost, graph, who);
  for (const Stage& stage : schedule.stages) {
    for (int copy = 0; copy < stage.copies; ++copy) {
      unfolder.stage();
      for (const Repeat& repeat : schedule.program_of(stage)) {
        for (int t = 0; t < repeat.times; ++t) {
          for (const BlockIndex b : schedule.blocks_of(repeat)) unfolder.block(schedule.blocks[b]);
        }
      }
    }
  }
}

namespace {

// A block ends in a barrier on each player alone, so all that one block tells the next is when each player is
// free. Once a layer leaves those times as far apart as it found them, so will all that follow [H19].
PassTime play_classes(const Schedule& schedule, CostModel& cost, PassScratch& scratch) {
  Unfolder unfolder(schedule, cost, scratch.graph, Players::classes);
  const int count = players(schedule, Players::classes);
  if (scratch.wide_players != count) {
    scratch.wide = cost.machine(count);
    scratch.wide_players = count;
  }
  std::vector<double>&at = scratch.ends, &before = scratch.makespans;
  at.assign(static_cast<std::size_t>(count), 0);
  double base = 0;  // of `at`: times stay small, so that rounding does
  const auto rebase = [&] {
    const double least = *std::min_element(at.begin(), at.end());
    for (double& t : at) t -= least;
    base += least;
  };
  const auto latest = [&] { return base + *std::max_element(at.begin(), at.end()); };
  const auto play = [&](const Block& block) {
    scratch.graph.clear();
    unfolder.release(at);
    unfolder.block(block);
    scratch.engine.run(scratch.graph, scratch.wide, scratch.timeline);
    unfolder.ends(scratch.timeline, at);
  };
  PassTime pass;
  for (const Stage& stage : schedule.stages) {
    for (int copy = 0; copy < stage.copies; ++copy) {
      rebase();
      const double start = base;
      double end = base;
      for (const Repeat& repeat : schedule.program_of(stage)) {
        for (int t = 0; t < repeat.times; ++t) {
          rebase();
          before = at;
          const double begun = base;
          for (const BlockIndex b : schedule.blocks_of(repeat)) {
            play(schedule.blocks[b]);
            if (!schedule.blocks[b].handoff) end = latest();
          }
          rebase();
          const double period = base - begun;
          const auto same = [&](double x, double y) { return std::abs(x - y) <= 1e-14 * period; };
          if (!std::equal(at.begin(), at.end(), before.begin(), same)) continue;
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

}  // namespace

}  // namespace shardline
