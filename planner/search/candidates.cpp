#include "planner/search/candidates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <set>

#include "planner/search/memory.hpp"
#include "planner/studies/searched_partition.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

namespace {

// What has to be asked of the memory of a plan, which takes most of an enumeration's time.
struct Fit {
  int largest = 0;                 // batch that fits, or 0
  bool weights_too_large = false;  // of one request; not asked where the largest listed batch fits
};

Fit fit_of(const Case& c, const SearchOptions& o, const Plan& plan) {
  Fit out{largest_batch(c, plan, o.batches.back())};
  if (out.largest == o.batches.back()) return out;
  Plan smallest = plan;
  smallest.batch = 1;
  out.weights_too_large =
      memory_use(c, smallest).weights > c.system.device.memory * c.system.device.usable_memory;
  return out;
}

// Whether users beyond the batches that fit are served, too: the largest that fits runs, the others wait.
bool runs_full(const Case& c, const SearchOptions& o, const Plan& plan, const Fit& fit) {
  return o.queues && fit.largest >= std::max(1, least_batch(c, plan));
}

// The batches of a plan that fit and serve enough, all of them counted, then the first one that does not fit,
// if its users wait: with more of them nothing but their wait differs. None where no batch is large enough.
std::vector<Candidate> candidates_of_batches(const Case& c, const SearchOptions& o, const Plan& plan,
                                             const Fit& fit, SearchResult& result) {
  const auto begin = o.batches.begin();
  const auto at_least = [&](double least) {
    return static_cast<std::size_t>(std::lower_bound(begin, o.batches.end(), least) - begin);
  };
  Candidate u{plan, at_least(least_batch(c, plan)), 0, result.counts.configurations, even_parts(plan)};
  if (u.first == o.batches.size()) return {};
  u.last = static_cast<std::size_t>(std::upper_bound(begin, o.batches.end(), fit.largest) - begin);
  u.last = std::max(u.last, u.first);
  const std::uint64_t valid = o.batches.size() - u.first;
  const auto each = static_cast<double>(std::max(1LL, requests_in(c.batch.decode)));
  const double least = std::ceil(o.least_users / (static_cast<double>(plan.in_flight) * plan.dp * each));
  const std::uint64_t idle = std::clamp(at_least(least), u.first, u.last) - u.first;
  std::uint64_t misfits = valid - (u.last - u.first);
  std::vector<Candidate> out;
  // Of batches that nobody asked for, only as many users count as run.
  const bool enough = static_cast<double>(fit.largest) * plan.in_flight * plan.dp >= o.least_users;
  if (misfits > 0 && enough && runs_full(c, o, plan, fit)) {
    const bool listed = u.last > u.first && o.batches[u.last - 1] == fit.largest;
    if (!listed)
      out.push_back({plan, u.last, u.last + 1, u.order + (u.last - u.first), u.baseline, fit.largest});
    result.counts.full += misfits - out.size();
    misfits = 0;
  }
  result.counts.configurations += valid;
  result.counts.infeasible += misfits + idle;
  if (idle > 0) result.rejected["fewer users than asked"] += idle;
  u.first += idle;
  out.insert(out.begin(), u);
  ++result.counts.plans;
  if (misfits > 0) {
    result.rejected[fit.weights_too_large ? "weights alone exceed memory" : "weights and KV exceed memory"] +=
        misfits;
  }
  return out;
}

// Of a plan whose users are given: one candidate for each number of them that its groups can share evenly.
std::vector<Candidate> candidates_of_users(const Case& c, const SearchOptions& o, const Plan& plan,
                                           const Fit& fit, SearchResult& result) {
  std::vector<Candidate> out;
  const int groups = plan.in_flight * plan.dp;
  ++result.counts.plans;
  for (const int users : o.users) {
    const auto refused = [&](const char* why) {
      ++result.counts.infeasible;
      ++result.rejected[why];
    };
    const int batch = users / groups;
    const std::uint64_t order = result.counts.configurations++;
    const auto at = std::lower_bound(o.batches.begin(), o.batches.end(), batch);
    if (users % groups != 0) {
      refused("users that attention groups cannot share evenly");
    } else if (users < o.least_users) {
      refused("fewer users than asked");
    } else if (batch < least_batch(c, plan) || at == o.batches.end() || *at != batch) {
      refused("a batch that the plan cannot have");
    } else if (batch > fit.largest && runs_full(c, o, plan, fit)) {
      const auto first = static_cast<std::size_t>(at - o.batches.begin());
      out.push_back({plan, first, first + 1, order, even_parts(plan), fit.largest});
    } else if (batch > fit.largest) {
      refused(fit.weights_too_large ? "weights alone exceed memory" : "weights and KV exceed memory");
    } else {
      const auto first = static_cast<std::size_t>(at - o.batches.begin());
      out.push_back({plan, first, first + 1, order, even_parts(plan)});
    }
  }
  return out;
}

// Beside a chain whose parts are searched for, the same with even ones.
void with_even_parts(const Case& c, std::vector<Plan>& plans) {
  const std::size_t searched = plans.size();
  for (std::size_t i = 0; i < searched; ++i) {
    if (!takes_partition(c, plans[i])) continue;
    plans.push_back(plans[i]);
    set_parts(plans.back(), Parts::even);
  }
}

// Of the largest number of GPUs, for which most plans are possible.
std::string why_impossible(const Case& c, const SearchOptions& o, StrategyId id) {
  int most = 0;
  for (const int gpus : o.gpus) most = gpus <= c.system.gpus() ? std::max(most, gpus) : most;
  return fmt::format("of {} GPU{}: {}", most, most == 1 ? "" : "s",
                     why_no_plan(c, strategy(id), most, o.space));
}

class Enumeration {
 public:
  Enumeration(const Case& c, const SearchOptions& o, SearchResult& result)
      : c_(c), roomy_(with_room(c)), o_(o), result_(result), used_(o.space.options.size()) {}

  std::vector<Candidate> run() {
    for (const StrategyId id : o_.strategies) plans_of(id);
    for (std::size_t i = 0; i < used_.size(); ++i) {
      const OptionRange& range = o_.space.options[i];
      for (const int value : range.values) {
        if (!used_[i].contains(value))
          result_.unused_values.push_back(
              fmt::format("{} {}", range.option->key, value_text(*range.option, value)));
      }
    }
    return std::move(candidates_);
  }

 private:
  void plans_of(StrategyId id) {
    bool any = false, asked = false, any_batch = false;
    int smallest = std::numeric_limits<int>::max();  // batch that a plan in the space can have
    std::vector<Plan> plans, of_size;
    for (const int gpus : o_.gpus) {
      check_cancelled();
      if (gpus > c_.system.gpus()) continue;
      of_size.clear();
      enumerate_plans(c_, strategy(id), gpus, o_.space, of_size);
      with_even_parts(c_, of_size);
      any = any || !of_size.empty();
      for (const Plan& p : of_size) {
        check_cancelled();
        if (!within(p, o_.space)) continue;
        asked = true;
        if (starts(p)) plans.push_back(p);
      }
    }
    std::vector<Fit> fits(plans.size());
    parallel_for(0, plans.size(), thread_count(o_.threads),
                 [&](std::size_t i, std::size_t) { fits[i] = fit_of(roomy_, o_, plans[i]); });
    for (std::size_t i = 0; i < plans.size(); ++i) {
      check_cancelled();
      smallest = std::min(smallest, least_batch(c_, plans[i]));
      if (!o_.users.empty()) {
        const auto found = candidates_of_users(c_, o_, plans[i], fits[i], result_);
        any_batch = true;
        note_used(plans[i]);
        candidates_.insert(candidates_.end(), found.begin(), found.end());
        continue;
      }
      const auto found = candidates_of_batches(c_, o_, plans[i], fits[i], result_);
      if (found.empty()) continue;
      any_batch = true;
      note_used(plans[i]);
      candidates_.insert(candidates_.end(), found.begin(), found.end());
    }
    if (any_batch) return;
    const bool too_small = smallest < std::numeric_limits<int>::max();
    result_.without_plans.emplace_back(id, too_small ? fmt::format("of a batch below {}", smallest)
                                           : asked   ? fmt::format("that {} starts", title_of(*c_.engine))
                                           : any     ? "within the degrees and options asked for"
                                                     : why_impossible(c_, o_, id));
  }

  bool starts(const Plan& plan) {
    auto refusal = does_not_start(c_, plan);
    if (!refusal) return true;
    NotStarted& refused = result_.not_started[refusal->rule];
    if (++refused.plans == 1) refused.first = std::move(*refusal);
    return false;
  }

  void note_used(const Plan& plan) {
    for (std::size_t i = 0; i < used_.size(); ++i) {
      const Option& option = *o_.space.options[i].option;
      if (strategy(plan.strategy).reads(option)) used_[i].insert(plan.options.of(option));
    }
  }

  const Case& c_;
  const Case roomy_;
  const SearchOptions& o_;
  SearchResult& result_;
  std::vector<std::set<int>> used_;  // values of each option asked for
  std::vector<Candidate> candidates_;
};

}  // namespace

std::vector<Candidate> enumerate_candidates(const Case& c, const SearchOptions& o, SearchResult& result) {
  return Enumeration(c, o, result).run();
}

}  // namespace shardline
