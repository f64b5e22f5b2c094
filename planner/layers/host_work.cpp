#include "planner/layers/host_work.hpp"

#include <cmath>

#include "planner/layers/cache_attention.hpp"
#include "planner/layers/share.hpp"

namespace shardline {

Seconds work_beside(const Case& c, const Plan& plan) {
  if (!c.engine || c.engine->host_waited_for) return Seconds(0);
  const StepHost& host = c.system.host;
  const Seconds microbatch = host.step + host.request * static_cast<double>(decode_requests(c, plan)) +
                             host.prompt_token * static_cast<double>(prefill_tokens(c, plan));
  return microbatch * plan.in_flight;  // a token takes as long as all of them
}

Seconds beside_host(Seconds kernels, Seconds host) {
  return host > Seconds(0) ? Seconds(std::hypot(kernels.value, host.value)) : kernels;
}

}  // namespace shardline
