// What boards draw while requests are played [R39]: by hand, and of random plays whose boards draw a known
// power in each kind of step.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "planner/requests/cluster.hpp"
#include "planner/requests/group_times.hpp"
#include "planner/requests/pipeline_clock.hpp"
#include "planner/requests/vllm_pipeline.hpp"
#include "planner/requests/vllm_scheduler.hpp"
#include "tests/planner/requests/group_play.hpp"
#include "tests/planner/requests/pair_case.hpp"
#include "tests/planner/requests/random_play.hpp"
#include "tests/planner/requests/staged_times.hpp"

namespace shardline {
namespace {

constexpr std::uint64_t kMany = std::numeric_limits<std::uint64_t>::max();

double joules(const StepEnergy& e) { return std::accumulate(e.joules.begin(), e.joules.end(), 0.0); }

// A step with prompts takes 1 s: kernels run for 0.8 s and draw 100 J. One that decodes takes 0.5 s: they run
// for 0.2 s and 1 ms for each cached token, and draw 1 J for each request and 0.01 J for each cached token.
class PoweredTimes : public StepTimes {
 public:
  Seconds of(const StepBatch& b) const override { return Seconds(b.prompts.empty() ? 0.5 : 1); }
  DecodeStretch decode(const StepBatch& b) const override {
    const double cached = static_cast<double>(b.cached), requests = b.decodes;
    return {Seconds(0.5),
            Seconds(0),
            kMany,
            {{0, 0, requests + 0.01 * cached}, 0.2 + 1e-3 * cached},
            {{0, 0, 0.01 * requests}, 1e-3 * requests}};
  }
  Seconds of_group(std::span<const StepBatch* const> groups, std::size_t which) const override {
    return of(*groups[which]);
  }
  PricedStep priced(const StepBatch& b) const override {
    if (!b.prompts.empty()) return {Seconds(1), {{100, 0, 0}, 0.8}};
    const DecodeStretch alone = decode(b);
    return {alone.start, alone.energy};
  }
  // Of each token of a prompt 1 J, and 0.5 J for each token that all groups have in the mean.
  PricedStep priced_group(std::span<const StepBatch* const> groups, std::size_t which) const override {
    double tokens = 0;
    for (const StepBatch* b : groups) tokens += b->decodes + static_cast<double>(b->prompt_tokens());
    PricedStep out{Seconds(1)};
    out.shared = {{0.5 * tokens / static_cast<double>(groups.size()), 0, 0}, 0.1};
    out.energy = out.shared;
    out.energy += {{static_cast<double>(groups[which]->prompt_tokens()), 0, 0}, 0};
    if (groups[which]->decodes > 0) out.energy += decode(*groups[which]).energy;
    return out;
  }
};

TraceRequest asks(double at, std::int64_t input, std::int64_t output) {
  return {Seconds(at), input, output, {}};
}

// Two requests of 10 tokens with 3 of answer, one at a time: each has a step of its prompt, which ends with
// its first token, and two that decode behind 10 and 11 cached ones: 100 J for 0.8 s, 1.10 J for 0.21 s and
// 1.11 J for 0.211 s. The engine waits from 2 to 40 s.
TEST(PlayedEnergy, R39TwoRequestsByHand) {
  for (const bool jump : {false, true}) {
    VllmScheduler scheduler(VllmKnobs{.max_model_len = 1000, .num_gpu_blocks = 100});
    const Played p = play({asks(0, 10, 3), asks(40, 10, 3)}, scheduler, PoweredTimes(), jump);
    EXPECT_NEAR(p.served.energy.joules[0], 200, 1e-9);
    EXPECT_EQ(p.served.energy.joules[1], 0);
    EXPECT_NEAR(p.served.energy.joules[2], 2 * (1.10 + 1.11), 1e-9);
    EXPECT_NEAR(p.served.energy.seconds, 2 * (0.8 + 0.21 + 0.211), 1e-9);
    EXPECT_EQ(p.served.busy, Seconds(4));
    EXPECT_EQ(p.served.end, Seconds(42));
  }
}

// Its replica dies a quarter of a second into the step of its prompt, and it begins anew when that is back.
TEST(PlayedEnergy, R39ACutStepDrawsForAsLongAsItRan) {
  const std::vector<TraceRequest> requests{asks(0, 10, 1)};
  std::vector<std::unique_ptr<Scheduler>> schedulers;
  const auto scheduler = [] {
    return std::make_unique<VllmScheduler>(VllmKnobs{.max_model_len = 1000, .num_gpu_blocks = 100});
  };
  schedulers.push_back(scheduler());
  const PoweredTimes times;
  const std::vector<const StepTimes*> of_replica{&times};
  const ClusterFailures failures{{{0, Seconds(0.25), Seconds(10)}}, scheduler};
  ListedLoad load(requests, Seconds(0));
  const ClusterRun run =
      play_cluster(schedulers, of_replica, Router::round_robin, load.load, 1, {}, {}, nullptr, {}, failures);
  EXPECT_NEAR(run.replicas[0].energy.joules[0], 125, 1e-9);
  EXPECT_NEAR(run.replicas[0].energy.seconds, 1, 1e-12);
}

StepBatch decoding(std::uint32_t requests, std::uint64_t cached) {
  StepBatch b;
  b.decodes = requests;
  b.cached = cached;
  b.longest = static_cast<std::uint32_t>(cached);
  return b;
}

// All run the graph of six requests. 6 J and 600 tokens: 12 J. Nothing: 6 J of rows without caches. Four with
// 4,000 tokens and two such rows: 4 + 40 + 2 J. A step more is 6 and 4 tokens more.
TEST(PlayedEnergy, R39GroupsThatDecodeDrawWhatTheirRowsDo) {
  const PoweredTimes times;
  const StepBatch six = decoding(6, 600), nothing, four = decoding(4, 4000);
  const DecodeStretch line = stretch_of_groups(times, std::vector<const StepBatch*>{&six, &nothing, &four});
  EXPECT_NEAR(joules(line.energy), (12. + 6 + 46) / 3, 1e-9);
  EXPECT_NEAR(line.energy.seconds, (0.2 + 0.6 + 0.2 + 0.2 + 4) / 3, 1e-9);
  EXPECT_NEAR(joules(line.rise), (0.06 + 0.04) / 3, 1e-12);
  EXPECT_NEAR(joules(dummy_steps(times).energy), 1, 1e-12);
}

// 506 tokens in three groups: 84.33 J in each, which the group with nothing draws as well; 12 J of six that
// decode, 500 J of the prompt.
TEST(PlayedEnergy, R39AGroupWithNothingBesidePromptsDrawsWhatAllShare) {
  const PoweredTimes times;
  const StepBatch six = decoding(6, 600), nothing;
  StepBatch prompt;
  prompt.prompts = {{500, 0}};
  const PricedStep step =
      priced_step_of_groups(times, std::vector<const StepBatch*>{&six, &nothing, &prompt});
  EXPECT_NEAR(joules(step.energy), 506 * 0.5 / 3 + (12. + 500) / 3, 1e-9);
}

// A batch draws 7 J on its way through both stages; turns of nobody draw nothing. A prompt and two tokens
// behind it are three batches.
class PoweredStages : public StagedTimes {
 public:
  using StagedTimes::StagedTimes;
  StepEnergy pass(const StepBatch& b, std::span<StageTime> out) const override {
    of(b, out);
    return {{0, 0, 7}, 0.25};
  }
};

TEST(PlayedEnergy, R39EachBatchOfAPipelineDrawsOnce) {
  const PoweredStages times({{Seconds(2), Seconds(2), Seconds(1)}, {Seconds(3), Seconds(3), Seconds(1)}});
  for (const bool async : {false, true}) {
    VllmKnobs knobs{.max_model_len = 1000, .num_gpu_blocks = 100};
    knobs.async_scheduling = async;
    knobs.pipeline_parallel_size = 2;
    VllmPipelineScheduler scheduler(knobs);
    const Played p = play({asks(0, 10, 3)}, scheduler, times, true);
    EXPECT_EQ(p.served.energy.joules[2], 21);
    EXPECT_EQ(p.served.energy.seconds, 0.75);
  }
}

// What a batch drew is known when it ends; of the turn of nobody behind it, nothing.
TEST(PlayedEnergy, R39ATurnOfNobodyDrawsNothing) {
  const PoweredStages times({{Seconds(2), Seconds(2), Seconds(1)}, {Seconds(3), Seconds(3), Seconds(1)}});
  PipelineClock clock(times, {2});
  clock.decided(Seconds(0), decoding(1, 10), true);
  clock.decided(Seconds(0), StepBatch{}, false);
  clock.next_ends();
  EXPECT_EQ(clock.drawn().joules[2], 7);
  clock.next_ends();
  EXPECT_EQ(clock.drawn().joules[2], 0);
}

// Each kind of step draws its own power all the time that it takes, steps that a death cuts off too.
void expect_power(const ServedRequests& r) {
  const double prompts = r.prompting.value, others = (r.busy - r.prompting + r.dummy_time).value;
  EXPECT_NEAR(r.energy.joules[0], BentStepTimes::kPromptKernels * BentStepTimes::kPromptWatts * prompts,
              1e-9 * (1 + r.energy.joules[0]));
  EXPECT_NEAR(r.energy.joules[2], BentStepTimes::kDecodeWatts * others, 1e-9 * (1 + r.energy.joules[2]));
  EXPECT_NEAR(r.energy.seconds, BentStepTimes::kPromptKernels * prompts + others, 1e-9 * (1 + others));
}

TEST(PlayedEnergy, R39RandomPlaysDrawWhatTheirStepsDo) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "energy");
    const std::vector<TraceRequest> requests = random_requests(random, 700);
    for (const bool jump : {false, true}) {
      VllmScheduler scheduler(
          VllmKnobs{.max_num_batched_tokens = 256, .max_model_len = 1000, .num_gpu_blocks = 90});
      expect_power(play(requests, scheduler, BentStepTimes(), jump).served);
    }
  }
}

// Of all replicas of a pair, in all of their lives.
TEST(PlayedEnergy, R39BothPoolsOfAPairAndThoseThatDie) {
  std::uint64_t cut = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const PairCase c = failing_case(seed);
    PlayedPair p;
    try {
      p = played(c);
    } catch (const UserError&) {
      continue;
    }
    cut += c.failures.size();
    for (const auto* pool : {&p.run.prefill, &p.run.decode})
      for (const ServedRequests& r : *pool) expect_power(r);
  }
  EXPECT_GT(cut, 20U);
}

// Stretches of steps of several groups, with dummy batches, draw what they do one by one.
TEST(PlayedEnergy, R39GroupsDrawTheSameInJumps) {
  double all = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    RandomStream random(seed, "energy of groups");
    const std::vector<TraceRequest> requests = random_requests(random, 700);
    StepEnergy drawn[2];
    for (const bool jump : {false, true}) {
      Schedulers schedulers;
      for (int i = 0; i < 3; ++i)
        schedulers.push_back(
            std::make_unique<VllmScheduler>(VllmKnobs{.max_model_len = 1000, .num_gpu_blocks = 90}));
      const ReplicaGroups groups{3, GroupRouting::fewest, 0, seed % 2 == 0 ? VllmScheduler::kWave : 0};
      drawn[jump ? 1 : 0] = play_groups(requests, schedulers, groups, BentStepTimes(), jump).served.energy;
    }
    for (std::size_t k = 0; k < StepEnergy::kKinds; ++k)
      EXPECT_NEAR(drawn[0].joules[k], drawn[1].joules[k], 1e-9 * (1 + drawn[0].joules[k])) << seed;
    EXPECT_NEAR(drawn[0].seconds, drawn[1].seconds, 1e-9 * drawn[0].seconds) << seed;
    all += drawn[0].joules[2];
  }
  EXPECT_GT(all, 0);
}

}  // namespace
}  // namespace shardline
