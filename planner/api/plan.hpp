// plan: a request and a target in, the plans around that target out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/api/deployment.hpp"
#include "planner/api/simulate.hpp"
#include "planner/api/sweep.hpp"

namespace shardline::api {

struct PlanQuestion {
  std::string model;
  std::string system;
  long long input_tokens = 0;
  std::optional<long long> output_tokens;
  std::optional<long long> gpus;
  std::optional<long long> nodes;
  std::optional<long long> users;
  std::optional<double> requests_per_s;
  std::optional<double> most_ttl_s;
  std::optional<double> least_tokens_per_s_user;
  std::optional<double> most_ttft_s;
  std::optional<std::string> read_as;
  std::optional<double> gpu_hour_price;
  std::string slo;
  std::optional<std::string> trace;
  long long requests = 0;
  std::string lengths = "equal";
  std::string router = "round_robin";
  long long seed = 1;
  std::vector<std::string> knobs;
  std::string pools = "any";
};
template <>
struct Fields<PlanQuestion> {
  static constexpr const char* name = "PlanQuestion";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A request and a target. What is null has a default.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using Q = PlanQuestion;
    field("model", &Q::model,
          "name of the catalogue, repository on Hugging Face, or path of a config.json or .yaml");
    field("system", &Q::system, "name of the catalogue, or a .yaml file");
    field("input_tokens", &Q::input_tokens, "of a request");
    field("output_tokens", &Q::output_tokens, "of its answer; null: the prefill alone");
    field("gpus", &Q::gpus, "at most, of all copies; null: those of `nodes`, else of a node, eight at most");
    field("nodes", &Q::nodes, "at most, in place of `gpus`");
    field("users", &Q::users, "at once, each with a request, over all copies; null: any");
    field("requests_per_s", &Q::requests_per_s,
          "that come, over all copies, as the mean of a steady stream; null: no matter");
    field("most_ttl_s", &Q::most_ttl_s,
          "target for TPOT of served users, for TTL of bare kernels; null: none");
    field("least_tokens_per_s_user", &Q::least_tokens_per_s_user,
          "the same target in other terms, of which the stricter holds; null: none");
    field("most_ttft_s", &Q::most_ttft_s, "target for TTFT; null: none");
    field("read_as", &Q::read_as, "model_type to read the model's config.json as; null: its own");
    field("gpu_hour_price", &Q::gpu_hour_price,
          "of a GPU for an hour, in the user's money: plans then have a cost; null: not given");
    field("slo", &Q::slo,
          "targets by percentile, `ttft p99 2 s, tpot p99 40 ms`: requests are played, one by one, for the "
          "fewest GPUs that keep them; empty: none, and the rest is not looked at");
    field("trace", &Q::trace, "of `slo`: the file that requests are from; null: they are made up");
    field("requests", &Q::requests, "of `slo`: at most; 0: 2000, all of a trace");
    field("lengths", &Q::lengths, "of `slo`: `equal`, or `drawn`: from 80 to 100 % of these");
    field("router", &Q::router, "of `slo`: `round_robin`, `least_requests`, `least_kv` or `prefix`");
    field("seed", &Q::seed, "of `slo`: of arrivals and lengths");
    field("knobs", &Q::knobs,
          "of `slo`: options of the engine, `max_num_seqs=64,256`: each of the values is tried");
    field("pools", &Q::pools,
          "of `slo`: `one` for prompts and answers, `two` with one for each, or `any`: whichever is cheaper");
  }
};

struct Copies {
  long long count = 1;
  long long gpus = 0;
  double users = 0;
  double tokens_per_s_gpu = 0;
  std::optional<double> requests_per_s;
  std::optional<double> most_requests_per_s;
  std::optional<double> limit_requests_per_s;
  std::optional<Estimate> board_w;
  std::optional<Estimate> joules_per_token;
  std::optional<Estimate> cost_per_million_tokens;
};
template <>
struct Fields<Copies> {
  static constexpr const char* name = "Copies";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What the copies of a plan do together.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using C = Copies;
    field("count", &C::count,
          "as many as the GPUs of the question hold; of served users no more than they take; of a question "
          "with a rate as few as carry it; one of a prefill");
    field(
        "gpus", &C::gpus,
        "over which `tokens_per_s_gpu` is: all of the question, idle ones too; of a question with a rate and "
        "of a prefill those of the copies");
    field(
        "users", &C::users,
        "of all copies, some of which have one fewer than the plan where they cannot be shared evenly; of a "
        "question with a rate the mean number that it keeps busy");
    field("tokens_per_s_gpu", &C::tokens_per_s_gpu,
          "answered, over `gpus`; of a prefill new ones, of one copy");
    field("requests_per_s", &C::requests_per_s, "that these users ask for; null: nobody is served");
    field("most_requests_per_s", &C::most_requests_per_s,
          "that the copies carry within the target; null: no rate was asked for");
    field("limit_requests_per_s", &C::limit_requests_per_s,
          "that they carry with any number of users, and any wait; null likewise");
    field("board_w", &C::board_w,
          "watts of a GPU board that works, mean: idle for the part of the time that a rate leaves it; null: "
          "not known of the system's boards");
    field("joules_per_token", &C::joules_per_token, "of these boards, a token of answers; null likewise");
    field("cost_per_million_tokens", &C::cost_per_million_tokens,
          "for `gpus`, idle ones too, in the money of gpu_hour; null: no price was given");
  }
};

struct PlannedPlan {
  PlanPoint point;
  bool meets = false;
  Copies copies;
};
template <>
struct Fields<PlannedPlan> {
  static constexpr const char* name = "PlannedPlan";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A plan of the answer.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("point", &PlannedPlan::point, "the plan, of one copy");
    field("meets", &PlannedPlan::meets,
          "whether it meets the target, and carries the rate; true of every plan where there is none");
    field("copies", &PlannedPlan::copies, "of it, on the GPUs of the question");
  }
};

struct Miss {
  std::string what;
  double part = 0;
  double time_s = 0;
};
template <>
struct Fields<Miss> {
  static constexpr const char* name = "Miss";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "By how much the nearest plan misses the target.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("what", &Miss::what, "what it misses by most: `TPOT`, `TTL` or `TTFT`");
    field("part", &Miss::part, "time / target - 1; 0.01 is 1 %");
    field("time_s", &Miss::time_s, "the time");
  }
};

struct BestPlan {
  MemoryUse memory;
  Breakdown breakdown;
  std::optional<double> prefill_share;
  std::vector<Diagnostic> warnings;
};
template <>
struct Fields<BestPlan> {
  static constexpr const char* name = "BestPlan";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What bounds the first plan of an answer.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("memory", &BestPlan::memory, "per GPU");
    field("breakdown", &BestPlan::breakdown,
          "of a step that decodes (of served users: between prompts), or of the prefill");
    field("prefill_share", &BestPlan::prefill_share, "prompts of others, of TPOT, 0 to 1; null: not served");
    field("warnings", &BestPlan::warnings, "as on standard error, of this plan");
  }
};

struct WiderPlan {
  PlannedPlan best;
  long long gpus = 0;
  long long most_gpus = 0;
};
template <>
struct Fields<WiderPlan> {
  static constexpr const char* name = "WiderPlan";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What more GPUs than were asked for give.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("best", &WiderPlan::best,
          "of the fewest GPUs on which a plan meets the target; else the nearest of all looked at");
    field("gpus", &WiderPlan::gpus, "on how many");
    field("most_gpus", &WiderPlan::most_gpus, "that were looked at");
  }
};

struct FewerGpus {
  PlannedPlan best;
  long long gpus = 0;
  double tokens_per_s_gpu = 0;
};
template <>
struct Fields<FewerGpus> {
  static constexpr const char* name = "FewerGpus";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "The fewest GPUs on which all users are served within the target.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("best", &FewerGpus::best, "the plan that answers most there; no user of it waits for memory");
    field("gpus", &FewerGpus::gpus, "that its copies take");
    field("tokens_per_s_gpu", &FewerGpus::tokens_per_s_gpu, "answered, over these alone");
  }
};

struct NarrowerCheckpoint {
  PlannedPlan best;
  std::string model;
};
template <>
struct Fields<NarrowerCheckpoint> {
  static constexpr const char* name = "NarrowerCheckpoint";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What a published checkpoint in narrower types gives.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("best", &NarrowerCheckpoint::best, "its first plan on the GPUs of the question");
    field("model", &NarrowerCheckpoint::model,
          "its repository on Hugging Face, to ask for in place of `model`");
  }
};

struct PlanResult {
  std::string version;
  std::string command;
  PlanQuestion question;
  std::string title;
  std::string scenario_text;
  std::string engine_why;
  std::string gpus_note;
  bool met = false;
  std::vector<PlannedPlan> plans;
  std::vector<PlannedPlan> others;
  std::optional<Miss> miss;
  std::optional<BestPlan> best;
  std::optional<FewerGpus> fewer;
  std::optional<WiderPlan> wider;
  std::optional<NarrowerCheckpoint> narrower;
  ModelSweep sweep;
  std::optional<DeploymentSearch> deployment;
};
template <>
struct Fields<PlanResult> {
  static constexpr const char* name = "PlanResult";
  static constexpr const char* schema = "shardline.plan/1";
  static constexpr const char* about = "What `shardline plan` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = PlanResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell; empty: the library was asked");
    field("question", &R::question, "what was asked");
    field("title", &R::title, "the same in a line, with the GPUs that were looked at");
    field("scenario_text", &R::scenario_text,
          "the question as a scenario, which `--save` writes: `sweep` and `simulate` take it");
    field("engine_why", &R::engine_why, "why the engine of `sweep.setting` was chosen; empty: it was named");
    field("gpus_note", &R::gpus_note, "where the number of GPUs asked for is none that is handed out");
    field("met", &R::met,
          "whether a plan fits and meets the target, or a pair of `sweep.pools` does in whole replicas: the "
          "command ends with exit code 0");
    field("plans", &R::plans,
          "five at most: those that meet the target, the best first, then the nearest that do not; without "
          "a target from end to end of the frontier");
    field(
        "others", &R::others,
        "of each strategy that `plans` has none of within what was asked for (times, users, a rate) the best "
        "that is, best first: others beat these in both time and tokens/s, or are more than five");
    field("miss", &R::miss,
          "of the first of `plans`, where none meets the target; null of a rate that is not carried: its "
          "`copies` say how far they come");
    field("best", &R::best, "of the first of `plans`");
    field("fewer", &R::fewer,
          "of `users` whom `plans` serve within the target: fewer GPUs that do, too; null: none do, or no "
          "users were asked for");
    field("wider", &R::wider, "where none meets the target; null: no plan fits more GPUs, either");
    field("narrower", &R::narrower,
          "where no plan fits, for its weights are too large: a checkpoint that fits; where none meets the "
          "target: one that does; null: none is known, or not needed");
    field("sweep", &R::sweep, "the sweep of the scenario, of which `plans` are the part around the target");
    field("deployment", &R::deployment,
          "of a question with `slo`, whose `plans` and `sweep` are empty but for the setting; else null");
  }
};

/// The document, indented, ending with a newline.
std::string to_json(const PlanResult& result);

}  // namespace shardline::api
