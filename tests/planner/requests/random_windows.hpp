// Random engines of SGLang's of models with windows, and requests for them.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "planner/requests/sglang_scheduler.hpp"
#include "planner/serving/trace.hpp"
#include "sim/base/random.hpp"

namespace shardline {

inline constexpr std::uint32_t kWindowWords = 64;  // tokens of a word of their texts

// A scheduler to which texts come in short words.
template <class S>
class OfWords : public S {
 public:
  using S::S;
  std::optional<Scheduler::Id> add(const TraceRequest& request, std::uint32_t /*text_block*/) override {
    return S::add(request, kWindowWords);
  }
};

// Pools of both kinds are scarce in turn, and windows shorter or longer than pages and chunks.
inline SglangKnobs random_windows(RandomStream& random) {
  SglangKnobs k;
  k.disable_overlap_schedule = random.below(2) == 0;
  k.enable_mixed_chunk = random.below(4) == 0;
  k.chunked_prefill_size = random.below(5) == 0 ? 0 : 64U << random.below(4);
  k.max_prefill_tokens = 256U << random.below(3);
  k.prefill_max_requests = random.below(5) == 0 ? 2 : 0;
  k.max_running_requests = random.below(3) == 0 ? 1U << random.below(4) : 64;
  k.page_size = 1U << (2 * random.below(4));
  k.context_length = 1100;
  k.max_total_tokens = 700 + 64 * static_cast<std::uint32_t>(random.below(40));
  k.schedule_conservativeness = random.below(2) == 0 ? 1 : 0.1;
  k.clip_max_new_tokens_estimation = random.below(3) == 0 ? 4 : 4096;
  k.sliding_window = 1 + static_cast<std::uint32_t>(random.below(random.below(2) == 0 ? 20 : 200));
  k.swa_full_tokens_ratio = 0.2 + 0.1 * static_cast<double>(random.below(9));
  k.swa_eviction_interval = 1U << random.below(8);
  return k;
}

// Texts of few words, so that many are alike for a while, that come in bursts.
inline std::vector<TraceRequest> bursts_of_words(RandomStream& random) {
  std::vector<TraceRequest> out;
  Seconds time;
  const std::uint64_t longest = random.below(2) == 0 ? 200 : 600, answer = 2 + random.below(200);
  const std::uint64_t words = random.below(4);
  for (int i = 0; i < 60; ++i) {
    if (random.below(4) == 0) time += Seconds(random.exponential());
    TraceRequest r{time,
                   1 + static_cast<std::int64_t>(random.below(longest)),
                   1 + static_cast<std::int64_t>(random.below(answer)),
                   {}};
    const bool told = words > 0 && random.below(5) > 0;
    for (std::int64_t b = 0; told && b * kWindowWords < r.input; ++b)
      r.blocks.push_back(random.below(3) > 0 ? 0 : random.below(words));
    out.push_back(std::move(r));
  }
  return out;
}

}  // namespace shardline
