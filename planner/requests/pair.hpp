// A pool of replicas that prefill and one of replicas that decode, with hand-offs between them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "planner/requests/cluster.hpp"
#include "planner/requests/transfer_links.hpp"
#include "sim/queue/quantiles.hpp"

namespace shardline {

/// One pool: as many schedulers as replicas, and their times.
struct PlayedPool {
  std::vector<std::unique_ptr<Scheduler>> schedulers;
  const StepTimes* times = nullptr;
  Router router = Router::round_robin;
  /// Of the pool that decodes: tokens of prompts at most that it computes itself; 0: none.
  std::int64_t max_local_prefill = 0;
};

/// What came of it. Latencies of requests are those of `decode`: its TTFT is from sending to the first token
/// of the second pool, with all waits once. Those of `prefill` are of prompts alone, as parts of them.
struct PairRun {
  std::vector<ServedRequests> prefill, decode;
  std::vector<double> waiting;  // [R7], in both pools
  std::vector<Seconds> begins;
  std::uint64_t sent = 0;
  Seconds last_sent;
  std::uint64_t local_prefills = 0;  // prompts that were computed where they are answered
  // Seconds: the parts of each other TTFT, one behind the other. [R14] Where prompts are sent as they are
  // computed `room` comes first, from sending to where there are pages for it, and `prompt` goes on from
  // there.
  RunQuantiles prompt;                   // from sending to the end of its prefill
  RunQuantiles room;                     // the way to the other pool, and until it has blocks for it
  RunQuantiles transfer;                 // until all of its cache is there
  RunQuantiles begin;                    // until its first token
  std::uint64_t tokens_read = 0;         // of caches that went over links
  std::vector<double> sending, reading;  // seconds of full links, by replica
  /// Requests that kept their blocks for longer than kKept: vLLM gives them up.
  std::uint64_t given_up = 0;
  CacheWay way = CacheWay::none;
  static constexpr double kKept = 480;  // s, VLLM_NIXL_ABORT_REQUEST_TIMEOUT, vllm/envs.py
  /// SGLang gives up who waits so long for room, or has room and waits so long for its cache.
  static constexpr double kSent = 300;  // s, SGLANG_DISAGGREGATION_{BOOTSTRAP,WAITING}_TIMEOUT, environ.py
};

/// [R12] Plays `requests` of them at most through both pools, to the end of the last. Schedulers are those of
/// engines of pairs, of equal max_model_len: who is refused by one would be by both. Otherwise as
/// play_cluster(), but each step is an event of its own. [R14] Of engines that send prompts as they compute
/// them to who has room for them, who is refused by one is answered by neither.
PairRun play_pair(const PlayedPool& prefill, const PlayedPool& decode, const TransferRates& links,
                  const ClusterLoad& load, std::uint64_t requests, const PlayedEngine::Answered& answered,
                  const std::function<void(std::uint64_t done)>& step);

}  // namespace shardline
