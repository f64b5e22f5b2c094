// What strategies share that keep each request's tokens together.
#include "planner/layers/context_step.hpp"

namespace shardline {

namespace {

void attend_own(ContextStep& s) {
  s.expand_own();
  const auto own = [](int k) { return k; };
  s.attend("attend", {own, own, s.q, s.kv, s.out, s.out_lse});
}

}  // namespace

void prefill_unsharded(Schedule& schedule, const Case& c, const Plan& p) {
  if (p[kPrefillChunk] > 0) {
    build_chunked_prefill(schedule, c, p, attend_own);
  } else {
    build_prefill(schedule, c, p, false, attend_own);
  }
}

}  // namespace shardline
