// What a served sweep says of prompts and answers on pools of their own.
#include <fmt/format.h>

#include "planner/cli/interval_parts.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

void print_pools(const Study& study, const SweepAnswer& answer) {
  if (answer.pools.empty()) return;
  const bool fitted = !study.study.system.calibration.empty();
  std::vector<std::string> interval;
  if (fitted) interval = {kIntervalColumn};
  Table t(joined_cells({{"TPOT"},
                        interval,
                        {"TTFT", "tokens/s/user", "tokens/s/GPU"},
                        interval,
                        {"users", "GPUs", "prefill GPUs per decode GPU", "decode plan"}}));
  for (const PoolPair& p : answer.pools) {
    const ErrorTerms& errors = answer.pool_decoders.of(p.decode.plan).errors;
    t.add(joined_cells({{to_string(p.decode.time)},
                        time_cells(study, errors),
                        {to_string(p.ttft), fmt::format("{:.1f}", 1 / p.decode.time.value),
                         fmt::format("{:.2f}", p.output_per_s_gpu)},
                        rate_cells(study, errors),
                        {std::to_string(p.decode.plan.users()), std::to_string(p.decode.plan.gpus()),
                         fmt::format("{:.3g}", p.prefill_gpus), to_string(p.decode.plan)}}));
  }
  const PoolPair& first = answer.pools.front();
  fmt::print(
      "  On separate pools, rate-matched: answers per GPU of both pools, decode undisturbed\n{}"
      "  every prompt on {} ({} a prompt, {:.3g} requests/s/GPU); KV handed over in {} to the first plan\n\n",
      t.text(), to_string(first.prefill.plan), to_string(first.prefill.prompt),
      first.prefill.requests_per_s_gpu, to_string(first.handoff));
}

}  // namespace shardline::cli
