// Real runs of vLLM replayed by its scheduler, with times of steps that were fitted to each run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "planner/requests/play_requests.hpp"
#include "planner/requests/vllm_scheduler.hpp"
#include "tests/planner/requests/traces.hpp"

namespace shardline {
namespace {

struct Measured {
  TraceRequest request;
  Seconds first, last;  // tokens
};

// run,request,input_tokens,output_tokens,queued_s,scheduled_s,first_token_s,last_token_s, in the order of
// queued_s.
std::vector<Measured> measured(const std::string& text, const std::string& run) {
  std::vector<Measured> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(run + ",")) continue;
    std::istringstream cells(line);
    std::vector<std::string> c;
    for (std::string cell; std::getline(cells, cell, ',');) c.push_back(cell);
    out.push_back({{Seconds(std::stod(c[4])), std::stoll(c[2]), std::stoll(c[3]), {}},
                   Seconds(std::stod(c[6])),
                   Seconds(std::stod(c[7]))});
  }
  std::stable_sort(out.begin(), out.end(), [](const Measured& a, const Measured& b) {
    return a.request.arrival < b.request.arrival;
  });
  return out;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Agreement {
  double ttft = 0, e2e = 0;            // ratio of medians, less 1
  double each_ttft = 0, each_e2e = 0;  // median error of a request
  double order = 0;                    // part of the pairs that are done in the order measured
};

Agreement replay(const std::vector<Measured>& rows, const VllmKnobs& knobs, const LinearStepTimes& times) {
  VllmScheduler scheduler(knobs);
  std::vector<AnsweredRequest> answers(rows.size());
  std::size_t next = 0;
  play_requests([&](TraceRequest& r) { return next < rows.size() && (r = rows[next++].request, true); },
                scheduler, times, true, [&](const AnsweredRequest& a) { answers[a.number] = a; });
  std::vector<double> ttft, e2e, was_ttft, was_e2e, off_ttft, off_e2e;
  double pairs = 0, alike = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Seconds came = rows[i].request.arrival;
    ttft.push_back((answers[i].first - came).value);
    e2e.push_back((answers[i].last - came).value);
    was_ttft.push_back((rows[i].first - came).value);
    was_e2e.push_back((rows[i].last - came).value);
    off_ttft.push_back(std::abs(ttft.back() / was_ttft.back() - 1));
    off_e2e.push_back(std::abs(e2e.back() / was_e2e.back() - 1));
    for (std::size_t j = 0; j < i; ++j) {
      ++pairs;
      alike += (answers[i].last - answers[j].last).value * (rows[i].last - rows[j].last).value >= 0 ? 1 : 0;
    }
  }
  return {median(ttft) / median(was_ttft) - 1, median(e2e) / median(was_e2e) - 1, median(off_ttft),
          median(off_e2e), alike / pairs};
}

struct RealRun {
  const char* name;
  std::uint32_t seqs;    // most that ran at once, where the cache had room for more; else the default
  std::uint32_t blocks;  // of the KV cache, 16 tokens each
  LinearStepTimes::Rates rates;
};

constexpr LinearStepTimes::Rates rates(double step, double request, double cached, double token, double pair,
                                       double experts = 0, double missed = 1) {
  return {Seconds(step), Seconds(request), Seconds(cached), Seconds(token),
          Seconds(pair), Seconds(experts), missed};
}

// Rates of each run: least squares of ln of last tokens and, at half the weight, of TTFTs, over all requests
// of the run, by the simplex of Nelder and Mead; on the RTX 4090, whose cache was full, blocks by steps of
// 100, too. The steps' budget is the default for these GPUs.
const RealRun kRuns[] = {
    {"RTXPRO6000/Llama-3.1-8B", 128, 1 << 16, rates(0.01229, 3.274e-5, 8.674e-8, 3.766e-5, 1.053e-10)},
    {"RTXPRO6000/Qwen3-32B", 128, 1 << 16, rates(0.02512, 6.135e-5, 1.98e-7, 1.614e-4, 1.231e-10)},
    {"RTX4090/Llama-3.1-8B", 256, 2700, rates(0.01373, 7.694e-5, 1.961e-7, 8.957e-5, 8.652e-11)},
    {"RTXPRO6000/Qwen3-30B-A3B-Instruct-2507", 256, 1 << 16,
     rates(0.006261, 4.714e-5, 5.477e-8, 2.437e-5, 1.384e-10, 0.01616, 1 - 8.0 / 128)},
};

TEST(VllmRuns, R4RealRunsAreReplayed) {
  const auto text = testing::recorded("vllm_requests_rtx.csv");
  if (!text) GTEST_SKIP() << "SHARDLINE_TRACES names no folder with vllm_requests_rtx.csv.gz";
  for (const RealRun& run : kRuns) {
    SCOPED_TRACE(run.name);
    const auto rows = measured(*text, run.name);
    ASSERT_EQ(rows.size(), 300U);
    VllmKnobs knobs;
    knobs.max_num_batched_tokens = 2048;
    knobs.max_num_seqs = run.seqs;
    knobs.num_gpu_blocks = run.blocks;
    const Agreement a = replay(rows, knobs, LinearStepTimes(run.rates));
    std::printf("%s: TTFT %+.2f %% (each %.2f %%), E2E %+.2f %% (each %.2f %%), order %.2f %%\n", run.name,
                100 * a.ttft, 100 * a.each_ttft, 100 * a.e2e, 100 * a.each_e2e, 100 * a.order);
    EXPECT_GE(a.order, 0.95);
    EXPECT_LE(std::abs(a.ttft), 0.05);
    EXPECT_LE(std::abs(a.e2e), 0.03);
  }
}

}  // namespace
}  // namespace shardline
