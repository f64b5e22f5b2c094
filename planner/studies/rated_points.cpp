#include "planner/studies/rated_points.hpp"

#include <algorithm>

namespace shardline {

const Rating& RatedPoints::of(const Plan& plan) const {
  const auto at = std::find_if(points.begin(), points.end(), [&](const Point& p) { return p.plan == plan; });
  SL_CHECK(at != points.end(), "every plan that is shown was rated");
  return ratings[static_cast<std::size_t>(at - points.begin())];
}

RatedPoints rate(const Study& study, std::vector<Point> points, int threads) {
  std::vector<Plan> plans;
  for (const Point& p : points) plans.push_back(p.plan);
  return {std::move(points), ratings_of(study.study, study.sweep().search.all_reduce, plans, threads)};
}

RatedPoints rate_frontiers(const Study& study, const SearchResult& r, int threads) {
  std::vector<Point> all;
  for (const auto& [id, frontier] : r.frontiers) {
    const auto points = frontier.points();
    all.insert(all.end(), points.begin(), points.end());
  }
  const auto even = r.even.points();
  all.insert(all.end(), even.begin(), even.end());
  return rate(study, std::move(all), threads);
}

std::vector<NoisyPlan> noisy_plans(const Study& study, const std::vector<Plan>& plans, int threads,
                                   const std::function<bool()>& go_on) {
  Evaluator e(study.study, study.sweep().search.all_reduce);
  std::vector<NoisyPlan> out;
  for (const Plan& p : plans) {
    if (!go_on()) break;
    out.push_back({p, noise_effect(e, p, *study.sweep().noise, threads)});
  }
  return out;
}

}  // namespace shardline
