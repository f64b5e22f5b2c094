// What a microbatch takes of each stage, of ranks that are alike and of ranks of two classes.
#include "hardware/timing/stage_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/hardware/ops.hpp"

namespace shardline {
namespace {

const System& gb200() {
  static const System s = testing::by_parameters(testing::catalog_system("gb200-nvl72"));
  return s;
}

// Two stages of eight ranks, of three and of five layers of a gemm and an all-reduce, each of which hands on.
// With two classes four ranks of each stage have larger gemms.
Schedule staged(bool classes) {
  Schedule s;
  ScheduleBuilder b(s);
  if (classes) b.set_classes(2, 4);
  b.begin_block("layer");
  b.gemm("up", Part::ffn, Dtype::fp4, Dtype::fp4, GemmShape{4, 8192, 3584});
  if (classes) b.vary(std::array<Shape, 2>{GemmShape{4, 8192, 3584}, GemmShape{4, 8192, 7168}});
  b.exchange("sum", Part::ffn_sum, OpKind::all_reduce, {8, 1}, Bytes(4 * 8192 * 2));
  const BlockIndex layer = b.end_block();
  b.begin_block("hand-off", true);
  b.exchange("hand-off", Part::hop, OpKind::send_recv, {2, 8}, Bytes(4 * 8192 * 2));
  const BlockIndex hand_off = b.end_block();
  for (const int layers : {3, 5}) {
    b.run({layer}, layers);
    b.run({hand_off});
    b.end_stage();
  }
  s.ranks_per_stage = 8;
  return s;
}

// Seconds.
double alone(CostModel& m, const Op& op) { return m.alone(m.price(op)).value; }

// All wait for the larger gemms in each all-reduce, so that a layer is theirs and the message.
TEST(StageTimes, R36AStageIsItsLayersAndHandsOn) {
  for (const bool classes : {false, true}) {
    CostModel m(gb200());
    PassScratch scratch(m);
    const Schedule s = staged(classes);
    const double layer = alone(m, s.op_of_class(OpIndex(0), classes ? 1 : 0)) + alone(m, s.ops[OpIndex(1)]);
    const double message = alone(m, s.ops[OpIndex(2)]);
    const std::vector<StagePass> stages = stage_passes(s, m, scratch);
    ASSERT_EQ(stages.size(), 2U);
    EXPECT_NEAR(stages[0].busy.value / (3 * layer), 1, 1e-12);
    EXPECT_NEAR(stages[1].busy.value / (5 * layer), 1, 1e-12);
    const PassTime pass = simulate_pass(s, m, scratch);
    EXPECT_EQ(std::max(stages[0].busy, stages[1].busy), pass.busiest);
    Seconds sum;
    for (const StagePass& stage : stages) {
      EXPECT_NEAR(stage.handed.value / message, 1, 1e-9);
      sum += stage.busy + stage.handed;
    }
    EXPECT_NEAR(sum / pass.latency, 1, 1e-12);
  }
}

// Played block by block alike ranks take what their sums say.
TEST(StageTimes, R36AlikeRanksAreAClass) {
  CostModel m(gb200());
  PassScratch scratch(m);
  const Schedule s = staged(false);
  const std::vector<StagePass> sums = stage_passes(s, m, scratch), played = stages_of_classes(s, m, scratch);
  ASSERT_EQ(sums.size(), played.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    EXPECT_NEAR(played[i].busy / sums[i].busy, 1, 1e-12);
    EXPECT_NEAR(played[i].handed / sums[i].handed, 1, 1e-9);
  }
}

}  // namespace
}  // namespace shardline
