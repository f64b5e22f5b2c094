// Replicas that die and are back [R13], against each of their lives played alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "planner/requests/cluster.hpp"
#include "planner/requests/play_requests.hpp"
#include "planner/requests/sglang_scheduler.hpp"
#include "planner/requests/vllm_scheduler.hpp"
#include "sim/base/random.hpp"

namespace shardline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
const LinearStepTimes kTimes({Seconds(0.01), Seconds(1e-4), Seconds(1e-8), Seconds(1e-5), Seconds(1e-9)});

struct RandomCase {
  std::vector<TraceRequest> requests;
  std::vector<ReplicaFailure> failures;
  std::size_t replicas = 1;
  Seconds path;
  bool sglang = false;

  std::unique_ptr<Scheduler> scheduler() const {
    if (sglang)
      return std::make_unique<SglangScheduler>(SglangKnobs{.chunked_prefill_size = 512,
                                                           .max_prefill_tokens = 512,
                                                           .context_length = 4096,
                                                           .max_total_tokens = 8000});
    return std::make_unique<VllmScheduler>(
        VllmKnobs{.max_num_batched_tokens = 512, .max_model_len = 4096, .num_gpu_blocks = 400});
  }
};

RandomCase random_case(std::uint64_t seed) {
  RandomStream random(seed, "failures");
  RandomCase c;
  c.replicas = 1 + random.below(4);
  c.sglang = seed % 2 == 1;
  c.path = Seconds(seed % 3 == 0 ? 0 : 0.03 * random.unit());
  Seconds time;
  const double gap = 0.02 + 0.2 * random.unit() / static_cast<double>(c.replicas);
  for (int i = 0; i < 120; ++i) {
    time += Seconds(random.exponential() * gap);
    TraceRequest r{time,
                   1 + static_cast<std::int64_t>(random.below(900)),
                   1 + static_cast<std::int64_t>(random.below(60)),
                   {}};
    for (std::int64_t b = 0; b * kTraceBlock < r.input; ++b) r.blocks.push_back(random.below(3));
    c.requests.push_back(r);
  }
  for (std::size_t replica = 0; replica < c.replicas; ++replica) {
    for (Seconds at = time * random.unit() * 0.6; at < time && c.failures.size() < 5;) {
      const Seconds up = at + time * (0.01 + 0.3 * random.unit());
      c.failures.push_back({replica, at, up});
      at = up + time * (0.01 + 0.5 * random.unit());
    }
  }
  return c;
}

struct Answer {
  Seconds first, last;
};

struct Played {
  ClusterRun run;
  std::map<double, Answer> answers;  // by when it was sent
};

Played cluster_of(const RandomCase& c, Router router = Router::round_robin) {
  std::vector<std::unique_ptr<Scheduler>> schedulers;
  for (std::size_t i = 0; i < c.replicas; ++i) schedulers.push_back(c.scheduler());
  std::size_t sent = 0, read = 0;
  TraceArrivals arrivals([&]() -> std::optional<Seconds> {
    if (read == c.requests.size()) return std::nullopt;
    return c.requests[read++].arrival;
  });
  ClusterLoad load;
  load.arrivals = &arrivals;
  load.request = [&](TraceRequest& r) {
    r = c.requests[sent++];
    return true;
  };
  load.path = c.path;
  Played out;
  out.run = play_cluster(
      schedulers, std::vector<const StepTimes*>(c.replicas, &kTimes), router, load, c.requests.size(),
      [&](const AnsweredRequest& a) {
        const bool is_new = out.answers.emplace(a.came.value, Answer{a.first, a.last}).second;
        EXPECT_TRUE(is_new) << "answered twice";
      },
      {}, nullptr, {}, {c.failures, [&] { return c.scheduler(); }});
  return out;
}

// The slow way: who is sent where is counted by hand, and each life of a replica is an engine of its own that
// is played from its beginning when it dies.
class ByLives {
 public:
  explicit ByLives(const RandomCase& c) : c_(c), lives_(c.replicas), up_(c.replicas, true) {}

  std::map<double, Answer> played() {
    std::size_t next = 0;
    struct Event {
      Seconds time;
      std::size_t replica;
      bool up;
    };
    std::vector<Event> events;
    for (const ReplicaFailure& f : c_.failures) {
      events.push_back({f.down, f.replica, false});
      if (f.up.value < kNever) events.push_back({f.up, f.replica, true});
    }
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.time < b.time; });
    for (const Event& e : events) {
      for (; next < c_.requests.size() && c_.requests[next].arrival < e.time; ++next) send(next);
      e.up ? back(e.replica, e.time) : die(e.replica, e.time);
    }
    for (; next < c_.requests.size(); ++next) send(next);
    for (std::size_t r = 0; r < c_.replicas; ++r) end(lives_[r], Seconds(kNever));
    return std::move(answers_);
  }
  std::size_t retried() const { return retried_; }
  std::size_t homeless() const { return homeless_.size(); }

 private:
  struct Sent {
    std::size_t request;
    Seconds arrival;
  };

  void send(std::size_t request) { give({request, c_.requests[request].arrival + c_.path}); }
  void give(Sent s) {
    if (std::find(up_.begin(), up_.end(), true) == up_.end()) {
      homeless_.push_back(s);
      return;
    }
    while (!up_[turn_ % c_.replicas]) ++turn_;
    auto& life = lives_[turn_++ % c_.replicas];
    life.insert(std::upper_bound(life.begin(), life.end(), s,
                                 [](const Sent& a, const Sent& b) { return a.arrival < b.arrival; }),
                s);
  }
  void die(std::size_t replica, Seconds at) {
    up_[replica] = false;
    const std::vector<Sent> lost = end(std::exchange(lives_[replica], {}), at);
    retried_ += lost.size();
    for (Sent s : lost) give({s.request, at});
  }
  void back(std::size_t replica, Seconds at) {
    up_[replica] = true;
    for (Sent s : std::exchange(homeless_, {})) give({s.request, at});
  }
  // Notes who was answered by then; the others.
  std::vector<Sent> end(const std::vector<Sent>& life, Seconds at) {
    const auto scheduler = c_.scheduler();
    std::size_t read = 0;
    std::vector<Answer> answers(life.size());
    play_requests(
        [&](TraceRequest& r) {
          if (read == life.size()) return false;
          r = c_.requests[life[read].request];
          r.arrival = life[read++].arrival;
          return true;
        },
        *scheduler, kTimes, true,
        [&](const AnsweredRequest& a) {
          answers[a.number] = {a.first, a.last};
        });
    std::vector<Sent> lost;
    for (std::size_t i = 0; i < life.size(); ++i) {
      if (answers[i].last <= at)
        answers_[c_.requests[life[i].request].arrival.value] = answers[i];
      else
        lost.push_back(life[i]);
    }
    return lost;
  }

  const RandomCase& c_;
  std::vector<std::vector<Sent>> lives_;
  std::vector<bool> up_;
  std::vector<Sent> homeless_;
  std::size_t turn_ = 0, retried_ = 0;
  std::map<double, Answer> answers_;
};

TEST(ClusterFailures, R13EachLifeOfAReplicaIsAnEngineOfItsOwn) {
  std::uint64_t retried = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const RandomCase c = random_case(seed);
    const Played fast = cluster_of(c);
    ByLives by_lives(c);
    const auto slow = by_lives.played();
    ASSERT_EQ(fast.answers.size(), slow.size()) << seed;
    EXPECT_EQ(fast.run.retried, by_lives.retried()) << seed;
    retried += fast.run.retried;
    for (const auto& [came, answer] : slow) {
      const auto at = fast.answers.find(came);
      ASSERT_NE(at, fast.answers.end()) << seed;
      EXPECT_NEAR(at->second.first.value, answer.first.value, 1e-12 * answer.first.value) << seed;
      EXPECT_NEAR(at->second.last.value, answer.last.value, 1e-12 * answer.last.value) << seed;
    }
  }
  EXPECT_GT(retried, 1000U);
}

TEST(ClusterFailures, R13NothingIsLostOrCountedTwice) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    RandomCase c = random_case(seed);
    if (seed % 5 == 0) c.failures.back().up = Seconds(kNever);
    for (const Router router :
         {Router::round_robin, Router::least_requests, Router::least_kv, Router::prefix}) {
      const Played played = cluster_of(c, router);
      std::uint64_t answered = 0, prompts = 0;
      for (const ServedRequests& r : played.run.replicas) {
        answered += r.answered;
        prompts += r.prompt_tokens;
      }
      EXPECT_EQ(answered, played.answers.size());
      EXPECT_EQ(answered + played.run.unserved, c.requests.size()) << seed;
      std::uint64_t asked = 0;
      for (const TraceRequest& r : c.requests)
        asked += played.answers.contains(r.arrival.value) ? static_cast<std::uint64_t>(r.input) : 0;
      EXPECT_EQ(prompts, asked) << "tokens of prompts that were answered, once each";
      for (const auto& [came, answer] : played.answers) EXPECT_GT(answer.first.value, came);
    }
  }
}

// One replica, down from 1 to 5 s: who is there or comes waits for it.
TEST(ClusterFailures, R13WhoHasNoReplicaWaitsForOne) {
  RandomCase c;
  for (const double at : {0.5, 2.0, 3.0}) c.requests.push_back({Seconds(at), 400, 200, {}});
  c.failures = {{0, Seconds(1), Seconds(5)}};
  const Played played = cluster_of(c);
  EXPECT_EQ(played.run.retried, 1U);
  EXPECT_EQ(played.run.unserved, 0U);
  EXPECT_DOUBLE_EQ(played.run.down.value, 4);
  for (const auto& [came, answer] : played.answers) EXPECT_GT(answer.first.value, 5.0) << came;
  EXPECT_GT(played.run.waiting.back(), 0);

  c.failures = {{0, Seconds(1), Seconds(kNever)}};
  const Played never = cluster_of(c);
  EXPECT_EQ(never.run.unserved, 3U);
  EXPECT_TRUE(never.answers.empty());
  EXPECT_DOUBLE_EQ(never.run.replicas.front().end.value, 1) << "in the middle of a step";
}

// Without failures nothing is otherwise, to the bit.
TEST(ClusterFailures, R13AFailureAfterTheEndChangesNothing) {
  RandomCase c = random_case(4);
  c.failures.clear();
  const Played without = cluster_of(c);
  c.failures = {{0, Seconds(1e6), Seconds(kNever)}};
  const Played with = cluster_of(c);
  ASSERT_EQ(with.answers.size(), without.answers.size());
  for (const auto& [came, answer] : without.answers) EXPECT_EQ(with.answers.at(came).last, answer.last);
  EXPECT_EQ(with.run.replicas.front().end, without.run.replicas.front().end);
  EXPECT_EQ(with.run.down, Seconds(0));
}

// Users of a closed loop go on with another replica, and each has one request at a time.
TEST(ClusterFailures, R13UsersOfAClosedLoopGoOn) {
  RandomCase c;
  c.replicas = 3;
  c.failures = {{1, Seconds(2), Seconds(6)}, {0, Seconds(4), Seconds(kNever)}};
  std::vector<std::unique_ptr<Scheduler>> schedulers;
  for (std::size_t i = 0; i < c.replicas; ++i) schedulers.push_back(c.scheduler());
  constexpr std::size_t kUsers = 12, kRequests = 240;
  ClosedLoop users(kUsers, Variate::fixed(0.1), 1, ClosedLoop::Start::together);
  ClusterLoad load;
  load.arrivals = &users;
  load.closed = true;
  load.request = [](TraceRequest& r) {
    r = {Seconds(0), 300, 40, {}};
    return true;
  };
  std::uint64_t answered = 0;
  const ClusterRun run =
      play_cluster(schedulers, std::vector<const StepTimes*>(3, &kTimes), Router::round_robin, load,
                   kRequests, [&](const AnsweredRequest&) { ++answered; }, {}, nullptr, {},
                   {c.failures, [&] { return c.scheduler(); }});
  EXPECT_EQ(answered, kRequests);
  EXPECT_EQ(run.sent, kRequests);
  EXPECT_GT(run.retried, 0U);
  EXPECT_LE(run.retried, 2 * kUsers);
}

}  // namespace
}  // namespace shardline
