#include "planner/studies/plan_load.hpp"

#include <algorithm>
#include <cmath>

#include "planner/search/memory.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

constexpr int kMostUsers = 1 << 16;  // of a group; memory is full of fewer, and those beyond wait

}  // namespace

Plan sharding_of(Plan p) {
  p.batch = 1;
  for (const Option* option : strategy(p.strategy).options) {
    if (option->of_batch) p.options.set(*option, option->absent);
  }
  return p;
}

PlanLoad::PlanLoad(const Study& study)
    : case_(study.study),
      roomy_(with_room(case_)),
      workload_(study.sweep().search.workload),
      evaluator_(case_, study.sweep().search.all_reduce) {
  if (workload_) serving_ = std::make_unique<ServedEvaluator>(case_, study.sweep().search.all_reduce);
}

std::optional<Point> PlanLoad::at(Plan plan, int users) {
  const int room = largest_batch(roomy_, plan, users);
  if (room < std::max(1, least_batch(case_, plan)) || (!workload_ && room < users)) return std::nullopt;
  plan.batch = room;
  Point p{plan, Seconds(0), memory_use(case_, plan).total()};
  p.waiting = users - room;
  if (!workload_) {
    p.time = evaluator_.simulate(plan);
    return p;
  }
  serving_->serve(*workload_, p);
  return p.decoding > 0 ? std::optional(p) : std::nullopt;
}

double PlanLoad::requests_per_s(const Point& p) const {
  return decode_metrics(case_, p.time, p.plan, p.decoding).tokens_per_s_gpu * p.plan.gpus() /
         static_cast<double>(workload_->output);
}

int largest_that_meets(int most, const std::function<bool(int)>& meets) {
  int low = 0, high = 1;
  while (high <= most && meets(high)) {
    low = high;
    if (high == most) return most;
    high = std::min(most, 2 * high);
  }
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (meets(middle) ? low : high) = middle;
  }
  return low;
}

std::vector<int> batches_at_target(const Study& study, const std::vector<Plan>& plans,
                                   const std::function<bool(const Point&)>& meets) {
  const std::vector<int>& listed = study.sweep().search.batches;
  PlanLoad load(study);
  std::vector<Plan> seen;
  std::vector<int> out;
  for (const Plan& p : plans) {
    const Plan sharding = sharding_of(p);
    if (std::find(seen.begin(), seen.end(), sharding) != seen.end()) continue;
    seen.push_back(sharding);
    const int most = largest_that_meets(listed.back(), [&](int users) {
      const auto point = load.at(sharding, users);
      return point && point->waiting == 0 && meets(*point);
    });
    if (most > 0 && !std::binary_search(listed.begin(), listed.end(), most)) out.push_back(most);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::optional<CarriedRate> carried_rate(PlanLoad& load, const Plan& sharding, double requests_per_s,
                                        const std::function<bool(const Point&)>& meets) {
  CarriedRate out;
  // A larger batch may carry less, where the next CUDA graph is much longer: the most is of all looked at.
  const auto keep = [&](const Point& p) {
    const double per_s = load.requests_per_s(p);
    if (per_s > out.most_per_s) out.point = p, out.most_per_s = per_s;
  };
  const int most = largest_that_meets(kMostUsers, [&](int users) {
    const auto p = load.at(sharding, users);
    if (!p || !meets(*p)) return false;
    keep(*p);
    return true;
  });
  if (most == 0) return std::nullopt;
  const auto full = load.at(sharding, kMostUsers);
  out.limit_per_s = std::max(out.most_per_s, full ? load.requests_per_s(*full) : 0);
  // A copy that carries just its share carries it: rounding is no copy more.
  out.copies = std::max(1LL, static_cast<long long>(std::ceil(requests_per_s / out.most_per_s - 1e-9)));
  const double share = std::min(requests_per_s / static_cast<double>(out.copies), out.most_per_s);
  const auto enough = [&](int users) {
    const auto p = load.at(sharding, users);
    return p && load.requests_per_s(*p) >= share * (1 - 1e-12);
  };
  const int fewer = largest_that_meets(most, [&](int users) { return !enough(users); });
  if (const auto p = load.at(sharding, fewer + 1); p && meets(*p) && enough(fewer + 1)) out.point = *p;
  return out;
}

}  // namespace shardline
