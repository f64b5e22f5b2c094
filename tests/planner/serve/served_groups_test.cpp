// [P37] The closed form of attention groups that step together, each with prompts of its own: against sums
// over all states of the groups, against lowered steps, and against plays of every request.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "planner/engines/deploy.hpp"
#include "planner/requests/group_times.hpp"
#include "planner/serving/held_prompts.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/studies/request_service.hpp"
#include "planner/studies/service_knobs.hpp"
#include "sim/base/random.hpp"
#include "tests/planner/serve/served_line.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

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
Played played(const Study& study, long long users, std::uint64_t rounds,
              std::vector<std::string> knobs = {}) {
  ServiceQuestion q = question(study, kGroups);
  q.knobs = std::move(knobs);
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

// What one group sees of prompts that come to groups in turn, a number at random in each step, and wait.
struct Counted {
  double prompts = 0, decoding = 0, waited = 0;
};
Counted counted(const HoldingGroups& all, double come) {
  RandomStream random(1, "held");
  const int groups = static_cast<int>(all.groups);
  Counted out;
  double computed = 0, rounds = 0;
  std::vector<std::vector<int>> waiting(static_cast<std::size_t>(groups));  // since when, by group
  int next = 0, delayed = 0;
  for (int now = 0; now < 400'000; ++now) {
    const auto has = [](const std::vector<int>& w) { return !w.empty(); };
    const auto some = std::count_if(waiting.begin(), waiting.end(), has);
    const bool waits = some > 0 && some < groups && delayed + 1 < all.passes;
    delayed = waits ? delayed + 1 : 0;
    if (some > 0 && !waits) {
      ++rounds;
      for (auto& w : waiting) {
        computed += static_cast<double>(w.size());
        for (const int since : w) out.waited += now - since;
        w.clear();
      }
    }
    ++out.decoding;  // this step
    const double none = std::exp(-come * groups);
    for (double u = random.unit(); u > none; u *= random.unit())
      waiting[static_cast<std::size_t>(next++ % groups)].push_back(now + 1);
  }
  return {computed / rounds / groups, out.decoding / rounds, out.waited / computed};
}

// Where prompts take no steps of others: all that is counted is how long they wait.
TEST(ServedGroups, P38PromptsThatWaitAreCounted) {
  for (const double groups : {2.0, 8.0, 16.0})
    for (const int passes : {1, 10, 30})
      for (const double come : {0.001, 0.02, 0.06, 0.2}) {
        const HoldingGroups all{groups, 0, 100, passes};
        const HeldPrompts form = held_prompts(all, come);
        const Counted c = counted(all, come);
        SCOPED_TRACE(fmt::format("{} {} {}: {:.4g} {:.4g} {:.4g}, counted {:.4g} {:.4g} {:.4g}", groups,
                                 passes, come, form.prompts, form.decoding, form.waited, c.prompts,
                                 c.decoding, c.waited));
        EXPECT_NEAR(form.decoding / c.decoding, 1, 0.1);
        EXPECT_NEAR(form.prompts / c.prompts, 1, 0.1);
        EXPECT_NEAR(form.waited, c.waited, 0.1 * c.waited + 0.5);
        EXPECT_NEAR(form.tokens, form.prompts / come, 1e-9 * form.tokens);
      }
}

// Of so many in the time of a token that every step has some, more than find place in it come in rounds.
TEST(ServedGroups, P38MoreThanHavePlaceTakeRounds) {
  const HeldPrompts one = held_prompts({4, 2, 1, 30}, 3), all = held_prompts({4, 2, 8, 30}, 3);
  EXPECT_NEAR(one.rounds, one.prompts, 1e-9);
  EXPECT_EQ(one.together, 1);
  EXPECT_EQ(all.rounds, 1);
  EXPECT_NEAR(all.together, all.prompts, 1e-9);
  EXPECT_GT(all.prompts, 3);
  EXPECT_EQ(all.present, 1);
}

PlanQuestion delaying_question() {
  PlanQuestion q = question_of_groups();
  q.settings = {"engine.prefill_delayer=true"};
  return q;
}

TEST(EngineKeys, P38TheDelayerIsSglangsAndOfServersThatDoBoth) {
  const Study study = study_of_line("sglang", delaying_question());
  EXPECT_EQ(study.study.engine->delay_passes, 30);
  EXPECT_EQ(study_of_groups("sglang").study.engine->delay_passes, 0);
  const auto holds = [&](const char* plan, bool apart) {
    Case c = study.study;
    c.disaggregated = apart;
    const LaunchOptions options = sglang_deployment(c, possible_plan(study, plan)).options;
    return std::any_of(options.begin(), options.end(),
                       [](const auto& o) { return o.name == "--enable-prefill-delayer"; });
  };
  EXPECT_TRUE(holds(kGroups, false));
  EXPECT_FALSE(holds(kGroups, true));
  EXPECT_FALSE(holds("tensor:tpa=8,ep=8", false));
  EXPECT_THAT(fault([] { study_of_line("vllm", delaying_question()); }),
              HasSubstr("engine.prefill_delayer is an option of SGLang"));
  const Plan plan = possible_plan(study, kGroups);
  const auto knobs = [&](std::vector<std::string> given, PairRole role) {
    return std::get<SglangKnobs>(service_knobs(study.study, plan, given, 4600, role).of);
  };
  EXPECT_TRUE(knobs({}, PairRole::none).enable_prefill_delayer);
  EXPECT_FALSE(knobs({}, PairRole::prefills).enable_prefill_delayer);
  EXPECT_EQ(knobs({"prefill_delayer_max_delay_passes=7"}, PairRole::none).max_delay_passes, 7U);
  EXPECT_THAT(fault([&] { knobs({"enable_prefill_delayer=false"}, PairRole::none); }),
              HasSubstr("contradicts engine.prefill_delayer: true"));
}

// The same as without; and what the option takes from TPOT.
TEST(ServedGroups, P38ClosedFormIsTheLongLoop) {
  const Study plain = study_of_groups("sglang"), study = study_of_line("sglang", delaying_question());
  const Plan plan = possible_plan(study, kGroups);
  for (const long long users : {16LL, 64LL, 192LL}) {
    const Played loop = played(study, users, 40),
                 told = played(plain, users, 40, {"enable_prefill_delayer=true"});
    EXPECT_EQ(loop.tpot, told.tpot);  // the scenario's key is the server's option
    const ServedWorkload load{4096 * 9 / 10, 256 * 9 / 10, users};
    const auto closed = [&](const Study& of) {
      return ServedEvaluator(of.study, of.sweep().search.all_reduce).of(plan, load);
    };
    const ServedPlan held = closed(study), apart = closed(plain);
    const std::string what =
        fmt::format("{}: TPOT {:.4g} and {:.4g} ms, {:.4g} and {:.4g} tokens/s/GPU", users,
                    1e3 * held.served.tpot.value, 1e3 * loop.tpot, held.output_per_s_gpu, loop.rate);
    RecordProperty(fmt::format("held_{}", users), what);
    EXPECT_NEAR(held.served.tpot.value / loop.tpot, 1, 0.06) << what;
    EXPECT_NEAR(held.output_per_s_gpu / loop.rate, 1, 0.08) << what;
    EXPECT_LT(held.served.tpot.value, 0.75 * apart.served.tpot.value);
    EXPECT_GT(held.served.ttft, apart.served.ttft);
    EXPECT_GE(held.served.tpot, held.times.between());
  }
  // Users of equal lengths come back together in any case, and TP has one group.
  const ServedWorkload equal{4096, 256, 64, true};
  const auto tpot = [&](const Study& of, const Plan& p, const ServedWorkload& load) {
    return ServedEvaluator(of.study, of.sweep().search.all_reduce).of(p, load).served.tpot;
  };
  EXPECT_EQ(tpot(study, plan, equal), tpot(plain, plan, equal));
  const Plan tensor = possible_plan(study, "tensor:tpa=8,ep=8");
  EXPECT_EQ(tpot(study, tensor, {4096, 256, 64}), tpot(plain, tensor, {4096, 256, 64}));
}

}  // namespace
}  // namespace shardline
