// [P36] Rules where the choice is made: steps of recorded prompts, a queue, and what a wrong choice costs.
#include "planner/studies/threshold_context.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <list>
#include <numeric>
#include <random>

#include "planner/scenario/scenario.hpp"
#include "planner/scenario/shipped.hpp"
#include "sim/base/error.hpp"
#include "tests/temporary_folder.hpp"

namespace shardline {
namespace {

constexpr long long kMany = 1LL << 40;

TraceRequest prompt(double arrival, std::int64_t input, std::vector<std::uint64_t> blocks) {
  TraceRequest out;
  out.arrival = Seconds(arrival);
  out.input = input;
  out.blocks = std::move(blocks);
  return out;
}

std::vector<TokenSplit> of(const ContextSteps& steps, std::size_t request) {
  const ContextRequest& r = steps.requests[request];
  const auto first = steps.steps.begin() + static_cast<std::ptrdiff_t>(r.first);
  return {first, first + static_cast<std::ptrdiff_t>(r.count)};
}

using Splits = std::vector<TokenSplit>;

TEST(ThresholdContext, PromptsAreComputedInChunksBehindWhatIsFound) {
  const std::vector<TraceRequest> trace{
      prompt(0, 3 * 512 + 100, {1, 2, 3, 4}), prompt(1, 3 * 512 + 7, {1, 2, 3, 5}),
      prompt(2, 2 * 512, {1, 2}),  // all of it was computed before: its last block is again
      prompt(3, 600, {9, 2})};     // the same block behind another beginning is another text
  const ContextSteps s = context_steps(trace, 1000, kMany, 4);
  EXPECT_EQ(of(s, 0), (Splits{{1000, 0}, {640, 1000}}));  // 636 rounded up to a multiple of 8
  EXPECT_EQ(s.requests[0].whole, (TokenSplit{1640, 0}));
  EXPECT_EQ(of(s, 1), (Splits{{8, 1536}}));
  EXPECT_EQ(of(s, 2), (Splits{{512, 512}}));
  EXPECT_EQ(of(s, 3), (Splits{{600, 0}}));
  EXPECT_NEAR(s.found, (1536.0 + 512) / (1636 + 1543 + 1024 + 600), 1e-12);
}

TEST(ThresholdContext, CachedTokensAreRoundedDown) {
  const ContextSteps s = context_steps(std::vector{prompt(0, 2500, {})}, 1000, kMany, 12);
  EXPECT_EQ(of(s, 0), (Splits{{1008, 0}, {1008, 984}, {504, 1992}}));
}

TEST(ThresholdContext, APromptThatNoReplicaHolds) {
  EXPECT_NO_THROW(context_steps(std::vector{prompt(0, 1024, {})}, 1000, 1024, 2));
  EXPECT_THROW(context_steps(std::vector{prompt(0, 1025, {})}, 1000, 1024, 2), UserError);
}

// Blocks in the order in which they are lost; one without a text is lost first.
struct NaiveBlock {
  std::vector<std::uint64_t> text;  // from the beginning to its end
  int filled = 0;                   // when: of equal ones the first is found
};
using NaiveCache = std::list<NaiveBlock>;

long long naive_found(NaiveCache& cache, const TraceRequest& r, int now) {
  const auto whole = static_cast<std::size_t>(r.input / kTraceBlock);
  const auto needs = static_cast<std::size_t>((r.input + kTraceBlock - 1) / kTraceBlock);
  const auto most = static_cast<std::size_t>((r.input - 1) / kTraceBlock);
  const auto beginning = [&](std::size_t n) {
    return std::vector<std::uint64_t>(r.blocks.begin(), r.blocks.begin() + static_cast<std::ptrdiff_t>(n));
  };
  std::vector<NaiveBlock> mine;
  for (bool there = true; there && mine.size() < most;) {
    auto first = cache.end();
    for (auto b = cache.begin(); b != cache.end(); ++b)
      if (b->text == beginning(mine.size() + 1) && (first == cache.end() || b->filled < first->filled))
        first = b;
    there = first != cache.end();
    if (there) mine.push_back(*first), cache.erase(first);
  }
  const std::size_t found = mine.size();
  for (std::size_t n = found + 1; n <= needs; ++n) {
    cache.pop_front();
    mine.push_back({n <= whole ? beginning(n) : std::vector<std::uint64_t>{}, now});
  }
  for (std::size_t n = needs; n-- > 0;) {
    if (mine[n].text.empty()) {
      cache.push_front(mine[n]);
    } else {
      cache.push_back(mine[n]);
    }
  }
  return static_cast<long long>(found) * kTraceBlock;
}

TEST(ThresholdContext, TheLeastRecentlyUsedIsLost) {
  std::mt19937_64 rng(7);
  constexpr std::size_t kRoom = 12;  // blocks
  std::vector<TraceRequest> trace;
  for (int i = 0; i < 400; ++i) {
    // Few texts of five blocks at most, so that beginnings are shared and lost; ends that fill no block.
    std::vector<std::uint64_t> blocks;
    const std::size_t n = 1 + rng() % 5;
    for (std::size_t b = 0; b < n; ++b) blocks.push_back(10 * b + rng() % 2);
    const auto input =
        static_cast<std::int64_t>(n) * kTraceBlock - static_cast<std::int64_t>(rng() % 2 * 100);
    trace.push_back(prompt(i, input, blocks));
  }
  const ContextSteps s = context_steps(trace, kMany, (kRoom - 1) * kTraceBlock, 1);
  NaiveCache kept(kRoom), all(10'000);
  int hits = 0, lost = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const long long found = naive_found(kept, trace[i], static_cast<int>(i) + 1);
    EXPECT_EQ(s.requests[i].whole.cached, found) << i;
    hits += found > 0 ? 1 : 0;
    lost += found < naive_found(all, trace[i], static_cast<int>(i) + 1) ? 1 : 0;
  }
  EXPECT_GT(hits, 100);
  EXPECT_GT(lost, 20);  // so that the order in which they are is looked at
}

struct Queue {
  std::vector<ContextRequest> requests;
  std::vector<double> spent;
};

Queue random_queue(std::mt19937_64& rng, std::size_t n) {
  std::exponential_distribution<double> gap(1.0), work(1.3);
  Queue out;
  double at = 0;
  for (std::size_t i = 0; i < n; ++i) {
    out.requests.push_back({at, i, 1, {}});
    out.spent.push_back(work(rng));
    at += gap(rng);
  }
  return out;
}

// A server that looks every moment at who is next, in place of the recursion.
std::vector<double> served_one_by_one(const Queue& q, double stretch) {
  std::vector<double> ends;
  double now = 0;
  for (std::size_t next = 0; next < q.requests.size();) {
    if (q.requests[next].arrival * stretch > now) {
      now = q.requests[next].arrival * stretch;
      continue;
    }
    now += q.spent[next];
    ends.push_back(now - q.requests[next].arrival * stretch);
    ++next;
  }
  return ends;
}

TEST(ThresholdContext, TheQueueIsServedInOrder) {
  std::mt19937_64 rng(11);
  for (int i = 0; i < 50; ++i) {
    const Queue q = random_queue(rng, 200);
    const double stretch = 0.5 + 0.1 * (i % 10);
    EXPECT_EQ(times_to_first(q.requests, stretch, q.spent), served_one_by_one(q, stretch));
  }
}

TEST(ThresholdContext, WhoWaitsIsTheSlopeOfAllLatencies) {
  std::mt19937_64 rng(13);
  const auto total = [](const Queue& q) {
    const auto ttft = times_to_first(q.requests, 1, q.spent);
    return std::accumulate(ttft.begin(), ttft.end(), 0.0);
  };
  constexpr double kStep = 1e-9;
  Queue q = random_queue(rng, 300);
  const std::vector<double> slopes = who_waits(q.requests, 1, q.spent);
  const double before = total(q);
  for (std::size_t i = 0; i < q.spent.size(); ++i) {
    const double kept = std::exchange(q.spent[i], q.spent[i] + kStep);
    EXPECT_NEAR((total(q) - before) / kStep, slopes[i], 2e-3) << i;
    q.spent[i] = kept;
  }
  EXPECT_GT(*std::max_element(slopes.begin(), slopes.end()), 5);
}

// So that the faster variant in each step is the best choice, however long the queue is.
TEST(ThresholdContext, LessWorkNeverMakesAnybodyWaitLonger) {
  std::mt19937_64 rng(17);
  for (int i = 0; i < 100; ++i) {
    Queue q = random_queue(rng, 100);
    const auto slower = times_to_first(q.requests, 1, q.spent);
    for (double& s : q.spent) s *= rng() % 2 == 0 ? 1 : 0.9;
    const auto faster = times_to_first(q.requests, 1, q.spent);
    for (std::size_t r = 0; r < slower.size(); ++r) EXPECT_LE(faster[r], slower[r]);
  }
}

constexpr const char* kScenario = R"(name: small
system: h200-hgx
models: [llama-3.1-8b]
precision: {weights: bf16, kv: bf16, math: bf16}
thresholds:
  cp: [2, 4]
  tpa: 1
  new_tokens: {from: 64 tokens, to: 16Ki tokens}
  longest: 64Ki tokens
  lowest_miss_rate: 0.01
  test_points: 50
)";

class ThresholdContextStudy : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937_64 rng(3);
    std::ofstream out(folder_ / "trace.csv");
    out << "arrival_ms,input_tokens,output_tokens,block_ids\n";
    // Prompts of which long beginnings are shared, so that both variants win.
    for (int i = 0, at = 0; i < 120; ++i, at += static_cast<int>(rng() % 300)) {
      const int text = static_cast<int>(rng() % 6), blocks = 8 + static_cast<int>(rng() % 60);
      const int own = 1 + static_cast<int>(rng() % 20);
      out << fmt::format("{},{},1,{}-{} {}-{}\n", at, (blocks + own) * 512, 1000 * text,
                         1000 * text + blocks - 1, 100'000 + 20 * i, 100'000 + 20 * i + own - 1);
    }
  }
  ContextQuestion question() const {
    ContextQuestion q;
    q.trace = (folder_ / "trace.csv").string();
    q.chunk = 4096;
    return q;
  }
  const TemporaryFolder own_;
  const std::filesystem::path folder_ = own_.path();
};

ContextStudy played(const Study& study, const ThresholdStudy& found, const ContextQuestion& q, int threads) {
  return study_in_context(study, found, q, read_prompts(q, threads), threads,
                          [](std::size_t, std::size_t) {});
}

const ContextRegret& rule(const ContextRing& ring, const std::string& name, RuleAsked asked) {
  return *std::find_if(ring.rules.begin(), ring.rules.end(),
                       [&](const ContextRegret& r) { return r.rule == name && r.asked == asked; });
}

TEST_F(ThresholdContextStudy, NoRuleIsBetterThanTheFasterVariant) {
  const Scenario scenario = parse_scenario("small.yaml", kScenario, shipped_catalogs());
  const Study& study = scenario.studies.front();
  const ThresholdStudy found = study_thresholds(study, 2, [](std::size_t, std::size_t) {});
  const ContextStudy one = played(study, found, question(), 1);
  EXPECT_EQ(one.requests, 120u);
  EXPECT_EQ(one.judged, 60u);
  ASSERT_EQ(one.rings.size(), 2u);
  for (const ContextRing& ring : one.rings) {
    EXPECT_NEAR(ring.load, kContextLoad, 1e-12);
    EXPECT_GT(ring.found, 0.3);
    EXPECT_GT(ring.judged_steps, 60u);
    EXPECT_LE(ring.mean_range.low, 0);
    EXPECT_GE(ring.mean_range.high, 0);
    EXPECT_EQ(ring.rules.size(), 1 + 7 * 2 + 2u);
    for (const ContextRegret& r : ring.rules) {
      EXPECT_GE(r.computing, 0) << r.rule;
      EXPECT_GE(r.mean, 0) << r.rule;
      EXPECT_GE(r.p99, 0) << r.rule;
      EXPECT_LE(r.mean_range.low, r.mean);
      EXPECT_GE(r.mean_range.high, r.mean);
      EXPECT_EQ(r.right == ring.judged_steps, r.computing == 0) << r.rule;
    }
    // Of two rules that are each other's contrary, each step has one that is right; a tie has both.
    EXPECT_GE(rule(ring, "always pass KV", RuleAsked::each_step).right +
                  rule(ring, "always pass Q", RuleAsked::each_step).right,
              ring.judged_steps);
    EXPECT_LE(rule(ring, "lookup table", RuleAsked::each_step).mean, 0.01);
  }
  const ContextStudy two = played(study, found, question(), 2);
  for (std::size_t i = 0; i < one.rings.size(); ++i) {
    EXPECT_EQ(one.rings[i].mean, two.rings[i].mean);
    EXPECT_EQ(one.rings[i].in_context.fixed(), two.rings[i].in_context.fixed());
    for (std::size_t r = 0; r < one.rings[i].rules.size(); ++r)
      EXPECT_EQ(one.rings[i].rules[r].mean, two.rings[i].rules[r].mean);
  }
}

TEST_F(ThresholdContextStudy, ARateInPlaceOfALoad) {
  const Scenario scenario = parse_scenario("small.yaml", kScenario, shipped_catalogs());
  const Study& study = scenario.studies.front();
  const ThresholdStudy found = study_thresholds(study, 2, [](std::size_t, std::size_t) {});
  ContextQuestion q = question();
  const auto ring = [&] { return played(study, found, q, 2).rings.front(); };
  const ContextRing by_load = ring();
  q.rate = by_load.rate;
  const ContextRing same = ring();
  EXPECT_NEAR(same.load, by_load.load, 1e-12);
  EXPECT_NEAR(same.mean / by_load.mean, 1, 1e-9);
  q.rate = by_load.rate / 1000;  // nobody waits: what is lost is what is computed longer
  const ContextRing alone = ring();
  EXPECT_NEAR(alone.load, by_load.load / 1000, 1e-12);
  EXPECT_LT(alone.mean, by_load.mean);
  for (const ContextRegret& r : alone.rules) EXPECT_NEAR(r.mean, r.computing, 1e-9) << r.rule;
}

TEST_F(ThresholdContextStudy, TracesThatCannotBePlayed) {
  const Scenario scenario = parse_scenario("small.yaml", kScenario, shipped_catalogs());
  const Study& study = scenario.studies.front();
  const ThresholdStudy found = study_thresholds(study, 2, [](std::size_t, std::size_t) {});
  ContextQuestion q = question();
  const auto error = [&](const std::string& rows) -> std::string {
    std::ofstream(folder_ / "other.csv") << "arrival_ms,input_tokens,output_tokens\n" << rows;
    q.trace = (folder_ / "other.csv").string();
    try {
      played(study, found, q, 1);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error("0,100,1\n").find("two at least"), std::string::npos);
  EXPECT_NE(error("5,100,1\n5,100,1\n").find("come at once"), std::string::npos);
  EXPECT_NE(error("0,900000000,1\n5,100,1\n").find("a prompt of 900000000 tokens"), std::string::npos);
  EXPECT_EQ(error("0,1000,1\n5,100,1\n"), "");
}

}  // namespace
}  // namespace shardline
