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

/// One pool: replicas and their times.
struct PlayedPool {
  /// Of each attention group of each replica, those of a replica one after another.
  std::vector<std::unique_ptr<Scheduler>> schedulers;
  ReplicaGroups groups = {};  // [R18] of each replica
  const StepTimes* times = nullptr;
  Router router = Router::round_robin;
  /// Of the pool that decodes: tokens of prompts at most that it computes itself; 0: none.
  std::int64_t max_local_prefill = 0;
};

/// [R15] Replicas of both pools that die, each of one in the order of time and none before the other's end,
/// and a new scheduler for each group of one that is back.
struct PairFailures {
  std::vector<ReplicaFailure> all;
  std::function<std::unique_ptr<Scheduler>(ReplicaPool)> scheduler;
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
  // there. [R15] Of the attempt that is answered; the first part has all before it, too.
  RunQuantiles prompt;                   // from sending to the end of its prefill
  RunQuantiles room;                     // the way to the other pool, and until it has blocks for it
  RunQuantiles transfer;                 // until all of its cache is there
  RunQuantiles begin;                    // until its first token
  std::uint64_t tokens_read = 0;         // of caches that went over links, to who was answered with them
  std::vector<double> sending, reading;  // seconds of full links, by replica and group
  /// [R14] Requests that waited, or kept their pages, for longer than kSent: SGLang gives them up; [R21]
  /// TensorRT-LLM those that wait for longer than kGiven.
  std::uint64_t given_up = 0;
  CacheWay way = CacheWay::none;
  // [R15]
  std::uint64_t retried = 0;          // times that a request lost a replica, or its cache, and was sent again
  std::uint64_t unserved = 0;         // requests that wait at the end for replicas that never come back
  std::uint64_t cut_transfers = 0;    // hand-offs that ended before all was carried
  std::uint64_t failed_loads = 0;     // caches that were gone before they were read, or while they were
  std::uint64_t recomputed = 0;       // of these, prompts that were computed where they are answered
  double lost_tokens = 0;             // that went over links, parts of hand-offs too, and served nobody
  Seconds prefill_down, decode_down;  // of all replicas together, up to the end of the last step
  /// SGLang gives up who waits so long for room, or has room and waits so long for its cache.
  static constexpr double kSent = 300;  // s, SGLANG_DISAGGREGATION_{BOOTSTRAP,WAITING}_TIMEOUT, environ.py
  /// [R21] TensorRT-LLM gives up who waits so long to be read from the end of its prompt (llmapi/llm_args.py
  /// at 002f3cc3d055, kv_transfer_timeout_ms).
  static constexpr double kGiven = 60;  // s
  /// [R15] vLLM keeps blocks for so long after a prompt, and after a heartbeat of the replica that is to read
  /// them, which comes so often (docs/design/nixl_kv_cache_lease.md: kv_lease_duration, 2 / 3 and 1 / 6 of
  /// it).
  static constexpr double kLease = 30, kExtension = 20, kLeaseBeat = 5;  // s
  /// [R15] A server of SGLang's that decodes asks those that prefill for their health so often, and takes one
  /// for dead after so many times without an answer (environ.py:
  /// SGLANG_DISAGGREGATION_HEARTBEAT_{INTERVAL,MAX_FAILURE}).
  static constexpr double kHealthBeat = 5;  // s
  static constexpr int kHealthMisses = 2;
};

/// [R12] Plays `requests` of them at most through both pools, to the end of the last. Schedulers are those of
/// engines of pairs, of equal max_model_len: who is refused by one would be by both. Otherwise as
/// play_cluster(), but nobody's stretch of steps is cut by what other engines do. [R14] Of engines that send
/// prompts as they compute them to who has room for them, who is refused by one is answered by neither. [R18]
/// Attention groups of a replica have caches and links of their own behind one barrier. [R15]
/// Who loses a replica, or what was computed for it, begins anew at once, or waits until a replica of either
/// pool is up. What happens is added to `timeline`, if there is one: replicas that prefill come first, those
/// that decode behind them, and a request is shown in both, by its place among all.
PairRun play_pair(const PlayedPool& prefill, const PlayedPool& decode, const TransferRates& links,
                  const ClusterLoad& load, std::uint64_t requests, const PlayedEngine::Answered& answered,
                  const std::function<void(std::uint64_t done)>& step, const PairFailures& failures = {},
                  ServedTimeline* timeline = nullptr);

}  // namespace shardline
