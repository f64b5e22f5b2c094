#include "planner/cli/plan_notes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include "planner/cli/interval_parts.hpp"
#include "planner/cli/plan_miss.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/handoff/cache_layout.hpp"
#include "planner/scenario/titles.hpp"
#include "planner/serving/pools.hpp"
#include "planner/studies/plan_intervals.hpp"
#include "reports/terminal.hpp"

namespace shardline::cli {

namespace {

constexpr int kDigits = 3;  // of times

}  // namespace

std::string gpus_text(int gpus) { return fmt::format("{} GPU{}", gpus, gpus == 1 ? "" : "s"); }

std::string users_on(const std::string& users, int gpus) {
  return fmt::format("{} user{} on {}", users, users == "1" ? "" : "s", gpus_text(gpus));
}

std::string three_digits(double v) {
  return fmt::format("{:.{}f}", v, v < 1 ? 3 : v < 10 ? 2 : v < 100 ? 1 : 0);
}

std::string started_copies_text(const PlanAnswer& a, std::size_t width) {
  const auto at = std::find_if(a.plans.begin(), a.plans.end(), [](const auto& p) { return p.copies > 1; });
  if (at == a.plans.end()) return "";
  const int gpus = at->point.plan.gpus();
  // Of users who are not shared evenly the plan has the batch of the copies with most of them.
  const bool uneven = a.question.users > 0 && std::any_of(a.plans.begin(), a.plans.end(), [&](const auto& p) {
                        const long long full =
                            (users_of(a.study.study, p.point.plan) + p.point.all_waiting()) * p.copies;
                        return static_cast<double>(full) > a.users_of(p);
                      });
  return wrapped(
      fmt::format("copies: {} x {} is a plan of {} started {}; numbers are of all copies{}", at->copies, gpus,
                  gpus_text(gpus), at->copies == 2 ? "twice" : fmt::format("{} times", at->copies),
                  uneven ? ", some of which have a user fewer than their plan" : ""),
      width, "  ");
}

std::string idle_text(const PlanAnswer& a, std::size_t width) {
  const int all = a.defaults.most_gpus;
  std::vector<int> rows;
  std::set<int> left;
  for (std::size_t i = 0; i < a.plans.size(); ++i) {
    const PlannedPoint& p = a.plans[i];
    const int taken = (a.question.prefill() ? 1 : static_cast<int>(p.copies)) * p.point.plan.gpus();
    if (taken >= all) continue;
    rows.push_back(static_cast<int>(i) + 1);
    left.insert(all - taken);
  }
  if (rows.empty()) return "";
  const std::string which = rows.size() == a.plans.size() && rows.size() > 1
                                ? "all rows leave"
                                : fmt::format("row{} {} leave{}", rows.size() > 1 ? "s" : "",
                                              fmt::join(rows, ", "), rows.size() > 1 ? "" : "s");
  const std::string over =
      a.question.prefill()  ? "new tokens/s/GPU are over the GPUs of the plan, for one copy of it"
      : a.question.rate > 0 ? "tokens/s/GPU are over the GPUs of the copies, without these"
                            : fmt::format("tokens/s/GPU are over all {}, with these", all);
  return wrapped(fmt::format("idle: {} {}{} of {} free; {}", which,
                             *left.begin() == *left.rbegin() ? "" : fmt::format("{} to ", *left.begin()),
                             *left.rbegin(), gpus_text(all), over),
                 width, "  ");
}

std::string fewer_text(const PlanAnswer& a, std::size_t width) {
  if (!a.fewer) return "";
  const PlannedPoint& p = a.fewer->best;
  const bool one = a.fewer->gpus == 1, fitted = !a.study.study.system.calibration.empty();
  const std::string users =
      a.question.users == 1 ? "the user" : fmt::format("all {} users", a.question.users);
  const std::string off =
      fitted ? fmt::format(" ({})", range_text(plan_rate_error(a.study, p.rating.errors))) : "";
  return wrapped(
      fmt::format(
          "fewer GPUs: {} serve{} {}{}, too: {}{} at TPOT {} ({}), TTFT {}; {} tokens/s/GPU{} over {} alone",
          a.fewer->gpus, one ? "s" : "", users, a.asked.has_target() ? " within the target" : "",
          p.copies > 1 ? fmt::format("{} x ", p.copies) : "", to_string(p.point.asked()),
          to_string(p.point.time, kDigits), time_range(a, p), to_string(p.point.ttft, kDigits),
          three_digits(a.fewer->tokens_per_s_gpu), off, one ? "it" : "these"),
      width, "  ");
}

std::string pools_text(const PlanAnswer& a, std::size_t width) {
  const int most = workload_of(a.study) != nullptr ? most_pool_gpus(a.study) : 0;
  if (most < 2) return "";
  const auto& best = a.pools;
  // That no pair meets a target is said of pairs that were looked at.
  if (!best)
    return wrapped(fmt::format("separate pools for prompts and answers: no pair {} {}",
                               a.question.rate > 0    ? "carries the rate on"
                               : a.asked.has_target() ? "meets the target on"
                               : a.question.users > 0 ? "serves these users on"
                                                      : "fits",
                               gpus_text(most)),
                   width, "  ");
  const WholePools& w = best->whole;
  const bool fitted = !a.study.study.system.calibration.empty();
  const auto range = [&](const ErrorRange& r) { return fitted ? fmt::format(" ({})", range_text(r)) : ""; };
  const ErrorTerms& step = a.sweep.pool_decoders.of(best->decode.plan).errors;
  // Rows are over all GPUs of the question, but for a rate's.
  const int all = a.question.rate > 0 ? 0 : a.defaults.most_gpus;
  const std::string over_all =
      w.gpus < all
          ? fmt::format(", {} over all {}", three_digits(best->whole_output_per_s_gpu * w.gpus / all), all)
          : "";
  return wrapped(fmt::format("separate pools: {} tokens/s/GPU{} at TPOT {}{}, TTFT {} of {}, {} x {} for "
                             "prompts and {} x {} for "
                             "answers{}; sweep lists the pairs",
                             three_digits(best->whole_output_per_s_gpu),
                             range(plan_rate_error(a.study, whole_errors(a.sweep, *best))),
                             to_string(best->decode.time, kDigits), range(plan_time_error(a.study, step)),
                             to_string(best->whole_loop.ttft, kDigits),
                             users_on(std::to_string(users_of(*best)), w.gpus) + over_all, w.prefill,
                             best->prefill.plan.gpus(), w.decode, best->decode.plan.gpus(),
                             fitted ? " (90 %; of TTFT of pairs nothing was measured)" : ""),
                 width, "  ");
}

std::string unbounded_wait_text(const PlanAnswer& a, std::size_t width) {
  if (!a.met || a.plans.empty() || a.asked.most_ttft > Seconds(0) || !some_wait(a, a.plans.front().point))
    return "";
  const PlannedPoint& first = a.plans.front();
  return wrapped(
      fmt::format("of row 1 {} of {} users wait for room in memory; their wait is in TTFT, which no "
                  "target bounds (--ttft)",
                  count(static_cast<std::uint64_t>(waiting_of(a, first))),
                  count(static_cast<std::uint64_t>(a.users_of(first)))),
      width, "  ");
}

std::string reasons_text(const PlanAnswer& a, std::size_t width) {
  std::string out;
  for (const auto& [reason, n] : a.sweep.found.rejected)
    out += fmt::format("  {} configuration{}: {}\n", scenario_parts::grouped(static_cast<long long>(n)),
                       n == 1 ? "" : "s", reason);
  if (a.study.study.engine) out += not_started_text(a.study.study, a.sweep.found);
  return wrapped_lines(out, width);
}

std::string saved_text(const std::string& file, const std::string& targets, const std::string& beside,
                       std::size_t width) {
  std::string out;
  if (!targets.empty())
    out += wrapped(fmt::format("not in {}, where as constraints they would leave out what misses them:{}",
                               file, targets),
                   width, "  ");
  if (!beside.empty())
    out += wrapped(fmt::format("not in {}, for scenarios have no keys of it:{}", file, beside), width, "  ");
  return out;
}

}  // namespace shardline::cli
