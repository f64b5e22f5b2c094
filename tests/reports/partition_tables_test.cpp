// Partitions as CSV and JSON.
#include "reports/partition_tables.hpp"

#include <gtest/gtest.h>

namespace shardline {
namespace {

PartitionRow row(int ranks, long long context, bool in_table, std::vector<long long> tokens, double lost) {
  PartitionRow r;
  r.ranks = ranks;
  r.context = context;
  r.in_table = in_table;
  r.tokens = r.interpolated = std::move(tokens);
  r.ttft = Seconds(0.5);
  r.even = Seconds(0.75);
  r.interpolated_ttft = Seconds(0.5 * (1 + lost));
  r.bound = Seconds(0.25);
  r.ideal = Seconds(0.125);
  r.alone = Seconds(1);
  r.proven = in_table;
  r.evaluations = 7;
  return r;
}

const PartitionProvenance kFrom{"m", "s", "1.0", "shardline partition \"a b\"\n", "bf16", 2, 64, 1024};

TEST(PartitionTables, Texts) {
  EXPECT_EQ(partition_text({5, 3, 2}), "5/3/2");
  EXPECT_EQ(ratios_text({5, 3, 2}), "0.500/0.300/0.200");
}

TEST(PartitionTables, Csv) {
  std::vector<PartitionRow> rows{row(2, 1024, true, {640, 384}, 0), row(2, 1536, false, {960, 576}, 0.25)};
  rows[0].grid_search = Seconds(0.625);
  rows[0].grid_evaluations = 12;
  rows[0].ttft_low = Seconds(0.25);
  rows[0].ttft_high = Seconds(0.75);
  EXPECT_EQ(
      partition_csv(kFrom, rows),
      "# model: m\n# system: s\n# version: 1.0\n# command: shardline partition \"a b\" \n# precision: bf16\n"
      "# gpus_per_rank: 2\n# granularity_tokens: 64\n# spacing_tokens: 1024\n"
      "ranks,context_tokens,in_table,tokens_per_rank,ratios,ttft_s,proven,bound_s,eq3_s,one_rank_ttft_s,"
      "even_ttft_s,interpolated_tokens_per_rank,interpolated_ttft_s,evaluations,grid_search_ttft_s,"
      "grid_search_evaluations,ttft_low_s,ttft_high_s\n"
      "2,1024,yes,640/384,0.625/0.375,0.5,yes,0.25,0.125,1,0.75,640/384,0.5,7,0.625,12,0.25,0.75\n"
      "2,1536,no,960/576,0.625/0.375,0.5,no,0.25,0.125,1,0.75,960/576,0.625,7,,,,\n");
}

TEST(PartitionTables, JsonHoldsTheRowsOfTheTableAndTheLossBetweenThem) {
  const std::string text = partition_json(
      kFrom, {row(2, 1024, true, {640, 384}, 0), row(2, 1536, false, {960, 576}, 0.25),
              row(2, 2048, true, {1280, 768}, 0), row(4, 1024, true, {320, 256, 256, 192}, 0)});
  EXPECT_EQ(text, R"json({
  "schema": "shardline partition table 1",
  "provenance": {
    "model": "m",
    "system": "s",
    "version": "1.0",
    "command": "shardline partition \"a b\"\n",
    "precision": "bf16"
  },
  "gpus_per_rank": 2,
  "granularity_tokens": 64,
  "spacing_tokens": 1024,
  "tables": [
    {"ranks": 2, "interpolation": {"lengths": 1, "worst_loss": 0.25, "worst_at_context_tokens": 1536},
     "rows": [
      {"context_tokens": 1024, "tokens_per_rank": [640, 384],
       "ratios": [0.625, 0.375],
       "ttft_s": 0.5, "even_ttft_s": 0.75, "bound_s": 0.25, "proven": true},
      {"context_tokens": 2048, "tokens_per_rank": [1280, 768],
       "ratios": [0.625, 0.375],
       "ttft_s": 0.5, "even_ttft_s": 0.75, "bound_s": 0.25, "proven": true}
     ]},
    {"ranks": 4, "interpolation": {"lengths": 0, "worst_loss": 0, "worst_at_context_tokens": 0},
     "rows": [
      {"context_tokens": 1024, "tokens_per_rank": [320, 256, 256, 192],
       "ratios": [0.3125, 0.25, 0.25, 0.1875],
       "ttft_s": 0.5, "even_ttft_s": 0.75, "bound_s": 0.25, "proven": true}
     ]}
  ]
}
)json");
}

}  // namespace
}  // namespace shardline
