// thresholds: when ring attention should pass KV blocks and when Q blocks.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "planner/api/setting.hpp"

namespace shardline::api {

struct ScenarioQuestion {
  std::string scenario;
  std::string scenario_text;
};
template <>
struct Fields<ScenarioQuestion> {
  static constexpr const char* name = "ScenarioQuestion";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Which scenario is asked.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using Q = ScenarioQuestion;
    field("scenario", &Q::scenario, "name of a shipped scenario, or a file");
    field("scenario_text", &Q::scenario_text, "the scenario itself, in YAML, in place of a file");
  }
};

struct ThresholdsQuestion {
  std::string scenario;
  std::string scenario_text;
  std::optional<std::string> trace;
  std::optional<double> requests_per_s;
  std::optional<double> load;
  long long chunk_tokens = 0;
  long long requests = 0;
};
template <>
struct Fields<ThresholdsQuestion> {
  static constexpr const char* name = "ThresholdsQuestion";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Which scenario is asked, and in which context.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using Q = ThresholdsQuestion;
    field("scenario", &Q::scenario, "name of a shipped scenario, or a file");
    field("scenario_text", &Q::scenario_text, "the scenario itself, in YAML, in place of a file");
    field("trace", &Q::trace, "a file of recorded requests whose prompts are played; null: none");
    field("requests_per_s", &Q::requests_per_s, "that come to each replica; null: as `load` says");
    field("load", &Q::load, "part of the time that prefills of the trace take, below 1; null: 0.7");
    field("chunk_tokens", &Q::chunk_tokens, "of a prompt that a step computes, at most; 0: 8192");
    field("requests", &Q::requests, "of the trace, at most; 0: all");
  }
};

struct Regret {
  std::string rule;
  std::size_t requests = 0;
  std::size_t right = 0;
  double mean = 0;
  double p99 = 0;
  double worst = 0;
  std::optional<long long> worst_new_tokens;
  std::optional<long long> worst_cached_tokens;
};
template <>
struct Fields<Regret> {
  static constexpr const char* name = "Regret";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "What a rule loses on requests that it was not derived from: time of its choice over the better one's, "
      "less 1.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = Regret;
    field("rule", &R::rule, "its name");
    field("requests", &R::requests, "that it was judged on");
    field("right", &R::right, "of which it lost nothing");
    field("mean", &R::mean, "over all");
    field("p99", &R::p99, "99th percentile");
    field("worst", &R::worst, "largest");
    field("worst_new_tokens", &R::worst_new_tokens, "new tokens of the request where; null: no loss");
    field("worst_cached_tokens", &R::worst_cached_tokens, "its cached tokens");
  }
};

struct AnalyticRule {
  std::string rates;
  double kv_hidden_tokens = kUnknown;
  double message_ratio = kUnknown;
  double q_hidden_tokens = kUnknown;
};
template <>
struct Fields<AnalyticRule> {
  static constexpr const char* name = "AnalyticRule";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Algorithm 5 of arXiv 2411.01783 for this machine.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = AnalyticRule;
    field("rates", &R::rates, "`peak` or `achieved`");
    field("kv_hidden_tokens", &R::kv_hidden_tokens,
          "new tokens from which the KV messages are hidden (Eq. 2)");
    field("message_ratio", &R::message_ratio, "miss rate below which Q messages are smaller (Eq. 1)");
    field("q_hidden_tokens", &R::q_hidden_tokens,
          "new and cached tokens from which Q is hidden (Eq. 3); null: never");
  }
};

struct OpenRange {
  double lowest_miss_rate = 0;
  double most_miss_rate = 0;
  std::size_t open_requests = 0;
};
template <>
struct Fields<OpenRange> {
  static constexpr const char* name = "OpenRange";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Where either variant may be the faster one, as prices may be off.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using O = OpenRange;
    field("lowest_miss_rate", &O::lowest_miss_rate, "from this one");
    field("most_miss_rate", &O::most_miss_rate, "to this one");
    field("open_requests", &O::open_requests, "and in so many of the test requests");
  }
};

struct Crossing {
  long long total_tokens = 0;
  double miss_rate = 0;
  OpenRange shared;
  OpenRange unrelated;
};
template <>
struct Fields<Crossing> {
  static constexpr const char* name = "Crossing";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Where both variants take as long, at one length.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using C = Crossing;
    field("total_tokens", &C::total_tokens, "new and cached");
    field("miss_rate", &C::miss_rate, "new tokens over all, at which they take as long");
    field("shared", &C::shared, "if what a fit gets wrong is the same in both");
    field("unrelated", &C::unrelated, "if it differs from shape to shape");
  }
};

struct RingThresholds {
  int ranks = 0;
  std::size_t requests = 0;
  std::size_t pass_kv_faster = 0;
  std::size_t table_bytes = 0;
  double alpha = 0;
  double beta = 0;
  double gamma = 0;
  std::vector<AnalyticRule> analytic;
  std::size_t rated_requests = 0;
  Shares shares;
  std::optional<Crossing> crossing;
  std::vector<Regret> regrets;
};
template <>
struct Fields<RingThresholds> {
  static constexpr const char* name = "RingThresholds";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Rings of one number of ranks.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = RingThresholds;
    field("ranks", &R::ranks, "context-parallel ranks of a ring");
    field("requests", &R::requests, "test requests");
    field("pass_kv_faster", &R::pass_kv_faster, "of which pass-KV is the faster in so many");
    field("table_bytes", &R::table_bytes, "size of the lookup table");
    field("alpha", &R::alpha,
          "of h = alpha ln T + beta ln(T/(T+P)) + gamma, T new and P cached tokens: pass-KV if h > 0");
    field("beta", &R::beta, "likewise");
    field("gamma", &R::gamma, "likewise");
    field("analytic", &R::analytic, "the paper's formulas, by peak and by achieved rates");
    field("rated_requests", &R::rated_requests, "test requests whose time was broken down");
    field("shares", &R::shares, "what their time rests on");
    field("crossing", &R::crossing, "null: no calibrated costs, or none at that length");
    field("regrets", &R::regrets, "of every rule, on the test requests");
  }
};

struct ContextRegret {
  std::string rule;
  std::string asked;
  std::size_t right_steps = 0;
  double computing = 0;
  Estimate mean_ttft;
  double p99_ttft = 0;
};
template <>
struct Fields<ContextRegret> {
  static constexpr const char* name = "ContextRegret";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "What a rule loses on the judged half of recorded requests: its number over that of the faster variant "
      "in each step, less 1.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = ContextRegret;
    field("rule", &R::rule, "its name");
    field("asked", &R::asked, "`each step`, with its tokens, or `once` with those of the whole prompt");
    field("right_steps", &R::right_steps, "in which it chose the faster variant");
    field("computing", &R::computing, "time of prefills");
    field("mean_ttft", &R::mean_ttft, "mean TTFT; the interval is of pass-Q's prices against pass-KV's");
    field("p99_ttft", &R::p99_ttft, "99th percentile of TTFT");
  }
};

struct ContextRing {
  int ranks = 0;
  long long held_tokens = 0;
  double requests_per_s = 0;
  double load = 0;
  double found = 0;
  std::size_t steps = 0;
  std::size_t judged_steps = 0;
  std::optional<std::size_t> open_steps;
  long long typical_new_tokens = 0;
  long long typical_cached_tokens = 0;
  Estimate mean_ttft_s;
  Estimate p99_ttft_s;
  double alpha = 0;
  double beta = 0;
  double gamma = 0;
  std::vector<ContextRegret> rules;
};
template <>
struct Fields<ContextRing> {
  static constexpr const char* name = "ContextRing";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "One replica that prefills recorded prompts in the order in which they come, one at a time.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = ContextRing;
    field("ranks", &R::ranks, "context-parallel ranks of its ring");
    field("held_tokens", &R::held_tokens, "that its KV cache holds beside a step");
    field("requests_per_s", &R::requests_per_s, "that came");
    field("load", &R::load, "part of the time that it computed, by the faster variants");
    field("found", &R::found, "part of the prompts' tokens that the cache had");
    field("steps", &R::steps, "of all prompts");
    field("judged_steps", &R::judged_steps, "of the half that rules are judged on");
    field("open_steps", &R::open_steps,
          "of these, in which either variant may be the faster as prices may be off; null: costs are not "
          "calibrated");
    field("typical_new_tokens", &R::typical_new_tokens, "of the median judged step, whose errors are taken");
    field("typical_cached_tokens", &R::typical_cached_tokens, "likewise");
    field("mean_ttft_s", &R::mean_ttft_s, "by the faster variant in each step, of the judged half");
    field("p99_ttft_s", &R::p99_ttft_s, "likewise");
    field("alpha", &R::alpha, "of h, as of RingThresholds, fitted to the half that is not judged");
    field("beta", &R::beta, "likewise");
    field("gamma", &R::gamma, "likewise");
    field("rules", &R::rules, "what they lose");
  }
};

struct ThresholdsInContext {
  std::size_t requests = 0;
  std::size_t judged_requests = 0;
  double mean_prompt_tokens = 0;
  std::vector<ContextRing> rings;
};
template <>
struct Fields<ThresholdsInContext> {
  static constexpr const char* name = "ThresholdsInContext";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "The choice with cache hits, chunks and a queue, of a trace.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using C = ThresholdsInContext;
    field("requests", &C::requests, "that were played");
    field("judged_requests", &C::judged_requests, "of these, the last, which no rule was fitted to");
    field("mean_prompt_tokens", &C::mean_prompt_tokens, "of all");
    field("rings", &C::rings, "by number of ranks");
  }
};

struct ModelThresholds {
  Setting setting;
  int gpus_per_rank = 1;
  std::size_t timed_requests = 0;
  std::vector<RingThresholds> rings;
  std::optional<ThresholdsInContext> in_context;
};
template <>
struct Fields<ModelThresholds> {
  static constexpr const char* name = "ModelThresholds";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "The thresholds of one model of a scenario.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using M = ModelThresholds;
    field("setting", &M::setting, "what all numbers are of");
    field("gpus_per_rank", &M::gpus_per_rank, "tensor parallelism of each rank");
    field("timed_requests", &M::timed_requests, "by events, both variants");
    field("rings", &M::rings, "by number of ranks");
    field("in_context", &M::in_context, "null: no trace was asked for");
  }
};

struct ThresholdsResult {
  std::string version;
  std::string command;
  std::string scenario;
  ThresholdsQuestion question;
  std::vector<ModelThresholds> models;
};
template <>
struct Fields<ThresholdsResult> {
  static constexpr const char* name = "ThresholdsResult";
  static constexpr const char* schema = "shardline.thresholds/1";
  static constexpr const char* about =
      "What `shardline thresholds` answers. The lookup table itself is in the files that `-o` writes.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = ThresholdsResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell; empty: the library was asked");
    field("scenario", &R::scenario, "its name");
    field("question", &R::question, "what was asked");
    field("models", &R::models, "one per model of the scenario");
  }
};

std::string to_json(const ThresholdsResult& result);
std::string to_json(const ThresholdsInContext& found);

}  // namespace shardline::api
