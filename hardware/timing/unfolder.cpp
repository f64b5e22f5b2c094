#include "hardware/timing/unfolder.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

int players(const Schedule& schedule, Players who) {
  return who == Players::ranks ? schedule.ranks_per_stage : schedule.classes;
}

std::vector<std::vector<std::size_t>> player_groups(const Schedule& s, Group g, Players who) {
  const auto player_of = [&](int rank) {
    return static_cast<std::size_t>(who == Players::ranks ? rank : s.class_of(rank));
  };
  std::vector<std::vector<std::size_t>> out;
  std::vector<bool> seen(static_cast<std::size_t>(players(s, who)), false);
  const int span = g.size * g.stride;
  SL_CHECK(s.ranks_per_stage % span == 0, "groups tile the ranks of a stage");
  for (int base = 0; base < s.ranks_per_stage; ++base) {
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

Unfolder::Unfolder(const Schedule& schedule, CostModel& cost, TaskGraph& graph, Players who, Meeting meeting)
    : s_(schedule),
      graph_(graph),
      who_(who),
      meeting_(meeting),
      players_(static_cast<std::size_t>(players(schedule, who))) {
  barrier_.resize(players_);
  lanes_.resize(players_, kIdle);
  costs_.reserve(s_.ops.size() * static_cast<std::size_t>(s_.classes));
  groups_of_.assign(s_.ops.size(), 0);
  groups_.resize(1);  // of ops without
  std::vector<Group> known{Group{0, 0}};
  for (const Block& block : s_.blocks) {
    for (OpIndex i = block.first; i < block.last; ++i) {
      add_costs(i, cost, block);
      if (!is_communication(s_.ops[i].kind) || block.handoff) continue;
      const Group group = s_.ops[i].group;
      auto& at = groups_of_[i];
      at = static_cast<std::size_t>(std::find(known.begin(), known.end(), group) - known.begin());
      if (at < known.size()) continue;
      known.push_back(group);
      groups_.push_back(player_groups(s_, group, who_));
    }
  }
}

void Unfolder::add_costs(OpIndex i, CostModel& cost, const Block& block) {
  for (int k = 0; k < s_.classes; ++k) {
    if (k > 0 && s_.ops[i].variants == kAlike) {
      costs_.push_back(costs_.back());
      continue;
    }
    costs_.push_back(cost.price(s_.op_of_class(i, k)));
    // Beside the next round, whose collectives it leaves alone [H20].
    if (s_.rounds > 1 && block.handoff) {
      const Seconds alone = cost.alone(costs_.back());
      costs_.back() = OpCost{};
      costs_.back().latency = alone;
    }
  }
}

void Unfolder::stage() {
  ++stage_;
  lanes_.assign(players_, kIdle);
}

void Unfolder::release(const State& state) {
  stage_ = 0;
  const auto at = [&](double time) {
    return graph_.add(Seconds(time), {}, {}, Sharing::equal_slowdown, kJoinTag);
  };
  for (std::size_t p = 0; p < players_; ++p) {
    barrier_[p].assign({at(state.at[p])});
    for (std::size_t l = 0; l < kLanes; ++l)
      lanes_[p][l] = state.tails[p][l] < 0 ? kNone : at(state.tails[p][l]);
  }
}

void Unfolder::ends(const Timeline& timeline, State& state) const {
  state.at.assign(players_, 0);
  for (std::size_t p = 0; p < players_; ++p) {
    for (const TaskId t : barrier_[p]) state.at[p] = std::max(state.at[p], timeline.spans[t].end.value);
    for (std::size_t l = 0; l < kLanes; ++l) {
      const bool used = is_detached(static_cast<Lane>(l)) && lanes_[p][l] != kNone;
      state.tails[p][l] = used ? timeline.spans[lanes_[p][l]].end.value : -1;
    }
  }
}

bool Unfolder::waits_for_host(const Timeline& timeline) const {
  const auto of_host = [&](TaskId t) {
    return graph_.tag(t) != kJoinTag && s_.ops[graph_.tag(t) % s_.ops.size()].lane == Lane::host;
  };
  for (TaskId t = 0; t < graph_.size(); ++t) {
    double launched = -1, others = 0;
    for (const TaskId d : graph_.dependencies(t)) {
      double& last = of_host(d) ? launched : others;
      last = std::max(last, timeline.spans[d].end.value);
    }
    if (launched > others && !of_host(t)) return true;
  }
  return false;
}

std::vector<TaskId> Unfolder::barriers() const {
  std::vector<TaskId> all;
  for (const auto& of_player : barrier_) all.insert(all.end(), of_player.begin(), of_player.end());
  return all;
}

void Unfolder::wait_also(const Barriers& others) {
  for (std::size_t p = 0; p < others.size(); ++p)
    barrier_[p].insert(barrier_[p].end(), others[p].begin(), others[p].end());
}

void Unfolder::block(const Block& b) {
  done_.assign(players_ * (b.last - b.first), kNone);
  for (auto& lanes : lanes_) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      if (!is_detached(static_cast<Lane>(l))) lanes[l] = kNone;
    }
  }
  for (OpIndex i = b.first; i < b.last; ++i) {
    if (is_hop(s_.ops[i])) {
      hop(b, i);
    } else if (groups(i).empty()) {
      for (std::size_t p = 0; p < players_; ++p) {
        if (!takes_part(s_.ops[i], rank_of(p))) continue;
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
    for (std::size_t l = 0; l < kLanes; ++l) {
      if (!is_detached(static_cast<Lane>(l)) && lanes_[p][l] != kNone) barrier_[p].push_back(lanes_[p][l]);
    }
  }
}

int Unfolder::rank_of(std::size_t player) const {
  return static_cast<int>(player) * (who_ == Players::ranks ? 1 : s_.class_stride);
}

void Unfolder::wait_for(const Block& b, OpIndex i, std::size_t p) {
  const auto list = s_.dependencies_of(s_.ops[i]);
  for (const OpIndex d : list) {
    const TaskId task = done_[p * (b.last - b.first) + d - b.first];
    if (task != kNone) deps_.push_back(task);
  }
  const TaskId previous = lanes_[p][static_cast<std::size_t>(s_.ops[i].lane)];
  if (previous != kNone) deps_.push_back(previous);
  if (previous == kNone && s_.opens_block(s_.ops[i]))
    deps_.insert(deps_.end(), barrier_[p].begin(), barrier_[p].end());
}

const OpCost& Unfolder::cost(OpIndex i, std::size_t p) const {
  const int rank_class = who_ == Players::ranks ? s_.class_of(static_cast<int>(p)) : static_cast<int>(p);
  return costs_[i * static_cast<std::size_t>(s_.classes) + static_cast<std::size_t>(rank_class)];
}

ResourceId Unfolder::first_resource(std::size_t p) const {
  const auto rank = static_cast<ResourceId>(static_cast<std::size_t>(stage_) * players_ + p);
  return rank * static_cast<ResourceId>(RankResource::count);
}

TaskId Unfolder::add(OpIndex i, std::size_t p) {
  const OpCost& c = cost(i, p);
  std::array<Demand, 4> demands;
  const std::size_t n = demands_of(c, first_resource(p), demands);
  return graph_.add(c.latency, {demands.data(), n}, deps_, sharing_of(s_.ops[i]),
                    static_cast<std::uint32_t>(p * s_.ops.size() + i));
}

TaskId Unfolder::add_in_step(OpIndex i, const std::vector<std::size_t>& members) {
  demands_.clear();
  Seconds latency;
  for (const std::size_t p : members) {
    std::array<Demand, 4> own;
    const std::size_t n = demands_of(cost(i, p), first_resource(p), own);
    demands_.insert(demands_.end(), own.begin(), own.begin() + static_cast<std::ptrdiff_t>(n));
    latency = std::max(latency, cost(i, p).latency);
  }
  return graph_.add(latency, demands_, deps_, sharing_of(s_.ops[i]),
                    static_cast<std::uint32_t>(members.front() * s_.ops.size() + i));
}

TaskId Unfolder::join() { return graph_.add(Seconds(0), {}, deps_, Sharing::equal_slowdown, kJoinTag); }

void Unfolder::finish(const Block& b, OpIndex i, std::size_t p, TaskId task) {
  done_[p * (b.last - b.first) + i - b.first] = task;
  lanes_[p][static_cast<std::size_t>(s_.ops[i].lane)] = task;
}

// One member sends, in the order of its sends, and goes on; the next of its group waits where it needs what
// comes. Receives are posted ahead.
void Unfolder::hop(const Block& b, OpIndex i) {
  for (const auto& members : groups(i)) {
    const auto sender = static_cast<std::size_t>(s_.ops[i].member);
    const std::size_t from = members[sender], to = members[sender + 1];
    deps_.clear();
    wait_for(b, i, from);
    const TaskId sent = add(i, from);
    lanes_[from][static_cast<std::size_t>(Lane::send)] = sent;
    done_[to * (b.last - b.first) + i - b.first] = sent;
  }
}

// Player p sends to the next of its group; its op ends when it has sent and received.
void Unfolder::ring(const Block& b, OpIndex i) {
  for (const auto& members : groups(i)) {
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

void Unfolder::meeting(const Block& b, OpIndex i) {
  for (const auto& members : groups(i)) {
    deps_.clear();
    for (const std::size_t p : members) wait_for(b, i, p);
    deps_.assign({join()});
    if (meeting_ == Meeting::in_step) {
      const TaskId together = add_in_step(i, members);
      for (const std::size_t p : members) finish(b, i, p, together);
      continue;
    }
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

std::vector<StageMarks> unfold_stages(const Schedule& schedule, Unfolder& unfolder) {
  std::vector<StageMarks> out;
  std::vector<Unfolder::Barriers> arrived(static_cast<std::size_t>(schedule.rounds));
  for (const Stage& stage : schedule.stages) {
    for (int copy = 0; copy < stage.copies; ++copy) {
      unfolder.stage();
      StageMarks& marks = out.emplace_back();
      Unfolder::Barriers done(unfolder.waits().size()), sent = done;
      auto repeat = schedule.program_of(stage).begin();
      for (int round = 0; round < schedule.rounds; ++round) {
        Unfolder::Barriers& from_before = arrived[static_cast<std::size_t>(round)];
        unfolder.wait_only(done);
        unfolder.wait_also(from_before);
        if (round == 0) marks.first = unfolder.barriers();
        bool handing_on = false;
        for (; repeat != schedule.program_of(stage).end() && repeat->round == round; ++repeat) {
          for (int t = 0; t < repeat->times; ++t) {
            for (const BlockIndex b : schedule.blocks_of(*repeat)) {
              if (schedule.blocks[b].handoff && !handing_on) {
                done = unfolder.waits();
                unfolder.wait_also(sent);
                handing_on = true;
              }
              unfolder.block(schedule.blocks[b]);
            }
          }
        }
        if (!handing_on) done = unfolder.waits();
        sent = from_before = unfolder.waits();
      }
      for (const auto& of_player : done)
        marks.last.insert(marks.last.end(), of_player.begin(), of_player.end());
    }
  }
  return out;
}

PassTime pass_of(const std::vector<StageMarks>& stages, const std::vector<TaskId>& end,
                 const Timeline& timeline) {
  const auto latest = [&](const std::vector<TaskId>& tasks) {
    Seconds last;
    for (const TaskId t : tasks) last = std::max(last, timeline.spans[t].end);
    return last;
  };
  PassTime pass;
  pass.latency = latest(end);
  for (const StageMarks& m : stages) {
    Seconds first = latest(m.first);
    for (const TaskId t : m.first) first = std::min(first, timeline.spans[t].end);
    pass.busiest = std::max(pass.busiest, latest(m.last) - first);
  }
  return pass;
}

void lower_unfolded(const Schedule& schedule, CostModel& cost, TaskGraph& graph, Players who,
                    Meeting meeting) {
  graph.clear();
  Unfolder unfolder(schedule, cost, graph, who, meeting);
  unfold_stages(schedule, unfolder);
}

}  // namespace shardline
