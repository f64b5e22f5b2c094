// serve: requests on a plan, one by one, and what their users see.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/api/served_parts.hpp"
#include "planner/api/setting.hpp"

namespace shardline::api {

struct ServeQuestion {
  std::string scenario;
  std::string scenario_text;
  std::string model;
  std::string system;
  std::optional<long long> gpus;
  std::optional<long long> nodes;
  std::optional<std::string> read_as;
  std::optional<double> most_ttl_s;
  std::optional<double> least_tokens_per_s_user;
  std::optional<double> most_ttft_s;
  std::string plan;
  std::optional<std::string> trace;
  long long input_tokens = 0;
  long long output_tokens = 0;
  std::string lengths;
  std::optional<double> requests_per_s;
  std::optional<long long> users;
  std::optional<double> think_s;
  std::optional<double> path_s;
  long long requests = 0;
  std::string slo;
  int replicas = 0;
  std::string prefill = {};
  std::string prefill_system;
  int prefill_replicas = 1;
  std::vector<std::string> prefill_knobs = {};
  long long max_local_prefill = 0;
  std::string router;
  std::vector<std::string> failures = {};
  long long seed = 1;
  std::vector<std::string> knobs;
};
template <>
struct Fields<ServeQuestion> {
  static constexpr const char* name = "ServeQuestion";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "Which requests are served, on what: a scenario and a plan, or without a scenario a model and a "
      "system. "
      "In a result with its defaults.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using Q = ServeQuestion;
    field("scenario", &Q::scenario, "name of a shipped scenario, or a file; empty: `model` on `system`");
    field("scenario_text", &Q::scenario_text, "the scenario itself, in YAML, in place of a file");
    field("model", &Q::model, "which one of the scenario, empty: the first; without a scenario as of plan");
    field("system", &Q::system, "without a scenario: name of the catalogue, or a .yaml file");
    field("gpus", &Q::gpus,
          "at most, of all copies of a plan that is chosen, of each replica of those that are named; null: "
          "as of plan");
    field("nodes", &Q::nodes, "at most, in place of `gpus`");
    field("read_as", &Q::read_as, "model_type to read the model's config.json as; null: its own");
    field("most_ttl_s", &Q::most_ttl_s, "target of the search for a plan; null: none");
    field("least_tokens_per_s_user", &Q::least_tokens_per_s_user,
          "the same target in other terms, of which the stricter holds; null: none");
    field("most_ttft_s", &Q::most_ttft_s, "likewise");
    field("plan", &Q::plan, "its text; empty, without a scenario: the best that plan finds");
    field("trace", &Q::trace, "the file that requests are from; null: they are made up");
    field("input_tokens", &Q::input_tokens, "of a made-up request; 0: as the scenario's workload");
    field("output_tokens", &Q::output_tokens, "of its answer; likewise");
    field("lengths", &Q::lengths, "`equal` (or empty), or `drawn`: from 80 to 100 % of these");
    field("requests_per_s", &Q::requests_per_s, "that come; null: at the trace's own times, or of users");
    field("users", &Q::users, "of a closed loop; null: none");
    field("think_s", &Q::think_s,
          "mean time between an answer and the next request of each user, exponential; null: none, and all "
          "begin at once");
    field("path_s", &Q::path_s, "from a client to the engine and back; null: that of the engine's server");
    field("requests", &Q::requests, "at most; 0: 2000, ten of each of `users`, all of a trace");
    field("slo", &Q::slo, "targets: `ttft p99 2 s, tpot p99 40 ms`; empty: none");
    field("replicas", &Q::replicas,
          "of the plan; 0: of one that is named one, else as many as the answer to the line starts");
    field("prefill", &Q::prefill, "plan of a pool that prefills, `plan` then decodes; empty: one pool");
    field("prefill_system", &Q::prefill_system, "system that it is on; empty: the one that `plan` is on");
    field("prefill_replicas", &Q::prefill_replicas, "of that plan");
    field("prefill_knobs", &Q::prefill_knobs, "options of its engine: `max_num_batched_tokens=16384`");
    field("max_local_prefill", &Q::max_local_prefill,
          "tokens of prompts at most that the plan that decodes computes itself; 0: none");
    field("router", &Q::router, "`round_robin` (or empty), `least_requests`, `least_kv` or `prefix`");
    field("failures", &Q::failures,
          "replicas that die: `0 at 60 s for 5 min`, without `for` for good; of a pair of pools "
          "`prefill 0 at 60 s` or `decode 0 at 60 s`");
    field("seed", &Q::seed, "of arrivals and lengths");
    field("knobs", &Q::knobs, "options of the engine: `max_num_seqs=256`");
  }
};

struct LargestRate {
  double low_per_s = 0;
  double high_per_s = 0;
  int plays = 0;
};
template <>
struct Fields<LargestRate> {
  static constexpr const char* name = "LargestRate";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Between which rates the largest one that meets the targets lies.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("low_per_s", &LargestRate::low_per_s, "requests/s that meet them; 0: none looked at does");
    field("high_per_s", &LargestRate::high_per_s, "requests/s that do not");
    field("plays", &LargestRate::plays, "rates that were looked at, all with one seed");
  }
};

struct ServedDrafts {
  long long drafts = 0;
  double tokens_per_step = 1;
  std::string basis;
  double tokens_low = 0;
  double tokens_high = 0;
  long long seed = 0;
};
template <>
struct Fields<ServedDrafts> {
  static constexpr const char* name = "ServedDrafts";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "What steps of a plan with drafts were taken to yield. Inter-token latency is then of chunks: of "
      "what a step yields of a request, as its client gets it.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using D = ServedDrafts;
    field("drafts", &D::drafts, "of each request that a step verifies");
    field("tokens_per_step", &D::tokens_per_step, "that a step yields of a request, mean of the law");
    field("basis", &D::basis, "what that mean rests on");
    field("tokens_low", &D::tokens_low,
          "nominal 90 % by what the form is off published curves, the lower end");
    field("tokens_high", &D::tokens_high, "the upper end; both are the mean where it is given");
    field("seed", &D::seed, "of the streams that steps are drawn from, one for each request");
  }
};

struct ServeResult {
  std::string version;
  std::string command;
  Setting setting;
  ServeQuestion question;
  EngineKnobs knobs;
  bool met = false;
  std::optional<LargestRate> largest_rate;
  std::optional<ServedPools> pools;
  std::optional<ServedDrafts> drafts;
  std::vector<ServedLatency> latencies;
  std::vector<ServedTarget> targets;
  long long gpus = 0;
  long long sent = 0;
  long long answered = 0;
  long long refused = 0;
  long long retried = 0;
  long long unserved = 0;
  long long preemptions = 0;
  long long steps = 0;
  double seconds = 0;
  double requests_per_s = 0;
  double goodput_per_s = 0;
  Estimate output_tokens_per_s_gpu;
  Estimate input_tokens_per_s_gpu;
  std::optional<double> prices_low;
  std::optional<double> prices_high;
  double prefix_hits = 0;
  double time_with_prompts = 0;
  double time_decoding = 0;
  double time_idle = 0;
  double time_down = 0;
  double running = 0;
  double waiting = 0;
  double kv_held = 0;
  double kv_most = 0;
  std::optional<double> queue_growth_per_s;
  std::optional<Estimate> board_w;
  std::optional<Estimate> energy_j;
  std::optional<Estimate> joules_per_token;
  std::optional<Estimate> cost_per_million_tokens;
  double step_error = 0;
  std::vector<Diagnostic> warnings;
};
template <>
struct Fields<ServeResult> {
  static constexpr const char* name = "ServeResult";
  static constexpr const char* schema = "shardline.serve/2";
  static constexpr const char* about = "What `shardline serve` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = ServeResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell");
    field("setting", &R::setting, "what all numbers are of");
    field("question", &R::question, "what was asked");
    field("knobs", &R::knobs, "of the engine, in each attention group");
    field("met", &R::met,
          "whether all targets are met, nobody was refused or left unserved and the load drains");
    field("largest_rate", &R::largest_rate, "where it was asked for; then all numbers are of its lower end");
    field("pools", &R::pools, "of a pool that prefills and one that decodes; null: one pool does both");
    field("drafts", &R::drafts, "of a plan that has any; null: each step yields a token of a request");
    field("latencies", &R::latencies, "what users see");
    field("targets", &R::targets, "that were asked for");
    field("gpus", &R::gpus, "of all replicas");
    field("sent", &R::sent, "requests");
    field("answered", &R::answered, "of them");
    field("refused", &R::refused, "by the engine's own rule: longer than `max_model_len`");
    field("retried", &R::retried, "times that a request lost its replica and was sent to another");
    field("unserved", &R::unserved, "requests that still wait for a replica when none comes back");
    field("preemptions", &R::preemptions, "times that a request lost its KV, to be computed anew");
    field("steps", &R::steps, "of all replicas");
    field("seconds", &R::seconds, "until the last answer");
    field("requests_per_s", &R::requests_per_s, "answered");
    field("goodput_per_s", &R::goodput_per_s, "likewise those that keep every target themselves");
    field("output_tokens_per_s_gpu", &R::output_tokens_per_s_gpu,
          "of answers; ends by prices where these decide how many come: in a closed loop, at the largest "
          "rate and "
          "of a load that does not drain; null of others, which are as many as come");
    field("input_tokens_per_s_gpu", &R::input_tokens_per_s_gpu, "of prompts, likewise");
    field(
        "prices_low", &R::prices_low,
        "what prices alone add to TPOT and ITL, as a part of them, nominal 90 %, the lower end; intervals of "
        "`latencies` are of the draw of requests; null: nobody was answered");
    field("prices_high", &R::prices_high, "the upper end");
    field("prefix_hits", &R::prefix_hits, "of the tokens of prompts, 0 to 1");
    field("time_with_prompts", &R::time_with_prompts, "of the replicas' time, 0 to 1: steps with prompts");
    field("time_decoding", &R::time_decoding, "likewise steps that decode alone");
    field("time_idle", &R::time_idle, "likewise without anything to do");
    field("time_down", &R::time_down, "likewise dead");
    field("running", &R::running, "requests that have begun, mean over the steps of a replica");
    field("waiting", &R::waiting, "requests of all replicas that have not, mean when one comes");
    field("kv_held", &R::kv_held, "of the KV cache, 0 to 1, mean over steps");
    field("kv_most", &R::kv_most, "likewise the most, of any attention group");
    field("queue_growth_per_s", &R::queue_growth_per_s,
          "requests by which the queue grows, of a load that does not drain; null: it drains");
    field("board_w", &R::board_w,
          "power of a GPU's board until the last answer, waiting or not, mean of both pools of a pair, in W; "
          "null: nothing is known of the boards of a system");
    field("energy_j", &R::energy_j,
          "of the boards of all GPUs until the last answer, in J, hosts and switches not; null likewise");
    field("joules_per_token", &R::joules_per_token,
          "the same per token of answers; null likewise, and where nobody was answered");
    field("cost_per_million_tokens", &R::cost_per_million_tokens,
          "tokens of answers, for all GPUs, idle ones too, in the money of the scenario's gpu_hour_price; "
          "null: it says none");
    field("step_error", &R::step_error,
          "largest error of a step that was interpolated, as a part of it, as looked at");
    field("warnings", &R::warnings, "as on standard error");
  }
};

std::string to_json(const ServeResult& result);

}  // namespace shardline::api
