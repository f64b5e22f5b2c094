// Builds the graph of all players (ranks, or one of each class) of a schedule. Only lowering.hpp's functions
// use it.
#pragma once

#include <array>
#include <vector>

#include "hardware/timing/lowering.hpp"

namespace shardline {

std::size_t demands_of(const OpCost& cost, ResourceId base, std::array<Demand, 4>& out);
Sharing sharing_of(const Op& op);

/// The groups in terms of players, each once; none where every group is one player.
std::vector<std::vector<std::size_t>> player_groups(const Schedule& schedule, Group group, Players who);

/// simulate_pass() for schedules whose ranks are of several classes or that have detached lanes [H19].
PassTime play_classes(const Schedule& schedule, CostModel& cost, PassScratch& scratch);

class Unfolder {
 public:
  Unfolder(const Schedule& schedule, CostModel& cost, TaskGraph& graph, Players who,
           Meeting meeting = Meeting::apart);

  /// A new stage: its ranks, links and hosts are its own, and start when the stage before has handed over.
  void stage();

  /// What one block tells the next: when each player is free, and when each of its detached lanes is. Times
  /// of detached lanes that have done nothing yet are negative.
  struct State {
    std::vector<double> at;
    std::vector<std::array<double, kLanes>> tails;
  };
  /// Lets the next block start on each player at its own time.
  void release(const State& state);
  /// When each player has ended the last block.
  void ends(const Timeline& timeline, State& state) const;
  /// Whether a task of the graph, which is of one block, started later because a host had not launched it
  /// yet.
  bool waits_for_host(const Timeline& timeline) const;
  /// The tasks that the next block waits for, on all players.
  std::vector<TaskId> barriers() const;

  void block(const Block& b);

  /// What the next block of each player waits for.
  using Barriers = std::vector<std::vector<TaskId>>;
  const Barriers& waits() const { return barrier_; }
  void wait_also(const Barriers& others);
  void wait_only(const Barriers& these) { barrier_ = these; }

 private:
  static constexpr TaskId kNone = ~TaskId{0};
  static constexpr std::array<TaskId, kLanes> kIdle{kNone, kNone, kNone, kNone};

  void add_costs(OpIndex i, CostModel& cost, const Block& block);
  const auto& groups(OpIndex i) const { return groups_[groups_of_[i]]; }
  int rank_of(std::size_t player) const;
  void wait_for(const Block& b, OpIndex i, std::size_t p);
  TaskId add(OpIndex i, std::size_t p);
  TaskId join();
  void finish(const Block& b, OpIndex i, std::size_t p, TaskId task);
  void hop(const Block& b, OpIndex i);
  void ring(const Block& b, OpIndex i);
  void meeting(const Block& b, OpIndex i);
  TaskId add_in_step(OpIndex i, const std::vector<std::size_t>& members);
  const OpCost& cost(OpIndex i, std::size_t p) const;
  ResourceId first_resource(std::size_t p) const;

  const Schedule& s_;
  TaskGraph& graph_;
  Players who_;
  Meeting meeting_;
  std::size_t players_;
  int stage_ = -1;
  std::vector<OpCost> costs_;                            // [op][class]
  using Groups = std::vector<std::vector<std::size_t>>;  // [group][member]
  std::vector<Groups> groups_;                           // each once, however many ops have it
  std::vector<std::size_t> groups_of_;                   // [op]
  Barriers barrier_;
  std::vector<std::array<TaskId, kLanes>> lanes_;  // [player]: last task of each lane
  std::vector<TaskId> done_;                       // [player][op of the block]
  std::vector<TaskId> deps_;
  std::vector<Demand> demands_;
};

/// Every stage, round and repetition of every block. A stage goes on with its next round while it hands on
/// the one before [H20].
std::vector<StageMarks> unfold_stages(const Schedule& schedule, Unfolder& unfolder);
/// `end`: what the last block ends with.
PassTime pass_of(const std::vector<StageMarks>& stages, const std::vector<TaskId>& end,
                 const Timeline& timeline);

}  // namespace shardline
