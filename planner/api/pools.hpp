// Prompts and answers on GPUs of their own.
#pragma once

#include <optional>
#include <string>

#include "planner/api/values.hpp"

namespace shardline::api {

struct WholePools {
  int prefill_replicas = 0;
  int decode_replicas = 0;
  int gpus = 0;
  long long users = 0;
  Estimate ttft_s;
  double ttft_burst_s = 0;
  double handoff_s = 0;
  Estimate tokens_per_s_gpu;
  double prompts_together = 0;
  double prefill_busy = 0;
  double decode_busy = 0;
  std::optional<Estimate> board_w;
  std::optional<Estimate> joules_per_token;
  std::optional<Estimate> cost_per_million_tokens;
};
template <>
struct Fields<WholePools> {
  static constexpr const char* name = "WholePools";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "Two pools in whole replicas of their plans, within the system's GPUs.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using W = WholePools;
    field("prefill_replicas", &W::prefill_replicas, "of the plan that prefills");
    field("decode_replicas", &W::decode_replicas, "of the plan that decodes");
    field("gpus", &W::gpus, "of all replicas");
    field("users", &W::users, "served at once");
    field("ttft_s", &W::ttft_s, "of these users: request path, queue, prompt, hand-off and the first step");
    field("ttft_burst_s", &W::ttft_burst_s, "if all users come at once");
    field("handoff_s", &W::handoff_s,
          "of a request's KV, over the network where these replicas are more than a node has room for");
    field("tokens_per_s_gpu", &W::tokens_per_s_gpu, "tokens of answers per second and GPU of both pools");
    field("prompts_together", &W::prompts_together, "prompts of a step of a replica that prefills, mean");
    field("prefill_busy", &W::prefill_busy, "part of the time in which that pool computes");
    field("decode_busy", &W::decode_busy, "part of that pool's users who decode");
    field("board_w", &W::board_w, "mean power of a GPU's board of both, in W; null: not known");
    field("joules_per_token", &W::joules_per_token, "of all boards, per token of answers; null likewise");
    field("cost_per_million_tokens", &W::cost_per_million_tokens,
          "of answers, of the GPUs' price by the hour; null: none given");
  }
};

struct PoolPair {
  std::string decode_plan;
  int decode_gpus = 0;
  long long decode_users = 0;
  std::string prefill_plan;
  int prefill_gpus = 0;
  std::string what;
  Estimate tpot_s;
  Estimate ttft_s;
  double ttft_burst_s = 0;
  bool memory_capped = false;
  Estimate tokens_per_s_user;
  Estimate tokens_per_s_gpu;
  double prefill_users = 0;
  double prompts_together = 0;
  long long most_prompts_a_step = 0;
  long long tokens_a_step = 0;
  double prompt_s = 0;
  double prefill_requests_per_s_gpu = 0;
  double handoff_s = 0;
  double prefill_gpus_per_decode_gpu = 0;
  std::optional<Estimate> board_w;
  std::optional<Estimate> joules_per_token;
  std::optional<Estimate> cost_per_million_tokens;
  std::optional<WholePools> whole;
};
template <>
struct Fields<PoolPair> {
  static constexpr const char* name = "PoolPair";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A plan that decodes beside the plan that prefills for it.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using P = PoolPair;
    field("decode_plan", &P::decode_plan, "its text");
    field("decode_gpus", &P::decode_gpus, "of one replica");
    field("decode_users", &P::decode_users, "of one replica");
    field("prefill_plan", &P::prefill_plan, "its text");
    field("prefill_gpus", &P::prefill_gpus, "of one replica");
    field("what", &P::what, "what its times and rates are of");
    field("tpot_s", &P::tpot_s, "of a user: a step that decodes alone");
    field("ttft_s", &P::ttft_s, "of a user: request path, queue, prompt, hand-off and the first step");
    field("ttft_burst_s", &P::ttft_burst_s, "if all users come at once");
    field(
        "memory_capped", &P::memory_capped,
        "memory does not hold the caches of all users with whole answers: the engine preempts some, which no "
        "price has");
    field("tokens_per_s_user", &P::tokens_per_s_user, "tokens of its answer that a user gets per second");
    field("tokens_per_s_gpu", &P::tokens_per_s_gpu,
          "tokens of answers over the GPUs of both pools, in the ratio that answers most");
    field("prefill_users", &P::prefill_users, "who share one replica that prefills");
    field("prompts_together", &P::prompts_together, "prompts of a step of such a replica, mean");
    field("most_prompts_a_step", &P::most_prompts_a_step, "that one of its attention groups has room for");
    field("tokens_a_step", &P::tokens_a_step, "of such a group, which its launch files say");
    field("prompt_s", &P::prompt_s, "the steps of a prompt, with those that share them");
    field("prefill_requests_per_s_gpu", &P::prefill_requests_per_s_gpu, "of the pool that prefills");
    field("handoff_s", &P::handoff_s, "of a request's KV from one pool to the other");
    field("prefill_gpus_per_decode_gpu", &P::prefill_gpus_per_decode_gpu, "the ratio that answers most");
    field("board_w", &P::board_w, "mean power of a GPU's board of both, in W; null: not known");
    field("joules_per_token", &P::joules_per_token, "of all boards, per token of answers; null likewise");
    field("cost_per_million_tokens", &P::cost_per_million_tokens,
          "of answers, of the GPUs' price by the hour; null: none given");
    field("whole", &P::whole, "in whole replicas; null: the system holds none of both");
  }
};

}  // namespace shardline::api
