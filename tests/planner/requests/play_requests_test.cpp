// Stretches of steps as one event, against every step by itself; what must hold of any play.
#include "planner/requests/play_requests.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "planner/requests/vllm_scheduler.hpp"
#include "sim/base/random.hpp"

namespace shardline {
namespace {

// Lines that end every few steps, as those of a table of a plan's blocks do, and a batch that steps at 4.
class BentStepTimes : public StepTimes {
 public:
  Seconds of(const StepBatch& b) const override {
    return line(b).start + Seconds(3e-5) * static_cast<double>(b.prompt_tokens()) +
           Seconds(1e-9) * b.prompt_pairs();
  }
  DecodeStretch decode(const StepBatch& b) const override { return line(b); }

 private:
  static DecodeStretch line(const StepBatch& b) {
    const std::uint64_t to_knot = b.decodes == 0 ? 1 : (kKnot - b.cached % kKnot + b.decodes - 1) / b.decodes;
    const double slope = 1e-7 * (1 + static_cast<double>(b.cached / kKnot) / 10);
    const Seconds start =
        Seconds(0.01 + 1e-4 * ((b.decodes + 3) / 4)) + Seconds(slope) * static_cast<double>(b.cached % kKnot);
    return {start, Seconds(slope) * static_cast<double>(b.decodes), to_knot};
  }
  static constexpr std::uint64_t kKnot = 1000;
};

struct Played {
  ServedRequests served;
  std::vector<AnsweredRequest> answers;
};

Played play(const std::vector<TraceRequest>& requests, const VllmKnobs& knobs, const StepTimes& times,
            bool jump) {
  VllmScheduler scheduler(knobs);
  std::size_t next = 0;
  Played out;
  out.served =
      play_requests([&](TraceRequest& r) { return next < requests.size() && (r = requests[next++], true); },
                    scheduler, times, jump, [&](const AnsweredRequest& a) { out.answers.push_back(a); });
  EXPECT_EQ(scheduler.pool().available(), knobs.num_gpu_blocks);  // every block was given back
  return out;
}

std::vector<TraceRequest> random_requests(RandomStream& random, std::int64_t longest) {
  std::vector<TraceRequest> out;
  Seconds time;
  for (int i = 0; i < 60; ++i) {
    time += Seconds(random.exponential() * 0.3);
    TraceRequest r{time,
                   1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(longest))),
                   1 + static_cast<std::int64_t>(random.below(100)),
                   {}};
    if (random.below(2) == 0) {
      for (std::int64_t b = 0; b * kTraceBlock < r.input; ++b) r.blocks.push_back(random.below(2));
    }
    out.push_back(std::move(r));
  }
  return out;
}

VllmKnobs random_knobs(RandomStream& random) {
  VllmKnobs k;
  k.async_scheduling = random.below(2) == 0;
  k.max_num_batched_tokens = 64U << random.below(6);
  k.max_num_seqs = 1U << random.below(6);
  k.long_prefill_token_threshold = random.below(3) == 0 ? 100 : 0;
  k.scheduler_reserve_full_isl = random.below(2) == 0;
  k.watermark = random.below(3) == 0 ? 0.1 : 0;
  k.enable_prefix_caching = random.below(2) == 0;
  k.max_model_len = 2048;
  k.num_gpu_blocks = 128 + static_cast<std::uint32_t>(random.below(300));
  return k;
}

void expect_same(const Played& a, const Played& b) {
  ASSERT_EQ(a.answers.size(), b.answers.size());
  const auto near = [](Seconds x, Seconds y) {
    return std::abs(x.value - y.value) <= 1e-12 * std::max(std::abs(x.value), 1.0);
  };
  for (std::size_t i = 0; i < a.answers.size(); ++i) {
    const AnsweredRequest &x = a.answers[i], &y = b.answers[i];
    ASSERT_EQ(x.number, y.number);
    ASSERT_TRUE(near(x.first, y.first) && near(x.last, y.last)) << i;
    ASSERT_EQ(x.found, y.found);
    ASSERT_EQ(x.preempted, y.preempted);
  }
  EXPECT_EQ(a.served.steps, b.served.steps);
  EXPECT_EQ(a.served.preemptions, b.served.preemptions);
  ASSERT_EQ(a.served.itl.count(), b.served.itl.count());
  for (const double q : {0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    EXPECT_NEAR(a.served.itl.quantile(q), b.served.itl.quantile(q), 1e-12);
  }
}

TEST(PlayRequests, R5JumpsAreSteps) {
  std::uint64_t steps = 0, events = 0, preemptions = 0, found = 0;
  const BentStepTimes bent;
  const LinearStepTimes straight({Seconds(0.01), Seconds(1e-5), Seconds(1e-8), Seconds(1e-5), Seconds(1e-9)});
  for (std::uint64_t seed = 0; seed < 1000 && !::testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "play");
    const VllmKnobs knobs = random_knobs(random);
    const auto requests = random_requests(random, seed % 2 == 0 ? 200 : 1900);
    const StepTimes& times = seed % 3 == 0 ? static_cast<const StepTimes&>(straight) : bent;
    const Played jumps = play(requests, knobs, times, true), all = play(requests, knobs, times, false);
    expect_same(jumps, all);
    EXPECT_EQ(jumps.answers.size(), requests.size());
    steps += jumps.served.steps;
    events += jumps.served.events;
    preemptions += jumps.served.preemptions;
    found += jumps.served.found_tokens;
  }
  EXPECT_GT(steps, 2 * events);
  EXPECT_GT(preemptions, 100U);
  EXPECT_GT(found, 100'000U);
}

// Alone, a request takes its prompt's steps and one step a token.
TEST(PlayRequests, R5OneRequestAlone) {
  const LinearStepTimes times({Seconds(0.01), Seconds(0.001), Seconds(1e-6), Seconds(1e-4), Seconds(0)});
  const double first = 2 * 0.01 + 1000 * 1e-4;
  double rest = 0;
  for (int i = 0; i < 99; ++i) rest += 0.01 + 0.001 + 1e-6 * (1000 + i);
  for (const bool async : {false, true}) {
    VllmKnobs knobs;
    knobs.async_scheduling = async;
    knobs.max_num_batched_tokens = 512;
    const Played p = play({{Seconds(5), 1000, 100, {}}}, knobs, times, true);
    ASSERT_EQ(p.answers.size(), 1U);
    EXPECT_NEAR((p.answers[0].first - Seconds(5)).value, first, 1e-12);
    EXPECT_NEAR((p.answers[0].last - p.answers[0].first).value, rest, 1e-12);
    EXPECT_EQ(p.served.steps, 101U);
    EXPECT_EQ(p.served.events, async ? 4U : 3U);  // the last step has no other decided behind it
    EXPECT_EQ(p.served.itl.count(), 99U);
    EXPECT_NEAR(p.served.itl.mean(), rest / 99, 1e-14);
    EXPECT_NEAR(p.served.busy.value, first + rest, 1e-12);
  }
}

// Every token but each first one has an interval before it, and intervals of a request add up to its time.
TEST(PlayRequests, R5IntervalsAddUp) {
  const BentStepTimes times;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    RandomStream random(seed, "intervals");
    const VllmKnobs knobs = random_knobs(random);
    const Played p = play(random_requests(random, 500), knobs, times, true);
    double sum = 0;
    for (const AnsweredRequest& a : p.answers) sum += (a.last - a.first).value;
    EXPECT_EQ(p.served.itl.count(), p.served.answer_tokens - p.served.answered);
    EXPECT_NEAR(p.served.itl.mean() * static_cast<double>(p.served.itl.count()) / sum, 1, 1e-10);
  }
}

TEST(PlayRequests, RequestsOutOfOrderAreOurBug) {
  const LinearStepTimes times({Seconds(0.01), Seconds(0), Seconds(0), Seconds(0), Seconds(0)});
  EXPECT_THROW(play({{Seconds(5), 10, 1, {}}, {Seconds(4), 10, 1, {}}}, {}, times, true), std::logic_error);
}

}  // namespace
}  // namespace shardline
