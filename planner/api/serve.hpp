// serve: requests on a plan, one by one, and what their users see.
#pragma once

#include <optional>
#include <string>
#include <vector>

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
    field("step_error", &R::step_error,
          "largest error of a step that was interpolated, as a part of it, as looked at");
    field("warnings", &R::warnings, "as on standard error");
  }
};

std::string to_json(const ServeResult& result);

}  // namespace shardline::api
