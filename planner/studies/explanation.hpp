// Why a plan takes as long as it does: what bounds it, how it answers to each rate and time, what would have
// to change for the next best plan to be ahead, what to buy. planner/README.md [P24].
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/studies/knobs.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "planner/studies/told_apart.hpp"

namespace shardline {

/// What one resource takes of the time, by part of a layer.
struct Bottleneck {
  std::string name;  // "HBM", "tensor cores", "waiting for a stage", ...
  Seconds time;
  double share = 0;                                    // of the step
  std::vector<std::pair<std::string, Seconds>> parts;  // the longest first
  std::string text;                                    // the sentence
};

/// d ln(what) / d ln(the thing changed), with its nominal 90 % interval.
struct Sensitivity {
  double value = 0, low = 0, high = 0;
};
struct Elasticity {
  Knob knob = Knob::hbm;
  double from = 1, to = 1;          // factors between which it was found
  Sensitivity time;                 // of PlanTimes::time()
  std::optional<Sensitivity> ttft;  // of a served workload
  Sensitivity rate;                 // of tokens/s/GPU
};
/// A thing that cannot be changed, and why.
struct NoElasticity {
  Knob knob = Knob::hbm;
  std::string why;
};

/// From where on one thing, changed alone, puts the other plan ahead.
struct Turnover {
  Knob knob = Knob::hbm;
  /// The least change; nothing: none up to kMostFactor either way.
  std::optional<double> factor;
  std::string why;  // of nothing
};
inline constexpr double kMostFactor = 8;

/// The next best plan on as many GPUs for as many users.
struct Rival {
  Plan plan;
  PlanTimes times;
  double ratio = 1;  // of its PlanTimes::time() to the plan's
  ErrorBand band;    // of ln(true ratio / ratio)
  bool told_apart = false;
  std::vector<Turnover> turnovers;
};

struct Rivals {
  std::uint64_t compared = 0;  // plans on as many GPUs that fit and start
  bool equal_users = true;     // for as many users; else no other plan's groups share these users evenly, and
                               // it was compared with plans for the next fewer and the next more
  /// The best of them, and where that is of the same strategy the best of another.
  std::vector<Rival> best;
};

/// A plan on another machine.
struct Purchase {
  std::string what;  // "1.5x HBM bandwidth", "b200-hgx"
  std::string key;   // what of the system file it is, or what the machine is
  Plan plan;         // with another batch, where more fits
  std::optional<PlanTimes> times;
  std::string why;        // of no times: why the plan cannot run there
  double time_ratio = 1;  // of PlanTimes::time() to the plan's own
  double rate_ratio = 1;  // of tokens/s/GPU
  ErrorBand band;         // of ln(true time_ratio / time_ratio)
};

struct Explanation {
  SimulatedPlan simulated;
  PlanTimes times;
  std::vector<Bottleneck> bottlenecks;
  std::vector<Elasticity> elasticities;
  std::vector<NoElasticity> without;
  Rivals rivals;
  std::vector<Purchase> purchases;
  std::size_t unmeasured = 0;  // systems of the catalogue that were left out: no measurements price them
};

/// The study as it is with these settings in place of some of its own keys (Overrides::settings).
using WithSettings = std::function<Study(const std::vector<std::string>& settings)>;

/// The plan must pass check. `settings` are those that made the study; `systems` is the catalogue of those it
/// may be bought on. Where it does not fit, `simulated` says so and the rest is empty. Deterministic.
Explanation explain(const Study& study, const Plan& plan, const std::vector<std::string>& settings,
                    const std::filesystem::path& systems, const WithSettings& with,
                    const std::function<void(std::uint64_t done, std::uint64_t total)>& progress = {});

/// Told after a part of the work of about so many simulations.
using Advance = std::function<void(std::uint64_t simulations)>;

std::vector<Bottleneck> bottlenecks_of(const Study& study, const SimulatedPlan& simulated,
                                       const std::vector<Elasticity>& elasticities);
/// Nothing changed by a knob is in `without`.
std::vector<Elasticity> elasticities_of(const Study& study, const Plan& plan,
                                        std::vector<NoElasticity>& without, const Advance& advance = {});
Rivals rivals_of(const Study& study, const Plan& plan, const PlanTimes& own, const Advance& advance = {});
std::vector<Purchase> purchases_of(const Study& study, const Plan& plan, const PlanTimes& own,
                                   const std::vector<std::string>& settings,
                                   const std::filesystem::path& systems, const WithSettings& with,
                                   std::size_t& unmeasured, const Advance& advance = {});
/// What rivals_of() tells `advance` of at most.
std::uint64_t simulations_of_rivals();

}  // namespace shardline
