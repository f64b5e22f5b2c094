// What the boards of replicas draw while requests are played on them, and what their tokens cost.
// planner/requests/README.md [R39].
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/requests/cluster.hpp"
#include "planner/search/step_power.hpp"
#include "planner/studies/plan_cost.hpp"
#include "planner/studies/request_service.hpp"

namespace shardline {

/// Of a board of the replicas of one pool, the mean over so many seconds of a play, of which they were dead
/// for `down` of all their time (0 to 1). Kernels draw what their steps do, boards idle in all other time of
/// theirs, dead ones draw nothing. All 0 where nothing is known of the boards.
BoardWatts pool_watts(const BoardPower& power, const std::vector<ServedRequests>& replicas, double seconds,
                      double down);

/// Until the last answer, of all GPUs of all pools. Nothing is said of energy where boards of one pool are
/// not known.
struct PlayedCost {
  std::optional<CostNumber> watts;             // of a board, mean
  std::optional<CostNumber> prefill_watts;     // of pools apart: of a board of those that prefill
  std::optional<CostNumber> decode_watts;      // ... and of the others; nothing without pools
  std::optional<CostNumber> joules;            // of all boards
  std::optional<CostNumber> joules_per_token;  // of answers
  std::optional<CostNumber> per_million;       // tokens of answers, in the money of Study::gpu_hour
};
/// Intervals: errors of laws as watts_error() has them, and by squares what prices may be off: where these
/// decide how many tokens come (ServiceAnswer::rate_error()) all of a token's joules, else what kernels draw
/// above a waiting board, as they run for another part of the same time.
PlayedCost played_cost(const Study& study, const ServiceAnswer& answer);

/// "412 Wh of GPU boards until the last answer: 3.1 J per token of answers (90 %: 2.2 to 4.4), ..."; empty
/// where nothing is known.
std::string energy_text(const Study& study, const ServiceAnswer& answer);
/// "0.42 per million tokens of answers at 2.5 per GPU-hour, idle ones too"; empty without a price.
std::string money_text(const Study& study, const ServiceAnswer& answer);

}  // namespace shardline
