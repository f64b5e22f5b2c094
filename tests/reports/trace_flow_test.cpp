// Arrows between ops that wait for one another: that each end binds to its own event, and which waits a plan
// has.
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/scenario/shipped.hpp"
#include "planner/studies/plan_timeline.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "reports/trace.hpp"
#include "sim/base/reader.hpp"

namespace shardline {
namespace {

TraceEvent event(int process, int lane, double start, double duration) {
  TraceEvent e;
  e.process = process, e.lane = lane;
  e.name = "op", e.category = "gemm";
  e.start = Seconds(start), e.duration = Seconds(duration);
  return e;
}

TEST(TraceFlow, EndsLieWithinTheirEvents) {
  const std::vector<TraceEvent> events{event(0, 2, 0, 1e-6), event(0, 2, 1e-6, 1e-6), event(1, 1, 1e-6, 1e-6),
                                       event(1, 1, 2e-6, 1e-12)};
  const std::string json = trace_json({}, events, {{0, 2, "message"}, {2, 3, "result"}});
  EXPECT_NE(json.find(R"({"ph":"s","id":1,"pid":0,"tid":2,"ts":0.999,"name":"message","cat":"waits"},
{"ph":"f","bp":"e","id":1,"pid":1,"tid":1,"ts":1,"name":"message","cat":"waits"}
)"),
            std::string::npos)
      << json;
  EXPECT_EQ(json.find(R"("id":2)"), std::string::npos);  // too short for an end of its own
  const Document d = Document::parse("trace.json", json);
  EXPECT_EQ(d.root().at("traceEvents").items().size(), events.size() + 2);
}

PlanTimeline timeline_of(const char* scenario, const char* plan, std::unique_ptr<Evaluator>& e) {
  static std::vector<std::unique_ptr<Scenario>> kept;
  kept.push_back(std::make_unique<Scenario>(scenario_named(scenario)));
  const Study& study = kept.back()->studies.front();
  e = std::make_unique<Evaluator>(study.study, study.sweep().search.all_reduce);
  const SimulatedPlan simulated = simulate_plan(study, *e, possible_plan(study, plan));
  return plan_timeline(study, *e, simulated.plan);
}

class PlanWaits : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(PlanWaits, EndBeforeWhatWaitsBegins) {
  std::unique_ptr<Evaluator> e;
  const PlanTimeline t = timeline_of(GetParam().first, GetParam().second, e);
  ASSERT_FALSE(t.waits.empty());
  for (const PlayedWait& w : t.waits) {
    const PlayedOp &from = t.ops.at(w.from), &to = t.ops.at(w.to);
    EXPECT_LE(from.offset + from.span.end, (to.offset + to.span.start) * (1 + 1e-12));
    EXPECT_TRUE(from.rank != to.rank || from.op.lane != to.op.lane) << from.op.name << " " << to.op.name;
  }
  Seconds on_path, last;
  for (const PlayedOp& op : t.ops) {
    if (op.critical) on_path += op.span.end - op.span.start;
    last = std::max(last, op.offset + op.span.end);
  }
  // A chain without gaps, from the beginning to the end.
  EXPECT_NEAR(on_path / last, 1, 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Plans, PlanWaits,
                         ::testing::Values(std::pair("kvr_llama7b_a100", "kv_runahead:cp=4"),
                                           std::pair("cp_405b_128k", "ring_pass_kv:cp=8,tpa=8,tpf=8")));

// Each rank of a chain but the last sends its cache to the next one, and to no other.
TEST(ChainWaits, MessagesOfAChainGoToTheNextRank) {
  std::unique_ptr<Evaluator> e;
  const PlanTimeline t = timeline_of("kvr_llama7b_a100", "kv_runahead:cp=4", e);
  std::vector<std::pair<int, int>> ways;
  for (const PlayedWait& w : t.waits) {
    const PlayedOp &from = t.ops[w.from], &to = t.ops[w.to];
    if (from.op.kind != OpKind::send_recv || from.rank == to.rank) continue;
    if (std::find(ways.begin(), ways.end(), std::pair(from.rank, to.rank)) == ways.end())
      ways.emplace_back(from.rank, to.rank);
  }
  std::sort(ways.begin(), ways.end());
  EXPECT_EQ(ways, (std::vector<std::pair<int, int>>{{0, 1}, {1, 2}, {2, 3}}));
}

}  // namespace
}  // namespace shardline
