// Random loads on pairs of SGLang's servers, as the player and the plain loops have them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "planner/requests/pair.hpp"
#include "planner/requests/sglang_scheduler.hpp"
#include "tests/planner/requests/plain_sglang_pair.hpp"
#include "tests/planner/requests/random_play.hpp"

namespace shardline {

struct PlayedSglangPair {
  PairRun run;
  std::map<double, AnsweredRequest> answers;  // by when they came
  std::uint64_t answered = 0;
  std::vector<std::unique_ptr<Scheduler>> schedulers;
};

inline PlayedSglangPair played(const SglangPairCase& c, Router router = Router::round_robin) {
  const BentStepTimes times;
  PlayedPool prefill, decode;
  for (std::size_t i = 0; i < c.senders; ++i)
    prefill.schedulers.push_back(std::make_unique<SglangScheduler>(c.prefill, PairRole::prefills));
  for (std::size_t i = 0; i < c.receivers; ++i)
    decode.schedulers.push_back(std::make_unique<SglangScheduler>(c.decode, PairRole::decodes));
  prefill.times = decode.times = &times;
  prefill.router = decode.router = router;
  std::size_t read = 0, sent = 0;
  TraceArrivals arrivals([&]() -> std::optional<Seconds> {
    if (read == c.requests.size()) return std::nullopt;
    return c.requests[read++].arrival;
  });
  ClusterLoad load;
  load.arrivals = &arrivals;
  load.request = [&](TraceRequest& r) { return sent < c.requests.size() && (r = c.requests[sent++], true); };
  load.path = c.path;
  PlayedSglangPair out;
  const PairFailures failures{c.failures, [&](ReplicaPool pool) {
                                const bool prefills = pool == ReplicaPool::prefill;
                                return std::make_unique<SglangScheduler>(
                                    prefills ? c.prefill : c.decode,
                                    prefills ? PairRole::prefills : PairRole::decodes);
                              }};
  out.run = play_pair(
      prefill, decode, c.links, load, c.requests.size(),
      [&](const AnsweredRequest& a) {
        ++out.answered;
        out.answers[a.came.value] = a;
      },
      {}, failures);
  for (PlayedPool* p : {&prefill, &decode})
    for (auto& s : p->schedulers) out.schedulers.push_back(std::move(s));
  return out;
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
  c.senders = 1 + random.below(3);
  c.receivers = 1 + random.below(3);
  // Off the grid of the steps: at a tie two ways of adding times up, which round differently, may both be
  // right.
  c.links = {Seconds(0.001 * static_cast<double>(random.below(4))),
             Seconds(1e-6 * static_cast<double>(1 + random.below(600)) * (1 + 3.14159e-8)),
             1 + static_cast<double>(random.below(3)) / 2, 1 + static_cast<double>(random.below(3)) / 2};
  c.path = Seconds(0.002 * (1 + 2.71828e-7));
  c.requests = random_requests(random, 500);
  return c;
}

}  // namespace shardline
