// What strategies share that keep each request's tokens together.
#include "planner/layers/cache_attention.hpp"
#include "planner/layers/context_step.hpp"

namespace shardline {

void attend_own(ContextStep& s) {
  if (s.a.sparse()) return add_sparse_prefill(s.b, s.c, s.a, s.p, OpKind::all_to_all, s.queries(0));
  s.expand_own();
  const auto own = [](int k) { return k; };
  s.attend("attend", {own, own, s.q, s.kv, s.out, s.out_lse});
}

}  // namespace shardline
