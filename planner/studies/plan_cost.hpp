// What a token costs: joules of GPU boards, and money where a study says what a GPU costs. planner/README.md
// [P32].
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/scenario/scenario.hpp"
#include "planner/studies/sweep.hpp"

namespace shardline {

/// A number with its nominal 90 % interval in parts of it.
struct CostNumber {
  double value = 0;
  ErrorRange error;
};

struct PlanCost {
  std::optional<CostNumber> watts;        // of a board, mean; nothing: not known of the system's boards
  std::optional<CostNumber> joules;       // a token: of answers, of a prefill one of its prompts
  std::optional<CostNumber> per_million;  // tokens, in the money of Study::gpu_hour; nothing: no price
};
/// Of a million tokens at a price of a GPU for an hour.
double money_per_million(double gpu_hour, double tokens_per_s_gpu);
/// Of a point at this rate per GPU (tokens/s), whose rating is known. The GPUs are taken to be the plan's
/// alone, busy or waiting, as long as the tokens take.
PlanCost cost_of(const Study& study, const Rating& rating, double tokens_per_s_gpu);
/// The same at the point's own rate.
PlanCost cost_of(const Study& study, const Point& point, const Rating& rating);

/// Of a pair of pools in the ratio that answers most, and in whole replicas, whose waiting GPUs count.
PlanCost pair_cost(const Study& study, const SweepAnswer& answer, const PoolPair& pair);
PlanCost whole_cost(const Study& study, const SweepAnswer& answer, const PoolPair& pair);

/// "0.31 J per token of answers (90 %: 0.2 to 0.5), GPU boards at 540 W; 0.12 per million tokens of answers
/// at 2.5 per GPU-hour (90 %: 0.11 to 0.13)"; empty where neither is known.
std::string cost_text(const Study& study, const PlanCost& cost);
/// Two digits of what is known no better than that, and whole numbers; never with an exponent.
std::string cost_digits(double value);
/// Empty where the system's own boards were measured, else whose watts are taken in the ratio of the boards'
/// limits: ", scaled from h200-hgx".
std::string power_text(const System& system);

}  // namespace shardline
