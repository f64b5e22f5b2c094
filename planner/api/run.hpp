// run.json: what stands in a sweep's output folder beside its files, per model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/api/sweep.hpp"

namespace shardline::api {

struct Target {
  std::optional<double> most_ttl_s;
  std::optional<double> least_tokens_per_s_user;
  std::optional<double> most_ttft_s;
  std::optional<double> least_users;
};
template <>
struct Fields<Target> {
  static constexpr const char* name = "Target";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "What a sweep of one model was held to, by its question or its scenario.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("most_ttl_s", &Target::most_ttl_s, "TTL, or TPOT where a workload is served; null: any");
    field("least_tokens_per_s_user", &Target::least_tokens_per_s_user,
          "the same, where it was asked as the least tokens/s of a user; null: it was not");
    field("most_ttft_s", &Target::most_ttft_s, "TTFT; null: any");
    field("least_users", &Target::least_users, "users at once; null: any");
  }
};

struct Winner {
  std::string wins;
  PlanPoint point;
  std::string simulate;
};
template <>
struct Fields<Winner> {
  static constexpr const char* name = "Winner";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A plan that a sweep is for.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("wins", &Winner::wins,
          "`meets the target`, `within a budget` (most tokens/s/GPU of steps that decode) or `frontier`");
    field("point", &Winner::point, "the plan");
    field("simulate", &Winner::simulate, "the command that simulates it, quoted for the shell");
  }
};

struct RunRecord {
  std::string command;
  std::string version;
  std::string scenario;
  std::string study;
  SweepQuestion question;
  std::optional<Target> target;
  bool met = false;
  std::vector<Winner> winners;
  std::vector<PoolPair> pools;
  Engine engine;
  std::optional<Workload> workload;
  std::string what;
  std::string intervals;
  std::string costs;
  std::optional<std::string> calibration_hash;
  std::uint64_t configurations = 0;
  std::uint64_t infeasible = 0;
  std::uint64_t simulated = 0;
  std::uint64_t pruned = 0;
  std::vector<std::string> files;
};
template <>
struct Fields<RunRecord> {
  static constexpr const char* name = "RunRecord";
  static constexpr const char* schema = "shardline.run/1";
  static constexpr const char* about = "`run.json` of a sweep with `-o`, per model.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = RunRecord;
    field("command", &R::command,
          "that made the folder, quoted for the shell: run again in the same place, it makes it anew");
    field("version", &R::version, "of shardline");
    field("scenario", &R::scenario, "name or file, as the command has it");
    field("study", &R::study, "model, system and length in a line");
    field("question", &R::question, "what was asked");
    field("target", &R::target, "what plans were held to; null: no target");
    field("met", &R::met, "whether a plan fits and, where there is a target, one meets it");
    field("winners", &R::winners, "the plans that this was for, the best first");
    field("pools", &R::pools, "of a workload: the best pair of pools per TPOT budget, as in pools.csv");
    field("engine", &R::engine, "who runs the plans");
    field("workload", &R::workload, "what is served; null: steps alone");
    field("what", &R::what, "what times and rates are of, as Setting.what");
    field("intervals", &R::intervals, "what the intervals of estimates are by");
    field("costs", &R::costs, "where prices are from");
    field("calibration_hash", &R::calibration_hash,
          "of the measured tables; null: parameters of the system file");
    field("configurations", &R::configurations, "plans x batches");
    field("infeasible", &R::infeasible, "of these, not fitting memory or serving too few users");
    field("simulated", &R::simulated, "by events");
    field("pruned", &R::pruned, "ruled out by a bound");
    field("files", &R::files, "what stands beside it, but for `launch/`, which `launch.txt` names");
  }
};

std::string to_json(const RunRecord& record);

}  // namespace shardline::api
