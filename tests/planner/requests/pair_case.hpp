// Random loads on pairs of pools of vLLM's, as the player and the plain stepper have them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "planner/requests/vllm_drafts.hpp"
#include "planner/requests/vllm_scheduler.hpp"
#include "tests/planner/requests/draft_laws.hpp"
#include "tests/planner/requests/plain_pair.hpp"
#include "tests/planner/requests/played_pair.hpp"

namespace shardline {

struct PairCase {
  VllmKnobs prefill, decode;
  TransferRates links;
  std::size_t senders = 1, receivers = 1;
  ReplicaGroups prefill_groups{}, decode_groups{};
  Seconds path{0.002};
  std::vector<TraceRequest> requests;
  Router to_prefill = Router::round_robin, to_decode = Router::round_robin;
  std::int64_t max_local_prefill = 0;
  std::vector<ReplicaFailure> failures = {};
  std::optional<DraftLaw> law = std::nullopt;  // of both pools' engines
};

inline PlayedPair played(const PairCase& c) {
  const auto engine = [&](const VllmKnobs& knobs, PairRole role) -> std::unique_ptr<Scheduler> {
    if (c.law) return std::make_unique<VllmDraftScheduler>(knobs, role, *c.law);
    return std::make_unique<VllmScheduler>(knobs, role);
  };
  return play_case(c, engine, c.to_prefill, c.to_decode, c.max_local_prefill);
}

inline PairCase random_pair(std::uint64_t seed) {
  RandomStream random(seed, "pairs");
  PairCase c;
  for (VllmKnobs* k : {&c.prefill, &c.decode}) {
    k->async_scheduling = random.below(2) == 0;
    k->max_num_batched_tokens = 64 + static_cast<std::uint32_t>(random.below(500));
    k->max_num_seqs = 2 + static_cast<std::uint32_t>(random.below(12));
    k->enable_prefix_caching = random.below(3) > 0;
    k->watermark = random.below(3) == 0 ? 0.05 : 0;
    k->max_model_len = 700;
    k->num_gpu_blocks = 46 + static_cast<std::uint32_t>(random.below(120));
  }
  RandomStream parts(seed, "prompts that begin with room for a part");
  for (VllmKnobs* k : {&c.prefill, &c.decode}) k->scheduler_reserve_full_isl = parts.below(4) > 0;
  draw_links(random, c, 1000, true);
  c.requests = random_requests(random, 500);
  if (seed % 3 == 2) c.max_local_prefill = static_cast<std::int64_t>(random.below(400));
  return c;
}

// The same on replicas of several attention groups each, now and then alone and now and then crowded.
inline PairCase with_groups(PairCase c, std::uint64_t seed, bool stretched = true) {
  RandomStream random(seed, "groups of pairs");
  const auto groups = [](std::size_t count) {
    return ReplicaGroups{count, GroupRouting::fewest, 0, count > 1 ? VllmScheduler::kWave : 0};
  };
  c.prefill_groups = groups(1 + random.below(3));
  c.decode_groups = groups(1 + random.below(4));
  const double stretch[] = {0.2, 0.5, 1.5, 6};
  for (TraceRequest& r : c.requests) r.arrival = r.arrival * (stretched ? stretch[seed % 4] : 1);
  return c;
}

// The same with drafts.
inline PairCase with_drafts(PairCase c, std::uint64_t seed) {
  RandomStream random(seed, "drafts of pairs");
  c.law = random_law(random);
  for (VllmKnobs* k : {&c.prefill, &c.decode}) {
    k->block_size = 4U << random.below(3);
    k->num_gpu_blocks = 740 / k->block_size + static_cast<std::uint32_t>(random.below(2000 / k->block_size));
  }
  c.decode.block_size = c.prefill.block_size;
  c.decode.num_gpu_blocks =
      740 / c.decode.block_size + static_cast<std::uint32_t>(random.below(2000 / c.decode.block_size));
  for (std::size_t i = 0; i < c.requests.size(); ++i) c.requests[i].number = i;
  return c;
}

// Some replicas of either pool die once or more, sometimes all of a pool together.
inline PairCase failing_case(std::uint64_t seed) {
  PairCase c = random_pair(seed);
  RandomStream random(seed, "failures of pairs");
  c.decode.recompute_failed_loads = random.below(2) == 0;
  // So long that leases run out meanwhile.
  if (seed % 3 == 0)
    for (TraceRequest& r : c.requests) r.arrival = r.arrival * 6;
  const double length = c.requests.back().arrival.value;
  for (const ReplicaPool pool : {ReplicaPool::prefill, ReplicaPool::decode}) {
    const std::size_t replicas = pool == ReplicaPool::prefill ? c.senders : c.receivers;
    for (std::size_t i = 0; i < replicas; ++i) {
      double at = length * random.unit() * 0.7;
      while (random.below(3) > 0 && at < length) {
        const double up = at + length * (0.02 + 0.2 * random.unit());
        c.failures.push_back({i, Seconds(at), Seconds(up), pool});
        at = up + length * (0.02 + 0.3 * random.unit());
      }
    }
  }
  std::sort(c.failures.begin(), c.failures.end(),
            [](const ReplicaFailure& a, const ReplicaFailure& b) { return a.down < b.down; });
  return c;
}

// The slow way.
inline PlainPair plain(const PairCase& c, const StepTimes& times) {
  return PlainPair(c.prefill, c.decode, c.links, c.senders, c.receivers, c.path, times, c.max_local_prefill,
                   c.failures, c.prefill_groups.count, c.decode_groups.count, c.law);
}

// Asks that both ways answer alike, or that the player says so where the slow way leaves somebody without a
// first token: nothing, then.
inline std::optional<PlayedPair> played_like(PlainPair& slow, const PairCase& c, std::uint64_t seed) {
  const std::vector<PlainAnswer> answers = slow.play(c.requests);
  if (std::any_of(answers.begin(), answers.end(), [](const PlainAnswer& a) { return a.first < 0; })) {
    EXPECT_THROW(played(c), UserError) << seed;
    return std::nullopt;
  }
  PlayedPair fast = played(c);
  EXPECT_EQ(fast.answers.size(), answers.size()) << seed;
  for (const PlainAnswer& a : answers) {
    const auto at = fast.answers.find(a.came);
    if (at == fast.answers.end()) {
      ADD_FAILURE() << seed << ": who came at " << a.came << " is not answered";
      continue;
    }
    const AnsweredRequest& b = at->second;
    EXPECT_NEAR(b.first.value, a.first, 1e-12 * std::max(1.0, a.first)) << seed << " came " << a.came;
    EXPECT_NEAR(b.last.value, a.last, 1e-12 * std::max(1.0, a.last)) << seed << " came " << a.came;
    EXPECT_EQ(b.found, a.found) << seed;
  }
  return fast;
}

// The same where replicas die: who is not answered in the end has none to go to.
inline std::optional<PlayedPair> failing_like(PlainPair& slow, const PairCase& c, std::uint64_t seed) {
  const std::vector<PlainAnswer> answers = slow.play(c.requests);
  const auto open = static_cast<std::size_t>(
      std::count_if(answers.begin(), answers.end(), [](const PlainAnswer& a) { return a.last < 0; }));
  if (open > slow.unserved()) {
    EXPECT_THROW(played(c), UserError) << seed;
    return std::nullopt;
  }
  PlayedPair fast = played(c);
  EXPECT_EQ(fast.answers.size() + slow.unserved(), answers.size()) << seed;
  EXPECT_EQ(fast.answered, fast.answers.size()) << "each once";
  EXPECT_EQ(fast.run.unserved, slow.unserved()) << seed;
  for (const PlainAnswer& a : answers) {
    if (a.last < 0) continue;
    const auto at = fast.answers.find(a.came);
    if (at == fast.answers.end()) {
      ADD_FAILURE() << seed << ": who came at " << a.came << " is not answered";
      continue;
    }
    const AnsweredRequest& b = at->second;
    EXPECT_NEAR(b.first.value, a.first, 1e-12 * std::max(1.0, a.first)) << seed << " came " << a.came;
    EXPECT_NEAR(b.last.value, a.last, 1e-12 * std::max(1.0, a.last)) << seed << " came " << a.came;
    EXPECT_EQ(b.found, a.found) << seed;
  }
  EXPECT_EQ(fast.run.retried, slow.retried) << seed;
  EXPECT_EQ(fast.run.failed_loads, slow.failed_loads) << seed;
  EXPECT_EQ(fast.run.cut_transfers, slow.cut) << seed;
  return fast;
}

}  // namespace shardline
