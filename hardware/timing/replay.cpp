// All layers of a schedule without a graph: the replay [S5] of the tasks that lower_unfolded() would list, in
// their order and with their sums, so that the times have the same bits [H19].
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "hardware/timing/unfolder.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr double kNever = -1;  // ends when a player has done nothing yet
constexpr auto kResources = static_cast<std::size_t>(RankResource::count);

// What one player's share of an op takes, alone.
struct Work {
  double latency = 0, alone = 0;
  std::array<std::uint8_t, 4> resources{};
  std::uint8_t used = 0;
};

class Replay {
 public:
  Replay(const Schedule& schedule, CostModel& cost, const Machine& machine)
      : s_(schedule),
        players_(static_cast<std::size_t>(schedule.classes)),
        work_(schedule.ops.size() * players_),
        groups_(1),
        groups_of_(schedule.ops.size(), 0),
        waits_(players_),
        lanes_(players_) {
    std::vector<Group> known{Group{0, 0}};
    for (const Block& block : s_.blocks) {
      for (OpIndex i = block.first; i < block.last; ++i) {
        price(i, cost, machine);
        if (!is_communication(s_.ops[i].kind) || block.handoff) continue;
        const Group group = s_.ops[i].group;
        groups_of_[i] =
            static_cast<std::size_t>(std::find(known.begin(), known.end(), group) - known.begin());
        if (groups_of_[i] < known.size()) continue;
        known.push_back(group);
        groups_.push_back(player_groups(s_, group, Players::classes));
      }
    }
  }

  /// Nothing if two tasks may share a resource.
  std::optional<PassTime> pass() {
    PassTime out;
    for (const Stage& stage : s_.stages) {
      for (int copy = 0; copy < stage.copies; ++copy) {
        begin_stage();
        const Seconds start = earliest();
        Seconds busy_until;
        bool handing_on = false;
        for (const Repeat& repeat : s_.program_of(stage)) {
          for (int t = 0; t < repeat.times; ++t) {
            for (const BlockIndex b : s_.blocks_of(repeat)) {
              if (s_.blocks[b].handoff && !handing_on) busy_until = latest();
              handing_on = handing_on || s_.blocks[b].handoff;
              if (!block(s_.blocks[b])) return std::nullopt;
            }
          }
        }
        if (!handing_on) busy_until = latest();
        out.busiest = std::max(out.busiest, busy_until - start);
      }
    }
    out.latency = latest();
    SL_CHECK(std::isfinite(out.latency.value), "no time overflows");
    return out;
  }

 private:
  // When the tasks have ended that a player's next block waits for. Without any, it waits for nothing.
  struct Wait {
    double last = 0, first = std::numeric_limits<double>::infinity();
  };

  void price(OpIndex i, CostModel& cost, const Machine& machine) {
    const Op& op = s_.ops[i];
    for (std::size_t p = 0; p < players_; ++p) {
      if (!takes_part(op, rank_of(p))) continue;
      Work& work = work_[i * players_ + p];
      if (op.variants == kAlike && p > 0 && op.member == kEveryMember) {
        work = work_[i * players_];
        continue;
      }
      std::array<Demand, 4> demands;
      const OpCost price = cost.price(s_.op_of_class(i, static_cast<int>(p)));
      const std::size_t count = demands_of(price, 0, demands);
      work.latency = price.latency.value;
      for (std::size_t d = 0; d < count; ++d) {
        work.alone = std::max(work.alone, demands[d].amount / machine.capacity(demands[d].resource));
        work.resources[work.used++] = static_cast<std::uint8_t>(demands[d].resource);
      }
      SL_CHECK(std::isfinite(work.latency + work.alone), "a task alone ends");
    }
  }

  int rank_of(std::size_t player) const { return static_cast<int>(player) * s_.class_stride; }

  // Ranks, links and hosts of a stage are its own.
  void begin_stage() {
    free_at_.assign(players_ * kResources, 0);
    for (auto& lanes : lanes_) lanes.fill(kNever);
  }

  Seconds latest() const {
    double out = 0;
    for (const Wait& w : waits_) out = std::max(out, w.last);
    return Seconds(out);
  }
  Seconds earliest() const {
    double out = latest().value;
    for (const Wait& w : waits_) out = std::min(out, w.first);
    return Seconds(out);
  }

  double& done(OpIndex i, std::size_t p) { return done_[(i - first_) * players_ + p]; }

  // When player p has all that its share of op i waits for, as in Unfolder::wait_for().
  double ready(OpIndex i, std::size_t p) {
    const Op& op = s_.ops[i];
    const std::span<const OpIndex> list = s_.dependencies_of(op);
    const double previous = lanes_[p][static_cast<std::size_t>(op.lane)];
    double out = previous == kNever && s_.opens_block(op) ? waits_[p].last : std::max(0.0, previous);
    for (const OpIndex d : list) out = std::max(out, done(d, p));
    return out;
  }

  // Ends the share of player p that is ready at `start`. Work below the clock's resolution is left to events.
  double end(OpIndex i, std::size_t p, double start) {
    const Work& work = work_[i * players_ + p];
    const double drain = start + work.latency, out = drain + work.alone;
    for (std::size_t r = 0; r < work.used; ++r) {
      double& free_at = free_at_[p * kResources + work.resources[r]];
      shares_ = shares_ || drain < free_at || !(drain < out);
      free_at = out;
    }
    return out;
  }

  void finish(OpIndex i, std::size_t p, double time) {
    done(i, p) = lanes_[p][static_cast<std::size_t>(s_.ops[i].lane)] = time;
  }

  bool block(const Block& b) {
    first_ = b.first;
    done_.assign((b.last - b.first) * players_, kNever);
    for (auto& lanes : lanes_) {
      for (std::size_t l = 0; l < kLanes; ++l) {
        if (!is_detached(static_cast<Lane>(l))) lanes[l] = kNever;
      }
    }
    for (OpIndex i = b.first; i < b.last; ++i) {
      if (is_hop(s_.ops[i])) {
        hop(i);
      } else if (groups(i).empty()) {
        for (std::size_t p = 0; p < players_; ++p) {
          if (takes_part(s_.ops[i], rank_of(p))) finish(i, p, end(i, p, ready(i, p)));
        }
      } else if (s_.ops[i].kind == OpKind::send_recv) {
        ring(i);
      } else {
        meeting(i);
      }
    }
    for (std::size_t p = 0; p < players_; ++p) {
      waits_[p] = {};
      for (std::size_t l = 0; l < kLanes; ++l) {
        if (is_detached(static_cast<Lane>(l)) || lanes_[p][l] == kNever) continue;
        waits_[p].last = std::max(waits_[p].last, lanes_[p][l]);
        waits_[p].first = std::min(waits_[p].first, lanes_[p][l]);
      }
    }
    return !shares_;
  }

  void hop(OpIndex i) {
    for (const auto& members : groups(i)) {
      const auto sender = static_cast<std::size_t>(s_.ops[i].member);
      const std::size_t from = members[sender], to = members[sender + 1];
      SL_CHECK(takes_part(s_.ops[i], rank_of(from)), "a sender has its price");
      lanes_[from][static_cast<std::size_t>(Lane::send)] = done(i, to) = end(i, from, ready(i, from));
    }
  }

  void ring(OpIndex i) {
    for (const auto& members : groups(i)) {
      const std::size_t count = members.size();
      ends_.clear();
      for (std::size_t m = 0; m < count; ++m)
        ends_.push_back(
            end(i, members[m], std::max(ready(i, members[m]), ready(i, members[(m + 1) % count]))));
      for (std::size_t m = 0; m < count; ++m)
        finish(i, members[m], std::max(ends_[m], ends_[(m + count - 1) % count]));
    }
  }

  void meeting(OpIndex i) {
    for (const auto& members : groups(i)) {
      double start = 0, last = 0;
      for (const std::size_t p : members) start = std::max(start, ready(i, p));
      for (const std::size_t p : members) {
        const double own = end(i, p, start);
        finish(i, p, own);
        last = std::max(last, own);
      }
      if (s_.ops[i].variants == kAlike) continue;
      for (const std::size_t p : members) finish(i, p, last);
    }
  }

  const std::vector<std::vector<std::size_t>>& groups(OpIndex i) const { return groups_[groups_of_[i]]; }

  const Schedule& s_;
  std::size_t players_;
  std::vector<Work> work_;                                     // [op][player]
  std::vector<std::vector<std::vector<std::size_t>>> groups_;  // each once, the first of ops without
  std::vector<std::size_t> groups_of_;                         // [op]
  std::vector<Wait> waits_;
  std::vector<std::array<double, kLanes>> lanes_;  // [player]: when the last task of each lane ends
  std::vector<double> free_at_;                    // [player][resource]
  std::vector<double> done_;                       // [op of the block][player]
  std::vector<double> ends_;
  OpIndex first_{0};  // of the block
  bool shares_ = false;
};

}  // namespace

std::optional<PassTime> replay_layers(const Schedule& schedule, CostModel& cost, const PassScratch& scratch) {
  if (schedule.rounds > 1) return std::nullopt;
  return Replay(schedule, cost, scratch.machine).pass();
}

}  // namespace shardline
