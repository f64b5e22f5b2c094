// [P22] Pools in whole replicas: how long their hand-offs take.
#include <gtest/gtest.h>

#include "planner/handoff/transfer.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/serving/pools.hpp"
#include "planner/studies/sweep.hpp"

namespace shardline {
namespace {

// Beside each other on NVLink where all replicas have room in a node, over the network where they have not.
TEST(WholePools, P22WholeReplicasBeyondANodeHandOverOnTheNetwork) {
  const Study s = parse_scenario("q.yaml",
                                 "name: q\nsystem: h100-hgx\nmodels: [llama-3.1-8b]\nengine: vllm\n"
                                 "precision: {weights: bf16, kv: bf16, math: bf16}\nstrategies: [tensor]\n"
                                 "gpus: [1, 2, 4]\nbatch: [1, 4, 16, 64]\nconstraints: {pool_gpus: 32}\n"
                                 "workload: {input: 8Ki tokens, output: 64 tokens}\n",
                                 shipped_catalogs())
                      .studies[0];
  int within = 0, beyond = 0;
  for (PoolPair& p : pool_pairs(s, 2)) {
    fit_whole(s, p);
    ASSERT_GT(p.whole.gpus, 0);
    SCOPED_TRACE(::testing::Message() << p.whole.prefill << " + " << p.whole.decode << ", " << p.whole.gpus);
    Case c = s.study;
    c.disaggregated = true;
    HandoffTimes apart(c, 8, 8192, ReplicaPlaces::apart);
    if (p.whole_handoff == p.handoff) {
      EXPECT_LE(p.whole.gpus, 8);
      ++within;
      continue;
    }
    EXPECT_EQ(p.whole_handoff, apart.of(p.prefill.plan, p.decode.plan));
    EXPECT_GT(p.whole_handoff, p.handoff);
    EXPECT_GT(p.whole_loop.ttft, p.path + p.prefill.server.prompt(1) + p.whole_handoff);
    ++beyond;
  }
  EXPECT_GT(within, 0);
  EXPECT_GT(beyond, 0);
}

}  // namespace
}  // namespace shardline
