// Random loads on pairs of pools of vLLM's, as the player and the plain stepper have them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "planner/requests/pair.hpp"
#include "planner/requests/vllm_scheduler.hpp"
#include "tests/planner/requests/random_play.hpp"

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

// The case's requests as they come.
class ListedLoad {
 public:
  explicit ListedLoad(const PairCase& c)
      : c_(c), arrivals_([this]() -> std::optional<Seconds> {
          if (read_ == c_.requests.size()) return std::nullopt;
          return c_.requests[read_++].arrival;
        }) {
    load.arrivals = &arrivals_;
    load.request = [this](TraceRequest& r) {
      return sent_ < c_.requests.size() && (r = c_.requests[sent_++], true);
    };
    load.path = c.path;
  }
  ListedLoad(const ListedLoad&) = delete;  // the load points to it
  ListedLoad& operator=(const ListedLoad&) = delete;
  ClusterLoad load;

 private:
  const PairCase& c_;
  std::size_t read_ = 0, sent_ = 0;
  TraceArrivals arrivals_;
};

struct PlayedPair {
  PairRun run;
  std::map<double, AnsweredRequest> answers;  // by when they came
  std::uint64_t answered = 0;
  std::vector<std::unique_ptr<Scheduler>> schedulers;
};

inline PlayedPair played(const PairCase& c) {
  const BentStepTimes times;
  PlayedPool prefill, decode;
  for (std::size_t i = 0; i < c.senders; ++i)
    prefill.schedulers.push_back(std::make_unique<VllmScheduler>(c.prefill, PairRole::prefills));
  for (std::size_t i = 0; i < c.receivers; ++i)
    decode.schedulers.push_back(std::make_unique<VllmScheduler>(c.decode, PairRole::decodes));
  prefill.times = decode.times = &times;
  prefill.router = c.to_prefill;
  decode.router = c.to_decode;
  decode.max_local_prefill = c.max_local_prefill;
  ListedLoad listed(c);
  PlayedPair out;
  const PairFailures failures{c.failures, [&](ReplicaPool pool) {
                                const bool prefills = pool == ReplicaPool::prefill;
                                return std::make_unique<VllmScheduler>(
                                    prefills ? c.prefill : c.decode,
                                    prefills ? PairRole::prefills : PairRole::decodes);
                              }};
  out.run = play_pair(
      prefill, decode, c.links, listed.load, c.requests.size(),
      [&](const AnsweredRequest& a) {
        ++out.answered;
        out.answers[a.came.value] = a;
      },
      {}, failures);
  for (PlayedPool* p : {&prefill, &decode})
    for (auto& s : p->schedulers) out.schedulers.push_back(std::move(s));
  return out;
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
  c.senders = 1 + random.below(3);
  c.receivers = 1 + random.below(3);
  // Off the grid of the steps: at a tie two ways of adding times up, which round differently, may both be
  // right.
  c.links = {Seconds(0.001 * static_cast<double>(random.below(4))),
             Seconds(1e-6 * static_cast<double>(1 + random.below(1000)) * (1 + 3.14159e-8)),
             1 + static_cast<double>(random.below(3)) / 2, 1 + static_cast<double>(random.below(3)) / 2};
  c.path = Seconds(0.002 * (1 + 2.71828e-7));
  c.requests = random_requests(random, 500);
  if (seed % 3 == 2) c.max_local_prefill = static_cast<std::int64_t>(random.below(400));
  return c;
}

}  // namespace shardline
