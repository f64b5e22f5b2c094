#include "planner/cli/advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "planner/cli/commands.hpp"
#include "planner/cli/two_questions.hpp"
#include "planner/engines/checkpoints.hpp"
#include "planner/engines/model_names.hpp"
#include "planner/scenario/shipped.hpp"
#include "sim/base/shell_word.hpp"

namespace shardline::cli {

namespace {

bool among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "tp=3", as a plan's text or an engine's options have it.
bool is_size(const std::string& word) {
  constexpr std::array<std::string_view, 10> kSizes{"tp", "tpa", "tpf", "pp",    "dp",
                                                    "ep", "cp",  "kvp", "batch", "dcp"};
  const std::string_view key = std::string_view(word).substr(0, word.find('='));
  return word.find('=') != std::string::npos && std::find(kSizes.begin(), kSizes.end(), key) != kSizes.end();
}

}  // namespace

bool is_scenario(const std::string& word) {
  return word.ends_with(".yaml") || word.ends_with(".yml") || among(scenario_names(), word);
}

bool names_system(const std::string& word) { return among(offered_systems(), word); }

bool names_engine(const std::string& word) {
  const std::vector<std::string> known = offered_engines();
  return std::any_of(known.begin(), known.end(), [&](const std::string& engine) {
    return engine == word || engine.starts_with(word + " ");
  });
}

bool names_plan(const std::string& word) {
  return word.find(':') != std::string::npos && among(offered_strategies(), word.substr(0, word.find(':')));
}

bool names_model(const std::string& word) {
  std::error_code error;
  return among(offered_models(), word) || looks_like_repository(without_address(word)) ||
         word.ends_with("config.json") ||
         std::filesystem::exists(std::filesystem::path(word) / "config.json", error);
}

std::vector<std::string> advice_on(const std::string& command, const std::string& word,
                                   std::span<const std::string> words) {
  if (command == "compare") {
    if (std::vector<std::string> lines = two_questions(words); !lines.empty()) return lines;
  }
  const bool asks_in_a_line = command == "plan" || command == "serve";
  if (is_scenario(word) && (command.empty() || command == "plan"))
    return {fmt::format("{} is a scenario: shardline sweep {}", word, shell_operand(word))};
  if (command.empty() && word == "version") return {"shardline --version says it"};
  if (command.empty() && among({"run", "predict", "estimate", "optimize", "search", "recommend"}, word))
    return {
        "shardline plan MODEL --system ... is the question of one line; shardline --help lists the commands"};
  if (command.empty() && among({"bench", "benchmark", "test"}, word))
    return {
        "nothing is measured here: shardline serve plays requests, shardline-probe measures kernels of this "
        "machine"};
  if (command.empty() && word == "help")
    return {"shardline --help lists the commands, and shardline plan --help the options of one"};
  if (command.empty() && names_model(word))
    return {fmt::format("{} is a model: shardline plan {} --system h200-hgx --gpus 8 --input 32K --output 1K",
                        word, shell_word(word))};
  if (command == "sweep" && names_model(word))
    return {
        fmt::format("{} is a model, and sweep reads scenarios: shardline plan {} with the same options asks "
                    "in one line",
                    word, shell_word(word))};
  const bool of_a_line = asks_in_a_line || command == "explain" || command == "compare";
  if (of_a_line && names_system(word))
    return {fmt::format("{} is a system: --system {}", word, shell_word(word))};
  if (of_a_line && names_engine(word))
    return {fmt::format("{} is an engine: --engine {}", word, shell_word(word))};
  if ((of_a_line || command == "simulate") && names_plan(word))
    return {fmt::format("{} is a plan: --plan {}", word, shell_word(word))};
  if (is_size(word))
    return {
        "sizes are part of a plan's text, --plan tensor:tpa=8,tpf=8,batch=4, which simulate, explain and "
        "compare take; plan and sweep try them all"};
  return {};
}

}  // namespace shardline::cli
