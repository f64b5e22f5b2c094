// [P37] The closed form of attention groups that step together, each with prompts of its own: against sums
// over all states of the groups, against lowered steps, and against plays of every request.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "planner/requests/group_times.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/studies/request_service.hpp"
#include "tests/planner/serve/served_line.hpp"

namespace shardline {
namespace {

constexpr const char* kGroups = "dp_ep:dp=8,ep=8";

ServedTimes times_of_groups(int groups, bool rides) {
  ServedTimes t;
  t.room = 32;
  t.steps = 3;
  t.prompts = 2;
  t.groups = groups;
  t.decode = Seconds(0.02);
  t.prompt_one = Seconds(0.3);
  t.prompt = Seconds(0.9);
  t.rides = rides;
  t.prompt_added = (rides ? t.prompt - t.decode * t.steps : t.prompt) / t.prompts;
  return t;
}

// Means over all ways in which the other groups may have prompts or not.
TEST(ServedGroups, P37SpreadIsTheMeanOverAllStatesOfTheOthers) {
  for (const int groups : {2, 3, 8})
    for (const double share : {0.0, 0.01, 0.3, 1.0})
      for (const bool rides : {false, true}) {
        const ServedTimes t = times_of_groups(groups, rides);
        const auto step = [&](int with_prompts) {
          if (with_prompts == 0) return t.decode.value;
          return (t.prompt_one + (t.prompt - t.prompt_one) * ((with_prompts - 1.0) / (groups - 1))).value / 3;
        };
        double decode = 0, prompt = 0;
        for (unsigned state = 0; state < 1U << (groups - 1); ++state) {
          int with = 0;
          double weight = 1;
          for (int g = 0; g + 1 < groups; ++g) {
            const bool has = (state >> g & 1U) != 0;
            with += has ? 1 : 0;
            weight *= has ? share : 1 - share;
          }
          decode += weight * step(with);
          prompt += weight * step(with + 1) * 3;
        }
        const ServedTimes spread = t.spread(share);
        EXPECT_NEAR(spread.decode.value, decode, 1e-12);
        EXPECT_NEAR(spread.prompt.value, prompt, 1e-12);
        EXPECT_NEAR(spread.prompt_added.value, (prompt - (rides ? 3 * decode : 0)) / 2, 1e-12);
        EXPECT_EQ(spread.between().value, t.decode.value);
        EXPECT_NEAR(spread.prompt.value * spread.at_once, t.prompt.value, 1e-12);
        EXPECT_EQ(spread.groups, 1);
      }
}

TEST(ServedGroups, P37OneGroupIsLeftAsItIs) {
  const ServedTimes t = times_of_groups(1, true), spread = t.spread(0.4);
  EXPECT_EQ(spread.decode, t.decode);
  EXPECT_EQ(spread.prompt, t.prompt);
  EXPECT_EQ(spread.prompt_added, t.prompt_added);
  EXPECT_EQ(spread.at_once, 1);
  EXPECT_EQ(spread.between(), t.decode);
}

// Steps of k groups with prompts lie on the line between one and all.
TEST(ServedGroups, P37StepsRiseEvenlyWithTheGroupsThatHavePrompts) {
  for (const char* engine : {"vllm", "sglang"}) {
    const Study study = study_of_groups(engine);
    const PlanStepTimes times(study.study, possible_plan(study, kGroups), study.sweep().search.all_reduce);
    for (const std::uint32_t requests : {4U, 32U}) {
      StepBatch decodes, prompts;
      decodes.decodes = requests;
      decodes.cached = std::uint64_t{requests} * 5000;
      decodes.longest = 5000;
      if (study.study.engine->prefill == PrefillPolicy::mixed) prompts = decodes;
      prompts.prompts = {{2048, 0}};
      const auto step = [&](std::size_t with) {
        std::vector<const StepBatch*> groups(8, &decodes);
        for (std::size_t g = 0; g < with; ++g) groups[g] = &prompts;
        return step_of_groups(times, groups).value;
      };
      const double one = step(1), all = step(8);
      EXPECT_GT(all, 1.02 * one);
      EXPECT_GT(one, 2 * step(0));
      for (const std::size_t k : {2U, 4U, 6U})
        EXPECT_NEAR(step(k) / (one + (all - one) * (static_cast<double>(k) - 1) / 7), 1, 0.05)
            << engine << " " << requests << " " << k;
    }
  }
}

// A loop that goes on for so long that its beginning hardly counts, whose users all began at once.
struct Played {
  double tpot = 0, rate = 0;
};
Played played(const Study& study, long long users, std::uint64_t rounds) {
  ServiceQuestion q = question(study, kGroups);
  q.input = 4096;
  q.output = 256;
  q.lengths = LengthLaw::drawn;
  q.rate = 0;
  q.users = users;
  q.requests = static_cast<std::uint64_t>(users) * rounds;
  RequestService service(study, q, [](std::uint64_t, std::uint64_t) {});
  const ServiceAnswer a = service.answer();
  return {a.load.latencies[static_cast<std::size_t>(Latency::tpot)].mean, a.load.output_per_s_gpu};
}

// TPOT and tokens of loops in which users have drifted apart, at the mean of the lengths that are drawn; and
// how far off it was to take all groups to prefill in the same steps.
TEST(ServedGroups, P37ClosedFormIsTheLongLoop) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    const Study study = study_of_groups(engine);
    const Plan plan = possible_plan(study, kGroups);
    for (const long long users : {16LL, 64LL, 192LL}) {
      const Played loop = played(study, users, 40);
      ServedEvaluator closed(study.study, study.sweep().search.all_reduce);
      ServedWorkload load{4096 * 9 / 10, 256 * 9 / 10, users};
      const ServedPlan apart = closed.of(plan, load);
      const std::string what =
          fmt::format("{} {}: TPOT {:.4g} and {:.4g} ms, {:.4g} and {:.4g} tokens/s/GPU", engine, users,
                      1e3 * apart.served.tpot.value, 1e3 * loop.tpot, apart.output_per_s_gpu, loop.rate);
      RecordProperty(fmt::format("{}_{}", engine, users), what);
      const bool herds = std::string(engine) == "vllm";
      EXPECT_LE(apart.served.tpot.value / loop.tpot, herds ? 1.01 : 1.06) << what;
      EXPECT_GE(apart.served.tpot.value / loop.tpot, herds ? 0.85 : 0.96) << what;
      EXPECT_LE(apart.output_per_s_gpu / loop.rate, herds ? 1.18 : 1.05) << what;
      EXPECT_GE(apart.output_per_s_gpu / loop.rate, herds ? 1 : 0.95) << what;
    }
  }
}

}  // namespace
}  // namespace shardline
