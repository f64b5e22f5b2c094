// One command's jobs, dealt out to processes as they become free. sim/README.md [S19].
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/ranks/job_threads.hpp"
#include "sim/ranks/ranks.hpp"

namespace shardline {

struct DealtJob {
  std::string bytes;
  /// Jobs of one number are quicker where another of them was done, for what is kept there.
  std::size_t kept = 0;
  /// Who is free begins with the least; ascending.
  std::size_t level = 0;
};

/// Rank 0's part: it does jobs itself, and gives the others as many as they have threads, and somewhat more
/// as long as plenty wait. What a rank had that is not heard of any more is given to others; should it be
/// heard of again, its results are taken where they come first. No result depends on who finds it. Of a
/// process that is alone (alone_rank()) it has all jobs.
class WorkDealer {
 public:
  /// `version`: what all ranks must agree on, or their results may differ. All live as long as this.
  WorkDealer(Ranks& ranks, std::size_t threads, std::string version, DoJob job);
  /// Tells the others to end.
  ~WorkDealer();
  WorkDealer(const WorkDealer&) = delete;
  WorkDealer& operator=(const WorkDealer&) = delete;

  /// Does all of them; take(job, result) for each as it comes, in the thread that calls this, until it says
  /// that the rest need not be done: what is under way then is forgotten. Throws what a job throws: one that
  /// failed elsewhere is done here for its error. Throws Cancelled as check_cancelled(), and UserError of
  /// ranks of another version.
  void deal(const std::vector<DealtJob>& jobs,
            const std::function<bool(std::size_t job, std::string_view result)>& take);

  /// Ranks that were not heard of for too long.
  std::vector<std::size_t> lost() const;
  /// Jobs that each rank has done.
  std::vector<std::uint64_t> done_by() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Rank {
    std::size_t threads = 0;                     // 0: it has not said yet
    std::map<std::uint64_t, std::size_t> doing;  // jobs of this deal by their ids
    std::deque<std::size_t> queue;               // that wait for it, since it keeps what they need
    Clock::time_point heard;
    bool lost = false;
    std::uint64_t done = 0;
  };

  void feed();
  std::deque<std::size_t>* next_for(std::size_t rank);
  void give(std::size_t rank, std::size_t job);
  void hear(const RankMessage& message);
  void finish(std::size_t rank, std::uint64_t id, std::string_view result);
  void redo(std::uint64_t id);
  void lose_the_silent();
  bool take_own();

  Ranks& ranks_;
  std::string version_;
  JobThreads threads_;
  std::vector<Rank> all_;
  std::unordered_map<std::size_t, std::size_t> keeper_;   // rank that keeps what jobs of a number need
  std::unordered_map<std::uint64_t, std::size_t> given_;  // jobs of this deal by the ids they were given with
  std::uint64_t next_id_ = 1;
  Clock::time_point said_;

  const std::vector<DealtJob>* jobs_ = nullptr;  // of this deal
  const std::function<bool(std::size_t, std::string_view)>* take_ = nullptr;
  std::deque<std::size_t> nobodys_;
  std::vector<bool> taken_;
  std::size_t left_ = 0;
};

/// The part of every other rank: jobs until rank 0 says that there are no more; whether it lost a rank.
/// Throws Cancelled as check_cancelled(), and UserError where rank 0 is not heard of for twenty times as long
/// as it would wait.
bool work_for_rank_0(Ranks& ranks, std::size_t threads, const std::string& version, DoJob job);

}  // namespace shardline
