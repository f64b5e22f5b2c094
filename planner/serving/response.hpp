// How long a prompt takes from being sent to its first token while others are served, in closed form.
// planner/README.md [P19].
#pragma once

#include "planner/serving/served.hpp"

namespace shardline {

/// Customers that wait where `rho` of the service is used, over rho^2 (one server) or less (several): 1 / (2
/// (1 - rho)) where they never end, and less among `users` of any phases, each of whom comes once a cycle:
/// the queue of many periodic sources has the tail exp(-2 x (x / users + 1 - rho)) (J. W. Roberts, J. T.
/// Virtamo, "The superposition of periodic cell arrival streams in an ATM multiplexer", IEEE Trans. Commun.
/// 39(2), 1991), whose integral this is.
double waiting_of_periodic(double rho, double users);

/// Mean responses of users of one plan, in seconds, the request path in them. Requests come back when a step
/// ends, reach the engine after a path of exponential length, and are prefilled in order from the end of the
/// step that they find.
class Responses {
 public:
  /// Of at least one user, with room for all of them.
  Responses(const EngineProfile& engine, const ServedTimes& times, double users);

  /// While the others ask so many times in the time of a token, on average.
  double steady(double asks) const;
  /// Of requests that waited for room and are there when a place is free, without path and wait: while others
  /// ask as above, in a server that is always full.
  double admitted(double asks) const;
  /// Of users who all ask at the same time, with nobody served.
  double burst() const;
  /// Until the last prompt of a burst is done, its path left out.
  double drain() const;
  /// Most times that the others can ask in the time of a token: as often as prompts are done.
  double most_asks() const;

 private:
  double mixed(double asks) const;
  double first(double asks) const;
  double busy_periods(double asks) const;
  // Prompts of a step, and what it takes.
  double step(double prompts) const { return times_.prompt_of(prompts).value; }
  double span(double prompts) const;
  double completions(double prompts, double variance) const;
  double behind(double asks, double steps) const;

  const ServedTimes& times_;
  const bool mixes_;
  const double users_, most_, decode_, path_;
};

}  // namespace shardline
