// Attention groups behind one barrier, played: against a slow stepper, stretches against steps, one group,
// and what must hold of any play.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "planner/requests/sglang_scheduler.hpp"
#include "planner/requests/trtllm_scheduler.hpp"
#include "planner/requests/vllm_drafts.hpp"
#include "planner/requests/vllm_scheduler.hpp"
#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "tests/planner/requests/draft_laws.hpp"
#include "tests/planner/requests/group_play.hpp"

namespace shardline {
namespace {

VllmKnobs group_vllm(RandomStream& random) {
  VllmKnobs k;
  k.async_scheduling = random.below(2) == 0;
  k.max_num_batched_tokens = 64U << random.below(6);
  k.max_num_seqs = 1U << random.below(6);
  k.enable_prefix_caching = random.below(2) == 0;
  k.max_model_len = 2048;
  k.num_gpu_blocks = 128 + static_cast<std::uint32_t>(random.below(100));
  return k;
}

SglangKnobs group_sglang(RandomStream& random, bool mixes) {
  SglangKnobs k;
  k.disable_overlap_schedule = random.below(2) == 0;
  k.enable_mixed_chunk = random.below(4) == 0 && mixes;
  k.chunked_prefill_size = 64U << random.below(6);
  k.max_running_requests = 1U << random.below(6);
  k.page_size = 1U << (2 * random.below(4));
  k.context_length = 2100;
  k.max_total_tokens = 2304 + 64 * static_cast<std::uint32_t>(random.below(20));
  k.schedule_conservativeness = random.below(2) == 0 ? 0.3 : 0.1;
  if (!mixes || random.below(3) > 0) return k;
  // Some layers have windows [R22], in a pool of their own.
  k.sliding_window = 1 + static_cast<std::uint32_t>(random.below(300));
  k.swa_full_tokens_ratio = 0.5 + 0.1 * static_cast<double>(random.below(6));
  k.swa_eviction_interval = 1U << random.below(8);
  k.chunked_prefill_size = std::min(k.chunked_prefill_size, 256U);
  return k;
}

// [R40]
void hold_prompts(SglangKnobs& k, RandomStream& random) {
  k.disable_overlap_schedule = false;
  k.enable_prefill_delayer = true;
  k.max_delay_passes = 1 + static_cast<std::uint32_t>(random.below(2) == 0 ? 29 : random.below(40));
  k.token_usage_low_watermark = random.below(3) == 0 ? 0.3 : 0;
  k.queue_min_ratio = random.below(2) == 0 ? 0.5 : 0;
  k.max_delay_ms = random.below(2) == 0 ? 5000 : 100;
}

TrtllmKnobs group_trtllm(RandomStream& random) {
  TrtllmKnobs k;
  k.capacity_scheduler_policy =
      random.below(2) == 0 ? TrtllmPolicy::guaranteed_no_evict : TrtllmPolicy::max_utilization;
  k.disable_overlap_scheduler = random.below(2) == 0;
  k.enable_chunked_prefill = true;
  // Without evictions a prompt that is passed over, as another one is about to fill its text, may come to
  // lack room for ever before that one.
  k.enable_block_reuse = k.capacity_scheduler_policy == TrtllmPolicy::max_utilization;
  k.max_batch_size = 1U << random.below(6);
  k.max_num_tokens = 64U << random.below(6);
  k.max_seq_len = 2048;
  k.blocks = 64 + static_cast<std::uint32_t>(random.below(50));
  return k;
}

// A random engine; the same for a seed however often it is asked for.
struct Engine {
  ReplicaGroups groups;
  std::function<Schedulers()> make;
};

template <class S, class... Args>
Engine engine_of(std::size_t groups, GroupRouting routing, std::size_t places, const Args&... args) {
  return {{groups, routing, places}, [=] {
            Schedulers out;
            for (std::size_t g = 0; g < groups; ++g) out.push_back(std::make_unique<S>(args...));
            return out;
          }};
}

// The first kind is vLLM, the second SGLang, the third TensorRT-LLM.
Engine random_engine(RandomStream& random, std::uint64_t kind, std::size_t groups, bool mixes = true) {
  if (kind % 3 == 0) return engine_of<VllmScheduler>(groups, GroupRouting::fewest, 0, group_vllm(random));
  if (kind % 3 == 1) {
    SglangKnobs knobs = group_sglang(random, mixes);
    if (random.below(2) == 0) hold_prompts(knobs, random);
    Engine out = engine_of<SglangScheduler>(groups, GroupRouting::in_turn, 0, knobs);
    out.groups.delayer = delayer_of(knobs);
    return out;
  }
  const TrtllmKnobs knobs = group_trtllm(random);
  return engine_of<TrtllmScheduler>(groups, GroupRouting::from_queue, knobs.max_batch_size, knobs);
}

// With drafts: the groups decide, and are told what was drawn, one by one. SGLang, TensorRT-LLM or vLLM.
Engine drafting_engine(RandomStream& random, std::size_t groups, std::uint64_t kind) {
  const VllmKnobs vllm = group_vllm(random);
  const SglangKnobs sglang = group_sglang(random, false);
  const DraftLaw law = draft_law(3, 0.8, 1, random.bits());
  if (kind < 2)
    return engine_of<SglangScheduler>(groups, GroupRouting::in_turn, 0, sglang, PairRole::none, law);
  if (kind > 2) return engine_of<VllmDraftScheduler>(groups, GroupRouting::fewest, 0, vllm, law);
  TrtllmKnobs trtllm = group_trtllm(random);
  trtllm.blocks += 100;  // the engine would end with an error
  return engine_of<TrtllmScheduler>(groups, GroupRouting::from_queue, trtllm.max_batch_size, trtllm, law);
}

void expect_nothing_held(const Schedulers& schedulers) {
  for (const auto& s : schedulers) {
    EXPECT_EQ(s->running() + s->waiting() + s->decided(), 0U);
    EXPECT_EQ(s->kv_held(), 0);
  }
}

std::vector<TraceRequest> faster(std::vector<TraceRequest> requests, double times) {
  for (TraceRequest& r : requests) r.arrival = r.arrival / times;
  return requests;
}

class StandsStill : public VllmScheduler {
 public:
  using VllmScheduler::VllmScheduler;
  bool schedule() override { return false; }
};

TEST(GroupPlay, R9RulesThatLetNobodyGoOnAreSaid) {
  RandomStream random(1, "still");
  const Engine engine = engine_of<StandsStill>(1, GroupRouting::in_turn, 0, group_vllm(random));
  const LinearStepTimes times({Seconds(0.01), Seconds(1e-5), Seconds(1e-7), Seconds(1e-5), Seconds(1e-9)});
  const Schedulers schedulers = engine.make();
  try {
    play_groups(random_requests(random, 3), schedulers, engine.groups, times, true);
    FAIL() << "played what cannot go on";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("no request goes on"));
    EXPECT_THAT(e.what(), ::testing::HasSubstr("wait for each other's KV blocks"));
  }
}

// Both at once: each answer of the player, in stretches and step by step, is that of the slow stepper.
TEST(GroupPlay, R10JumpsAreStepsAndTheSlowStepper) {
  const BentStepTimes bent;
  const LinearStepTimes straight({Seconds(0.01), Seconds(1e-5), Seconds(1e-7), Seconds(1e-5), Seconds(1e-9)});
  std::uint64_t steps = 0, events = 0, preemptions = 0, found = 0, played = 0, delays = 0;
  for (std::uint64_t seed = 0; seed < 1000 && !::testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "groups");
    const std::size_t groups = 2 + random.below(4);
    const Engine engine = random_engine(random, seed, groups);
    const auto drawn = random_requests(random, seed % 2 == 0 ? 200 : 1900);
    const auto requests = faster(drawn, 1 << random.below(4));
    const StepTimes& times = seed % 4 == 0 ? static_cast<const StepTimes&>(straight) : bent;
    const Schedulers jumping = engine.make(), stepping = engine.make(), slow = engine.make();
    Played jumps, all;
    std::vector<std::optional<AnsweredRequest>> slowly;
    try {
      jumps = play_groups(requests, jumping, engine.groups, times, true);
    } catch (const UserError& e) {
      EXPECT_EQ(seed % 3, 1U) << e.what();  // SGLang stops where one that runs finds no page though alone
      EXPECT_THAT(e.what(), ::testing::Not(::testing::HasSubstr("no request goes on")));
      continue;
    }
    all = play_groups(requests, stepping, engine.groups, times, false);
    SlowGroups slow_groups(slow, engine.groups, times);
    slowly = slow_groups.play(requests);
    delays += slow_groups.delays;
    expect_same(jumps, all);
    expect_nothing_held(jumping);
    std::vector<AnsweredRequest> expected;
    for (const auto& a : slowly)
      if (a) expected.push_back(*a);
    ASSERT_EQ(all.answers.size(), expected.size());
    EXPECT_EQ(jumps.served.answered + jumps.served.refused, requests.size());
    std::sort(all.answers.begin(), all.answers.end(),
              [](const auto& a, const auto& b) { return a.number < b.number; });
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const AnsweredRequest &a = all.answers[i], &b = expected[i];
      ASSERT_NEAR(a.came.value, b.came.value, 0);
      ASSERT_NEAR(a.first.value, b.first.value, 1e-12 * std::max(1.0, b.first.value));
      ASSERT_NEAR(a.last.value, b.last.value, 1e-12 * std::max(1.0, b.last.value));
      ASSERT_EQ(a.found, b.found);
      ASSERT_EQ(a.preempted, b.preempted);
      ASSERT_EQ(a.answer, b.answer);
    }
    ++played;
    steps += jumps.served.steps;
    events += jumps.served.events;
    preemptions += jumps.served.preemptions;
    found += jumps.served.found_tokens;
  }
  EXPECT_GT(played, 950U);
  EXPECT_GT(steps, events + events / 2);
  EXPECT_GT(preemptions, 100U);
  EXPECT_GT(found, 100'000U);
  EXPECT_GT(delays, 10'000U);
}

// The same of drafts: who decodes beside whom is another matter than what a request's own stream says.
TEST(GroupPlay, R16DraftsInGroupsAndTheSlowStepper) {
  const BentStepTimes times;
  std::uint64_t preemptions = 0, tokens = 0;
  for (std::uint64_t seed = 0; seed < 330 && !::testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "groups with drafts");
    const Engine engine = drafting_engine(random, 2 + random.below(4), seed % 5);
    const auto drawn = random_requests(random, seed % 2 == 0 ? 200 : 1900);
    auto requests = faster(drawn, 1 << random.below(4));
    for (std::size_t i = 0; i < requests.size(); ++i) requests[i].number = i;
    const Schedulers quick = engine.make(), slow = engine.make();
    Played all = play_groups(requests, quick, engine.groups, times, seed % 3 == 0);
    const auto slowly = SlowGroups(slow, engine.groups, times).play(requests);
    expect_nothing_held(quick);
    std::sort(all.answers.begin(), all.answers.end(),
              [](const auto& a, const auto& b) { return a.number < b.number; });
    std::size_t at = 0;
    for (const auto& b : slowly) {
      if (!b) continue;
      ASSERT_LT(at, all.answers.size());
      const AnsweredRequest& a = all.answers[at++];
      ASSERT_NEAR(a.first.value, b->first.value, 1e-12 * std::max(1.0, b->first.value));
      ASSERT_NEAR(a.last.value, b->last.value, 1e-12 * std::max(1.0, b->last.value));
      ASSERT_EQ(a.found, b->found);
      ASSERT_EQ(a.preempted, b->preempted);
    }
    EXPECT_EQ(at, all.answers.size());
    preemptions += all.served.preemptions;
    tokens += all.served.answer_tokens;
  }
  EXPECT_GT(preemptions, 50U);
  EXPECT_GT(tokens, 400'000U);
}

// Groups that get the same at the same time do what one does alone, to the bit. Without mixed chunks: one
// engine that had nothing to do counts who ended last to its next step with those.
TEST(GroupPlay, R10EqualLoadIsOneGroupsPlay) {
  const BentStepTimes times;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "equal");
    const std::size_t groups = 2 + random.below(4);
    const Engine many = random_engine(random, seed, groups, false);
    RandomStream again(seed, "equal");
    again.below(4);
    const Engine one = random_engine(again, seed, 1, false);
    const auto requests = random_requests(random, 900);
    std::vector<TraceRequest> each;
    for (const TraceRequest& r : requests) each.insert(each.end(), groups, r);
    const Schedulers alone = one.make();
    Played expected, played;
    try {
      expected = play(requests, *alone.front(), times, true);
      played = play_groups(each, many.make(), {groups, GroupRouting::in_turn}, times, true);
    } catch (const UserError& e) {
      EXPECT_THAT(e.what(), ::testing::Not(::testing::HasSubstr("no request goes on")));
      continue;
    }
    ASSERT_EQ(played.answers.size(), groups * expected.answers.size());
    std::vector<AnsweredRequest> first(expected.answers.size());
    for (const AnsweredRequest& a : played.answers)
      if (a.number % groups == 0) first[a.number / groups] = a;
    for (const AnsweredRequest& a : expected.answers) {
      const AnsweredRequest& b = first[a.number];
      EXPECT_EQ(a.first, b.first);
      EXPECT_EQ(a.last, b.last);
      EXPECT_EQ(a.found, b.found);
      EXPECT_EQ(a.preempted, b.preempted);
    }
    EXPECT_EQ(played.served.steps, expected.served.steps);
    EXPECT_EQ(played.served.busy, expected.served.busy);
    EXPECT_EQ(played.served.itl.count(), groups * expected.served.itl.count());
  }
}

// Every token but each first one has an interval before it, and intervals of a request add up to its time;
// requests that run are, over time, those that have begun.
TEST(GroupPlay, R10NothingIsLost) {
  const BentStepTimes times;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    RandomStream random(seed, "lost");
    const Engine engine = random_engine(random, 2 * (seed % 2), 3);
    const auto requests = faster(random_requests(random, 500), 3);
    const Played p = play_groups(requests, engine.make(), engine.groups, times, true);
    double sum = 0;
    std::uint64_t answers = 0, prompts = 0;
    for (const AnsweredRequest& a : p.answers) {
      sum += (a.last - a.first).value;
      answers += a.answer;
      prompts += a.prompt;
      EXPECT_GE(a.first, a.came);
    }
    EXPECT_EQ(p.served.answered, requests.size());
    EXPECT_EQ(p.served.answer_tokens, answers);
    EXPECT_EQ(p.served.prompt_tokens, prompts);
    EXPECT_EQ(p.served.itl.count(), answers - p.served.answered);
    EXPECT_NEAR(p.served.itl.mean() * static_cast<double>(p.served.itl.count()) / sum, 1, 1e-10);
    EXPECT_LE(p.served.busy.value, p.served.end.value * (1 + 1e-12));
    double running = 0;
    for (const ServedSeries::Interval& i : p.served.series.intervals()) running += i.running;
    EXPECT_NEAR(running / p.served.running, 1, 1e-9);
  }
}

// Two groups, a step of 10 ms for whatever is in it. The first has a request from 0 on; the second's comes at
// 5 ms. Decided when the step before ends, it is in the second step; with the step after already decided, in
// the third.
TEST(GroupPlay, R10WhoComesToAGroupWithoutWorkWaitsAsOthersDo) {
  const LinearStepTimes times({Seconds(0.01), Seconds(0), Seconds(0), Seconds(0), Seconds(0)});
  for (const bool async : {false, true}) {
    const VllmKnobs knobs{.async_scheduling = async};
    Schedulers schedulers;
    for (int g = 0; g < 2; ++g) schedulers.push_back(std::make_unique<VllmScheduler>(knobs));
    const Played p = play_groups({{Seconds(0), 10, 5, {}}, {Seconds(0.005), 10, 2, {}}}, schedulers,
                                 {2, GroupRouting::in_turn}, times, true);
    ASSERT_EQ(p.answers.size(), 2U);
    EXPECT_NEAR(p.answers[0].first.value, async ? 0.03 : 0.02, 1e-15);
    EXPECT_NEAR(p.answers[0].last.value, async ? 0.04 : 0.03, 1e-15);
    EXPECT_NEAR(p.answers[1].last.value, 0.05, 1e-15);
  }
}

TEST(GroupPlay, R10ThreadsDoNotChangeIt) {
  const BentStepTimes times;
  const auto once = [&] {
    RandomStream random(7, "threads");
    const Engine engine = random_engine(random, 0, 4);
    return play_groups(faster(random_requests(random, 900), 4), engine.make(), engine.groups, times, true);
  };
  const Played expected = once();
  std::vector<Played> plays(4);
  std::vector<std::thread> threads;
  for (Played& p : plays) threads.emplace_back([&] { p = once(); });
  for (std::thread& t : threads) t.join();
  for (const Played& p : plays) {
    ASSERT_EQ(p.answers.size(), expected.answers.size());
    for (std::size_t i = 0; i < p.answers.size(); ++i) EXPECT_EQ(p.answers[i].last, expected.answers[i].last);
    EXPECT_EQ(p.served.held, expected.served.held);
  }
}

}  // namespace
}  // namespace shardline
