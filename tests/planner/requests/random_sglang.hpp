// Random engines of SGLang's.
#pragma once

#include <cstdint>

#include "planner/requests/sglang_scheduler.hpp"
#include "sim/base/random.hpp"

namespace shardline {

// Requests may be of 2,000 tokens, and few more fit at once.
inline SglangKnobs random_sglang(RandomStream& random) {
  SglangKnobs k;
  k.disable_overlap_schedule = random.below(2) == 0;
  k.enable_mixed_chunk = random.below(4) == 0;
  k.disable_radix_cache = random.below(4) == 0;
  k.chunked_prefill_size = random.below(4) == 0 ? 0 : 64U << random.below(6);
  k.max_prefill_tokens = 1024U << random.below(3);
  k.max_running_requests = 1U << random.below(6);
  k.page_size = 1U << (2 * random.below(4));
  k.context_length = 2100;
  k.max_total_tokens = 2304 + 64 * static_cast<std::uint32_t>(random.below(50));
  k.schedule_conservativeness = random.below(2) == 0 ? 1 : 0.1;
  k.clip_max_new_tokens_estimation = random.below(3) == 0 ? 4 : 4096;
  return k;
}

}  // namespace shardline
