// Pools whose ranks share prompts by context parallelism [P22], [C26].
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/engines/launch_files.hpp"
#include "planner/engines/prompt_step.hpp"
#include "planner/handoff/transfer.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/serving/pools.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {
namespace {

Study study(const std::string& model, const std::string& input, const std::string& more = "",
            const std::string& engine = "sglang") {
  return parse_scenario("q.yaml",
                        "name: q\nsystem: h200-hgx\nmodels: [" + model + "]\nengine: " + engine +
                            "\nstrategies: [tensor, pipeline, dp_ep]\ngpus: [8]\nbatch: [1, 4, 16]\n"
                            "workload: {input: " +
                            input + " tokens, output: 512 tokens}\n" + more,
                        shipped_catalogs())
      .studies[0];
}

const PrefillPool& quickest(const std::vector<PrefillPool>& pools, bool shared) {
  const PrefillPool* best = nullptr;
  for (const PrefillPool& p : pools) {
    if ((p.plan.cp > 1) != shared) continue;
    if (best == nullptr || p.server.prompt(1) < best->server.prompt(1)) best = &p;
  }
  EXPECT_NE(best, nullptr);
  return *best;
}

TEST(ContextPools, C26SglangsPoolsHavePromptsThatRanksShare) {
  const Study s = study("deepseek-v3.2", "64Ki");
  const std::vector<StrategyId>& asked = s.sweep().search.prefills;
  const std::vector<std::string> names{"tensor", "pipeline", "dp_ep", "allgather_kv"};
  ASSERT_EQ(asked.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(to_string(asked[i]), names[i]);
  const std::vector<PrefillPool> pools = prefill_pools(s, 2);
  // Sparse attention is shared out by rows; TP repeats the index on every rank.
  EXPECT_LT(2 * quickest(pools, true).server.prompt(1), quickest(pools, false).server.prompt(1));
  for (const PoolPair& p : pool_pairs(s, 2)) {
    EXPECT_GT(p.prefill.plan.cp, 1);
    EXPECT_EQ(p.decode.plan.cp, 1);
    EXPECT_EQ(p.prefill.step.prompts, 1);
  }
}

// Absorbed attention is 3.4 times the work: what ranks share of the rest does not make up for it.
TEST(ContextPools, C26AbsorbedPromptsOfDenseAttentionAreSlower) {
  const std::vector<PrefillPool> pools = prefill_pools(study("deepseek-r1", "64Ki"), 2);
  EXPECT_GT(quickest(pools, true).server.prompt(1), quickest(pools, false).server.prompt(1));
}

// Those that were asked for and no others; other engines have none.
TEST(ContextPools, P22PrefillStrategiesSayWhichPlansPrefill) {
  const auto shared = [](const Study& s) {
    const std::vector<PrefillPool> pools = prefill_pools(s, 2);
    EXPECT_FALSE(pools.empty());
    return std::count_if(pools.begin(), pools.end(), [](const PrefillPool& p) { return p.plan.cp > 1; });
  };
  const Study alone = study("deepseek-v3.2", "8Ki", "prefill_strategies: [allgather_kv]\n"),
              none = study("deepseek-v3.2", "8Ki", "prefill_strategies: [tensor]\n");
  EXPECT_EQ(shared(alone), static_cast<long>(prefill_pools(alone, 1).size()));
  EXPECT_EQ(shared(none), 0);
  EXPECT_EQ(shared(study("deepseek-v3.2", "8Ki", "", "vllm")), 0);
}

// One rank sends what each of eight needs: not faster than from eight to eight.
TEST(ContextPools, C26OneRankHandsTheCacheOver) {
  const Study s = study("deepseek-v3.2", "64Ki");
  Case answers = s.study;
  answers.disaggregated = true;
  HandoffTimes times(answers, 64, 65'536);
  const Plan decode = parse_plan("tensor:tpa=8,tpf=8,batch=1");
  const Seconds one = times.of(parse_plan("allgather_kv:cp=8,ep=8,batch=1"), decode),
                all = times.of(parse_plan("tensor:tpa=8,ep=8,batch=1"), decode);
  EXPECT_GT(one, 4 * all);
  EXPECT_LT(one, 9 * all);
}

TEST(ContextPools, C26FilesStartWhatWasPriced) {
  const Study s = study("deepseek-v3.2", "64Ki");
  const std::vector<PoolPair> pairs = pool_pairs(s, 2);
  ASSERT_FALSE(pairs.empty());
  Case c = s.study;
  c.served = {65'536, 512};
  const ContextServer server = context_server(c, *c.engine, pairs.front().prefill.plan, 65'536);
  const Launch launch =
      launch_pair({server.study, server.plan}, {c, pairs.front().decode.plan}, *c.engine, "p");
  ASSERT_EQ(launch.refused, "");
  std::string context, generation;
  for (const LaunchFile& f : launch.files) {
    if (f.name.starts_with("p_context")) context += f.text;
    if (f.name.starts_with("p_generation")) generation += f.text;
  }
  for (const char* option : {"--enable-prefill-cp", "--cp-strategy zigzag", "--attn-cp-size",
                             "--disaggregation-mode prefill", "--prefill-max-requests 1",
                             "--chunked-prefill-size 8192", "SGLANG_DISAGGREGATION_ALL_CP_RANKS_TRANSFER"})
    EXPECT_NE(context.find(option), std::string::npos) << option << "\n" << context;
  EXPECT_EQ(generation.find("cp"), std::string::npos) << generation;
}

}  // namespace
}  // namespace shardline
