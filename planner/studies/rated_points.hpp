// Plans that a search found, with what their times rest on and what the traffic of others does to them.
#pragma once

#include <functional>
#include <vector>

#include "planner/scenario/scenario.hpp"
#include "planner/search/noise.hpp"
#include "planner/search/provenance.hpp"

namespace shardline {

/// Points with what their time rests on, and how far it may be off.
struct RatedPoints {
  std::vector<Point> points;
  std::vector<Rating> ratings;
  std::vector<ErrorTerms> ttft;  // what errors of prices do to it, of points that are served; else empty
  const Rating& of(const Plan& plan) const;  // of one of the points
  const ErrorTerms& ttft_of(const Plan& plan) const;
};
RatedPoints rate(const Study& study, std::vector<Point> points, int threads);
/// Those of each strategy's own frontier, and of kv_runahead with equal parts.
RatedPoints rate_frontiers(const Study& study, const SearchResult& r, int threads);

std::vector<Plan> plans_of(const RatedPoints& rated);

/// A plan beside background traffic.
struct NoisyPlan {
  Plan plan;
  NoiseEffect effect;
};
/// One per plan; fewer where `go_on` says no.
std::vector<NoisyPlan> noisy_plans(const Study& study, const std::vector<Plan>& plans, int threads,
                                   const std::function<bool()>& go_on);

}  // namespace shardline
