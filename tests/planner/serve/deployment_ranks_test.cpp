// The cheapest deployment by several processes [P35]: what one finds, to the bit. Threads stand for
// processes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "planner/scenario/shipped.hpp"
#include "planner/studies/deployment.hpp"
#include "planner/studies/deployment_jobs.hpp"
#include "planner/studies/plan_answer.hpp"
#include "planner/studies/served_bytes.hpp"
#include "tests/support/thread_ranks.hpp"

namespace shardline {
namespace {

using testing::ThreadRanks;

PlanAnswer asked(int gpus) {
  PlanQuestion q;
  q.model = "llama-3.1-8b";
  q.system = "h100-hgx";
  q.engine = "vllm";
  q.gpus = gpus;
  q.input = 2000;
  q.output = 100;
  return asked_plan(q, shipped_catalogs());
}

DeploymentQuestion question_of(double rate, const std::string& slo) {
  DeploymentQuestion q;
  q.load.input = 2000;
  q.load.output = 100;
  q.load.rate = rate;
  q.load.requests = 300;
  q.load.targets = parse_targets("--slo", slo);
  q.most_gpus = 8;
  q.knobs = {{}, {"max_num_seqs=16"}};
  q.threads = 1;
  return q;
}

// All that is found, to the bit.
std::string text_of(const DeploymentAnswer& a) {
  std::string out;
  const auto add = [&](const PlayedDeployment& d) {
    out += to_string(d.answer.question.plan) + " x " + std::to_string(d.answer.question.replicas);
    if (const auto& prefill = d.answer.question.prefill)
      out += " behind " + to_string(prefill->plan) + " x " + std::to_string(prefill->replicas);
    for (const std::string& knob : d.answer.question.knobs) out += " " + knob;
    out += fmt::format(" {:a} {:a} ", d.used, d.answer.step_error);
    out += to_bytes(d.answer.load) + "\n";
  };
  for (const PlayedDeployment& d : a.cheapest) add(d);
  if (a.nearest) add(*a.nearest);
  const DeploymentCertificate& c = a.certificate;
  out += fmt::format("{} {} {} {} {} {} {}", c.plans, c.candidates, c.dearer, fmt::join(c.ruled_out, ","),
                     c.met, c.beside, c.requests);
  for (const auto& [plan, why] : a.not_played) out += to_string(plan) + why;
  for (const auto& setting : a.knobs_refused) out += fmt::format("{}", fmt::join(setting, " "));
  return out;
}

DeploymentAnswer alone(const Study& study, const DeploymentQuestion& q) {
  return cheapest_deployment(study, q, [](std::uint64_t, std::uint64_t) {});
}

// One that is met on few GPUs, and one that none of all meets.
TEST(DeploymentRanks, P35ManyFindWhatOneFinds) {
  const PlanAnswer of = asked(8);
  for (const DeploymentQuestion& q :
       {question_of(20, "ttft p90 2 s, tpot p90 40 ms"), question_of(20, "tpot p99 3 ms")}) {
    const DeploymentAnswer one = alone(of.study, q);
    for (const std::size_t count : {2U, 4U}) {
      ThreadRanks ranks(count);
      ranks.start([&](Ranks& r) { work_on_deployment(of.study, q, r); });
      std::uint64_t done = 0;
      const DeploymentAnswer many = cheapest_deployment(
          of.study, q,
          [&](std::uint64_t d, std::uint64_t all) {
            done = std::max(done, d);
            EXPECT_LE(d, all);
          },
          &ranks.end(0));
      EXPECT_EQ(text_of(many), text_of(one)) << count;
      for (std::size_t i = 0; i < one.cheapest.size(); ++i)
        EXPECT_EQ(many.cheapest[i].answer.step_errors, one.cheapest[i].answer.step_errors);
      EXPECT_GE(done, many.certificate.candidates - many.certificate.dearer);
      EXPECT_GT(ranks.sent_to(0), count) << "the others did a part";
    }
  }
}

TEST(DeploymentRanks, P35ASettingThatNoPlanHasIsRefusedAsByOne) {
  const PlanAnswer of = asked(8);
  DeploymentQuestion q = question_of(20, "ttft p90 2 s");
  q.knobs = {{"max_num_seqs=none"}};
  std::vector<std::string> messages;
  for (const bool shared : {false, true}) {
    ThreadRanks ranks(2);
    if (shared) ranks.start([&](Ranks& r) { work_on_deployment(of.study, q, r); });
    try {
      cheapest_deployment(
          of.study, q, [](std::uint64_t, std::uint64_t) {}, shared ? &ranks.end(0) : nullptr);
      ADD_FAILURE() << "accepted";
    } catch (const UserError& e) {
      messages.emplace_back(e.what());
    }
  }
  EXPECT_EQ(messages.at(0), messages.at(1));
}

// Whatever processes are asked differently, or find in files of one name, they do not share.
TEST(DeploymentRanks, P35AnotherQuestionHasAnotherDigest) {
  const PlanAnswer of = asked(2);
  DeploymentQuestion q = question_of(20, "ttft p90 2 s");
  q.most_gpus = 2;
  const auto digest = [&] { return DeploymentJobs(of.study, q).digest(); };
  std::set<std::string> all{digest()};
  EXPECT_TRUE(all.contains(digest()));
  const auto is_new = [&](const char* what) { EXPECT_TRUE(all.insert(digest()).second) << what; };
  q.load.rate = 21;
  is_new("rate");
  q.load.targets = parse_targets("--slo", "ttft p90 3 s");
  is_new("targets");
  q.load.router = Router::least_kv;
  is_new("router");
  q.load.lengths = LengthLaw::drawn;
  is_new("lengths");
  q.knobs = {{"max_num_seqs=32"}};
  is_new("knobs");
  const std::filesystem::path trace = std::filesystem::temp_directory_path() / "shardline_digest.csv";
  q.load.trace = trace.string();
  for (const char* const rows : {"0,10,10\n1,10,10\n", "0,10,11\n1,10,10\n"}) {
    std::ofstream(trace) << "arrival_s,input_tokens,output_tokens\n" << rows;
    is_new("trace");
  }
  std::filesystem::remove(trace);
}

TEST(DeploymentRanks, P35AnAnswerComesBackToTheBit) {
  ServedLoadAnswer a;
  double n = 0.1;
  for (ToldLatency& t : a.latencies) {
    t.mean = n += 0.7;
    for (double& q : t.quantiles) q = n += 0.7;
    t.half_widths[1] = n += 0.7;
    t.count = 7;
    t.curve = {{n, 0.5}, {n + 1, 1.0}};
  }
  a.targets = parse_targets("--slo", "ttft p99 2 s").size() == 1
                  ? std::vector<TargetResult>{{parse_targets("--slo", "ttft p99 2 s")[0], 1.5, true}}
                  : std::vector<TargetResult>{};
  a.met = false;
  a.sent = 11;
  a.growth_per_s = 0.25;
  a.series.add(Seconds(0.1), Seconds(3.7), {2, 1, 0.5, true});
  const ServedLoadAnswer back = served_load(to_bytes(a));
  EXPECT_EQ(to_bytes(back), to_bytes(a));
  EXPECT_EQ(back.sent, 11U);
  EXPECT_EQ(back.latencies[3].half_widths[1], a.latencies[3].half_widths[1]);
  EXPECT_EQ(back.series.intervals().size(), a.series.intervals().size());
  EXPECT_FALSE(back.met);
  EXPECT_EQ(back.growth_per_s, 0.25);
}

}  // namespace
}  // namespace shardline
