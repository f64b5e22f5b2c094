#include "planner/cli/named_plans.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <variant>
#include <vector>

#include "planner/cli/plan_miss.hpp"
#include "planner/cli/plan_notes.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/search/evaluate.hpp"
#include "sim/base/error.hpp"

namespace shardline::cli {

namespace {

// Requests of a group where as many users share so many copies; at least one.
long long batch_of(long long users, long long copies, long long groups) {
  const long long share = (users + copies - 1) / copies;
  return (share + groups - 1) / groups;
}

bool names_batch(const std::string& plan) { return plan.find("batch=") != std::string::npos; }

std::string with_batch(const std::string& plan, long long batch) {
  return plan + (plan.find(':') == std::string::npos ? ":" : ",") + fmt::format("batch={}", batch);
}

// Each target of the question with what the plan has of it.
std::vector<AskedTime> targets_of(const PlanAnswer& a, const PlanTimes& t) {
  return asked_times(a, t.served(), t.time(), t.ttft);
}

// "keeps TPOT at most 20 ms", "misses TPOT at most 20 ms: TPOT +12 %"; empty without targets.
std::string kept_text(const std::vector<AskedTime>& all, const std::string& targets) {
  if (all.empty()) return "";
  std::string missed;
  for (const AskedTime& k : all) {
    if (k.is > k.most)
      missed += fmt::format("{}{} {}", missed.empty() ? "" : ", ", k.what, excess_text(k.is / k.most - 1));
  }
  return missed.empty() ? "keeps " + targets : fmt::format("misses {}: {}", targets, missed);
}

}  // namespace

LinePlan named_plan(const PlanAnswer& asked, const std::string& text) {
  const PlanQuestion& q = asked.question;
  const Plan plan = possible_plan(asked.study, text);
  const int most = asked.defaults.most_gpus;
  if ((q.gpus > 0 || q.nodes > 0) && plan.gpus() > most)
    throw UserError(fmt::format("plan {} has {}: expected at most those of {}, {}", text,
                                gpus_text(plan.gpus()), q.nodes > 0 ? "--nodes" : "--gpus", most));
  if (q.rate > 0)
    throw UserError(
        {Diagnostic{{},
                    "--rate finds plans and how many users they keep busy; of a --plan that is "
                    "named its batch or --users says that",
                    {fmt::format("--users in place of --rate, or shardline plan without --plan")}}});
  if (q.users == 0 || q.prefill()) return {text, 1};
  Plan one = plan;
  one.batch = 1;
  const long long groups = users_of(asked.study.study, one);
  const int copies = std::max(1, most / plan.gpus());
  const long long batch = batch_of(q.users, copies, groups);
  // As many copies as have a user: nine users in shares of two are those of five copies.
  const auto sharing = [&](long long of_copy) {
    return std::min<long long>(copies, (q.users + of_copy - 1) / of_copy);
  };
  if (!names_batch(text)) return {with_batch(text, batch), sharing(batch * groups)};
  // Of bare kernels --users are the least, as `plan` takes them: nobody waits for anybody.
  if (q.engine == kIdealEngine && plan.batch * groups * copies >= q.users) return {text, copies};
  for (long long c = 1; c <= copies; ++c) {
    if (batch_of(q.users, c, groups) == plan.batch) return {text, sharing(plan.batch * groups)};
  }
  throw UserError({Diagnostic{
      {},
      fmt::format("plan {} has {}, and no number of copies on {} shares the {} of --users so", text,
                  plan.batch * groups == 1
                      ? "1 user"
                      : count(static_cast<std::uint64_t>(plan.batch * groups)) + " users",
                  gpus_text(most), count(static_cast<std::uint64_t>(q.users))),
      {fmt::format("expected batch={}{}, which may be left out, or no --users", batch,
                   q.engine == kIdealEngine ? " or more" : "")}}});
}

std::string plan_of_scenario(const Study& study, const std::string& text) {
  const auto* sweep = std::get_if<Sweep>(&study.question);
  if (sweep == nullptr || sweep->search.users.empty()) return text;
  const std::vector<int>& users = sweep->search.users;
  Plan plan = possible_plan(study, text);
  const long long named = users_of(study.study, plan);
  plan.batch = 1;
  const long long groups = users_of(study.study, plan);
  const std::string all = fmt::format("{}", fmt::join(users, ", "));
  if (names_batch(text)) {
    if (std::find(users.begin(), users.end(), named) != users.end()) return text;
    throw UserError(fmt::format("plan {} has {} users, and workload.users is {}", text, named, all));
  }
  if (users.size() > 1 || users.front() % groups != 0)
    throw UserError({Diagnostic{
        {},
        fmt::format("plan {} names no batch, and workload.users is {}", text, all),
        {fmt::format("expected a batch: users of each of its {} group{}", groups, groups == 1 ? "" : "s")}}});
  return with_batch(text, users.front() / groups);
}

std::optional<bool> met_by(const PlanAnswer& asked, const SimulatedPlan& plan, const PlanTimes& times) {
  const std::optional<bool> kept = all_kept(targets_of(asked, times));
  return kept && plan.misfit ? false : kept;
}

std::string kept_text(const PlanAnswer& asked, const PlanTimes& times) {
  return kept_text(targets_of(asked, times), target_text(asked.question));
}

std::string kept_text(const Study& study, const SimulatedPlan& plan) {
  const std::vector<AskedTime> all = asked_times(study, plan);
  std::string targets;
  for (const AskedTime& k : all)
    targets += fmt::format("{}{} at most {}", targets.empty() ? "" : ", ", k.what, to_string(k.most));
  return kept_text(all, targets);
}

}  // namespace shardline::cli
