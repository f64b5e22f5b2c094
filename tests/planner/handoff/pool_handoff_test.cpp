// The hand-off between pools.
#include <gtest/gtest.h>

#include "planner/handoff/transfer.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/serving/pools.hpp"

namespace shardline {
namespace {

Study pools_of(const std::string& strategies) {
  return parse_scenario("q.yaml",
                        "name: q\nsystem: h100-hgx\nmodels: [llama-3.1-8b]\nengine: vllm\n"
                        "precision: {weights: bf16, kv: bf16, math: bf16}\nstrategies: " +
                            strategies +
                            "\ngpus: [1, 2, 4]\nbatch: [1, 16]\n"
                            "workload: {input: 8Ki tokens, output: 512 tokens}\n",
                        shipped_catalogs())
      .studies[0];
}

// Submitting 2 x 32 layers x 512 pages takes far longer than their bytes over NVLink; over the network both
// count.
TEST(Transfer, D9TheHandOffIsThatOfThePlansAlone) {
  const Study of = pools_of("[tensor]");
  const Case& c = of.study;
  const Plan one = parse_plan("tensor:batch=1"), four = parse_plan("tensor:tpa=4,tpf=4,batch=1"),
             eight = parse_plan("tensor:tpa=8,tpf=8,batch=1");
  HandoffTimes times(c, 16, 8192);
  const double rank = 8192.0 * 32 * 2 * 2 * 128 * 2;  // of two of eight KV heads
  const FabricSpec& f = c.system.fabric;
  const EngineTransfer engine = engine_transfer(c);
  const double pages = 2.0 * 32 * 8192 / engine.pages.source.block;
  const double link = f.nvlink.bandwidth.value * f.nvlink.efficiency;
  EXPECT_NEAR(times.of(four, four).value,
              pages * engine.costs.nvlink_descriptor.value + 2 * f.nvlink.latency.value + rank / link, 1e-9);
  EXPECT_NEAR(times.of(one, four).value,
              pages * engine.costs.nvlink_descriptor.value + 2 * f.nvlink.latency.value + 4 * rank / link,
              1e-9);
  const double share = f.network.efficiency * f.network.send_recv_share / f.network.gpus_per_nic;
  EXPECT_NEAR(times.of(eight, eight).value,
              pages * engine.costs.network_descriptor.value +
                  2 * (f.network.latency + f.network.send_recv_extra).value +
                  rank / 2 / (f.network.bandwidth.value * share),
              1e-9);
  // Pools have it, whatever their batches are.
  for (const PoolPair& p : pool_pairs(of, 1))
    EXPECT_EQ(p.handoff,
              HandoffTimes(c, 64, of.sweep().search.workload->input).of(p.prefill.plan, p.decode.plan));
}

}  // namespace
}  // namespace shardline
