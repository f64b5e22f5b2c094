// What results of requests that are played one by one are made of: latencies, knobs, pools of a pair.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/api/fields.hpp"
#include "planner/api/values.hpp"

namespace shardline::api {

struct LatencyQuantile {
  double quantile = 0;
  double value_s = 0;
  std::optional<double> half_width_s;
};
template <>
struct Fields<LatencyQuantile> {
  static constexpr const char* name = "LatencyQuantile";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A quantile of a latency.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("quantile", &LatencyQuantile::quantile, "0.99 is the 99th percentile");
    field("value_s", &LatencyQuantile::value_s, "at it");
    field("half_width_s", &LatencyQuantile::half_width_s,
          "of a 95 % interval by batch means, what the draw of requests does; null: too few of them");
  }
};

struct ServedLatency {
  std::string latency;
  double mean_s = 0;
  long long count = 0;
  std::vector<LatencyQuantile> quantiles;
};
template <>
struct Fields<ServedLatency> {
  static constexpr const char* name = "ServedLatency";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What users see of one kind.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("latency", &ServedLatency::latency,
          "`TTFT`, `TPOT`, `ITL` (between two tokens) or `E2E` (of a whole request)");
    field("mean_s", &ServedLatency::mean_s, "of them all");
    field("count", &ServedLatency::count, "of requests, or of tokens; 0: nothing was measured");
    field("quantiles", &ServedLatency::quantiles, "p50, p90, p99, p99.9");
  }
};

struct ServedTarget {
  std::string latency;
  double quantile = 0;
  double most_s = 0;
  double measured_s = 0;
  bool met = false;
};
template <>
struct Fields<ServedTarget> {
  static constexpr const char* name = "ServedTarget";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A target and what came of it.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("latency", &ServedTarget::latency, "as of ServedLatency");
    field("quantile", &ServedTarget::quantile, "of requests");
    field("most_s", &ServedTarget::most_s, "at most");
    field("measured_s", &ServedTarget::measured_s, "at that quantile");
    field("met", &ServedTarget::met, "whether it is at most that");
  }
};

struct EngineKnobs {
  long long max_num_batched_tokens = 0;
  long long max_num_seqs = 0;
  long long block_size = 0;
  long long num_gpu_blocks = 0;
  long long max_model_len = 0;
  bool enable_prefix_caching = true;
};
template <>
struct Fields<EngineKnobs> {
  static constexpr const char* name = "EngineKnobs";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Options of the engine that decide what steps compute.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using K = EngineKnobs;
    field("max_num_batched_tokens", &K::max_num_batched_tokens, "of a step");
    field("max_num_seqs", &K::max_num_seqs, "requests that run at once");
    field("block_size", &K::block_size, "tokens of a block of KV, over all ranks that share it");
    field("num_gpu_blocks", &K::num_gpu_blocks, "that memory has room for");
    field("max_model_len", &K::max_model_len, "tokens of a request and its answer");
    field("enable_prefix_caching", &K::enable_prefix_caching, "whether text that is cached is found");
  }
};

struct ServedPools {
  EngineKnobs prefill_knobs;
  long long prefill_gpus = 0;
  long long decode_gpus = 0;
  double prefill_busy = 0;
  double decode_busy = 0;
  double links_sending = 0;
  double links_receiving = 0;
  double prompt_s = 0;
  double room_s = 0;
  double transfer_s = 0;
  double transfer_p99_s = 0;
  double first_step_s = 0;
  double tokens_read = 0;
  long long given_up = 0;
  long long local_prefills = 0;
  double prefill_time_down = 0;
  long long cut_transfers = 0;
  long long failed_loads = 0;
  long long recomputed = 0;
  double lost_tokens = 0;
  double prefill_dummies = 0;
  double decode_dummies = 0;
  std::optional<Estimate> prefill_board_w;
  std::optional<Estimate> decode_board_w;
};
template <>
struct Fields<ServedPools> {
  static constexpr const char* name = "ServedPools";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "What pools that prefill and decode apart show. Means of prompt_s, room_s, transfer_s and first_step_s "
      "are of requests that were handed over, and add up to their TTFT's.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using P = ServedPools;
    field("prefill_knobs", &P::prefill_knobs, "of the engine that prefills");
    field("prefill_gpus", &P::prefill_gpus, "of all replicas that prefill");
    field("decode_gpus", &P::decode_gpus, "of all that decode");
    field("prefill_busy", &P::prefill_busy, "of the replicas' time, 0 to 1: steps");
    field("decode_busy", &P::decode_busy, "likewise");
    field("links_sending", &P::links_sending,
          "of the time, full, of links of a replica that prefills, 0 to 1");
    field("links_receiving", &P::links_receiving, "likewise of one that decodes");
    field("prompt_s", &P::prompt_s,
          "from sending, under SGLang from room on, to the end of the prefill, mean");
    field("room_s", &P::room_s,
          "the way to the other pool, and until it has blocks; under SGLang from sending, mean");
    field("transfer_s", &P::transfer_s, "until the cache is there, mean");
    field("transfer_p99_s", &P::transfer_p99_s, "likewise, the 99th percentile");
    field("first_step_s", &P::first_step_s, "until the first token, mean");
    field("tokens_read", &P::tokens_read, "of a request's cache that go over links, mean");
    field(
        "given_up", &P::given_up,
        "requests that waited, or whose pages were kept, longer than the engine does (SGLang, TensorRT-LLM)");
    field("local_prefills", &P::local_prefills, "prompts that were computed where they were answered");
    field("prefill_time_down", &P::prefill_time_down, "of the time of replicas that prefill, 0 to 1: dead");
    field("cut_transfers", &P::cut_transfers, "hand-offs that ended with a replica before all was carried");
    field(
        "failed_loads", &P::failed_loads,
        "caches that were gone before all of them was read (vLLM), with the replica that had computed them");
    field("recomputed", &P::recomputed, "of these, prompts that were computed where they are answered");
    field("lost_tokens", &P::lost_tokens,
          "of caches that went over links and answered nobody, parts of hand-offs among them");
    field("prefill_dummies", &P::prefill_dummies,
          "of the replicas' time, 0 to 1: dummy batches of vLLM's attention groups, none of the steps");
    field("decode_dummies", &P::decode_dummies, "likewise");
    field("prefill_board_w", &P::prefill_board_w,
          "mean power of the board of a GPU that prefills, in W; null: not known of its system's boards");
    field("decode_board_w", &P::decode_board_w, "likewise of one that decodes");
  }
};

}  // namespace shardline::api
