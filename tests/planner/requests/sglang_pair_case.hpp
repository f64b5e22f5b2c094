// Random loads on pairs of SGLang's servers, as the player and the plain loops have them.
#pragma once

#include <cstdint>
#include <memory>

#include "planner/requests/sglang_scheduler.hpp"
#include "tests/planner/requests/draft_laws.hpp"
#include "tests/planner/requests/plain_sglang_pair.hpp"
#include "tests/planner/requests/played_pair.hpp"

namespace shardline {

inline PlayedPair played(const SglangPairCase& c, Router router = Router::round_robin) {
  const auto engine = [&](const SglangKnobs& knobs, PairRole role) {
    return std::make_unique<SglangScheduler>(knobs, role, c.law);
  };
  return play_case(c, engine, router, router, 0);
}

inline SglangPairCase random_sglang_pair(std::uint64_t seed) {
  RandomStream random(seed, "sglang pairs");
  SglangPairCase c;
  const std::uint32_t page = 1U << (2 * random.below(3));
  for (SglangKnobs* k : {&c.prefill, &c.decode}) {
    k->disable_overlap_schedule = random.below(2) == 0;
    k->page_size = page;
    k->context_length = 700;
    k->max_running_requests = 2 + static_cast<std::uint32_t>(random.below(12));
    k->max_total_tokens = page * ((720 + static_cast<std::uint32_t>(random.below(1800))) / page);
  }
  c.prefill.disable_radix_cache = random.below(3) == 0;
  c.prefill.chunked_prefill_size =
      random.below(4) == 0 ? 0 : 64 + static_cast<std::uint32_t>(random.below(400));
  c.prefill.max_prefill_tokens = 64 + static_cast<std::uint32_t>(random.below(900));
  c.prefill.prefill_max_requests = static_cast<std::uint32_t>(random.below(3));
  c.decode.num_reserved_decode_tokens = page + static_cast<std::uint32_t>(random.below(70));
  c.decode.clip_max_new_tokens_estimation = random.below(2) == 0 ? 4096 : 10;
  c.decode.disaggregation_decode_extra_slots =
      random.below(2) == 0 ? 0 : static_cast<std::uint32_t>(random.below(8));
  draw_links(random, c, 600, false);
  c.requests = random_requests(random, 500);
  return c;
}

// The same on servers of several attention groups each, of more requests at a time.
inline SglangPairCase with_groups(SglangPairCase c, std::uint64_t seed) {
  RandomStream random(seed, "groups of sglang pairs");
  c.prefill_groups = {1 + random.below(3), GroupRouting::by_room};
  c.decode_groups = {1 + random.below(4), GroupRouting::in_turn};
  for (std::size_t i = 0; i < c.requests.size(); ++i) {
    c.requests[i].number = i;
    c.requests[i].arrival = c.requests[i].arrival * 0.3;
  }
  return c;
}

// The same with drafts.
inline SglangPairCase with_drafts(SglangPairCase c, std::uint64_t seed) {
  RandomStream random(seed, "drafts of sglang pairs");
  c.law = random_law(random);
  for (std::size_t i = 0; i < c.requests.size(); ++i) c.requests[i].number = i;
  return c;
}

}  // namespace shardline
