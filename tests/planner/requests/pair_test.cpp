// Pools that prefill and decode apart, against a second stepper written plainly.
#include "planner/requests/pair.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/planner/requests/pair_case.hpp"
#include "tests/planner/requests/plain_pair.hpp"
#include "tests/support/loads.hpp"

namespace shardline {
namespace {

// SHARDLINE_WHOLE=1 plays 4,000 loads: two that end in one step, one of them named in it before, give blocks
// back in the order in which they ran, which 1 load in 200 shows.
TEST(Pair, R12PlayIsThePlainStepper) {
  const std::uint64_t seeds = testing::loads(400);
  std::uint64_t preempted = 0, found = 0, shared = 0, still = 0, local = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const PairCase c = random_pair(seed);
    const BentStepTimes times;
    PlainPair slow(c.prefill, c.decode, c.links, c.senders, c.receivers, c.path, times, c.max_local_prefill);
    const std::optional<PlayedPair> both = played_like(slow, c, seed);
    if (!both) {
      ++still;
      continue;
    }
    ASSERT_FALSE(HasFailure()) << seed;
    const PlayedPair& fast = *both;
    for (const auto& [came, b] : fast.answers) {
      found += b.found;
      preempted += b.preempted;
    }
    shared += slow.most_flows() > 1 ? 1 : 0;
    local += fast.run.local_prefills;
    ASSERT_EQ(fast.run.local_prefills + fast.run.transfer.count(), fast.answers.size()) << seed;
  }
  if (testing::kSanitized) return;  // a part of the loads
  // The loads are such that all of it happens.
  EXPECT_GT(found, 0u);
  EXPECT_GT(preempted, 0u);
  EXPECT_GT(shared, 20u);
  EXPECT_GT(still, 0u);
  EXPECT_GT(local, 100u);
  EXPECT_LT(still, seeds / 3);
}

TEST(Pair, R12EveryRequestOnceAndAllBlocksFree) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    PairCase c = random_pair(seed);
    c.to_prefill = static_cast<Router>(seed % 3);
    c.to_decode = static_cast<Router>(seed / 3 % 3);
    c.decode.num_gpu_blocks += 400;  // so that none stands still
    const PlayedPair a = played(c), b = played(c);
    ASSERT_EQ(a.answers.size(), c.requests.size());
    std::uint64_t prompts = 0, answers = 0, firsts = 0, tokens = 0, gaps = 0;
    for (const ServedRequests& s : a.run.prefill) prompts += s.answered;
    for (const ServedRequests& s : a.run.decode)
      answers += s.answered, tokens += s.answer_tokens, gaps += s.itl.count();
    for (const ServedRequests& s : a.run.prefill) firsts += s.answer_tokens;
    std::uint64_t asked = 0;
    for (const TraceRequest& r : c.requests)
      asked += static_cast<std::uint64_t>(std::min<std::int64_t>(r.output, 700 - r.input));
    const std::uint64_t handed = c.requests.size() - a.run.local_prefills;
    EXPECT_EQ(prompts, handed);
    EXPECT_EQ(answers, c.requests.size());
    EXPECT_EQ(firsts, handed);
    EXPECT_EQ(tokens, asked);
    EXPECT_EQ(gaps, tokens - answers) << "one before each token but the first";
    EXPECT_EQ(a.run.transfer.count(), handed);
    // What was read last frees its blocks at the end of a step that may never come.
    for (std::size_t i = c.senders; i < a.schedulers.size(); ++i) EXPECT_EQ(a.schedulers[i]->kv_held(), 0);
    for (const auto& [came, x] : a.answers) {
      const AnsweredRequest& y = b.answers.at(came);
      ASSERT_EQ(x.first.value, y.first.value);
      ASSERT_EQ(x.last.value, y.last.value);
    }
  }
}

// The parts of TTFT are one behind the other and nothing is in two of them.
TEST(Pair, R12PartsOfTtftAreAllOfIt) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    PairCase c = random_pair(seed);
    c.decode.num_gpu_blocks += 400;
    const PlayedPair a = played(c);
    double ttft = 0;
    for (const auto& [came, x] : a.answers) ttft += (x.first - x.came).value;
    if (c.max_local_prefill > 0) {
      std::map<double, bool> local;
      for (const TraceRequest& r : c.requests) local[r.arrival.value] = r.input <= c.max_local_prefill;
      for (const auto& [came, x] : a.answers) ttft -= local.at(came) ? (x.first - x.came).value : 0;
    }
    const auto all = [](const RunQuantiles& q) { return q.mean() * static_cast<double>(q.count()); };
    EXPECT_NEAR(all(a.run.prompt) + all(a.run.room) + all(a.run.transfer) + all(a.run.begin), ttft,
                1e-9 * ttft);
  }
}

// All prompts are short: nothing is handed over, and the pool that decodes answers as it would alone.
TEST(Pair, R12ShortPromptsStayWhereTheyAreAnswered) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    PairCase c = random_pair(seed);
    c.max_local_prefill = 700;
    const PlayedPair a = played(c);
    EXPECT_EQ(a.run.local_prefills, c.requests.size());
    EXPECT_EQ(a.run.tokens_read, 0u);
    for (const ServedRequests& s : a.run.prefill) EXPECT_EQ(s.steps, 0u);
    std::vector<std::unique_ptr<Scheduler>> schedulers;
    for (std::size_t i = 0; i < c.receivers; ++i)
      schedulers.push_back(std::make_unique<VllmScheduler>(c.decode));
    const BentStepTimes times;
    ListedLoad listed(c.requests, c.path);
    std::map<double, AnsweredRequest> alone;
    play_cluster(schedulers, std::vector<const StepTimes*>(c.receivers, &times), Router::round_robin,
                 listed.load, c.requests.size(), [&](const AnsweredRequest& r) { alone[r.came.value] = r; },
                 {});
    ASSERT_EQ(alone.size(), a.answers.size());
    for (const auto& [came, x] : a.answers) {
      EXPECT_NEAR(x.first.value, alone.at(came).first.value, 1e-12 * std::max(1.0, x.first.value));
      EXPECT_NEAR(x.last.value, alone.at(came).last.value, 1e-12 * std::max(1.0, x.last.value));
    }
  }
}

// By hand from the engine's source: one request of 100 tokens at 0, path 2 ms, transfers of 1 ms + 10 us a
// token. Steps without caches take 10.1 ms and more by what they compute.
TEST(Pair, R12OneRequestByHand) {
  PairCase c;
  c.prefill.max_model_len = c.decode.max_model_len = 700;
  c.links = {Seconds(0.001), Seconds(1e-5)};
  c.requests = {{Seconds(0), 100, 3, {}}};
  const PlayedPair a = played(c);
  const BentStepTimes times;
  StepBatch prompt, decode;
  prompt.prompts.push_back({100, 0});
  const double prefilled = 0.002 + times.of(prompt).value;
  const double room = prefilled + 0.002;           // an empty engine has blocks at once
  const double there = room + 0.001 + 100 * 1e-5;  // and nothing else to do: it notices at once
  decode.decodes = 1;
  decode.cached = decode.longest = 99;  // the last token of the prompt is computed again
  const double first = there + times.of(decode).value;
  ASSERT_EQ(a.answers.size(), 1u);
  const AnsweredRequest& x = a.answers.begin()->second;
  EXPECT_NEAR(x.first.value, first, 1e-15);
  decode.cached = decode.longest = 100;
  double last = first + times.of(decode).value;
  decode.cached = decode.longest = 101;
  last += times.of(decode).value;
  EXPECT_NEAR(x.last.value, last, 1e-15);
}

// A transfer that ends in a step of the engine that reads is known at the end of the step whose worker is
// asked next, and begins in a step decided then.
TEST(Pair, R12ReadsAreNoticedByTheNextStep) {
  for (const bool async : {false, true}) {
    PairCase c;
    c.prefill.max_model_len = c.decode.max_model_len = 700;
    c.decode.async_scheduling = async;
    c.links = {Seconds(0.001), Seconds(1e-5)};
    c.requests = {{Seconds(0), 16, 100, {}}, {Seconds(0.5), 16, 2, {}}};
    const PlayedPair a = played(c);
    const AnsweredRequest& one = a.answers.begin()->second;
    const AnsweredRequest& two = a.answers.rbegin()->second;
    // Steps of the first request are known: those that begin after the read of the second is there.
    const BentStepTimes times;
    std::vector<double> begins{one.first.value};
    for (std::uint32_t i = 1; i < 60; ++i) {
      StepBatch b;
      b.decodes = 1;
      b.cached = b.longest = 15 + i;
      begins.push_back(begins.back() + times.of(b).value);
    }
    StepBatch prompt;
    prompt.prompts.push_back({16, 0});
    const double came = 0.5 + 0.002 + times.of(prompt).value + 0.002;
    const auto after = [&](double t) { return std::lower_bound(begins.begin(), begins.end(), t); };
    const double there = *after(came) + 0.001 + 16e-5;  // room is looked for when a step is decided
    // Decided there, asked in that step; known at its end; in the first step decided then.
    const double first_step = *(after(there) + (async ? 3 : 1));
    StepBatch both;
    both.decodes = 2;
    both.longest = 15 + 1 + static_cast<std::uint32_t>(after(first_step) - begins.begin());
    both.cached = both.longest + 15;
    EXPECT_NEAR(two.first.value, first_step + times.of(both).value, 1e-12) << async;
  }
}

// One replica that decodes has a single long answer, the other one all short ones, of another text. What
// happens to these is no event of the first.
TEST(Pair, R12StretchesEndOnlyWhereSomethingHappens) {
  PairCase c;
  c.prefill.max_model_len = c.decode.max_model_len = 700;
  c.links = {Seconds(0.001), Seconds(1e-5)};
  c.receivers = 2;
  c.to_decode = Router::prefix;
  c.requests.push_back({Seconds(0), 600, 90, {7}});
  for (int i = 0; i < 100; ++i) c.requests.push_back({Seconds(0.2 + 0.006 * i), 600, 5, {8}});
  const PlayedPair a = played(c);
  const ServedRequests &alone = a.run.decode[0], &others = a.run.decode[1];
  ASSERT_EQ(alone.answered, 1U);
  ASSERT_EQ(others.answered, 100U);
  EXPECT_EQ(alone.steps, 90U);
  EXPECT_GT(others.events, 50U);
  // Steps that are not alike, at the beginning and the end, and the ends of lines of BentStepTimes: 600 to
  // 690 tokens of one request are within one.
  EXPECT_LE(alone.events, 6U);
  EXPECT_LT(others.end, alone.end) << "all of it within the long answer";
}

// Arrivals of another process, noted.
class NotedArrivals : public Arrivals {
 public:
  explicit NotedArrivals(Arrivals& of) : of_(of) {}
  Seconds next_time() const override { return of_.next_time(); }
  Arrival take() override {
    const Arrival out = of_.take();
    times.push_back(out.time);
    return out;
  }
  void completed(const Arrival& arrival, Seconds now) override { of_.completed(arrival, now); }
  std::vector<Seconds> times;

 private:
  Arrivals& of_;
};

// Who is answered on one replica sends again while another one decodes: played again as a trace, whose times
// are known from the beginning, a closed loop is the same. Loads 2421, 2808 and 3637 are such that a user is
// answered by a replica that had nothing to do when a stretch of another one began, into which it comes back.
void expect_the_trace(bool groups) {
  const bool whole = std::getenv("SHARDLINE_WHOLE") != nullptr;
  for (std::uint64_t seed = whole ? 0 : 2400; seed < (whole ? 6000 : 2900); ++seed) {
    PairCase c = random_pair(seed);
    if (groups) c = with_groups(std::move(c), seed, false);
    c.decode.num_gpu_blocks += 400;  // so that none stands still
    const BentStepTimes times;
    PlayedPool prefill, decode;
    prefill.groups = c.prefill_groups;
    decode.groups = c.decode_groups;
    for (std::size_t i = 0; i < c.senders * c.prefill_groups.count; ++i)
      prefill.schedulers.push_back(std::make_unique<VllmScheduler>(c.prefill, PairRole::prefills));
    for (std::size_t i = 0; i < c.receivers * c.decode_groups.count; ++i)
      decode.schedulers.push_back(std::make_unique<VllmScheduler>(c.decode, PairRole::decodes));
    prefill.times = decode.times = &times;
    decode.max_local_prefill = c.max_local_prefill;
    ClosedLoop users(3 + seed % 9, Variate::uniform(0.01, 0.3), seed, ClosedLoop::Start::apart);
    NotedArrivals noted(users);
    ClusterLoad load;
    load.arrivals = &noted;
    load.closed = true;
    load.path = c.path;
    std::size_t sent = 0;
    load.request = [&](TraceRequest& r) {
      return sent < c.requests.size() && (r = c.requests[sent++], true);
    };
    std::map<double, AnsweredRequest> closed;
    play_pair(prefill, decode, c.links, load, c.requests.size(),
              [&](const AnsweredRequest& a) { closed[a.came.value] = a; }, {});
    ASSERT_EQ(noted.times.size(), c.requests.size());
    for (std::size_t i = 0; i < c.requests.size(); ++i) c.requests[i].arrival = noted.times[i];
    const PlayedPair open = played(c);
    ASSERT_EQ(open.answers.size(), closed.size());
    for (const auto& [came, x] : open.answers) {
      const AnsweredRequest& y = closed.at(came);
      ASSERT_NEAR(x.first.value, y.first.value, 1e-12 * std::max(1.0, x.first.value)) << seed;
      ASSERT_NEAR(x.last.value, y.last.value, 1e-12 * std::max(1.0, x.last.value)) << seed;
    }
  }
}
TEST(Pair, R12ClosedLoopsAreTheTraceThatTheyMake) { expect_the_trace(false); }
TEST(Pair, R19ClosedLoopsOfGroupsAreTheTraceThatTheyMake) { expect_the_trace(true); }

}  // namespace
}  // namespace shardline
