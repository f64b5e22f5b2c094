// Commands of several processes that mpirun or srun started together. planner/cli/README.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "sim/ranks/ranks.hpp"

namespace shardline::cli {

/// Call before anything else: of several processes all but one end at once, or are silent and share its work.
/// The exit code of one that has nothing to do; nothing: the command is to be run.
std::optional<int> begin_shared_work(int argc, char** argv);
/// Call last, with the code to end with, which it returns. A process that is silent, and fails, gives the one
/// that says why the time to do so: launchers end all others as soon as one has failed, and its words with
/// it.
int end_shared_work(int code);

/// Lines on standard error of how far shared work is: launchers hand it on through pipes, on which no
/// progress is drawn. The first after 10 s, since what is short needs none.
class SharedProgress {
 public:
  SharedProgress(std::string what, std::size_t ranks);
  void show(std::uint64_t done, std::uint64_t all);

 private:
  std::string what_;
  std::size_t ranks_;
  std::chrono::steady_clock::time_point begin_, last_;
};

/// The processes that share a command, closed at the end whatever ends it.
class SharedRanks {
 public:
  /// Throws as open_ranks().
  SharedRanks() : ranks_(open_ranks()) {}
  ~SharedRanks();
  SharedRanks(const SharedRanks&) = delete;
  SharedRanks& operator=(const SharedRanks&) = delete;

  /// nullptr: this process is alone.
  Ranks* get() const { return ranks_.get(); }
  /// Not rank 0, which alone has answers.
  bool helps() const { return ranks_ && ranks_->rank() > 0; }
  /// The work was done; `lost`: not by all of them.
  void done(bool lost) { lost_ = lost; }

 private:
  std::unique_ptr<Ranks> ranks_;
  bool lost_ = true;  // until it was: who ends early does not wait for the others
};

}  // namespace shardline::cli
