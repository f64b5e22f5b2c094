// Requests that decode in every step, counted together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardline {

/// Requests each of which has one more token with every step that is decided: what a step of theirs is, whose
/// answer ends with it and how many of them begin a block, without a look at each. Steps are numbered from 0.
class SteadyRequests {
 public:
  using Id = std::uint32_t;

  /// Blocks of so many tokens.
  explicit SteadyRequests(std::uint32_t block) : begins_(block) {}

  std::uint32_t count() const { return count_; }
  /// One is there from step `step` on, which finds `cached` tokens of it in the cache; the last of its tokens
  /// is that of step `end`, not before it (checked).
  void add(Id id, std::uint64_t step, std::uint32_t cached, std::uint64_t end);

  /// Of a step that all that are there have: tokens cached together and in the longest, and how many need a
  /// block more. There is one (checked); steps do not go back.
  std::uint64_t cached(std::uint64_t step) const;
  std::uint32_t longest(std::uint64_t step);
  std::uint32_t begin_blocks(std::uint64_t step) const { return begins_[step % begins_.size()]; }
  /// Blocks that they need in `steps` steps from this one on.
  std::uint64_t begin_blocks(std::uint64_t step, std::uint64_t steps) const;
  /// The first step with somebody's last token. There is one (checked).
  std::uint64_t next_end() const;
  /// Appends who has the last token in step next_end(), in any order; these are there no more.
  void end(std::vector<Id>& out);
  /// Appends all that are there, in any order; nobody is any more.
  void clear(std::vector<Id>& out);

 private:
  struct Steady {
    std::int64_t key;  // heaps have the largest on top
    std::int64_t other;
    Id id;
    bool operator<(const Steady& b) const { return key < b.key; }
  };
  // Where begins_ counts one that has `origin` tokens cached less the step's number.
  std::uint32_t& begin_of(std::int64_t origin);

  std::uint32_t count_ = 0;
  std::int64_t origins_ = 0;           // of all that are there
  std::vector<std::uint32_t> begins_;  // by the step's number, less whole blocks
  std::vector<Steady> ends_;           // by less the end; the other is the origin
  std::vector<Steady> longest_;        // by the origin; the other is the end, and some have ended
};

}  // namespace shardline
