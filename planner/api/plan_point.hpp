// One plan with what it does: a row of a frontier.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "planner/api/values.hpp"

namespace shardline::api {

struct Degrees {
  int pp = 1;
  int dp = 1;
  int kvp = 1;
  int cp = 1;
  int tpa = 1;
  int ep = 1;
  int tpf = 1;
  int dense_tp = 0;
  int in_flight = 1;
};
template <>
struct Fields<Degrees> {
  static constexpr const char* name = "Degrees";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "How far a plan shards along each way.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("pp", &Degrees::pp, "pipeline stages");
    field("dp", &Degrees::dp, "attention data-parallel groups");
    field("kvp", &Degrees::kvp, "shards of the KV cache by sequence");
    field("cp", &Degrees::cp, "context-parallel ranks");
    field("tpa", &Degrees::tpa, "tensor parallelism of attention");
    field("ep", &Degrees::ep, "expert-parallel groups");
    field("tpf", &Degrees::tpf, "tensor parallelism inside a dense FFN or an expert");
    field("dense_tp", &Degrees::dense_tp,
          "ranks that share a dense FFN beside experts; 0: those of an attention group");
    field("in_flight", &Degrees::in_flight, "microbatches that circulate through the stages");
  }
};

struct PlanPoint {
  std::string plan;
  std::string strategy;
  bool exact = true;
  std::optional<double> attention_computed;
  Degrees degrees;
  std::map<std::string, std::string> options;
  int gpus = 0;
  int batch = 0;
  long long requests = 0;
  long long waiting = 0;
  std::string what;
  std::optional<Estimate> ttl_s;
  std::optional<Estimate> tpot_s;
  std::optional<Estimate> ttft_s;
  std::optional<double> ttft_burst_s;
  std::optional<bool> memory_capped;
  std::optional<Estimate> tokens_per_s_user;
  std::optional<Estimate> tokens_per_s_gpu;
  std::optional<Estimate> prompt_tokens_per_s_gpu;
  std::optional<Estimate> gpu_seconds_per_request;
  std::optional<Estimate> board_w;
  std::optional<Estimate> joules_per_token;
  std::optional<Estimate> cost_per_million_tokens;
  double memory_bytes_per_gpu = 0;
  std::optional<Shares> shares;
  std::optional<bool> on_frontier;
};
template <>
struct Fields<PlanPoint> {
  static constexpr const char* name = "PlanPoint";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "One plan, and what it does.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using P = PlanPoint;
    field("plan", &P::plan,
          "its text, which `shardline simulate --plan` takes: its batch is that of all users, those who find "
          "no room "
          "in memory and wait, too");
    field("strategy", &P::strategy, "name of its strategy");
    field("exact", &P::exact, "whether it computes exact attention");
    field("attention_computed", &P::attention_computed,
          "prefills: part of the (query, key) pairs of exact attention that is computed, 0 to 1");
    field("degrees", &P::degrees, "its degrees");
    field("options", &P::options, "options of its strategy that it sets, as in its text");
    field("gpus", &P::gpus, "that it takes");
    field("batch", &P::batch, "requests per attention group and microbatch");
    field("requests", &P::requests, "at once: users that decode or are served, or prompts of a prefill");
    field("waiting", &P::waiting,
          "of these: users for whom memory has no room, who wait for those who have it");
    field("what", &P::what, "what its times and rates are of, as Setting.what");
    field("ttl_s", &P::ttl_s, "token-to-token latency of steps alone; null: of a prefill, or served");
    field("tpot_s", &P::tpot_s,
          "time per output token of a served user, prompts of others in it; null: not served");
    field("ttft_s", &P::ttft_s,
          "time to first token: of a prefill all of it; of served users the mean; null: steps that decode");
    field("ttft_burst_s", &P::ttft_burst_s, "served: mean TTFT if all users come at once");
    field(
        "memory_capped", &P::memory_capped,
        "served: memory does not hold the caches of all users with whole answers: the engine preempts some, "
        "which no price has; null: not served");
    field("tokens_per_s_user", &P::tokens_per_s_user, "tokens of its answer that a user gets per second");
    field("tokens_per_s_gpu", &P::tokens_per_s_gpu, "tokens of answers per second and GPU");
    field("prompt_tokens_per_s_gpu", &P::prompt_tokens_per_s_gpu,
          "new tokens of prompts per second and GPU: of prefills, of mixed steps while they run");
    field("gpu_seconds_per_request", &P::gpu_seconds_per_request, "prefills: TTFT x GPUs / requests");
    field("board_w", &P::board_w,
          "mean power of a GPU's board, in W; null: not rated, or nothing is known of the system's boards");
    field("joules_per_token", &P::joules_per_token,
          "of the boards of all its GPUs, per token of answers, of a prefill per new token; null likewise");
    field("cost_per_million_tokens", &P::cost_per_million_tokens,
          "likewise, of the GPUs' price by the hour that the question gives, in its money; null: none given");
    field("memory_bytes_per_gpu", &P::memory_bytes_per_gpu, "weights, KV cache, activations, buffers");
    field("shares", &P::shares, "what its time rests on; null where that was not worked out");
    field(
        "on_frontier", &P::on_frontier,
        "whether no plan of the sweep beats it on both axes; exact plans are held against exact ones alone; "
        "null: not of a sweep");
  }
};

}  // namespace shardline::api
