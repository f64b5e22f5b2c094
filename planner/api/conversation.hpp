// conversation: the time to first token and the time per token of every turn.
#pragma once

#include <string>
#include <vector>

#include "planner/api/setting.hpp"
#include "planner/api/thresholds.hpp"

namespace shardline::api {

struct Turn {
  int turn = 0;
  long long new_tokens = 0;
  long long cached_tokens = 0;
  double kv_hit_rate = 0;
  std::string variant;
  Estimate ttft_s;
  double pass_kv_s = 0;
  double pass_q_s = 0;
  bool variants_told_apart = true;
  long long output_tokens = 0;
  double ttl_first_s = 0;
  Estimate ttl_last_s;
  Estimate turn_s;
  double kv_bytes_per_gpu = 0;
  long long tokens_fullest_rank = 0;
  long long tokens_emptiest_rank = 0;
  Shares shares;
};
template <>
struct Fields<Turn> {
  static constexpr const char* name = "Turn";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A prompt and its answer.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("turn", &Turn::turn, "from 1");
    field("new_tokens", &Turn::new_tokens, "of the prompt");
    field("cached_tokens", &Turn::cached_tokens, "of all turns before");
    field("kv_hit_rate", &Turn::kv_hit_rate, "cached tokens over both");
    field("variant", &Turn::variant, "the faster one: `pass_kv` or `pass_q`");
    field("ttft_s", &Turn::ttft_s, "of that variant");
    field("pass_kv_s", &Turn::pass_kv_s, "TTFT if KV blocks travel round the ring");
    field("pass_q_s", &Turn::pass_q_s, "TTFT if queries do");
    field("variants_told_apart", &Turn::variants_told_apart,
          "whether they differ by more than prices may be off");
    field("output_tokens", &Turn::output_tokens, "of the answer");
    field("ttl_first_s", &Turn::ttl_first_s,
          "of the step of its first token, which decodes alone; 0: no answer");
    field("ttl_last_s", &Turn::ttl_last_s, "of the last one; 0: no answer");
    field("turn_s", &Turn::turn_s, "TTFT and all tokens of the answer");
    field("kv_bytes_per_gpu", &Turn::kv_bytes_per_gpu, "when the answer is complete");
    field("tokens_fullest_rank", &Turn::tokens_fullest_rank, "cached then");
    field("tokens_emptiest_rank", &Turn::tokens_emptiest_rank, "likewise");
    field("shares", &Turn::shares, "what the turn's whole time rests on");
  }
};

struct ModelConversation {
  Setting setting;
  int cp = 1;
  int tpa = 1;
  std::vector<Turn> turns;
  double all_ttft_s = 0;
  double all_pass_kv_s = 0;
  double all_pass_q_s = 0;
};
template <>
struct Fields<ModelConversation> {
  static constexpr const char* name = "ModelConversation";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "The conversation with one model of a scenario; one user.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using M = ModelConversation;
    field("setting", &M::setting, "what all numbers are of");
    field("cp", &M::cp, "context-parallel ranks");
    field("tpa", &M::tpa, "GPUs of each");
    field("turns", &M::turns, "in their order");
    field("all_ttft_s", &M::all_ttft_s, "sum of TTFTs with the variant chosen per turn");
    field("all_pass_kv_s", &M::all_pass_kv_s, "always pass-KV");
    field("all_pass_q_s", &M::all_pass_q_s, "always pass-Q");
  }
};

struct ConversationResult {
  std::string version;
  std::string command;
  std::string scenario;
  ScenarioQuestion question;
  std::vector<ModelConversation> models;
};
template <>
struct Fields<ConversationResult> {
  static constexpr const char* name = "ConversationResult";
  static constexpr const char* schema = "shardline.conversation/2";
  static constexpr const char* about = "What `shardline conversation` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = ConversationResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell; empty: the library was asked");
    field("scenario", &R::scenario, "its name");
    field("question", &R::question, "what was asked");
    field("models", &R::models, "one per model of the scenario");
  }
};

std::string to_json(const ConversationResult& result);

}  // namespace shardline::api
