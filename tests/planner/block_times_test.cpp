// Times of plans from those of their blocks: the evaluator's own, to the bit, and blocks that views decide.
#include "planner/search/block_times.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "models/model/catalog.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

// Plans of every strategy for decode steps, some of each, in an order in which blocks come back.
std::vector<Plan> some_plans(const Case& c, const std::vector<int>& gpus, std::size_t each) {
  SearchSpace space;
  with_hopb_chunks(space, {1, 2, 3, 8});
  space.duplicate_kv = true;
  std::vector<Plan> all;
  for (const Strategy* s : strategies()) {
    for (const int n : gpus) {
      std::vector<Plan> plans;
      s->enumerate(c, n, space, plans);
      std::shuffle(plans.begin(), plans.end(), std::mt19937(7));
      plans.resize(std::min(plans.size(), each));
      all.insert(all.end(), plans.begin(), plans.end());
    }
  }
  return all;
}

Case study(const std::string& model, bool calibrated) {
  Case c = decode_case(model, "gb200-nvl72", 1'000'000);
  if (!calibrated) c.system.calibration = {};
  return c;
}

void expect_same_times(const Case& c, const std::vector<int>& gpus, std::size_t each) {
  Evaluator direct(c), other(c);
  std::vector<int> batches(64);
  std::iota(batches.begin(), batches.end(), 1);
  BlockTimes times(other, std::make_shared<KnownBlocks>(batches));
  std::size_t several = 0;
  for (const Plan& plan : some_plans(c, gpus, each)) {
    Plan p = plan;
    times.start(p);
    const auto expect = [&](std::size_t i, double bound, double simulated) {
      p.batch = batches[i];
      SCOPED_TRACE(to_string(p));
      ASSERT_EQ(bound, direct.bound(p).value);
      ASSERT_EQ(simulated, direct.simulate(p).value);
    };
    const auto least = static_cast<std::size_t>(least_batch(c, p)) - 1;
    for (const std::size_t i : {least, least + 1, std::size_t{23}, 7 * least + 6}) {
      if (i < least || i >= batches.size()) continue;
      expect(i, times.bound(i).value, times.simulate(i).value);
    }
    // Several together, of which one is known.
    if (least + 4 > batches.size()) continue;
    const std::span<const double> bounds = times.bounds(least, least + 4);
    const std::vector<double> kept(bounds.begin(), bounds.end());
    const std::span<const double> simulated = times.simulate(least, least + 4);
    for (std::size_t i = 0; i < 4; ++i) expect(least + i, kept[i], simulated[i]);
    ++several;
  }
  EXPECT_GT(several, 5u);
}

TEST(BlockTimes, AreTheEvaluatorsToTheBit) {
  for (const char* model : {"deepseek-r1", "llama-3.1-405b", "qwen3-235b-a22b", "gpt-oss-120b", "gemma-3-27b",
                            "mimo-v2-flash", "llama-4-maverick"}) {
    for (const bool calibrated : {false, true}) {
      SCOPED_TRACE(std::string(model) + (calibrated ? ", calibrated" : ", by parameters"));
      expect_same_times(study(model, calibrated), {1, 8, 24, 64}, 40);
    }
  }
}

TEST(BlockTimes, PrefillsAreTheEvaluatorsToTheBit) {
  Case c = study("llama-3.1-405b", true);
  c.batch = prefill_batch({{0, 8192}});
  expect_same_times(c, {8}, 4);
}

TEST(BlockTimes, MixedStepsAreTheEvaluatorsToTheBit) {
  for (const char* model : {"deepseek-r1", "llama-3.1-405b", "gpt-oss-120b", "gemma-3-27b", "mimo-v2-flash",
                            "llama-4-maverick"}) {
    Case c = study(model, true);
    c.batch.prefill = {{100'000, 2048}, {0, 512, 2}};
    expect_same_times(c, {8, 16}, 12);
  }
}

void expect_same_ops(const Schedule& a, const Schedule& b) {
  ASSERT_EQ(a.ops.size(), b.ops.size());
  EXPECT_EQ(a.dependencies, b.dependencies);
  for (std::size_t i = 0; i < a.ops.size(); ++i) {
    const Op &x = a.ops[i], &y = b.ops[i];
    SCOPED_TRACE(x.name);
    EXPECT_STREQ(x.name, y.name);
    EXPECT_EQ(x.kind, y.kind);
    EXPECT_EQ(x.part, y.part);
    EXPECT_EQ(x.lane, y.lane);
    EXPECT_EQ(x.within, y.within);
    EXPECT_EQ(x.dtype, y.dtype);
    EXPECT_EQ(x.math, y.math);
    EXPECT_EQ(x.launches, y.launches);
    EXPECT_EQ(x.group, y.group);
    EXPECT_TRUE(equal(x.shape, y.shape));
  }
}

// A view that lost a field which its block reads would change every schedule, so the whole plan is lowered
// beside it.
TEST(BlockTimes, ViewsHoldAllThatABlockReads) {
  for (const char* model : {"deepseek-r1", "llama-3.1-405b", "qwen3-235b-a22b", "falcon-7b",
                            "llama-4-maverick", "gpt-oss-120b"}) {
    SCOPED_TRACE(model);
    Case c = study(model, false);
    std::set<std::string> views;
    std::size_t blocks = 0;
    for (Plan p : some_plans(c, {1, 6, 8, 16, 48, 64}, 60)) {
      if (p.cp > 1) continue;
      p.batch = least_batch(c, p) + 6;
      SCOPED_TRACE(to_string(p));
      // Every third of them beside prefills, where its strategy has such steps.
      c.batch.prefill.clear();
      if (blocks % 3 == 0 && strategy(p.strategy).mixes) c.batch.prefill = {{300, 40}};
      std::vector<StepBlock> all;
      step_blocks(c, p, all);
      for (const StepBlock block : all) {
        Schedule whole, part;
        ScheduleBuilder a(whole), b(part);
        const Plan view = block_view(c, p, block);
        add_block(a, c, p, block);
        add_block(b, c, view, block);
        expect_same_ops(whole, part);
        ++blocks;
        views.insert(fmt::format("{} {} {}", static_cast<int>(block.kind), block.index, to_string(view)));
      }
    }
    EXPECT_GT(blocks, 200u);
    EXPECT_LT(views.size() * 5, blocks * 4);  // plans do share blocks
  }
}

}  // namespace
}  // namespace shardline
