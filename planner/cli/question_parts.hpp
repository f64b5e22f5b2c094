// A question of one line, as plan, explain and compare take it.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/api/options.hpp"
#include "planner/api/plan.hpp"
#include "planner/cli/commands.hpp"
#include "planner/studies/knobs.hpp"
#include "planner/studies/plan_answer.hpp"

namespace shardline::cli {

struct QuestionOptions {
  std::string system, input, output;
  std::optional<std::string> ttl, ttft, rate, as;
  std::optional<double> tokens_per_user, gpu_hour;
  std::optional<long long> users, gpus, nodes;
  /// Whether a line is asked at all; where it need not be, any of its options says so.
  bool given() const;
};

/// `required`: of a command that takes nothing else. `gpus`: help of --gpus.
void add_question(Arguments& a, QuestionOptions& o, bool required,
                  const char* gpus = "GPUs at most, of all copies (default: a node, eight at most)");
api::PlanQuestion asked_of(const std::string& model, const QuestionOptions& o);
api::RunOptions run_options_of(const EngineOptions& engine, const std::string& costs, int threads);

/// What explain and compare look at: a scenario that is named, or the question of a line.
struct AskedStudy {
  std::string name;           // of the scenario
  std::string title;          // its, or the question of a line
  std::string scenario_text;  // of a line
  Study study;
  std::vector<std::string> plans;  // that were named, else the best of the line's answer
  std::vector<long long> copies;   // of each of these that the answer starts, or that share users of a line
  std::optional<bool> met;  // of a line of which no plan was named: whether the first of these meets it
  std::string miss;         // a sentence, where one of these was taken although it misses the target
  std::function<Study(const std::vector<std::string>&)> with;  // the same question with other settings
  std::optional<PlanAnswer> line = {};  // of which plans were named: without plans of its own
  /// The texts of plans that were named, and are not those of the line's answer.
  std::span<const std::string> named_plans() const {
    return scenario_text.empty() || line ? plans : std::span<const std::string>{};
  }
};
/// Whether a plan meets the targets of the line, or of the scenario, that it was named with, or was taken of;
/// nothing without targets, where it was named.
std::optional<bool> met_by(const AskedStudy& asked, const SimulatedPlan& plan, const PlanTimes& times);
/// "keeps ..." or "misses ..." of such a plan, which fits; empty without targets, and of those of an answer.
std::string kept_text(const AskedStudy& asked, const SimulatedPlan& plan, const PlanTimes& times);
/// `wanted` plans, all named or, of a line, none. Throws UserError; also where a line has not so many.
AskedStudy asked_study(const std::string& scenario_or_model, const QuestionOptions& line,
                       const std::string& model, std::vector<std::string> plans, std::size_t wanted,
                       const std::string& costs, const EngineOptions& engine);

/// Columns of lines of words: 80, which are read well, or as many as a narrower terminal has.
std::size_t text_width();

/// "one of 2 copies on 8 GPUs: its users are a copy's share"; empty of a plan that is started once.
std::string share_text(long long copies, int gpus_of_one);

}  // namespace shardline::cli
