// What the boards of played requests draw and what their tokens cost [R39]: by hand, against the closed form,
// and within what boards can draw.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/search/provenance.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/studies/served_bytes.hpp"
#include "tests/planner/serve/played_boards.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

// Boards that wait half of 100 s, and are dead for a tenth of it: kernels draw 20,000 J in 40 s of them; in
// the other 50 s each idles at 100 W. Of two replicas the mean.
TEST(PlayedCost, R39BoardsIdleWhereNoKernelRunsAndDrawNothingDead) {
  BoardPower power;
  power.idle = 100;
  power.most = 700;
  std::vector<ServedRequests> replicas(2);
  replicas[0].energy = {{12'000, 0, 8'000}, 40};
  replicas[1].energy = {{2'000, 0, 0}, 10};
  EXPECT_NEAR(pool_watts(power, {replicas[0]}, 100, 0.1).total(), 200 + 50, 1e-9);
  EXPECT_NEAR(pool_watts(power, {replicas[1]}, 100, 0).total(), 20 + 90, 1e-9);
  const BoardWatts both = pool_watts(power, replicas, 100, 0);
  EXPECT_NEAR(both.kernels[0], 70, 1e-9);
  EXPECT_NEAR(both.total(), (260. + 110) / 2, 1e-9);
  EXPECT_EQ(pool_watts({}, replicas, 100, 0).total(), 0);
  EXPECT_EQ(pool_watts(power, replicas, 0, 0).total(), 0);
}

void expect_between_idle_and_limit(const Study& study, const ServiceAnswer& a) {
  const PlayedCost cost = played_cost(study, a);
  ASSERT_TRUE(cost.watts && cost.joules && cost.joules_per_token);
  const System& system = study.study.system;
  EXPECT_GT(cost.watts->value, system.power.idle);
  EXPECT_LT(cost.watts->value, system.device.power_limit);
  EXPECT_LT(cost.joules_per_token->error.low, 0);
  EXPECT_GT(cost.joules_per_token->error.low, -1);
  EXPECT_GT(cost.joules_per_token->error.high, 0);
}

// Waiting boards weigh on each token; the busier, the less. At hardly any load it is idle power alone.
TEST(PlayedCost, R39ATokenCostsMoreJoulesTheMoreBoardsWait) {
  const Study study = study_of_boards("llama-3.1-8b", "h200-hgx", 2, "vllm");
  double before = 0;
  for (const double rate : {20.0, 2.0, 0.2, 0.01}) {
    ServiceQuestion q = question(study);
    q.rate = rate;
    const ServiceAnswer a = served_on_boards(study, q);
    expect_between_idle_and_limit(study, a);
    const PlayedCost cost = played_cost(study, a);
    EXPECT_GT(cost.joules_per_token->value, before) << rate;
    before = cost.joules_per_token->value;
    // Joules of all boards over all tokens, however they are counted.
    EXPECT_NEAR(cost.joules->value / (400 * 128) / before, 1, 1e-9);
    if (rate > 0.1) continue;
    EXPECT_NEAR(cost.watts->value / study.study.system.power.idle, 1, 0.02);
    // What idles does not depend on prices.
    EXPECT_LT(cost.joules_per_token->error.high, 0.05);
  }
}

// Each replica of n under round robin has an n-th of the load, and what it draws as if it were alone.
TEST(PlayedCost, R39ReplicasAddUp) {
  const Study study = study_of_boards("llama-3.1-8b", "h200-hgx", 2, "vllm");
  ServiceQuestion q = question(study, "tensor:tpa=1,tpf=1");
  q.users = 4;
  q.rate = 0;
  q.requests = 80;
  q.replicas = 1;
  const PlayedCost one = played_cost(study, served_on_boards(study, q));
  q.users = 12;
  q.requests = 240;
  q.replicas = 3;
  const PlayedCost three = played_cost(study, served_on_boards(study, q));
  EXPECT_NEAR(three.joules->value / one.joules->value, 3, 0.02);
  EXPECT_NEAR(three.joules_per_token->value / one.joules_per_token->value, 1, 0.01);
}

// A closed loop whose TPOT is the closed form's costs as many joules a token.
TEST(PlayedCost, R39AClosedLoopIsTheClosedForms) {
  const Study study = study_of_boards("llama-3.1-70b", "h200-hgx", 8, "vllm");
  for (const long long users : {8, 32}) {
    ServiceQuestion q = question(study, "tensor:tpa=8,tpf=8");
    q.rate = 0;
    q.users = users;
    q.requests = 40 * static_cast<std::uint64_t>(users);
    q.lengths = LengthLaw::drawn;
    const ServiceAnswer a = served_on_boards(study, q);
    ServedEvaluator closed(study.study, study.sweep().search.all_reduce);
    ServedWorkload load;
    load.input = 2048 * 9 / 10;
    load.output = 128 * 9 / 10;
    load.users = users;
    Plan plan = q.plan;
    const ServedPlan form = closed.of(plan, load);
    const double tpot = a.load.latencies[static_cast<std::size_t>(Latency::tpot)].mean;
    ASSERT_NEAR(form.served.tpot.value / tpot, 1, 0.05) << users;
    plan.batch = static_cast<int>(users);
    Case c = study.study;
    c.batch = decode_batch(load.context());
    Evaluator e(c, study.sweep().search.all_reduce);
    const Rating decode = rating_of(e, plan), prompt = closed.prompt_rating(plan, load.input);
    const double prompts = 1 - decode.time / form.served.tpot;
    const double watts = decode.watts.total() * (1 - prompts) + prompt.watts.total() * prompts;
    const PlayedCost cost = played_cost(study, a);
    EXPECT_NEAR(cost.joules_per_token->value / (watts / form.output_per_s_gpu), 1, 0.08) << users;
    EXPECT_NEAR(cost.watts->value / watts, 1, 0.05) << users;
    // All of a token's joules go with prices in a loop, by squares with the boards'.
    EXPECT_GT(cost.joules_per_token->error.high, cost.watts->error.high);
  }
}

// Both pools of a pair, by their GPUs; the one for prompts waits more and draws less.
TEST(PlayedCost, R39PairsAreBothPoolsByTheirGpus) {
  const Study study = study_of_boards("llama-3.1-8b", "h200-hgx", 8, "vllm");
  ServiceQuestion q = question(study, "tensor:tpa=2,tpf=2");
  q.rate = 4;
  q.prefill = PrefillQuestion{possible_plan(study, "tensor:tpa=1,tpf=1"), 3, {}, 0};
  const ServiceAnswer a = served_on_boards(study, q);
  ASSERT_TRUE(a.load.pair);
  expect_between_idle_and_limit(study, a);
  const PlayedCost cost = played_cost(study, a);
  const double prefill = a.load.pair->prefill_watts.total(), decode = a.load.watts.total();
  EXPECT_GT(prefill, study.study.system.power.idle);
  EXPECT_NEAR(cost.watts->value, (3 * prefill + 2 * decode) / 5, 1e-9);
  EXPECT_NEAR(cost.joules->value, cost.watts->value * 5 * a.load.seconds, 1e-6 * cost.joules->value);
  // Each pool with its interval: what its kernels draw is off, waiting boards are not, so that the one that
  // waits more is known better; both together no worse than the worse of them.
  ASSERT_TRUE(cost.prefill_watts && cost.decode_watts);
  EXPECT_EQ(cost.prefill_watts->value, prefill);
  EXPECT_EQ(cost.decode_watts->value, decode);
  EXPECT_GT(cost.prefill_watts->error.high, 0);
  EXPECT_GT(cost.decode_watts->error.high, cost.prefill_watts->error.high);
  EXPECT_LE(cost.watts->error.high, cost.decode_watts->error.high);
  EXPECT_THAT(energy_text(study, a), HasSubstr("where prompts are computed"));
  // As bytes for another process, to the bit.
  const ServedLoadAnswer again = served_load(to_bytes(a.load));
  EXPECT_EQ(again.watts.total(), decode);
  EXPECT_EQ(again.pair->prefill_watts.total(), prefill);
}

// Pipelines and attention groups draw like boards, too.
TEST(PlayedCost, R39PipelinesAndGroupsAreBetweenIdleAndTheLimit) {
  const Study llama = study_of_boards("llama-3.1-70b", "h200-hgx", 8, "vllm");
  ServiceQuestion q = question(llama, "pipeline:pp=2,tpa=4,tpf=4,in_flight=2");
  q.rate = 3;
  expect_between_idle_and_limit(llama, served_on_boards(llama, q));
  const Study r1 = study_of_boards("deepseek-r1", "h200-hgx", 8, "vllm");
  ServiceQuestion groups = question(r1, "dp_ep:dp=8,ep=8");
  groups.requests = 100;
  for (const double rate : {0.2, 4.0}) {
    groups.rate = rate;
    expect_between_idle_and_limit(r1, served_on_boards(r1, groups));
  }
}

// Of an A800 nobody measured any; an H100's are an H200's in the ratio of their limits, and said to be.
TEST(PlayedCost, R39SaysWhoseBoardsWereMeasuredAndNothingOfUnknownOnes) {
  const Study a800 = study_of_boards("llama-3.1-8b", "a800-hgx", 1, "vllm");
  ServiceQuestion q = question(a800, "tensor:tpa=1,tpf=1");
  q.requests = 20;
  const ServiceAnswer unknown = served_on_boards(a800, q);
  EXPECT_EQ(energy_text(a800, unknown), "");
  EXPECT_FALSE(played_cost(a800, unknown).watts);
  const Study h100 = study_of_boards("llama-3.1-8b", "h100-hgx", 1, "vllm");
  EXPECT_THAT(energy_text(h100, served_on_boards(h100, q)), HasSubstr("scaled from h200-hgx"));
  const Study h200 = study_of_boards("llama-3.1-8b", "h200-hgx", 1, "vllm");
  const std::string own = energy_text(h200, served_on_boards(h200, q));
  EXPECT_THAT(own, HasSubstr(" J per token of answers (90 %: "));
  EXPECT_EQ(own.find("scaled"), std::string::npos);
}

// 3.6 an hour is 1e-3 a second: a GPU with n tokens/s has a million in 1e6 / n s.
TEST(PlayedCost, R39MoneyIsGpuTime) {
  Study study = study_of_boards("llama-3.1-8b", "h200-hgx", 1, "vllm");
  ServiceQuestion q = question(study, "tensor:tpa=1,tpf=1");
  q.requests = 50;
  const ServiceAnswer a = served_on_boards(study, q);
  EXPECT_EQ(money_text(study, a), "");
  study.gpu_hour = 3.6;
  const PlayedCost cost = played_cost(study, a);
  ASSERT_TRUE(cost.per_million);
  EXPECT_NEAR(cost.per_million->value, 1e3 / a.load.output_per_s_gpu, 1e-9);
  EXPECT_EQ(cost.per_million->error.high, 0);  // tokens are as many as come
  EXPECT_THAT(money_text(study, a), HasSubstr("per million tokens of answers at 3.6 per GPU-hour"));
}

}  // namespace
}  // namespace shardline
