// Random loads on pairs of pools of vLLM's, as the player and the plain stepper have them.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/requests/vllm_scheduler.hpp"
#include "tests/planner/requests/played_pair.hpp"

namespace shardline {

struct PairCase {
  VllmKnobs prefill, decode;
  TransferRates links;
  std::size_t senders = 1, receivers = 1;
  Seconds path{0.002};
  std::vector<TraceRequest> requests;
  Router to_prefill = Router::round_robin, to_decode = Router::round_robin;
  std::int64_t max_local_prefill = 0;
  std::vector<ReplicaFailure> failures = {};
};

inline PlayedPair played(const PairCase& c) {
  return play_case<VllmScheduler>(c, c.to_prefill, c.to_decode, c.max_local_prefill);
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
  draw_links(random, c, 1000);
  c.requests = random_requests(random, 500);
  if (seed % 3 == 2) c.max_local_prefill = static_cast<std::int64_t>(random.below(400));
  return c;
}

}  // namespace shardline
