// The first steps and requests of a play, one by one: what a timeline of it shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/requests/played_engine.hpp"

namespace shardline {

/// The first steps to begin and the first requests to come, at most `most` of each, however many there are.
class ServedTimeline {
 public:
  /// A stretch of steps counts as one. As many as viewers of timelines still show smoothly.
  static constexpr std::size_t kMost = 20'000;

  struct Step {
    std::size_t replica = 0;
    PlayedStep step;
  };
  struct Request {
    std::size_t replica = 0;
    AnsweredRequest request;
  };

  /// At least one (checked).
  explicit ServedTimeline(std::size_t most = kMost);

  void add(std::size_t replica, const PlayedStep& step);
  /// Requests are told when they are answered, one that came early perhaps late.
  void add(std::size_t replica, const AnsweredRequest& request);
  /// After the last: leaves out what is too much, and brings the rest in order.
  void finish();

  /// By when they began or came, then by replica.
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<Request>& requests() const { return requests_; }
  /// How many later ones are not among them.
  std::uint64_t steps_left_out() const { return added_steps_ - steps_.size(); }
  std::uint64_t requests_left_out() const { return added_requests_ - requests_.size(); }

 private:
  std::size_t most_;
  std::vector<Step> steps_;
  std::vector<Request> requests_;
  std::uint64_t added_steps_ = 0, added_requests_ = 0;
};

}  // namespace shardline
