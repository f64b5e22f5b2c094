// Exact identities of arXiv 2507.07120 and of the models and system it is evaluated on.
#include <gtest/gtest.h>

#include "calibrate/validate/helix.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

TEST(Helix, Figure1IsExact) {
  const auto rows = figure1_rows();
  EXPECT_EQ(rows.size(), 7 * 3 + 8 + 1 + 7 * 3 + 5u);
  for (const PublishedRow& r : rows) {
    SCOPED_TRACE(r.what);
    EXPECT_NEAR(r.ours / r.published, 1, 1e-12);
    EXPECT_EQ(r.verdict, "exact");
  }
}

TEST(Helix, Figure1PlateauBeyondKvHeads) {
  const Figure1 f;
  for (const double tp : {16.0, 32.0, 64.0}) EXPECT_EQ(f.kv_read(tp, 1, 1e6), f.kv_read(8, 1, 1e6));
}

TEST(Helix, Figure3LockStepAndFlowShop) {
  EXPECT_EQ(lockstep_time(8, 2.0, 1.2), 25.6);
  EXPECT_NEAR(hopb_time(8, 2.0, 1.2) / 17.2, 1, 1e-12);
  for (const auto& [n, a, c] : {std::tuple{1, 2.0, 3.0}, std::tuple{5, 1.0, 4.0}, std::tuple{7, 4.0, 1.0}}) {
    EXPECT_NEAR(hopb_time(n, a, c) / (a + c + (n - 1) * std::max(a, c)), 1, 1e-12);
  }
}

Plan plan(const char* text) { return parse_plan(text); }

TEST(Helix, LargestBatchesThatFit) {
  // Weights and KV in 95 % of the data sheet's 186 GB, KV split evenly.
  Case llama = decode_case("llama-3.1-405b", "gb200-nvl72", 1'000'000),
       r1 = decode_case("deepseek-r1", "gb200-nvl72", 1'000'000);
  llama.kv_block = r1.kv_block = 1;
  llama.precision = r1.precision = Precision::of_helix_paper();
  struct Row {
    const Case* c;
    const char* text;
    int largest;
  };
  for (const Row& row :
       {Row{&llama, "tensor:tpa=8,tpf=8", 9}, Row{&llama, "tensor:tpa=64,tpf=64", 10},
        Row{&llama, "helix:kvp=8,tpa=8,tpf=64", 85}, Row{&r1, "tensor:tpa=64,tpf=64", 9},
        Row{&r1, "dp_ep:dp=64,ep=64", 9}, Row{&r1, "helix:kvp=64,tpf=64,value_up=before", 616}}) {
    SCOPED_TRACE(row.text);
    ASSERT_EQ(check_plan(*row.c, plan(row.text)).value_or(""), "");
    EXPECT_EQ(largest_batch(*row.c, plan(row.text), 4096), row.largest);
    Plan p = plan(row.text);
    p.batch = row.largest;
    EXPECT_TRUE(fits(*row.c, memory_use(*row.c, p)));
    ++p.batch;
    EXPECT_FALSE(fits(*row.c, memory_use(*row.c, p)));
    EXPECT_TRUE(does_not_fit(*row.c, memory_use(*row.c, p)).has_value());
  }
}

TEST(Helix, ExpertGroupsHit) {
  const Case r1 = decode_case("deepseek-r1", "gb200-nvl72", 1'000'000);
  EXPECT_NEAR(r1.routing.back()->groups_hit(64), 7.675750, 5e-7);
}

Seconds part_time(const Case& c, const Plan& p, Part part) {
  Evaluator e(c);
  return break_down(e, p).parts[static_cast<std::size_t>(part)];
}

TEST(Helix, ExchangeDoesNotDependOnContext) {
  const Plan p = plan("helix:kvp=8,tpa=8,tpf=64,batch=4");
  const Seconds at_1m = part_time(decode_case("llama-3.1-405b", "gb200-nvl72", 1'000'000), p, Part::exchange);
  EXPECT_GT(at_1m, Seconds(0));
  EXPECT_NEAR(part_time(decode_case("llama-3.1-405b", "gb200-nvl72", 8'000'000), p, Part::exchange) / at_1m,
              1, 1e-12);
}

TEST(Helix, BreakdownSumsToTheTokenTime) {
  const Case c = decode_case("deepseek-r1", "gb200-nvl72", 1'000'000);
  for (const char* text :
       {"helix:kvp=8,tpf=8,batch=16,chunks=4,value_up=before", "tensor:tpa=16,ep=16,batch=3",
        "pipeline:pp=3,tpa=4,ep=4,batch=2", "dp_ep:dp=16,ep=16,batch=2"}) {
    SCOPED_TRACE(text);
    Evaluator e(c);
    const Breakdown b = break_down(e, plan(text));
    Seconds sum = b.waiting;
    for (const Seconds s : b.parts) sum += s;
    EXPECT_NEAR(sum / b.time, 1, 1e-12);
    EXPECT_LE(b.exposed_communication, b.time);
  }
}

TEST(Helix, OverlapHidesVolumeButNotTheLastMessage) {
  // HOP-B can only help, and never by more than the exchange it hides.
  const Case c = decode_case("deepseek-r1", "gb200-nvl72", 1'000'000);
  Evaluator e(c);
  Plan off = plan("helix:kvp=8,dp=8,ep=64,dense_tp=8,batch=64,value_up=after"), on = off;
  set_option(on, "chunks", 4);
  const Breakdown without = break_down(e, off), with = break_down(e, on);
  EXPECT_LT(with.time, without.time);
  EXPECT_GT(with.hidden_communication, Seconds(0));
  EXPECT_EQ(without.hidden_communication.value, 0);
  EXPECT_GT(with.parts[static_cast<std::size_t>(Part::exchange)], Seconds(0));
}

TEST(Plan, TextRoundTripsAndDefaultsAreLeftOut) {
  EXPECT_EQ(to_string(plan("pipeline:pp=4,tpa=8,tpf=8,batch=2")), "pipeline:pp=4,tpa=8,tpf=8,batch=2");
  EXPECT_EQ(plan("pipeline:pp=4,tpa=8,tpf=8").in_flight, 4);
  EXPECT_EQ(to_string(plan("pipeline:pp=4,in_flight=1,tpa=8,tpf=8")),
            "pipeline:pp=4,tpa=8,tpf=8,in_flight=1,batch=1");
  EXPECT_EQ(to_string(plan("tensor")), "tensor:batch=1");
}

}  // namespace
}  // namespace shardline
