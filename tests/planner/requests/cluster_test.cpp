// Replicas under a router, against engines that are played alone.
#include "planner/requests/cluster.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "planner/requests/play_requests.hpp"
#include "planner/requests/vllm_scheduler.hpp"
#include "sim/base/random.hpp"

namespace shardline {
namespace {

const LinearStepTimes kTimes({Seconds(0.01), Seconds(1e-4), Seconds(1e-8), Seconds(1e-5), Seconds(1e-9)});

std::vector<TraceRequest> random_requests(std::uint64_t seed, int count) {
  RandomStream random(seed, "requests");
  std::vector<TraceRequest> out;
  Seconds time;
  for (int i = 0; i < count; ++i) {
    time += Seconds(random.exponential() * 0.1);
    TraceRequest r{time,
                   1 + static_cast<std::int64_t>(random.below(1500)),
                   1 + static_cast<std::int64_t>(random.below(80)),
                   {}};
    for (std::int64_t b = 0; b * kTraceBlock < r.input; ++b) r.blocks.push_back(random.below(3));
    out.push_back(r);
  }
  return out;
}

struct Played {
  ClusterRun run;
  std::vector<AnsweredRequest> answers;
};

Played cluster_of(const std::vector<TraceRequest>& requests, int replicas, Router router,
                  Seconds path = Seconds(0)) {
  std::vector<std::unique_ptr<Scheduler>> schedulers;
  const VllmKnobs knobs{.max_num_batched_tokens = 512, .max_model_len = 2048, .num_gpu_blocks = 400};
  for (int i = 0; i < replicas; ++i) schedulers.push_back(std::make_unique<VllmScheduler>(knobs));
  std::size_t sent = 0, read = 0;
  TraceArrivals arrivals([&]() -> std::optional<Seconds> {
    if (read == requests.size()) return std::nullopt;
    return requests[read++].arrival;
  });
  ClusterLoad load;
  load.arrivals = &arrivals;
  load.request = [&](TraceRequest& r) {
    r = requests[sent++];
    return true;
  };
  load.path = path;
  Played out;
  out.run = play_cluster(
      schedulers, std::vector<const StepTimes*>(static_cast<std::size_t>(replicas), &kTimes), router, load,
      requests.size(), [&](const AnsweredRequest& a) { out.answers.push_back(a); }, {});
  return out;
}

std::vector<AnsweredRequest> alone(const std::vector<TraceRequest>& requests) {
  VllmScheduler scheduler({.max_num_batched_tokens = 512, .max_model_len = 2048, .num_gpu_blocks = 400});
  std::vector<AnsweredRequest> out;
  std::size_t next = 0;
  play_requests([&](TraceRequest& r) { return next < requests.size() && (r = requests[next++], true); },
                scheduler, kTimes, true, [&](const AnsweredRequest& a) { out.push_back(a); });
  return out;
}

void expect_same(std::vector<AnsweredRequest> a, std::vector<AnsweredRequest> b) {
  ASSERT_EQ(a.size(), b.size());
  const auto earlier = [](const AnsweredRequest& x, const AnsweredRequest& y) { return x.came < y.came; };
  std::sort(a.begin(), a.end(), earlier);
  std::sort(b.begin(), b.end(), earlier);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_DOUBLE_EQ(a[i].first.value, b[i].first.value);
    EXPECT_DOUBLE_EQ(a[i].last.value, b[i].last.value);
    EXPECT_EQ(a[i].found, b[i].found);
  }
}

TEST(Cluster, R7OneReplicaIsTheEngineAlone) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto requests = random_requests(seed, 100);
    expect_same(cluster_of(requests, 1, Router::least_kv).answers, alone(requests));
  }
}

TEST(Cluster, R7RoundRobinDealsRequests) {
  const auto requests = random_requests(1, 301);
  std::vector<AnsweredRequest> parts;
  for (std::size_t replica = 0; replica < 3; ++replica) {
    std::vector<TraceRequest> own;
    for (std::size_t i = replica; i < requests.size(); i += 3) own.push_back(requests[i]);
    const auto of_it = alone(own);
    parts.insert(parts.end(), of_it.begin(), of_it.end());
  }
  expect_same(cluster_of(requests, 3, Router::round_robin).answers, parts);
}

// The path lies before the engine: all latencies from the sender are longer by it, and nothing else changes.
TEST(Cluster, R7PathShiftsLatencies) {
  const auto requests = random_requests(2, 50);
  const Played near = cluster_of(requests, 1, Router::round_robin);
  const Played far = cluster_of(requests, 1, Router::round_robin, Seconds(0.25));
  ASSERT_EQ(near.answers.size(), far.answers.size());
  for (std::size_t i = 0; i < near.answers.size(); ++i) {
    EXPECT_EQ(near.answers[i].came, far.answers[i].came);
    EXPECT_NEAR((far.answers[i].first - near.answers[i].first).value, 0.25, 1e-9);
  }
}

// The second of two requests that come together goes where nobody is; a third where less is left.
TEST(Cluster, R7LeastKvAvoidsTheLaden) {
  const std::vector<TraceRequest> requests{{Seconds(0), 1500, 80, {}},
                                           {Seconds(0.001), 100, 80, {}},
                                           {Seconds(0.002), 100, 80, {}},
                                           {Seconds(0.003), 100, 80, {}}};
  const Played p = cluster_of(requests, 2, Router::least_kv);
  ASSERT_EQ(p.run.replicas.size(), 2U);
  EXPECT_EQ(p.run.replicas[0].answered, 1U);
  EXPECT_EQ(p.run.replicas[1].answered, 3U);
}

// The same requests, counted and not weighed: of equally many the first replica has the next.
TEST(Cluster, R7LeastRequestsCountsRequests) {
  const std::vector<TraceRequest> requests{{Seconds(0), 1500, 80, {}},
                                           {Seconds(0.001), 100, 80, {}},
                                           {Seconds(0.002), 100, 80, {}},
                                           {Seconds(0.003), 100, 80, {}},
                                           {Seconds(0.004), 100, 80, {}}};
  const Played p = cluster_of(requests, 2, Router::least_requests);
  ASSERT_EQ(p.run.replicas.size(), 2U);
  EXPECT_EQ(p.run.replicas[0].answered, 3U);
  EXPECT_EQ(p.run.replicas[1].answered, 2U);
}

// A router does not know who will be answered at the end of a step that is under way, though its engine is
// played that far.
void knows_answers_when_they_are_given(Router router) {
  std::vector<TraceRequest> sent{{Seconds(0), 300, 2, {}}, {Seconds(0.001), 100, 80, {}}};
  // Counted, the first replica has one more.
  if (router == Router::least_requests) sent.push_back({Seconds(0.002), 50, 80, {}});
  const Played before = cluster_of(sent, 2, router);
  ASSERT_EQ(before.answers.size(), sent.size());
  const Seconds answered = before.answers[0].last;
  ASSERT_LT(answered, before.answers[1].last);
  // The next one comes just before the first is answered and so goes to the second's replica, another one
  // just after it.
  sent.push_back({answered - Seconds(1e-6), 50, 80, {}});
  sent.push_back({answered + Seconds(1e-6), 50, 80, {}});
  const Played p = cluster_of(sent, 2, router);
  EXPECT_EQ(p.run.replicas[0].answered, sent.size() - 2);
  EXPECT_EQ(p.run.replicas[1].answered, 2U);
}

TEST(Cluster, R7RoutersKnowAnswersWhenTheyAreGiven) {
  for (const Router router : {Router::least_kv, Router::least_requests}) {
    SCOPED_TRACE(to_string(router));
    knows_answers_when_they_are_given(router);
  }
}

TEST(Cluster, R7PrefixKeepsTextTogether) {
  std::vector<TraceRequest> requests;
  for (int i = 0; i < 20; ++i)
    requests.push_back({Seconds(10.0 * i), 1024, 2, {static_cast<std::uint64_t>(i % 2), 7}});
  const auto found = [&](Router router) {
    double sum = 0;
    for (const ServedRequests& r : cluster_of(requests, 3, router).run.replicas)
      sum += static_cast<double>(r.found_tokens);
    return sum;
  };
  // All but the first of each text; dealt in turn, three replicas compute both texts.
  EXPECT_GT(found(Router::prefix), found(Router::round_robin));
}

// Nobody is lost, and Little's law holds: requests in the cluster, over time, are their times in it.
TEST(Cluster, R7NobodyIsLost) {
  const auto requests = random_requests(3, 400);
  for (const Router router :
       {Router::round_robin, Router::least_requests, Router::least_kv, Router::prefix}) {
    const Played p = cluster_of(requests, 2, router);
    std::uint64_t answered = 0, refused = 0;
    for (const ServedRequests& r : p.run.replicas) {
      answered += r.answered;
      refused += r.refused;
      EXPECT_LE(r.prompting, r.busy);
      EXPECT_LE(r.busy.value, r.end.value * (1 + 1e-12));
    }
    EXPECT_EQ(p.run.sent, requests.size());
    EXPECT_EQ(answered + refused, requests.size());
    EXPECT_EQ(p.answers.size(), answered);
  }
}

// One user of a closed loop asks again when the last answer is there, a path later.
TEST(Cluster, R7ClosedLoopWaitsForAnswers) {
  std::vector<std::unique_ptr<Scheduler>> schedulers;
  schedulers.push_back(std::make_unique<VllmScheduler>(VllmKnobs{}));
  ClosedLoop users(3, Variate::fixed(0), 1, ClosedLoop::Start::together);
  ClusterLoad load;
  load.arrivals = &users;
  load.request = [](TraceRequest& r) {
    r = {Seconds(0), 100, 10, {}};
    return true;
  };
  load.closed = true;
  load.path = Seconds(0.5);
  std::vector<AnsweredRequest> answers;
  const ClusterRun run = play_cluster(schedulers, {&kTimes}, Router::round_robin, load, 30,
                                      [&](const AnsweredRequest& a) { answers.push_back(a); }, {});
  ASSERT_EQ(answers.size(), 30U);
  EXPECT_EQ(run.sent, 30U);
  for (std::size_t i = 3; i < answers.size(); ++i) {
    // Alike requests stay in step: each came when the one three before it was answered.
    EXPECT_NEAR(answers[i].came.value, answers[i - 3].last.value, 1e-12);
    EXPECT_GT((answers[i].first - answers[i].came).value, 0.5);
  }
}

}  // namespace
}  // namespace shardline
