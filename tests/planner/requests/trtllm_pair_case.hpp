// Random loads on pairs of TensorRT-LLM's servers, as the player and the plain loops have them.
#pragma once

#include <cstdint>
#include <memory>

#include "planner/requests/trtllm_scheduler.hpp"
#include "tests/planner/requests/draft_laws.hpp"
#include "tests/planner/requests/plain_trtllm_pair.hpp"
#include "tests/planner/requests/played_pair.hpp"

namespace shardline {

inline PlayedPair played(const TrtllmPairCase& c, Router router = Router::round_robin) {
  const auto engine = [&](const TrtllmKnobs& knobs, PairRole role) {
    return std::make_unique<TrtllmScheduler>(knobs, role, c.law);
  };
  return play_case(c, engine, router, router, 0);
}

inline TrtllmPairCase random_trtllm_pair(std::uint64_t seed) {
  RandomStream random(seed, "trtllm pairs");
  TrtllmPairCase c;
  const std::uint32_t block = 4U << random.below(4);
  for (TrtllmKnobs* k : {&c.prefill, &c.decode}) {
    k->tokens_per_block = block;
    k->disable_overlap_scheduler = random.below(2) == 0;
    k->max_seq_len = 620;
    k->max_batch_size = 1 + static_cast<std::uint32_t>(random.below(12));
    k->max_num_tokens = 64 + static_cast<std::uint32_t>(random.below(500));
    k->enable_chunked_prefill = true;
    k->enable_block_reuse = false;
    k->blocks = (640 + static_cast<std::uint32_t>(random.below(random.below(2) == 0 ? 500 : 2500))) / block;
    const std::uint64_t policy = random.below(5);
    k->capacity_scheduler_policy = policy < 2   ? TrtllmPolicy::guaranteed_no_evict
                                   : policy < 4 ? TrtllmPolicy::max_utilization
                                                : TrtllmPolicy::static_batch;
  }
  if (random.below(4) == 0) {
    c.prefill.enable_chunked_prefill = false;
    c.prefill.max_num_tokens = 620 + static_cast<std::uint32_t>(random.below(900));
  }
  c.decode.max_tokens_in_buffer =
      random.below(2) == 0 ? 0 : 500 + static_cast<std::uint32_t>(random.below(900));
  draw_links(random, c, 1000, false);
  c.requests = random_requests(random, 500);
  for (TraceRequest& r : c.requests)
    if (random.below(6) == 0) r.output = 1;
  return c;
}

// The same on servers of several attention groups each, of more requests at a time.
inline TrtllmPairCase with_groups(TrtllmPairCase c, std::uint64_t seed) {
  RandomStream random(seed, "groups of trtllm pairs");
  const auto groups = [&](const TrtllmKnobs& k, std::size_t count) {
    return ReplicaGroups{count, count > 1 ? GroupRouting::from_queue : GroupRouting::in_turn,
                         k.max_batch_size};
  };
  c.prefill_groups = groups(c.prefill, 1 + random.below(3));
  c.decode_groups = groups(c.decode, 1 + random.below(4));
  for (TraceRequest& r : c.requests) r.arrival = r.arrival * 0.3;
  return c;
}

// The same with drafts, room for what capacity does not count of them, mostly, and more answers that pause.
inline TrtllmPairCase with_drafts(TrtllmPairCase c, std::uint64_t seed) {
  RandomStream random(seed, "drafts of trtllm pairs");
  c.law = random_law(random);
  for (TrtllmKnobs* k : {&c.prefill, &c.decode})
    k->blocks += static_cast<std::uint32_t>(random.below(60)) / k->tokens_per_block;
  if (random.below(2) == 0) c.decode.capacity_scheduler_policy = TrtllmPolicy::max_utilization;
  for (std::size_t i = 0; i < c.requests.size(); ++i) c.requests[i].number = i;
  return c;
}

}  // namespace shardline
