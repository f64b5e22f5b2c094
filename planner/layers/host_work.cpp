#include "planner/layers/host_work.hpp"

#include <algorithm>
#include <cmath>

#include "planner/layers/cache_attention.hpp"
#include "planner/layers/share.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

bool waits_for_host(const Case& c, const Plan& plan) {
  if (!c.engine) return false;
  const EngineProfile& e = *c.engine;
  if (e.host_waited_for) return true;
  if (e.waits_in_stages && plan.pp > 1) return true;
  if (e.waits_in_context_servers && c.disaggregated && c.batch.kind() == StepKind::prefill) return true;
  // Servers that answer alone find no prefixes.
  const bool finds = !c.disaggregated || c.batch.prefills();
  if (e.waits_without_buffers && finds && has_recurrence(c.model) &&
      !e.pools.buffers_states(c.model.architecture))
    return true;
  const std::vector<std::string>& in = e.waits_in_strategies;
  return !in.empty() && std::find(in.begin(), in.end(), strategy(plan.strategy).name) != in.end();
}

Seconds work_beside(const Case& c, const Plan& plan) {
  if (!c.engine || waits_for_host(c, plan)) return Seconds(0);
  const StepHost& host = c.system.host;
  const Seconds microbatch = host.step + host.request * static_cast<double>(decode_requests(c, plan)) +
                             host.prompt_token * static_cast<double>(prefill_tokens(c, plan));
  return microbatch * plan.in_flight;  // a token takes as long as all of them
}

Seconds beside_host(Seconds kernels, Seconds host) {
  return host > Seconds(0) ? Seconds(std::hypot(kernels.value, host.value)) : kernels;
}

}  // namespace shardline
