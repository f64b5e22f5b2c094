// Random engines of vLLM's, and requests for them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "planner/requests/vllm_scheduler.hpp"
#include "planner/serving/trace.hpp"
#include "sim/base/random.hpp"

namespace shardline {

// Requests may be of 2048 tokens, and few more fit at once.
inline VllmKnobs random_vllm(RandomStream& random) {
  VllmKnobs k;
  k.async_scheduling = random.below(2) == 0;
  k.max_num_batched_tokens = 16U << random.below(8);
  k.max_num_seqs = 1U << random.below(7);
  k.long_prefill_token_threshold = random.below(3) == 0 ? 100 : 0;
  k.scheduler_reserve_full_isl = random.below(2) == 0;
  k.watermark = random.below(3) == 0 ? 0.1 : 0;
  k.enable_prefix_caching = random.below(4) > 0;
  k.block_size = 4U << random.below(5);
  k.max_model_len = 2048;
  k.num_gpu_blocks = 2048 / k.block_size + static_cast<std::uint32_t>(random.below(300));
  return k;
}

// Texts of few words, so that many are alike for a while, of requests that come in bursts.
inline std::vector<TraceRequest> bursts_of_texts(RandomStream& random) {
  std::vector<TraceRequest> out;
  Seconds time;
  const std::uint64_t longest = random.below(2) == 0 ? 300 : 1900, answer = 2 + random.below(150);
  for (int i = 0; i < 80; ++i) {
    if (random.below(4) == 0) time += Seconds(random.exponential());
    TraceRequest r{time,
                   1 + static_cast<std::int64_t>(random.below(longest)),
                   1 + static_cast<std::int64_t>(random.below(answer)),
                   {}};
    const std::uint64_t words = random.below(4);
    for (std::int64_t b = 0; words > 0 && b * kTraceBlock < r.input; ++b)
      r.blocks.push_back(random.below(words));
    out.push_back(std::move(r));
  }
  return out;
}

}  // namespace shardline
