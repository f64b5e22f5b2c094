// The thresholds of one model: lookup tables and fitted rules derived from timed requests, and what every
// rule loses on requests that it was not derived from.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/studies/ring_timing.hpp"
#include "planner/studies/told_apart.hpp"

namespace shardline {

/// How many requests of a ring size have their time broken down: that takes longer than timing them.
inline constexpr int kRatedRequests = 16;

/// Where both variants take as long at a fixed length, by the lookup table, and where prices cannot tell
/// which is the faster. planner/README.md [P17].
struct RingCrossing {
  /// One reading of what fits get wrong.
  struct Open {
    ErrorBand ratio;              // of ln(true pass_q / pass_kv over what it is), at the crossing
    double lowest = 0, most = 0;  // miss rates from and to which they are not told apart; none: the crossing
    /// Whether errors of prices may have put a request's times in their order.
    bool holds(const RingPoint& request) const;
  };
  long long total = 0;     // tokens, new and cached
  double miss = 0;         // rate at which they take as long
  Open shared, unrelated;  // as FitErrors
};

/// Tokens of the requests among which a crossing is sought, and of Figure 9: no more than the grid has.
inline constexpr long long kCrossingTotal = 128'000;

/// One number of context-parallel ranks.
struct RingThresholds {
  int ranks = 1;
  RefinedTable refined;
  EmpiricalRule empirical;               // fitted to the grid of `refined`
  std::vector<RingPoint> tests;          // off the grid
  std::size_t rated = 0;                 // of the tests
  Shares shares;                         // of their time
  AnalyticRule at_peak, at_rate;         // Algorithm 5 with peak and with achieved rates
  std::vector<Regret> regrets;           // over the tests, one per rule
  std::optional<RingCrossing> crossing;  // of calibrated costs, where there is one at kCrossingTotal
};

struct ThresholdRule {
  std::string name;
  RingChoice choice;
  bool drawn = false;     // its boundary is in pictures
  bool constant = false;  // it asks nothing of a request
};

struct ThresholdStudy {
  std::vector<RingThresholds> rings;  // in the order of the grid's sizes
  std::vector<ThresholdRule> rules;
  /// Requests that were timed.
  std::size_t timed() const;
};

/// `progress` in ring sizes; it may throw to stop. Results do not depend on the threads (0: all cores).
/// Throws UserError for MLA, which passes latents and no keys and values.
ThresholdStudy study_thresholds(const Study& study, int threads,
                                const std::function<void(std::size_t done, std::size_t total)>& progress);

/// Miss rate below which a rule passes Q at `fresh` new tokens; nothing if it never changes its mind.
std::optional<double> miss_boundary(const ThresholdGrid& grid, const RingChoice& choice, int ranks,
                                    double fresh);

/// Figure 9: both variants at a fixed length of new and cached tokens together, over miss rates.
struct RatioStudy {
  long long total = 0;                        // tokens
  std::vector<std::vector<RingPoint>> rings;  // in the order of the grid's sizes
};
RatioStudy study_ratios(const Study& study, int threads);

}  // namespace shardline
