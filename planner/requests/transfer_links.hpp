// Hand-offs between replicas of two pools as flows that share their links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "sim/base/units.hpp"

namespace shardline {

/// [R12] What a hand-off takes while no other is on its way: whoever submits it does so for `submit` and
/// `submit_token` for each token of cache, one hand-off after the other; then `fixed` before anything flows,
/// then `token` for each token. A replica's links carry so many hand-offs at that speed at once, at least
/// one.
struct TransferRates {
  Seconds fixed, token;
  double senders = 1, receivers = 1;
  Seconds submit = {}, submit_token = {};
  bool receiver_submits = true;

  Seconds submission(double tokens) const { return submit + submit_token * tokens; }
  Seconds alone(double tokens) const { return submission(tokens) + fixed + token * tokens; }
};

/// Flows that share links max-min: all grow alike until a replica's links are full, then the others go on to.
/// Before it flows a hand-off is submitted, behind those that the same side submits and began before it.
class TransferLinks {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  /// Throws std::logic_error unless times are not negative and each side carries one (checked).
  TransferLinks(const TransferRates& rates, std::size_t senders, std::size_t receivers);

  /// One begins at `now`; calls do not go back in time. A number that ended() gives back.
  void begin(Seconds now, std::size_t from, std::size_t to, std::uint32_t tokens, std::uint64_t number);
  /// When something changes next: a flow begins to flow, or ends. kNever without flows.
  Seconds next() const { return next_; }
  /// Goes on to next(); who ended there, if somebody did.
  std::optional<std::uint64_t> step();
  /// [R15] One that ends at `now` before all of it was carried: its number, and tokens that were not.
  struct Cut {
    std::uint64_t number;
    double left;
  };
  /// All of a sender's, or of a receiver's, that is gone, in the order in which they began; others share its
  /// links.
  std::vector<Cut> cut_sender(Seconds now, std::size_t from);
  std::vector<Cut> cut_receiver(Seconds now, std::size_t to);
  std::size_t count() const { return flows_.size(); }
  /// Seconds that a side's links would have been full for what they carried.
  const std::vector<double>& sent() const { return sent_; }
  const std::vector<double>& received() const { return received_; }

 private:
  struct Flow {
    Seconds submitted, submission;  // when it is, and what that takes
    Seconds flows;                  // from when on
    double remaining;               // seconds, alone
    double rate = 0;                // of 1
    std::size_t from, to;
    std::uint32_t tokens;
    std::uint64_t number;
    bool fixed = false;  // its rate is found
  };

  std::vector<Cut> cut(Seconds now, std::size_t Flow::*side, std::size_t replica);
  void go_on(Seconds now);
  void share();
  Seconds& free_of(const Flow& f) { return rates_.receiver_submits ? free_in_[f.to] : free_out_[f.from]; }
  void submit(Flow& f);
  void submit_anew();

  const TransferRates rates_;
  std::vector<Flow> flows_;  // in the order in which they began
  std::vector<double> sent_, received_;
  std::vector<double> room_out_, room_in_;
  std::vector<Seconds> free_out_, free_in_;  // when a side has submitted all that it has begun
  std::vector<std::uint32_t> open_out_, open_in_;
  Seconds now_, next_{kNever};
};

}  // namespace shardline
