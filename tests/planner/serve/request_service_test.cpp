// Requests on a plan: what must hold at both ends of the load, targets, knobs and refusals.
#include "planner/studies/request_service.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <variant>

#include "planner/scenario/shipped.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/studies/plan_answer.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "tests/planner/serve/served_line.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

ServiceAnswer answer(const Study& study, const ServiceQuestion& q) {
  return serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
}

const ToldLatency& of(const ServiceAnswer& a, Latency latency) {
  return a.load.latencies[static_cast<std::size_t>(latency)];
}

// With nobody beside it a request takes its prompt's step, as lowered, and then steps that decode.
void alone(const std::string& engine) {
  const Study study = study_of_line(engine);
  ServiceQuestion q = question(study);
  q.rate = 1e-3;
  q.requests = 30;
  const ServiceAnswer a = answer(study, q);
  const PlanStepTimes times(study.study, q.plan, study.sweep().search.all_reduce);
  const double path = study.study.engine->host.path.value;
  const double prompt = times.lowered(prefill_batch({{0, 2048}})).value;
  EXPECT_NEAR(of(a, Latency::ttft).quantiles[0], path + prompt, 1e-9);
  double decode = 0;
  for (int i = 0; i < 127; ++i) decode += times.lowered({{{2048 + i, 1, 1}}, {}}).value;
  EXPECT_NEAR(of(a, Latency::tpot).quantiles[0] / (decode / 127), 1, PlanStepTimes::kMostError);
  EXPECT_EQ(a.load.answered, 30U);
  EXPECT_GT(a.load.idle, 0.99);
  EXPECT_FALSE(a.load.growth_per_s);
}

TEST(RequestService, ZeroLoadIsOneRequestAlone) {
  for (const char* const engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    alone(engine);
  }
}

// Without a path TTFT is shorter by the server's, and the steps are the same ones.
TEST(RequestService, R7ThePathIsTheServersUnlessOneIsAsked) {
  const Study study = study_of_line("trtllm");
  ServiceQuestion q = question(study);
  q.rate = 1;
  q.requests = 50;
  const ServiceAnswer server = answer(study, q);
  q.path = Seconds(0);
  const ServiceAnswer inside = answer(study, q);
  EXPECT_GT(study.study.engine->host.path, Seconds(0));
  EXPECT_NEAR(of(server, Latency::ttft).mean - of(inside, Latency::ttft).mean,
              study.study.engine->host.path.value, 1e-9);
  EXPECT_NEAR(of(server, Latency::tpot).mean, of(inside, Latency::tpot).mean, 1e-9);
}

// Knobs that turn the work ahead off move decisions, not prices, and the answer says so; not where they are
// as the engine starts.
TEST(RequestService, WorkAheadThatIsTurnedOffIsSaid) {
  for (const auto& [engine, knob] : {std::pair{"vllm", "async_scheduling=false"},
                                     {"sglang", "disable_overlap_schedule=true"},
                                     {"trtllm", "disable_overlap_scheduler=true"}}) {
    SCOPED_TRACE(engine);
    const Study study = study_of_line(engine);
    ServiceQuestion q = question(study);
    q.rate = 1;
    q.requests = 10;
    const auto said = [&] {
      std::string out;
      for (const Diagnostic& d : answer(study, q).narrow) out += to_string(d);
      return out;
    };
    EXPECT_THAT(said(), Not(HasSubstr("host beside the kernels")));
    q.knobs = {knob};
    EXPECT_THAT(said(),
                AllOf(HasSubstr(std::string(knob) + ": a step is decided"), HasSubstr("longer, by at most")));
  }
}

// Where the load is high, SGLang's prompts hold up those that decode, TensorRT-LLM's share steps with them:
// of two engines with one model of steps, other tokens wait.
TEST(RequestService, EnginesDiffer) {
  std::array<ServiceAnswer, 2> answers;
  std::array<const char*, 2> mixed{"enable_mixed_chunk=false", "enable_mixed_chunk=true"};
  for (std::size_t i = 0; i < 2; ++i) {
    const Study study = study_of_line("sglang");
    ServiceQuestion q = question(study);
    q.rate = 20;
    q.knobs = {mixed[i]};
    answers[i] = answer(study, q);
    EXPECT_EQ(answers[i].load.answered, 400U);
  }
  EXPECT_LT(of(answers[0], Latency::ttft).mean, of(answers[1], Latency::ttft).mean);
  EXPECT_NE(of(answers[0], Latency::itl).mean, of(answers[1], Latency::itl).mean);
  const Study study = study_of_line("trtllm");
  ServiceQuestion q = question(study);
  q.rate = 20;
  const ServiceAnswer mixing = answer(study, q);
  q.knobs = {"capacity_scheduler_policy=STATIC_BATCH"};
  const ServiceAnswer by_batches = answer(study, q);
  EXPECT_GT(of(by_batches, Latency::ttft).mean, 2 * of(mixing, Latency::ttft).mean);
}

// More than the engine answers: said so, with a growth that is what comes less what is answered.
TEST(RequestService, LoadThatDoesNotDrainIsTold) {
  const Study study = study_of_line();
  ServiceQuestion q = question(study);
  q.rate = 1000;
  q.requests = 6000;
  const ServiceAnswer a = answer(study, q);
  ASSERT_TRUE(a.load.growth_per_s);
  EXPECT_GT(*a.load.growth_per_s, 0.5 * (q.rate - a.load.requests_per_s));
  EXPECT_LT(*a.load.growth_per_s, q.rate);
  EXPECT_FALSE(a.load.met);
  q.rate = 5;
  q.requests = 400;
  const ServiceAnswer calm = answer(study, q);
  EXPECT_FALSE(calm.load.growth_per_s);
  EXPECT_TRUE(calm.load.met);
  EXPECT_NEAR(calm.load.sent_per_s / 5, 1, 0.15);
}

// The bracket's ends are what it says, under the same requests; goodput is the part that keeps the targets.
TEST(RequestService, LargestRateIsBracketed) {
  const Study study = study_of_line();
  ServiceQuestion q = question(study);
  q.rate = 0;
  q.largest_rate = true;
  q.targets = parse_targets("--slo", "ttft p90 500 ms, tpot p90 15 ms");
  const ServiceAnswer a = answer(study, q);
  ASSERT_TRUE(a.bracket);
  ASSERT_GT(a.bracket->low, 0);
  EXPECT_LE(a.bracket->high / a.bracket->low, 1.021);
  q.largest_rate = false;
  q.rate = a.bracket->low;
  const ServiceAnswer low = answer(study, q);
  EXPECT_TRUE(low.load.met);
  EXPECT_GE(low.load.goodput, 0.79 * low.load.requests_per_s);
  q.rate = a.bracket->high;
  EXPECT_FALSE(answer(study, q).load.met);
}

TEST(RequestService, SeedsAndReplicas) {
  const Study study = study_of_line();
  ServiceQuestion q = question(study, "tensor:tpa=1");
  q.rate = 8;
  const ServiceAnswer first = answer(study, q), again = answer(study, q);
  EXPECT_EQ(of(first, Latency::ttft).mean, of(again, Latency::ttft).mean);
  q.seed = 2;
  EXPECT_NE(of(answer(study, q), Latency::ttft).mean, of(first, Latency::ttft).mean);
  q.seed = 1;
  q.replicas = 2;
  EXPECT_LT(of(answer(study, q), Latency::tpot).mean, of(first, Latency::tpot).mean);
}

// Users who think for long are hardly ever there together, and send as seldom as they think: N / (Z + R).
TEST(RequestService, UsersThink) {
  const Study study = study_of_line();
  ServiceQuestion q = question(study);
  q.rate = 0;
  q.users = 8;
  q.think = Seconds(20);
  q.requests = 2000;
  const ServiceAnswer a = answer(study, q);
  const double each = 20 + of(a, Latency::e2e).mean;
  EXPECT_NEAR(a.load.requests_per_s / (8 / each), 1, 0.05);
  EXPECT_LT(a.load.running, 1.5);
  q.think = Seconds(0);
  EXPECT_GT(answer(study, q).load.running, 7);
}

TEST(RequestService, PrefixesOfATraceAreFound) {
  const Study study = study_of_line();
  ServiceQuestion q = question(study);
  q.rate = 0;
  q.requests = 0;
  q.trace = std::string(SHARDLINE_SOURCE_DIR) + "/tests/planner/traces/mooncake.jsonl";
  const ServiceAnswer a = answer(study, q);
  EXPECT_EQ(a.load.answered + a.load.refused, a.question.requests);
  EXPECT_GT(a.load.answered, 0U);
}

TEST(RequestService, TargetsHavePlaces) {
  const auto targets = parse_targets("--slo", "ttft p99 2 s, TPOT p99.9 40 ms,e2e p50 1 min");
  ASSERT_EQ(targets.size(), 3U);
  EXPECT_EQ(targets[1].of, Latency::tpot);
  EXPECT_DOUBLE_EQ(targets[1].quantile, 0.999);
  EXPECT_DOUBLE_EQ(targets[1].most.value, 0.04);
  const auto of_text = [](const std::string& text) { return fault([&] { parse_targets("--slo", text); }); };
  EXPECT_THAT(of_text("tft p99 2 s"), HasSubstr("--slo:1:1: unknown latency tft"));
  EXPECT_THAT(of_text("tft p99 2 s"), HasSubstr("did you mean ttft?"));
  EXPECT_THAT(of_text("ttft p99 2 s, tpot 40 ms"), HasSubstr("--slo:1:20: expected a percentile"));
  EXPECT_THAT(of_text("ttft p99 2 parsec"), HasSubstr("--slo:1:10:"));
  EXPECT_THAT(of_text("ttft p99 -2 s"), HasSubstr("--slo:1:10: expected a positive time"));
  for (const char* const none :
       {"p100", "p99.91", "p99.999", "p0.5", "p0", "p-1", "pnan", "pinf", "p", "p9x"})
    EXPECT_THAT(of_text(std::string("ttft ") + none + " 2 s"),
                HasSubstr(std::string("--slo:1:6: expected a percentile from p1 to p99.9, found ") + none));
  EXPECT_DOUBLE_EQ(parse_targets("--slo", "ttft p1 2 s").front().quantile, 0.01);
  EXPECT_THAT(of_text("ttft p99 2 s,"), HasSubstr("--slo:1:14: a target is missing"));
  // All faults at once.
  EXPECT_THAT(of_text("tft p99 2 s, tpot p99 4"), HasSubstr("--slo:1:23:"));
}

TEST(RequestService, KnobsHavePlaces) {
  const Study study = study_of_line();
  const Plan plan = possible_plan(study, "tensor:tpa=2,tpf=2");
  const VllmKnobs knobs =
      vllm_knobs(study.study, plan, {"max_num_seqs=7", "enable_prefix_caching=false"}, 2176);
  EXPECT_EQ(knobs.max_num_seqs, 7U);
  EXPECT_FALSE(knobs.enable_prefix_caching);
  EXPECT_EQ(knobs.max_num_batched_tokens, 8192U);
  const auto of_text = [&](const std::string& text) {
    return fault([&] { vllm_knobs(study.study, plan, {text}, 2176); });
  };
  EXPECT_THAT(of_text("max_num_seq=7"), HasSubstr("--knob:1:1: unknown knob max_num_seq"));
  EXPECT_THAT(of_text("max_num_seq=7"), HasSubstr("did you mean max_num_seqs?"));
  EXPECT_THAT(of_text("max_num_seqs=x"), HasSubstr("--knob:1:14: expected a whole number from 1, found x"));
  // A list's comma is no separator of thousands, nor is what follows it a number.
  EXPECT_THAT(of_text("max_num_seqs=64,128"),
              HasSubstr("--knob:1:14: expected one whole number without commas"));
  EXPECT_THAT(of_text("max_num_seqs=024"), HasSubstr("without leading zeros, found 024"));
  EXPECT_THAT(
      fault([&] {
        pair_knobs(study.study, plan, PairRole::prefills, {"max_num_seq=7"}, {2176, 2048}, "prefill-knob");
      }),
      HasSubstr("--prefill-knob:1:1: unknown knob max_num_seq"));
  EXPECT_THAT(of_text("async_scheduling=1"), HasSubstr("expected true or false, found 1"));
  EXPECT_THAT(of_text("block_size=24"), HasSubstr("a block of 24 tokens: expected a divisor of 512"));
}

TEST(RequestService, EveryEngineHasItsKnobs) {
  const Study sglang = study_of_line("sglang"), trtllm = study_of_line("trtllm");
  const Plan plan = possible_plan(sglang, "tensor:tpa=2,tpf=2");
  const ServiceKnobs s = service_knobs(sglang.study, plan, {"max_running_requests=7"}, 2176);
  EXPECT_EQ(s.requests(), 7U);
  EXPECT_EQ(s.step_tokens(), 8192U);
  EXPECT_EQ(s.block(), 1U);
  EXPECT_GT(s.blocks(), 500'000U);
  const ServiceKnobs t =
      service_knobs(trtllm.study, plan, {"capacity_scheduler_policy=MAX_UTILIZATION"}, 2176);
  EXPECT_EQ(std::get<TrtllmKnobs>(t.of).capacity_scheduler_policy, TrtllmPolicy::max_utilization);
  EXPECT_FALSE(std::get<TrtllmKnobs>(t.of).disable_overlap_scheduler);
  EXPECT_EQ(t.block(), 32U);
  const auto of_text = [&](const Study& study, const std::string& text) {
    return fault([&] { service_knobs(study.study, plan, {text}, 2176); });
  };
  EXPECT_THAT(of_text(sglang, "max_num_seqs=7"), HasSubstr("--knob:1:1: unknown knob max_num_seqs"));
  EXPECT_THAT(of_text(sglang, "schedule_conservativeness=-1"),
              HasSubstr("expected a number from 0, found -1"));
  EXPECT_THAT(fault([&] {
                service_knobs(sglang.study, plan,
                              {"enable_prefill_delayer=true", "disable_overlap_schedule=true"}, 2176);
              }),
              HasSubstr("enable_prefill_delayer=true: SGLang does not start with it and disable_overlap"));
  EXPECT_THAT(fault([&] {
                service_knobs(sglang.study, plan, {"enable_prefill_delayer=true"}, 2176, PairRole::prefills);
              }),
              HasSubstr("on a server that computes prompts for another it is not played yet"));
  EXPECT_THAT(of_text(trtllm, "capacity_scheduler_policy=MAX_UTILISATION"),
              HasSubstr("--knob:1:27: unknown value MAX_UTILISATION"));
  EXPECT_THAT(of_text(trtllm, "capacity_scheduler_policy=MAX_UTILISATION"),
              HasSubstr("did you mean MAX_UTILIZATION?"));
}

// The cache holds what a plan of as many requests fits, by the same memory model.
TEST(RequestService, BlocksAreThoseThatFit) {
  const Study study = study_of_line();
  Plan plan = possible_plan(study, "tensor:tpa=2,tpf=2");
  const long long mean = 2176;
  const VllmKnobs knobs = vllm_knobs(study.study, plan, {}, mean);
  Case c = study.study;
  c.batch = decode_batch(mean);
  const int most = largest_batch(c, plan, 1'000'000);
  const double held =
      static_cast<double>(knobs.num_gpu_blocks) * knobs.block_size / static_cast<double>(mean);
  EXPECT_NEAR(held / most, 1, 0.01);
}

// [R14] With nobody beside it a prompt has room at once, is computed chunk by chunk, goes part by part, and
// its first token comes with the last of them.
TEST(RequestService, R14APairOfSglangAtZeroLoad) {
  const Study study = study_of_line("sglang");
  ServiceQuestion q = question(study);
  q.rate = 1e-3;
  q.requests = 30;
  q.prefill = PrefillQuestion{q.plan, 1, {"chunked_prefill_size=1024"}, 0};
  const ServiceAnswer a = answer(study, q);
  const Case half = half_of_pair(study.study);
  const PlanStepTimes times(half, q.plan, study.sweep().search.all_reduce);
  const TransferRates rates = handoff_rates({study.study, q.plan}, {study.study, q.plan}, 2048);
  const Seconds part = rates.alone(1024);
  const Seconds one = times.lowered(prefill_batch({{0, 1024}}));
  const Seconds two = times.lowered(prefill_batch({{1024, 1024}}));
  ASSERT_LT(part, two) << "so that the first part is there before the second is computed";
  const double path = study.study.engine->host.path.value;
  EXPECT_NEAR(of(a, Latency::ttft).quantiles[0], path + (one + two + part).value, 1e-9);
  ASSERT_TRUE(a.load.pair);
  EXPECT_NEAR(a.load.pair->room.mean, path, 1e-9);
  EXPECT_NEAR(a.load.pair->prompt.mean, (one + two).value, 1e-9);
  EXPECT_NEAR(a.load.pair->transfer.mean, part.value, 1e-9);
  EXPECT_NEAR(a.load.pair->begin.mean, 0, 1e-12);
  EXPECT_EQ(a.load.pair->tokens_read, 2048);
  EXPECT_EQ(a.knobs.block(), 64U);
  EXPECT_FALSE(a.knobs.finds());
  EXPECT_TRUE(a.prefill_knobs->finds());
}

// Places beside those that run: twice as many where somebody says that few do.
TEST(RequestService, R14PlacesOfAServerThatDecodes) {
  const Study study = study_of_line("sglang");
  const auto places = [&](const std::vector<std::string>& overrides) {
    const ServiceKnobs k =
        pair_knobs(study.study, question(study).plan, PairRole::decodes, overrides, {2304, 2048});
    return std::get<SglangKnobs>(k.of).disaggregation_decode_extra_slots;
  };
  EXPECT_EQ(places({}), 0U);
  EXPECT_EQ(places({"max_running_requests=32"}), 64U);
  EXPECT_EQ(places({"max_running_requests=33"}), 0U);
  EXPECT_EQ(places({"max_running_requests=32", "disaggregation_decode_extra_slots=5"}), 5U);
}

// Options of a server that decodes for another are nobody else's: there they would do nothing.
TEST(RequestService, R14OptionsOfAServerThatDecodesAreRefusedElsewhere) {
  const Study study = study_of_line("sglang");
  const Plan plan = question(study).plan;
  for (const char* const knob : {"num_reserved_decode_tokens=100", "disaggregation_decode_extra_slots=5"}) {
    const std::vector<std::string> knobs{"max_running_requests=9", knob};
    const auto one_pool = [&] { service_knobs(study.study, plan, knobs, 2304); };
    const auto prefills = [&] { pair_knobs(study.study, plan, PairRole::prefills, knobs, {2304, 2048}); };
    EXPECT_THAT(fault(one_pool), HasSubstr("is of a server that decodes for another"));
    EXPECT_THAT(fault(prefills), HasSubstr("is of a server that decodes for another"));
    EXPECT_EQ(knobs_of_prefill(knobs), std::vector<std::string>{"max_running_requests=9"});
  }
  const ServiceKnobs k =
      pair_knobs(study.study, plan, PairRole::decodes, {"num_reserved_decode_tokens=100"}, {2304, 2048});
  EXPECT_EQ(std::get<SglangKnobs>(k.of).num_reserved_decode_tokens, 100U);
}

TEST(RequestService, RefusesByName) {
  const Study vllm = study_of_line(), other = study_of_line("sglang"), bare = study_of_line("ideal");
  const Plan tensor = possible_plan(vllm, "tensor:tpa=2,tpf=2");
  EXPECT_EQ(no_play(vllm.study, tensor), std::nullopt);
  EXPECT_EQ(no_play(other.study, tensor), std::nullopt);
  EXPECT_THAT(*no_play(bare.study, tensor), HasSubstr("bare kernels"));
  Plan stages = tensor;
  stages.pp = 2;
  EXPECT_THAT(*no_play(vllm.study, stages), HasSubstr("in_flight=2"));
  EXPECT_THAT(*no_play(other.study, stages), HasSubstr("in_flight=2"));
  EXPECT_THAT(*no_play(study_of_line("trtllm").study, stages), HasSubstr("in_flight=2"));
  // Also without stages: a step of one microbatch is none of the plan's.
  Plan microbatches = possible_plan(vllm, "helix:kvp=2,tpf=2,in_flight=2");
  EXPECT_THAT(*no_play(vllm.study, microbatches), HasSubstr("2 microbatches"));
  microbatches.in_flight = 1;
  EXPECT_EQ(no_play(vllm.study, microbatches), std::nullopt);
}

}  // namespace
}  // namespace shardline
