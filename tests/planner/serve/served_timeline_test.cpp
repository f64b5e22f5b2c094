// Timelines of what was served: of the answer itself, and as many of the first as there is room for.
#include "planner/requests/served_timeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "planner/studies/request_service.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "tests/planner/serve/served_line.hpp"

namespace shardline {
namespace {

ServiceAnswer played(const std::string& engine, int replicas, double rate) {
  const Study study = study_of_line(engine);
  ServiceQuestion q = question(study);
  q.rate = rate;
  q.requests = 300;
  q.replicas = replicas;
  q.pictures = true;
  return serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
}

// Steps of a replica follow each other and add up to what was told; every request is there once, its tokens
// at the ends of steps of its replica.
TEST(ServedTimeline, R5HasTheStepsAndRequestsThatWereTold) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    const ServiceAnswer a = played(engine, 2, 30);
    ASSERT_NE(a.load.timeline, nullptr);
    const ServedTimeline& t = *a.load.timeline;
    EXPECT_EQ(t.steps_left_out() + t.requests_left_out(), 0u);
    std::uint64_t steps = 0;
    double prompting = 0, decoding = 0;
    std::map<std::size_t, Seconds> end;
    for (const ServedTimeline::Step& s : t.steps()) {
      EXPECT_GE(s.step.from, end[s.replica]);
      EXPECT_GT(s.step.to, s.step.from);
      EXPECT_GT(s.step.decodes + s.step.prompts, 0u);
      end[s.replica] = s.step.to;
      steps += s.step.steps;
      (s.step.prompts > 0 ? prompting : decoding) += (s.step.to - s.step.from).value;
    }
    EXPECT_EQ(end.size(), 2u);
    EXPECT_EQ(steps, a.load.steps);
    EXPECT_NEAR(prompting, 2 * a.load.prompting * a.load.seconds, 1e-9 * prompting);
    EXPECT_NEAR(decoding, 2 * a.load.decoding * a.load.seconds, 1e-9 * decoding);
    ASSERT_EQ(t.requests().size(), a.load.answered);
    double ttft = 0;
    for (const ServedTimeline::Request& r : t.requests()) {
      ttft += (r.request.first - r.request.came).value;
      EXPECT_TRUE(std::any_of(t.steps().begin(), t.steps().end(), [&](const ServedTimeline::Step& s) {
        return s.replica == r.replica && s.step.prompts > 0 && s.step.to == r.request.first;
      }));
    }
    EXPECT_NEAR(ttft / 300, a.load.latencies[static_cast<std::size_t>(Latency::ttft)].mean, 1e-9);
  }
}

// Of a pair both pools: replicas that prefill first, steps that add up to what is told of each, and every
// request in both, by one number, its prompt before its answer. Curves over time are of one pool each.
TEST(ServedTimeline, R12OfAPairShowsBothPools) {
  for (const char* engine : {"vllm", "sglang"}) {
    SCOPED_TRACE(engine);
    const Study study = study_of_line(engine);
    ServiceQuestion q = question(study);
    q.rate = 20;
    q.requests = 300;
    q.prefill = PrefillQuestion{possible_plan(study, "tensor:tpa=2,tpf=2"), 2, {}, 0};
    q.pictures = true;
    const ServiceAnswer a = serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
    EXPECT_GT(a.load.goodput, 0) << "each keeps all targets, of which there are none";
    ASSERT_NE(a.load.timeline, nullptr);
    const ServedTimeline& t = *a.load.timeline;
    std::map<std::size_t, double> busy;
    std::map<std::size_t, Seconds> end;
    for (const ServedTimeline::Step& s : t.steps()) {
      EXPECT_GE(s.step.from, end[s.replica]);
      end[s.replica] = s.step.to;
      busy[s.replica] += (s.step.to - s.step.from).value;
      EXPECT_TRUE(s.replica == 2 || s.step.decodes == 0);
    }
    ASSERT_EQ(busy.size(), 3U);
    EXPECT_NEAR((busy[0] + busy[1]) / 2 / a.load.seconds, a.load.pair->prefill_busy, 1e-9);
    EXPECT_NEAR(busy[2] / a.load.seconds, a.load.pair->decode_busy, 1e-9);
    const auto shown = [](const ServedSeries& series) {
      double sum = 0;
      for (const ServedSeries::Interval& i : series.intervals()) sum += i.prompting + i.decoding;
      return sum;
    };
    EXPECT_NEAR(shown(a.load.pair->prefill_series), busy[0] + busy[1], 1e-9 * (busy[0] + busy[1]));
    EXPECT_NEAR(shown(a.load.series), busy[2], 1e-9 * busy[2]);
    ASSERT_EQ(t.requests().size(), 600U);
    std::map<std::uint64_t, Seconds> prompt;
    double ttft = 0;
    for (const ServedTimeline::Request& r : t.requests())
      EXPECT_TRUE(r.replica == 2 || prompt.emplace(r.request.number, r.request.last).second);
    for (const ServedTimeline::Request& r : t.requests()) {
      if (r.replica < 2) continue;
      EXPECT_LT(prompt.at(r.request.number), r.request.first);
      ttft += (r.request.first - r.request.came).value;
    }
    EXPECT_EQ(prompt.size(), 300U);
    EXPECT_NEAR(ttft / 300, a.load.latencies[static_cast<std::size_t>(Latency::ttft)].mean, 1e-9);
  }
}

// Curves rise from the shortest to the longest and pass through the quantiles that are told.
TEST(ServedTimeline, CurvesPassThroughTheQuantilesThatAreTold) {
  const ServiceAnswer a = played("vllm", 1, 12);
  for (const ToldLatency& told : a.load.latencies) {
    ASSERT_GT(told.curve.size(), 100u);
    EXPECT_TRUE(std::is_sorted(told.curve.begin(), told.curve.end()));
    EXPECT_DOUBLE_EQ(told.curve.back().second, 1);
    for (std::size_t q = 0; q < kToldQuantiles.size(); ++q) {
      for (const auto& [seconds, part] : told.curve) {
        if (seconds >= told.quantiles[q]) {
          EXPECT_GE(part, kToldQuantiles[q] - 1e-9);
        } else {
          EXPECT_LE(part, kToldQuantiles[q] + 1e-9);
        }
      }
    }
  }
}

// Against a list of all that is sorted and cut, with equal times among them.
TEST(ServedTimeline, KeepsTheFirst) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 50; ++trial) {
    constexpr std::size_t kMost = 20;
    ServedTimeline timeline(kMost);
    std::vector<std::tuple<double, std::size_t, double>> steps;
    std::vector<std::tuple<double, std::size_t, std::uint64_t>> requests;
    const auto count = random() % 100;
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto from = static_cast<double>(random() % 30);
      const std::size_t replica = random() % 3;
      const double to = from + 1 + static_cast<double>(i);
      timeline.add(replica, PlayedStep{Seconds(from), Seconds(to), 1, 1, 0, 0, 0, 0});
      steps.emplace_back(from, replica, to);
      timeline.add(replica, AnsweredRequest{i, Seconds(from), Seconds(to), Seconds(to), 1, 1, 0, 0});
      requests.emplace_back(from, replica, i);
    }
    timeline.finish();
    std::sort(steps.begin(), steps.end());
    std::sort(requests.begin(), requests.end());
    ASSERT_EQ(timeline.steps().size(), std::min<std::size_t>(count, kMost));
    ASSERT_EQ(timeline.requests().size(), timeline.steps().size());
    EXPECT_EQ(timeline.steps_left_out(), count - timeline.steps().size());
    for (std::size_t i = 0; i < timeline.steps().size(); ++i) {
      const ServedTimeline::Step& s = timeline.steps()[i];
      const ServedTimeline::Request& r = timeline.requests()[i];
      EXPECT_EQ(std::tuple(s.step.from.value, s.replica, s.step.to.value), steps[i]);
      EXPECT_EQ(std::tuple(r.request.came.value, r.replica, r.request.number), requests[i]);
    }
  }
}

}  // namespace
}  // namespace shardline
