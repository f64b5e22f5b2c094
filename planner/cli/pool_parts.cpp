// What a served sweep says of prompts and answers on pools of their own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "planner/cli/cost_parts.hpp"
#include "planner/cli/engine_parts.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/sweep_page.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/handoff/cache_layout.hpp"
#include "reports/json.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

namespace {

const ErrorTerms& decode_errors(const SweepAnswer& answer, const PoolPair& p) {
  return answer.pool_decoders.of(p.decode.plan).errors;
}

// Of a TTFT, by loops of drawn lengths, as which pools are priced [P22], with about as many users as wait for
// the same server.
std::optional<ErrorRange> first_error(const Study& study, const PoolPair& p, double users,
                                      const ErrorTerms& errors) {
  if (point_preempts(study, p.decode)) return std::nullopt;
  return served_ttft_error(*study.study.engine, false, std::round(users), errors);
}

std::vector<std::string> first_cells(const Study& study, const PoolPair& p, double users,
                                     const ErrorTerms& errors) {
  if (study.study.system.calibration.empty()) return {};
  return {ttft_range_text(first_error(study, p, users, errors))};
}

Table pairs_table(const Study& study, const SweepAnswer& answer) {
  const std::vector<std::string> interval = interval_header(study.study.system);
  Table t(joined_cells(
      {{"TPOT"},
       interval,
       {"TTFT"},
       interval,
       {"burst", "tokens/s/user", "tokens/s/GPU"},
       interval,
       {"users", "GPUs", "prefill GPUs per decode GPU", "users per prefill replica", "decode plan"}}));
  for (const PoolPair& p : answer.pools) {
    const ErrorTerms& errors = decode_errors(answer, p);
    t.add(joined_cells({{to_string(p.decode.time)},
                        time_cells(study, errors),
                        {to_string(p.loop.ttft)},
                        first_cells(study, p, p.users, first_token_errors(answer, p)),
                        {to_string(p.loop.burst), fmt::format("{:.1f}", 1 / p.decode.time.value),
                         fmt::format("{:.2f}", p.output_per_s_gpu)},
                        rate_cells(study, pair_errors(answer, p)),
                        {users_text(study.study, p.decode), std::to_string(p.decode.plan.gpus()),
                         fmt::format("{:.3g}", p.prefill_gpus),
                         fmt::format(fmt::runtime(p.users < 100 ? "{:.3g}" : "{:.0f}"), p.users),
                         to_string(p.decode.plan)}}));
  }
  return t;
}

// What a plan that prefills computes in a step, as its launch files say.
std::string step_text(const Study& study, const PrefillPool& pool) {
  const long long input = workload_of(study)->input;
  const std::string group = pool.plan.dp > 1 ? " of each attention group" : "";
  if (pool.step.chunk < input)
    return fmt::format("prompts cut to {} tokens a step{}", pool.step.chunk, group);
  return fmt::format("at most {} prompt{} a step{}", pool.step.prompts, pool.step.prompts == 1 ? "" : "s",
                     group);
}

// The plans that prefill, and beside which rows.
std::string prefills_text(const Study& study, const SweepAnswer& answer) {
  std::vector<const PoolPair*> shown;
  std::string out;
  bool groups = false;
  for (const PoolPair& p : answer.pools) {
    const PrefillPool& pool = p.prefill;
    const auto same = [&](const PoolPair* other) { return other->prefill.plan == pool.plan; };
    groups = groups || pool.plan.dp > 1;
    if (std::any_of(shown.begin(), shown.end(), same)) continue;
    shown.push_back(&p);
    std::vector<std::size_t> rows;
    for (std::size_t i = 0; i < answer.pools.size(); ++i) {
      if (same(&answer.pools[i])) rows.push_back(i + 1);
    }
    const bool all = rows.size() == answer.pools.size();
    out += fmt::format(
        "  prompts{} on {}: one alone {}, {}; KV handed over in {}{}\n",
        all ? "" : fmt::format(" of {} {}", rows.size() == 1 ? "row" : "rows", fmt::join(rows, ", ")),
        to_string(pool.plan), to_string(pool.server.prompt(1)), step_text(study, pool), to_string(p.handoff),
        rows.size() > 1 ? " to the first of them" : "");
  }
  std::vector<Plan> decoders;
  for (const PoolPair& p : answer.pools) decoders.push_back(p.decode.plan);
  std::vector<Point> decode;
  for (const PoolPair& p : answer.pools) decode.push_back(p.decode);
  if (const std::string capped = capped_text(study, decode); !capped.empty()) out += "  " + capped + "\n";
  if (const std::string host = unmeasured_host_text(study.study, decoders); !host.empty())
    out += "  " + host + "\n";
  if (workload_of(study)->equal_lengths)
    out += "  lengths: equal: pools are priced with arrivals spread, as of drawn lengths\n";
  return groups ? out + fmt::format("  {}\n", kPromptsTogether) : out;
}

std::string percent(double part) { return fmt::format("{:.0f} %", 100 * part); }

Table whole_table(const Study& study, const SweepAnswer& answer) {
  const std::vector<std::string> interval = interval_header(study.study.system);
  Table t(joined_cells({{"TPOT", "TTFT"},
                        interval,
                        {"burst", "prefill + decode replicas", "GPUs", "users", "tokens/s/GPU"},
                        interval,
                        {"prefill busy", "decode busy", "decode plan"}}));
  for (const PoolPair& p : answer.pools) {
    const WholePools& w = p.whole;
    if (w.gpus == 0) continue;
    t.add(joined_cells(
        {{to_string(p.decode.time), to_string(p.whole_loop.ttft)},
         first_cells(study, p, p.whole_users(), first_token_errors(answer, p)),
         {to_string(p.whole_loop.burst), fmt::format("{} + {}", w.prefill, w.decode), std::to_string(w.gpus),
          users_text(study.study, p.decode, w.decode), fmt::format("{:.2f}", p.whole_output_per_s_gpu)},
         rate_cells(study, whole_errors(answer, p)),
         {percent(p.whole_loop.prefill_busy), percent(p.whole_loop.decode_busy), to_string(p.decode.plan)}}));
  }
  return t;
}

bool any_whole(const SweepAnswer& answer) {
  for (const PoolPair& p : answer.pools) {
    if (p.whole.gpus > 0) return true;
  }
  return false;
}

// "rows 2, 3" of the table above that has no rows for them.
std::string rows_without_whole(const SweepAnswer& answer) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < answer.pools.size(); ++i) {
    if (answer.pools[i].whole.gpus == 0) rows.push_back(i + 1);
  }
  return rows.empty() ? "" : fmt::format("{} {}", rows.size() == 1 ? "row" : "rows", fmt::join(rows, ", "));
}

std::vector<std::string> ends_of(double value, const ErrorRange& error) {
  return {number_text(value * (1 + error.low)), number_text(value * (1 + error.high))};
}

std::vector<std::string> ends(double value, const ErrorRange& error) {
  return joined_cells({{number_text(value)}, ends_of(value, error)});
}

std::vector<std::string> csv_cells(const Study& study, const SweepAnswer& answer, const PoolPair& p) {
  const ServedWorkload& load = *workload_of(study);
  const EngineProfile& engine = *study.study.engine;
  const WholePools& w = p.whole;
  const auto first = first_error(study, p, p.users, first_token_errors(answer, p));
  const std::vector<std::string> whole =
      w.gpus > 0
          ? joined_cells(
                {{std::to_string(w.prefill), std::to_string(w.decode), std::to_string(w.gpus),
                  std::to_string(w.decode * (p.decode.plan.users() + p.decode.all_waiting()))},
                 ends(p.whole_output_per_s_gpu, plan_rate_error(study, whole_errors(answer, p))),
                 {number_text(p.whole_loop.prefill_busy), number_text(p.whole_loop.decode_busy),
                  number_text(p.whole_loop.ttft.value * 1e3), number_text(p.whole_loop.burst.value * 1e3)}})
          : std::vector<std::string>(11);
  return joined_cells(
      {{to_string(p.decode.plan), std::to_string(p.decode.plan.gpus()),
        std::to_string(p.decode.plan.users() + p.decode.all_waiting())},
       ends(p.decode.time.value * 1e3, plan_time_error(study, decode_errors(answer, p))),
       {number_text(p.loop.ttft.value * 1e3)},
       first ? ends_of(p.loop.ttft.value * 1e3, *first) : std::vector<std::string>(2),  // empty: not measured
       {number_text(1 / p.decode.time.value)},
       ends(p.output_per_s_gpu, plan_rate_error(study, pair_errors(answer, p))),
       {to_string(p.prefill.plan), std::to_string(p.prefill.plan.gpus()),
        number_text(p.prefill.server.prompt(p.loop.together).value * 1e3),
        number_text(p.prefill_requests_per_s_gpu()), number_text(p.handoff.value * 1e3),
        number_text(p.prefill_gpus)},
       whole,
       {number_text(p.loop.burst.value * 1e3), number_text(p.users), number_text(p.loop.together),
        std::to_string(p.prefill.step.prompts), std::to_string(p.prefill.step.tokens())},
       {std::to_string(load.input), std::to_string(load.output), engine.name, engine.version,
        point_preempts(study, p.decode) ? "1" : "0"},
       cost_cells(pair_cost(study, answer, p)),
       w.gpus > 0 ? cost_cells(whole_cost(study, answer, p))
                  : std::vector<std::string>(cost_columns().size())});
}

}  // namespace

void print_pools(const Study& study, const SweepAnswer& answer) {
  if (workload_of(study) == nullptr) return;
  if (answer.pools.empty()) {
    print_notes(
        "  On separate pools: no pair of plans that the engine starts fits {} GPUs and meets the targets\n\n",
        most_pool_gpus(study));
    return;
  }
  print_notes(
      "  On separate pools, in the ratio of GPUs that answers most: tokens/s/GPU are answers over the GPUs "
      "of "
      "both;\n  no prompt disturbs a step that decodes; TTFT has the queue of all users who share a server "
      "for "
      "prompts{}\n{}"
      "{}",
      study.sweep().search.users.empty() ? "" : ",\n  those asked for and no others",
      fitted(pairs_table(study, answer)), prefills_text(study, answer));
  const int most = most_pool_gpus(study);
  if (!any_whole(answer)) {
    print_notes("  {} GPUs hold no replicas of both that meet what is asked for\n\n", most);
    return;
  }
  if (const std::string rows = rows_without_whole(answer); !rows.empty())
    print_notes("  {}: {} GPUs hold no replicas of both that meet what is asked for\n", rows, most);
  print_notes(
      "\n  The same in whole replicas on at most {} GPUs ({}): the fewest GPUs that answer\n  95 % of the "
      "above per GPU, else the most that there is; busy: of the time, and of the users who decode\n{}\n",
      most, most < study.study.system.gpus() ? "pool_gpus" : study.study.system.name,
      fitted(whole_table(study, answer)));
}

std::vector<PageTable> pool_tables(const Study& study, const SweepAnswer& answer) {
  if (workload_of(study) == nullptr) return {};
  const int most = most_pool_gpus(study);
  PageTable pairs{"Prompts and answers on separate pools"};
  if (answer.pools.empty()) {
    pairs.text =
        fmt::format("No pair of plans that the engine starts fits {} GPUs and meets the targets.", most);
    return {pairs};
  }
  pairs.text =
      "In the ratio of GPUs that answers most: tokens/s/GPU are answers over the GPUs of both; no prompt "
      "disturbs a step that decodes; TTFT has the queue of all users who share a server for prompts.";
  PageTable whole{
      "The same in whole replicas",
      fmt::format("On at most {} GPUs: the fewest that answer 95 % of the above per GPU, else the "
                  "most that there is.",
                  most)};
  pairs.rows = pairs_table(study, answer).rows();
  whole.rows = whole_table(study, answer).rows();
  std::size_t w = 1;
  for (std::size_t i = 0; i < answer.pools.size(); ++i) {
    const std::string prefill = to_string(answer.pools[i].prefill.plan);
    pairs.rows[i + 1].push_back(prefill);
    if (answer.pools[i].whole.gpus > 0) whole.rows[w++].push_back(prefill);
  }
  for (PageTable* const t : {&pairs, &whole}) {
    t->rows.front().emplace_back("prefill plan");
    t->plans = 2;
  }
  return any_whole(answer) ? std::vector<PageTable>{pairs, whole} : std::vector<PageTable>{pairs};
}

std::string pools_csv(const Study& study, const SweepAnswer& answer) {
  std::vector<std::string> header({"decode_plan",
                                   "decode_gpus",
                                   "decode_users",
                                   "tpot_ms",
                                   "tpot_low_ms",
                                   "tpot_high_ms",
                                   "ttft_ms",
                                   "ttft_low_ms",
                                   "ttft_high_ms",
                                   "tokens_per_s_user",
                                   "matched_tokens_per_s_gpu",
                                   "matched_tokens_per_s_gpu_low",
                                   "matched_tokens_per_s_gpu_high",
                                   "prefill_plan",
                                   "prefill_gpus",
                                   "prompt_ms",
                                   "prefill_requests_per_s_gpu",
                                   "handoff_ms",
                                   "prefill_gpus_per_decode_gpu",
                                   "prefill_replicas",
                                   "decode_replicas",
                                   "whole_gpus",
                                   "whole_users",
                                   "whole_tokens_per_s_gpu",
                                   "whole_tokens_per_s_gpu_low",
                                   "whole_tokens_per_s_gpu_high",
                                   "prefill_busy",
                                   "decode_busy",
                                   "whole_ttft_ms",
                                   "whole_ttft_burst_ms",
                                   "ttft_burst_ms",
                                   "prefill_users",
                                   "prompts_together",
                                   "most_prompts_a_step",
                                   "tokens_a_step",
                                   "input_tokens",
                                   "output_tokens",
                                   "engine",
                                   "engine_version",
                                   "memory_capped"});
  header.insert(header.end(), cost_columns().begin(), cost_columns().end());
  for (const std::string& column : cost_columns()) header.push_back("whole_" + column);
  std::string out = csv_line(header);
  for (const PoolPair& p : answer.pools) out += csv_line(csv_cells(study, answer, p));
  return out;
}

}  // namespace shardline::cli
