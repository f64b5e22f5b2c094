// Attention groups with batches of their own: their steps against whole lowerings, and requests on such
// plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "planner/requests/group_times.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/studies/plan_answer.hpp"
#include "planner/studies/request_service.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "tests/planner/serve/served_line.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using GroupBatches = std::vector<const StepBatch*>;

constexpr const char* kGroups = "dp_ep:dp=8,ep=8";

class GroupSteps : public ::testing::Test {
 protected:
  GroupSteps() : times_(study_.study, possible_plan(study_, kGroups), study_.sweep().search.all_reduce) {}
  Study study_ = study_of_groups();
  PlanStepTimes times_;
};

StepBatch decoding(std::uint32_t requests, std::uint32_t each) {
  StepBatch b;
  b.decodes = requests;
  b.cached = std::uint64_t{requests} * each;
  b.longest = each;
  return b;
}

TEST_F(GroupSteps, R10GroupsAlikeAreLoweredAsOne) {
  std::vector<StepBatch> all{decoding(30, 5000), decoding(30, 5000), {}};
  all[1].prompts = {{900, 100}, {50, 0}};
  all[2].prompts = {{4096, 0}};
  for (const StepBatch& b : all) {
    const GroupBatches groups(8, &b);
    EXPECT_EQ(step_of_groups(times_, groups), times_.of(b));
  }
}

// Steps that decode, of random unequal groups, in the graph of the largest: against the lowering of each
// group's batch with rows of one token in place of the requests that it lacks.
TEST_F(GroupSteps, R10DecodingGroupsAsWholeLowerings) {
  std::mt19937_64 random(1);
  std::vector<double> errors;
  for (int i = 0; i < 150; ++i) {
    std::vector<StepBatch> batches;
    std::uint32_t most = 0;
    for (int g = 0; g < 8; ++g) {
      const auto requests = static_cast<std::uint32_t>(random() % (i % 3 == 0 ? 200 : 20));
      batches.push_back(decoding(requests, static_cast<std::uint32_t>(100 + random() % 20'000)));
      if (requests == 0) batches.back() = {};
      most = std::max(most, requests);
    }
    if (most == 0) continue;
    GroupBatches groups;
    double exact = 0;
    for (const StepBatch& b : batches) {
      groups.push_back(&b);
      if (b.empty()) continue;
      Batch padded = PlanStepTimes::batch_of(b);
      if (b.decodes < most) padded.decode.push_back({0, 1, static_cast<int>(most - b.decodes)});
      exact = std::max(exact, times_.lowered(padded).value);
    }
    errors.push_back(std::abs(step_of_groups(times_, groups).value / exact - 1));
  }
  std::sort(errors.begin(), errors.end());
  RecordProperty("median", std::to_string(errors[errors.size() / 2]));
  RecordProperty("largest", std::to_string(errors.back()));
  EXPECT_LE(errors[errors.size() / 2], 1e-3);
  EXPECT_LE(errors.back(), 1e-2);
  EXPECT_GT(errors.back(), 1e-9);
}

// With prompts somewhere a step is between that of its slowest group with nobody beside it and that of all
// groups like the fullest.
TEST_F(GroupSteps, R10StepsWithPromptsAreBetweenTheirBounds) {
  std::mt19937_64 random(2);
  const StepBatch nothing;
  for (int i = 0; i < 40; ++i) {
    std::vector<StepBatch> batches;
    StepBatch full;
    std::uint32_t tokens = 0;
    for (int g = 0; g < 8; ++g) {
      const auto decodes = static_cast<std::uint32_t>(1 + random() % 60);
      const auto context = static_cast<std::uint32_t>(1000 + random() % 8000);
      StepBatch b = random() % 4 == 0 ? StepBatch{} : decoding(decodes, context);
      if (g == i % 8 || random() % 3 == 0)
        b.prompts = {{static_cast<std::uint32_t>(600 + random() % 3000), 0}};
      full.decodes = std::max(full.decodes, b.decodes);
      full.cached = std::max(full.cached, b.cached);
      full.longest = std::max(full.longest, b.longest);
      if (!b.prompts.empty()) tokens = std::max(tokens, b.prompts.front().tokens);
      batches.push_back(b);
    }
    full.prompts = {{tokens, 0}};
    GroupBatches groups;
    for (const StepBatch& b : batches) groups.push_back(&b);
    const double step = step_of_groups(times_, groups).value;
    for (std::size_t g = 0; g < 8; ++g) {
      if (batches[g].prompts.empty()) continue;
      GroupBatches alone(8, &nothing);
      alone[g] = groups[g];
      EXPECT_GE(step, step_of_groups(times_, alone).value * (1 - 1e-9));
    }
    EXPECT_LE(step, times_.of(full).value * (1 + 1e-9));
  }
}

// Experts see the tokens of all groups: one group's prompt alone takes less than the same in all.
TEST_F(GroupSteps, R10OthersTokensReachTheExperts) {
  StepBatch prompt;
  prompt.prompts = {{4096, 0}};
  const StepBatch nothing;
  double before = 0;
  for (std::size_t n = 1; n <= 8; ++n) {
    GroupBatches groups(8, &nothing);
    std::fill_n(groups.begin(), n, &prompt);
    const double step = step_of_groups(times_, groups).value;
    EXPECT_GT(step, before);
    before = step;
  }
  EXPECT_EQ(before, times_.of(prompt).value);
}

ServiceQuestion question_of_groups(const Study& study) {
  ServiceQuestion q;
  q.plan = possible_plan(study, kGroups);
  q.input = 4096;
  q.output = 512;
  q.rate = 4;
  q.requests = 400;
  return q;
}

ServiceAnswer answer_of(const Study& study, const ServiceQuestion& q) {
  return serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
}

// With nobody beside it a request takes its prompt's step, as lowered with seven groups that have nothing to
// do, and then steps that decode.
TEST(GroupService, R10ZeroLoadIsOneRequestAlone) {
  for (const char* const engine : {"vllm", "sglang", "trtllm"}) {
    const Study study = study_of_groups(engine);
    ServiceQuestion q = question_of_groups(study);
    q.rate = 1e-3;
    q.requests = 30;
    const ServiceAnswer a = answer_of(study, q);
    const PlanStepTimes times(study.study, q.plan, study.sweep().search.all_reduce);
    double prompt = 0;
    for (std::uint32_t done = 0; done < 4096;) {
      const std::uint32_t part = std::min(4096 - done, a.knobs.step_tokens());
      prompt += times.lowered({{}, {{done, part, 1}}}, GroupRows{part, part, 0, 1}).value;
      done += part;
    }
    const double path = study.study.engine->host.path.value;
    EXPECT_NEAR(a.load.latencies[0].quantiles[0], path + prompt, 1e-9) << engine;
    double decode = 0;
    for (int i = 0; i < 511; ++i) decode += times.lowered({{{4096 + i, 1, 1}}, {}}).value;
    EXPECT_NEAR(a.load.latencies[1].quantiles[0] / (decode / 511), 1, PlanStepTimes::kMostError) << engine;
    EXPECT_EQ(a.load.answered, 30U);
  }
}

// A server's options are those of all groups under SGLang, and of each under vLLM.
TEST(GroupService, R10OptionsOfGroups) {
  const Study sglang = study_of_groups("sglang"), vllm = study_of_groups();
  const Plan plan = possible_plan(sglang, kGroups);
  const auto knobs = [&](const std::vector<std::string>& given) {
    return std::get<SglangKnobs>(service_knobs(sglang.study, plan, given, 4608).of);
  };
  const auto whole =
      static_cast<std::uint32_t>(sglang.study.engine->tokens_of_step(sglang.study.system.device));
  EXPECT_EQ(knobs({}).chunked_prefill_size, whole / 8);
  EXPECT_DOUBLE_EQ(knobs({}).schedule_conservativeness, 0.3);
  EXPECT_EQ(knobs({"max_running_requests=100"}).max_running_requests, 12U);
  EXPECT_EQ(vllm_knobs(vllm.study, plan, {"max_num_seqs=100"}, 4608).max_num_seqs, 100U);
  const auto groups = [&](const Study& study) {
    return groups_of(service_knobs(study.study, plan, {}, 4608), plan);
  };
  EXPECT_EQ(groups(vllm).count, 8U);
  EXPECT_EQ(groups(vllm).routing, GroupRouting::fewest);
  EXPECT_EQ(groups(sglang).routing, GroupRouting::in_turn);
  const Study trtllm = study_of_groups("trtllm");
  EXPECT_EQ(groups(trtllm).routing, GroupRouting::from_queue);
  EXPECT_EQ(groups(trtllm).places, 2048U);
}

// All that is sent is answered, at loads from a few requests to more than there is room for.
TEST(GroupService, R10NobodyIsLost) {
  const Study study = study_of_groups();
  ServiceQuestion q = question_of_groups(study);
  for (const double rate : {1.0, 100.0}) {
    q.rate = rate;
    const ServiceAnswer a = answer_of(study, q);
    EXPECT_EQ(a.load.answered, 400U);
    EXPECT_NEAR(a.load.prompting + a.load.decoding + a.load.idle, 1, 1e-9);
    EXPECT_LE(a.load.kv_held, a.load.kv_most);
  }
}

TEST(GroupService, R10RefusesByNameWithAPlanThatCan) {
  const Study vllm = study_of_groups();
  EXPECT_EQ(no_play(vllm.study, possible_plan(vllm, kGroups)), std::nullopt);
  std::string text;
  try {
    require_play(vllm.study, possible_plan(vllm, std::string(kGroups) + ",overlap=two_batch"));
  } catch (const UserError& e) {
    text = e.what();
  }
  EXPECT_THAT(text, HasSubstr("halve their batches"));
  EXPECT_THAT(text, HasSubstr("a plan of as many GPUs that can: tensor:tpa=8"));
}

}  // namespace
}  // namespace shardline
