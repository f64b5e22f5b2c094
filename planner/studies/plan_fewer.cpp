#include <algorithm>
#include <map>

#include "planner/studies/plan_copies.hpp"

namespace shardline::plan_parts {

namespace {

// GPUs that the fewest copies of rows that meet the target take; those of the question where none does.
int taken(const PlanAnswer& a) {
  int least = a.defaults.most_gpus;
  for (const PlannedPoint& p : a.plans)
    if (p.meets) least = std::min(least, static_cast<int>(p.copies) * p.point.plan.gpus());
  return least;
}

// By the GPUs of all copies, those of a copy: of copies of one size among which users are shared alike the
// fewest.
std::map<int, std::vector<int>> counts_below(const PlanAnswer& a, int most) {
  std::map<int, std::vector<int>> out;
  for (const int gpus : a.defaults.gpus) {
    for (long long copies = 1; copies * gpus < most; ++copies) {
      const long long share = (a.question.users + copies - 1) / copies;
      if ((a.question.users + share - 1) / share == copies)
        out[static_cast<int>(copies) * gpus].push_back(gpus);
    }
  }
  return out;
}

}  // namespace

std::optional<FewerGpus> fewer_gpus(const PlanAnswer& a, const Show& show) {
  if (a.question.users == 0 || !a.study.sweep().search.workload || !a.met) return std::nullopt;
  for (const auto& [all, of_copy] : counts_below(a, taken(a))) {
    PlanAnswer less = a;
    less.defaults.most_gpus = all;
    less.defaults.gpus = of_copy;
    for (const PlannedPoint& p : planned_copies(less, show).plans) {
      // Users who wait for memory are not served at once, whatever the target says.
      if (!p.meets || p.point.all_waiting() > 0) continue;
      return FewerGpus{all, p, less.tokens_per_s_gpu(p)};
    }
  }
  return std::nullopt;
}

}  // namespace shardline::plan_parts
