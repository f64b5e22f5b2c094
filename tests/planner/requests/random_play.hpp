// Random requests played on an engine, with stretches of steps as one event and step by step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "planner/requests/play_requests.hpp"
#include "sim/base/random.hpp"

namespace shardline {

// Lines that end every few steps, as those of a table of a plan's blocks do, and a batch that steps at 4.
// Boards draw so many watts in steps with prompts, for three quarters of them, and in others for all of them.
class BentStepTimes : public StepTimes {
 public:
  static constexpr double kPromptWatts = 700, kDecodeWatts = 500, kPromptKernels = 0.75;
  Seconds of(const StepBatch& b) const override {
    return line(b).start + Seconds(3e-5) * static_cast<double>(b.prompt_tokens()) +
           Seconds(1e-9) * b.prompt_pairs();
  }
  DecodeStretch decode(const StepBatch& b) const override {
    DecodeStretch out = line(b);
    out.energy = {{0, 0, kDecodeWatts * out.start.value}, out.start.value};
    out.rise = {{0, 0, kDecodeWatts * out.slope.value}, out.slope.value};
    return out;
  }
  PricedStep priced(const StepBatch& b) const override {
    if (b.prompts.empty()) {
      const DecodeStretch alone = decode(b);
      return {alone.start, alone.energy};
    }
    const double time = of(b).value, kernels = kPromptKernels * time;
    return {Seconds(time), {{kPromptWatts * kernels, 0, 0}, kernels}};
  }
  // Others' tokens beyond one's own cost something, too.
  Seconds of_group(std::span<const StepBatch* const> groups, std::size_t which) const override {
    const auto tokens = [](const StepBatch& b) {
      return static_cast<double>(b.decodes) + static_cast<double>(b.prompt_tokens());
    };
    double more = 0;
    for (const StepBatch* b : groups) more += tokens(*b) - tokens(*groups[which]);
    return of(*groups[which]) + Seconds(1e-6) * std::max(0.0, more);
  }

 private:
  static DecodeStretch line(const StepBatch& b) {
    const std::uint64_t to_knot = b.decodes == 0 ? 1 : (kKnot - b.cached % kKnot + b.decodes - 1) / b.decodes;
    const double slope = 1e-7 * (1 + static_cast<double>(b.cached / kKnot) / 10);
    const Seconds start =
        Seconds(0.01 + 1e-4 * ((b.decodes + 3) / 4)) + Seconds(slope) * static_cast<double>(b.cached % kKnot);
    return {start, Seconds(slope) * static_cast<double>(b.decodes), to_knot};
  }
  static constexpr std::uint64_t kKnot = 1000;
};

struct Played {
  ServedRequests served;
  std::vector<AnsweredRequest> answers;
};

inline Played play(const std::vector<TraceRequest>& requests, Scheduler& scheduler, const StepTimes& times,
                   bool jump) {
  std::size_t next = 0;
  Played out;
  out.served =
      play_requests([&](TraceRequest& r) { return next < requests.size() && (r = requests[next++], true); },
                    scheduler, times, jump, [&](const AnsweredRequest& a) { out.answers.push_back(a); });
  return out;
}

inline std::vector<TraceRequest> random_requests(RandomStream& random, std::int64_t longest) {
  std::vector<TraceRequest> out;
  Seconds time;
  for (int i = 0; i < 60; ++i) {
    time += Seconds(random.exponential() * 0.3);
    TraceRequest r{time,
                   1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(longest))),
                   1 + static_cast<std::int64_t>(random.below(100)),
                   {}};
    if (random.below(2) == 0) {
      for (std::int64_t b = 0; b * kTraceBlock < r.input; ++b) r.blocks.push_back(random.below(2));
    }
    out.push_back(std::move(r));
  }
  return out;
}

inline std::vector<AnsweredRequest> by_number(std::vector<AnsweredRequest> answers) {
  std::sort(answers.begin(), answers.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
  return answers;
}

// What a player answers, and what a slow one does, both by number.
inline void expect_answers(const std::vector<AnsweredRequest>& answers,
                           const std::vector<AnsweredRequest>& expected) {
  ASSERT_EQ(answers.size(), expected.size());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const AnsweredRequest &a = answers[i], &b = expected[i];
    ASSERT_NEAR(a.first.value, b.first.value, 1e-12 * (1 + b.first.value)) << i;
    ASSERT_NEAR(a.last.value, b.last.value, 1e-12 * (1 + b.last.value)) << i;
    ASSERT_EQ(a.found, b.found);
    ASSERT_EQ(a.preempted, b.preempted);
    ASSERT_EQ(a.answer, b.answer);
  }
}

// Every token has been computed once, intervals between them add up to requests' times, and, by Little's law,
// requests that are there, over time, are no more than the time that each is: those that wait for the end of
// a step before they are taken are not counted there.
inline void expect_sums(const Played& p) {
  std::uint64_t tokens = 0;
  double intervals = 0, inside = 0;
  for (const AnsweredRequest& a : p.answers) {
    tokens += a.answer;
    intervals += (a.last - a.first).value;
    inside += (a.last - a.came).value;
    EXPECT_LE(a.came, a.first);
  }
  EXPECT_EQ(p.served.answer_tokens, tokens);
  EXPECT_EQ(p.served.itl.count(), tokens - p.answers.size());
  EXPECT_NEAR(p.served.itl.mean() * static_cast<double>(p.served.itl.count()), intervals,
              1e-9 * (1 + intervals));
  EXPECT_LE(p.served.running, inside * (1 + 1e-9));
  EXPECT_LE(p.served.busy, p.served.end);
}

inline void expect_same(const Played& a, const Played& b) {
  ASSERT_EQ(a.answers.size(), b.answers.size());
  const auto near = [](Seconds x, Seconds y) {
    return std::abs(x.value - y.value) <= 1e-12 * std::max(std::abs(x.value), 1.0);
  };
  for (std::size_t i = 0; i < a.answers.size(); ++i) {
    const AnsweredRequest &x = a.answers[i], &y = b.answers[i];
    ASSERT_EQ(x.number, y.number);
    ASSERT_TRUE(near(x.first, y.first) && near(x.last, y.last)) << i;
    ASSERT_EQ(x.found, y.found);
    ASSERT_EQ(x.preempted, y.preempted);
  }
  EXPECT_EQ(a.served.steps, b.served.steps);
  EXPECT_EQ(a.served.preemptions, b.served.preemptions);
  ASSERT_EQ(a.served.itl.count(), b.served.itl.count());
  for (const double q : {0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    EXPECT_NEAR(a.served.itl.quantile(q), b.served.itl.quantile(q), 1e-12);
  }
}

// All that was served is the same: in which step each request is done, and what was held over time.
inline void expect_equal(const Played& a, const Played& b) {
  expect_same(a, b);
  EXPECT_NEAR(a.served.held, b.served.held, 1e-12 * b.served.held);
  EXPECT_NEAR(a.served.running, b.served.running, 1e-12 * b.served.running);
  EXPECT_EQ(a.served.end, b.served.end);
  EXPECT_EQ(a.served.itl.count(), b.served.itl.count());
  EXPECT_NEAR(a.served.itl.mean(), b.served.itl.mean(), 1e-12);
}

}  // namespace shardline
