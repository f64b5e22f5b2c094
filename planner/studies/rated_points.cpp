#include "planner/studies/rated_points.hpp"

#include <algorithm>
#include <memory>

#include "planner/serving/served_plan.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

namespace {

std::size_t place_of(const std::vector<Point>& points, const Plan& plan) {
  const auto at = std::find_if(points.begin(), points.end(), [&](const Point& p) { return p.plan == plan; });
  SL_CHECK(at != points.end(), "every plan that is shown was rated");
  return static_cast<std::size_t>(at - points.begin());
}

// Of the first steps of prompts, of points that are served; else none.
std::vector<Rating> prompt_ratings(const Study& study, const std::vector<Point>& points, int threads) {
  const auto& workload = study.sweep().search.workload;
  const auto served = [](const Point& p) { return p.ttft > Seconds(0); };
  std::vector<Rating> out;
  if (!workload || !std::all_of(points.begin(), points.end(), served)) return out;
  out.resize(points.size());
  const std::size_t count = thread_count(threads);
  std::vector<std::unique_ptr<ServedEvaluator>> evaluators(count);
  parallel_for(0, points.size(), count, [&](std::size_t i, std::size_t slot) {
    if (!evaluators[slot])
      evaluators[slot] = std::make_unique<ServedEvaluator>(study.study, study.sweep().search.all_reduce);
    out[i] = evaluators[slot]->prompt_rating(points[i].plan, workload->input);
  });
  return out;
}

// Of TTFT: prompts' steps are the part of it that is not the request path, for that is no price.
ErrorTerms ttft_errors(const Study& study, const Point& p, const Rating& prompt) {
  return prompt.errors * std::max(0.0, 1 - study.study.engine->host.path / p.ttft);
}

// Boards of GPUs that serve: what is not the step that decodes of a token's time is of prompts.
BoardWatts served_watts(const Point& p, const Rating& decode, const Rating& prompt) {
  const double prompts = std::clamp(1 - decode.time / p.time, 0.0, 1.0);
  BoardWatts out = decode.watts * (1 - prompts);
  out += prompt.watts * prompts;
  return out;
}

}  // namespace

const Rating& RatedPoints::of(const Plan& plan) const { return ratings[place_of(points, plan)]; }

const ErrorTerms& RatedPoints::ttft_of(const Plan& plan) const { return ttft.at(place_of(points, plan)); }

RatedPoints rate(const Study& study, std::vector<Point> points, int threads) {
  std::vector<Plan> plans;
  plans.reserve(points.size());
  CancelCheck check;  // a sweep that keeps all has millions
  for (const Point& p : points) {
    check();
    plans.push_back(p.plan);
  }
  const std::vector<Rating> prompts = prompt_ratings(study, points, threads);
  RatedPoints out{
      std::move(points), ratings_of(study.study, study.sweep().search.all_reduce, plans, threads), {}};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    out.ttft.push_back(ttft_errors(study, out.points[i], prompts[i]));
    out.ratings[i].watts = served_watts(out.points[i], out.ratings[i], prompts[i]);
  }
  return out;
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

std::vector<Plan> plans_of(const RatedPoints& rated) {
  std::vector<Plan> out;
  for (const Point& p : rated.points) out.push_back(p.plan);
  return out;
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
