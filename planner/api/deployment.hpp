// plan with targets by percentile: the fewest replicas that keep them, found by playing requests.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/api/serve.hpp"

namespace shardline::api {

struct DeployedReplicas {
  std::string plan;
  int replicas = 1;
  std::string prefill;
  int prefill_replicas = 0;
  long long gpus = 0;
  std::vector<std::string> knobs;
  bool met = false;
  double used = 0;
  std::vector<ServedTarget> targets;
  std::vector<ServedLatency> latencies;
  double tpot_low = 0;
  double tpot_high = 0;
  bool may_miss = false;
  double goodput_per_s = 0;
  double output_tokens_per_s_gpu = 0;
  double time_idle = 0;
  std::optional<double> cost_per_million;
  std::optional<Estimate> board_w;
  std::optional<Estimate> joules_per_token;
  std::string serve_command;
};
template <>
struct Fields<DeployedReplicas> {
  static constexpr const char* name = "DeployedReplicas";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Copies of a plan that a load was played on to its end.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using D = DeployedReplicas;
    field("plan", &D::plan, "its text");
    field("replicas", &D::replicas, "of it, under the router that was asked for");
    field(
        "prefill", &D::prefill,
        "text of the plan of a pool of its own for prompts, `plan` then decodes; empty: one pool does both");
    field("prefill_replicas", &D::prefill_replicas, "of that plan; 0: one pool");
    field("gpus", &D::gpus, "of all replicas");
    field("knobs", &D::knobs, "options of the engine, of both pools; empty: its defaults");
    field("met", &D::met, "whether all targets are met, nobody was refused and the load drains");
    field("used", &D::used, "what is measured over what is asked, of the target closest to being missed");
    field("targets", &D::targets, "that were asked for");
    field("latencies", &D::latencies, "what users see");
    field("tpot_low", &D::tpot_low,
          "nominal 90 % of TPOT by prices, in parts of it: the truth is above 1 + low times it");
    field("tpot_high", &D::tpot_high,
          "likewise below 1 + high times it; of TTFT nothing was measured under such a load");
    field("may_miss", &D::may_miss, "whether a target of TPOT or ITL is missed at the end of that interval");
    field("goodput_per_s", &D::goodput_per_s, "requests/s that keep every target themselves");
    field("output_tokens_per_s_gpu", &D::output_tokens_per_s_gpu, "of answers");
    field("time_idle", &D::time_idle, "of the replicas' time, 0 to 1, without anything to do");
    field("cost_per_million", &D::cost_per_million,
          "tokens of answers, in the user's money, all GPUs being paid for all the time; null: no price was "
          "given");
    field("board_w", &D::board_w,
          "power of a GPU's board until the last answer, waiting or not, mean of both pools of a pair, in W; "
          "null: nothing is known of the system's boards");
    field("joules_per_token", &D::joules_per_token,
          "of all these boards, a token of answers, hosts and switches not; null likewise");
    field("serve_command", &D::serve_command,
          "that plays the same, of the file that --save wrote; where none was written, of `scenario_text` in "
          "a file plan.yaml");
  }
};

struct RuledOutCandidates {
  std::string by;
  long long candidates = 0;
};
template <>
struct Fields<RuledOutCandidates> {
  static constexpr const char* name = "RuledOutCandidates";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "How many candidates one thing shows to miss a target.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("by", &RuledOutCandidates::by, "what shows it");
    field("candidates", &RuledOutCandidates::candidates, "plans with knobs and numbers of replicas");
  }
};

struct UnplayedPlan {
  std::string plan;
  std::string why;
};
template <>
struct Fields<UnplayedPlan> {
  static constexpr const char* name = "UnplayedPlan";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A plan that the engine starts and that nothing is said of.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("plan", &UnplayedPlan::plan, "its text");
    field("why", &UnplayedPlan::why, "requests cannot be played on it");
  }
};

struct OtherDraws {
  long long draws = 0;
  long long kept = 0;
  double used = 0;
};
template <>
struct Fields<OtherDraws> {
  static constexpr const char* name = "OtherDraws";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "The first deployment played again with other draws of the load: of many that are tried with one the "
      "best is one that this draw favours.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("draws", &OtherDraws::draws, "with the seeds that follow the question's");
    field("kept", &OtherDraws::kept, "of these in which all targets are met");
    field("used", &OtherDraws::used,
          "the largest part of a target that is used in one of them; above 1: missed");
  }
};

struct DeploymentSearch {
  std::vector<DeployedReplicas> cheapest;
  std::optional<OtherDraws> other_draws;
  std::optional<DeployedReplicas> nearest;
  long long plans = 0;
  long long pairs = 0;
  std::string no_pairs;
  long long candidates = 0;
  long long dearer = 0;
  std::vector<RuledOutCandidates> ruled_out;
  long long requests_played = 0;
  std::vector<UnplayedPlan> not_played;
  std::vector<std::string> knobs_refused;
};
template <>
struct Fields<DeploymentSearch> {
  static constexpr const char* name = "DeploymentSearch";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "The fewest GPUs that keep a load's targets, and why no fewer do.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using D = DeploymentSearch;
    field("cheapest", &D::cheapest, "all that meet, on the fewest GPUs on which any does; most room first");
    field("other_draws", &D::other_draws,
          "of the first of `cheapest`; null: there is none, or a trace was played, which is not drawn");
    field("nearest", &D::nearest, "where none meets: what comes closest, on as many GPUs as there are");
    field("plans", &D::plans, "shardings that the engine starts and that requests can be played on");
    field("pairs", &D::pairs,
          "of a plan for prompts, which may run nothing else, and one for answers, that can be played");
    field("no_pairs", &D::no_pairs, "why there is none; empty: there are some, or one pool was asked for");
    field("candidates", &D::candidates, "plans or pairs x knobs x replicas on at most so many GPUs");
    field("dearer", &D::dearer, "of them, on more GPUs than the answer: not looked at");
    field("ruled_out", &D::ruled_out, "of them, by what shows that they miss a target, in the order asked");
    field("requests_played", &D::requests_played, "answered in all plays, those that were given up too");
    field("not_played", &D::not_played, "plans of which nothing is said");
    field("knobs_refused", &D::knobs_refused, "settings of the engine's options that no plan has");
  }
};

}  // namespace shardline::api
