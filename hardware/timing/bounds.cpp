// Lower bounds of a pass without the engine [H17].
#include <algorithm>

#include "hardware/timing/unfolder.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

// Millions of chunks of a prompt are millions of ops, which take seconds: the few bits are cheaper to look at
// than a counter to keep.
void ask_at(std::size_t op) {
  constexpr std::size_t kEvery = 1U << 12;
  if (op % kEvery == kEvery - 1) check_cancelled();
}

// Longest path through a block without what is on detached lanes: those go on beside the blocks, and are
// bounded each by itself.
template <class Own>
double longest_path(const Schedule& schedule, const Block& block, int rank, PassScratch& scratch, Own own) {
  std::vector<double>& ends = scratch.ends;
  ends.assign(block.last - block.first, 0);
  double makespan = 0;
  for (OpIndex i = block.first; i < block.last; ++i) {
    ask_at(i);
    const Op& op = schedule.ops[i];
    if (is_detached(op.lane) || !takes_part(op, rank)) continue;
    double start = 0;
    for (const OpIndex d : schedule.dependencies_of(op)) start = std::max(start, ends[d - block.first]);
    ends[i - block.first] = start + own(i);
    makespan = std::max(makespan, ends[i - block.first]);
  }
  // The engine adds the same times in another order; the margin keeps its rounding above the bound.
  return makespan * (1 - 1e-12);
}

// Blocks of a class one after the other.
template <class Time>
PassTime longest_path(const Schedule& schedule, PassScratch& scratch, Time time) {
  PassTime bound;
  for (int k = 0; k < schedule.classes; ++k) {
    const int rank = k * schedule.class_stride;
    const auto own = [&](OpIndex i) {
      const Op& op = schedule.ops[i];
      return (op.variants == kAlike ? time(op) : time(schedule.op_of_class(i, k))).value;
    };
    const auto add = [&] {
      const PassTime pass = add_up(schedule, scratch.makespans);
      bound.latency = std::max(bound.latency, pass.latency);
      bound.busiest = std::max(bound.busiest, pass.busiest);
    };
    scratch.makespans.clear();
    for (const Block& block : schedule.blocks)
      scratch.makespans.push_back(longest_path(schedule, block, rank, scratch, own));
    add();
    for (const Lane lane : {Lane::send, Lane::host}) {
      if (!schedule.detached) continue;
      scratch.makespans.clear();
      for (const Block& block : schedule.blocks) {
        double busy = 0;
        for (OpIndex i = block.first; i < block.last; ++i) {
          ask_at(i);
          if (schedule.ops[i].lane == lane && takes_part(schedule.ops[i], rank)) busy += own(i);
        }
        scratch.makespans.push_back(busy * (1 - 1e-12));
      }
      add();
    }
  }
  return bound;
}

// All classes of a chain together, layer by layer: a rank waits for what comes down the chain, and all ranks
// for each other where they meet. Contention and the order of attached lanes are left out.
class ChainBound {
 public:
  template <class Time>
  ChainBound(const Schedule& schedule, Time time)
      : s_(schedule), classes_(static_cast<std::size_t>(schedule.classes)), at_(classes_, 0) {
    groups_.resize(s_.ops.size());
    for (OpIndex i = 0; i < s_.ops.size(); ++i) {
      ask_at(i);
      for (int k = 0; k < s_.classes; ++k) times_.push_back(time(s_.op_of_class(i, k)).value);
    }
    for (const Block& b : s_.blocks) {
      for (OpIndex i = b.first; i < b.last && !b.handoff; ++i) {
        if (is_communication(s_.ops[i].kind))
          groups_[i] = player_groups(s_, s_.ops[i].group, Players::classes);
      }
    }
  }

  double latency() {
    for (const Stage& stage : s_.stages) {
      for (int copy = 0; copy < stage.copies; ++copy) {
        // Links and hosts of a stage are free when its ranks are.
        tails_.assign(classes_, {});
        for (std::size_t k = 0; k < classes_; ++k) tails_[k].fill(at_[k]);
        for (const Repeat& repeat : s_.program_of(stage)) {
          for (int t = 0; t < repeat.times; ++t) {
            for (const BlockIndex b : s_.blocks_of(repeat)) block(s_.blocks[b]);
          }
        }
      }
    }
    return *std::max_element(at_.begin(), at_.end());
  }

 private:
  double time(OpIndex i, std::size_t k) const { return times_[i * classes_ + k]; }
  double& end(const Block& b, OpIndex i, std::size_t k) { return ends_[(i - b.first) * classes_ + k]; }

  double ready(const Block& b, OpIndex i, std::size_t k) {
    const Op& op = s_.ops[i];
    double start = op.lane == Lane::host ? 0 : at_[k];
    if (is_detached(op.lane)) start = std::max(start, tails_[k][static_cast<std::size_t>(op.lane)]);
    for (const OpIndex d : s_.dependencies_of(op)) start = std::max(start, end(b, d, k));
    return start;
  }

  void block(const Block& b) {
    ends_.assign((b.last - b.first) * classes_, 0);
    std::vector<double>& after = after_;
    after = at_;
    for (OpIndex i = b.first; i < b.last; ++i) {
      ask_at(i);
      const Op& op = s_.ops[i];
      if (is_hop(op)) {
        for (const auto& members : groups_[i]) {
          const std::size_t from = members[static_cast<std::size_t>(op.member)];
          const std::size_t to = members[static_cast<std::size_t>(op.member) + 1];
          tails_[from][static_cast<std::size_t>(Lane::send)] = end(b, i, to) =
              ready(b, i, from) + time(i, from);
        }
        continue;
      }
      for (std::size_t k = 0; k < classes_; ++k) {
        if (takes_part(op, static_cast<int>(k) * s_.class_stride)) end(b, i, k) = ready(b, i, k) + time(i, k);
      }
      if (op.kind != OpKind::send_recv) meet(b, i);
      for (std::size_t k = 0; k < classes_; ++k) {
        if (is_detached(op.lane))
          tails_[k][static_cast<std::size_t>(op.lane)] = end(b, i, k);
        else
          after[k] = std::max(after[k], end(b, i, k));
      }
    }
    at_ = after;
  }

  // A collective starts when all its members are ready.
  void meet(const Block& b, OpIndex i) {
    for (const auto& members : groups_[i]) {
      double start = 0;
      for (const std::size_t k : members) start = std::max(start, end(b, i, k) - time(i, k));
      for (const std::size_t k : members) end(b, i, k) = start + time(i, k);
    }
  }

  const Schedule& s_;
  std::size_t classes_;
  std::vector<double> times_;  // [op][class]
  std::vector<std::vector<std::vector<std::size_t>>> groups_;
  std::vector<double> at_, after_;  // [class]: when its last block ended
  std::vector<std::array<double, kLanes>> tails_;
  std::vector<double> ends_;  // [op of the block][class]
};

template <class Time>
PassTime bound_of(const Schedule& schedule, PassScratch& scratch, Time time) {
  PassTime bound = longest_path(schedule, scratch, time);
  if (std::any_of(schedule.ops.begin(), schedule.ops.end(), is_hop)) {
    const double latency = ChainBound(schedule, time).latency() * (1 - 1e-12);
    bound.latency = std::max(bound.latency, Seconds(latency));
  }
  return bound;
}

}  // namespace

// Chunks of one kernel are mostly alike, and follow one another with two or three ops between them: an op
// like the last one of its name has its time. One that is not found is priced.
double bound_block(const Schedule& schedule, const Block& block, CostModel& cost, PassScratch& scratch) {
  constexpr std::size_t kBack = 6;
  std::vector<double>& times = scratch.times;
  times.clear();
  for (OpIndex i = block.first; i < block.last; ++i) {
    const Op& op = schedule.ops[i];
    const std::size_t at = times.size();
    std::size_t back = 1;
    while (back <= std::min(at, kBack) && schedule.ops[i - back].name != op.name) ++back;
    const bool known = back <= std::min(at, kBack) && same_price(schedule.ops[i - back], op);
    times.push_back(known ? times[at - back] : cost.time(op).value);
  }
  return longest_path(schedule, block, 0, scratch, [&](OpIndex i) { return times[i - block.first]; });
}

PassTime bound_pass(const Schedule& schedule, CostModel& cost, PassScratch& scratch) {
  return bound_of(schedule, scratch, [&](const Op& op) { return cost.time(op); });
}

}  // namespace shardline
