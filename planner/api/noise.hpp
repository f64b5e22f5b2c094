// Plans beside the traffic of others.
#pragma once

#include <string>
#include <vector>

#include "planner/api/values.hpp"

namespace shardline::api {

struct NoiseSpec {
  std::string links;
  double load = 0;
  double burst_s = 0;
  int flows = 0;
  int pairs = 0;
  int seeds = 0;
  long long first_seed = 0;
};
template <>
struct Fields<NoiseSpec> {
  static constexpr const char* name = "NoiseSpec";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Traffic of others on the links.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("links", &NoiseSpec::links, "`nvlink`, `network` or `all`");
    field("load", &NoiseSpec::load, "part of the time that a pair of neighbours has a burst");
    field("burst_s", &NoiseSpec::burst_s, "mean length of a burst");
    field("flows", &NoiseSpec::flows, "of a burst, each way");
    field("pairs", &NoiseSpec::pairs, "of neighbours, drawn for every seed; 0: all");
    field("seeds", &NoiseSpec::seeds, "runs");
    field("first_seed", &NoiseSpec::first_seed, "of the first run; the others count on");
  }
};

struct NoisyPlan {
  std::string plan;
  int gpus = 0;
  double quiet_ttft_s = 0;
  double mean_ttft_s = 0;
  double deviation_s = 0;
  double least_ttft_s = 0;
  double most_ttft_s = 0;
  double lost = 0;
};
template <>
struct Fields<NoisyPlan> {
  static constexpr const char* name = "NoisyPlan";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "One plan beside that traffic, over all seeds.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("plan", &NoisyPlan::plan, "its text");
    field("gpus", &NoisyPlan::gpus, "that it takes");
    field("quiet_ttft_s", &NoisyPlan::quiet_ttft_s, "without the traffic");
    field("mean_ttft_s", &NoisyPlan::mean_ttft_s, "with it");
    field("deviation_s", &NoisyPlan::deviation_s, "standard deviation of the seeds");
    field("least_ttft_s", &NoisyPlan::least_ttft_s, "of the seeds");
    field("most_ttft_s", &NoisyPlan::most_ttft_s, "of the seeds");
    field("lost", &NoisyPlan::lost, "mean over quiet TTFT, less 1");
  }
};

}  // namespace shardline::api
