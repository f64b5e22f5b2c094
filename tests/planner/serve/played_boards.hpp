// What plays of requests draw, as tests ask for it.
#pragma once

#include <numeric>
#include <string>

#include "planner/studies/played_cost.hpp"
#include "tests/planner/serve/served_line.hpp"

namespace shardline {

inline double joules_of(const StepEnergy& e) {
  return std::accumulate(e.joules.begin(), e.joules.end(), 0.0);
}

/// A line of such a model and system, asked of an engine.
inline Study study_of_boards(const std::string& model, const std::string& system, int gpus,
                             const std::string& engine, long long input = 2048, long long output = 128) {
  PlanQuestion q;
  q.model = model;
  q.system = system;
  q.gpus = gpus;
  q.input = input;
  q.output = output;
  return study_of_line(engine, q);
}

inline ServiceAnswer served_on_boards(const Study& study, const ServiceQuestion& q) {
  return serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
}

}  // namespace shardline
