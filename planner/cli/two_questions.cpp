#include "planner/cli/two_questions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "planner/cli/advice.hpp"
#include "planner/cli/commands.hpp"
#include "sim/base/shell_word.hpp"

namespace shardline::cli {

namespace {

// What a command line names, and its other options as they were given.
struct Named {
  std::vector<std::string> models, systems, engines, scenarios, plans, others;
  std::string options;
};

void add_word(const std::string& word, Named& out) {
  if (is_scenario(word))
    out.scenarios.push_back(word);
  else if (names_system(word))
    out.systems.push_back(word);
  else if (names_engine(word))
    out.engines.push_back(word);
  else if (names_plan(word))
    out.plans.push_back(word);
  else if (names_model(word))
    out.models.push_back(word);
  else
    out.others.push_back(word);
}

Named named_in(std::span<const std::string> words) {
  constexpr std::array<std::string_view, 3> kFlags{"--json", "--any-gpus", "--any-context"};
  Named out;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with('-')) {
      add_word(word, out);
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string option = word.substr(0, equals);
    const bool flag = std::find(kFlags.begin(), kFlags.end(), option) != kFlags.end();
    if (flag || (equals == std::string::npos && i + 1 == words.size())) {
      out.options += " " + shell_word(option);
      continue;
    }
    const std::string value = equals == std::string::npos ? words[++i] : word.substr(equals + 1);
    if (option == "--system")
      out.systems.push_back(value);
    else if (option == "--engine")
      out.engines.push_back(value);
    else if (option == "--model")
      out.models.push_back(value);
    else if (option == "--plan")
      out.plans.push_back(value);
    else
      out.options += " " + option + " " + shell_word(value);
  }
  return out;
}

// The first or second of a list, or its only one.
std::string nth(const std::vector<std::string>& all, std::size_t n) {
  return all[std::min(n, all.size() - 1)];
}

// The question that is one side of the comparison, as a command of its own.
std::string question_of(const Named& named, std::size_t n) {
  const bool in_a_line = named.scenarios.empty();
  std::string out = "shardline ";
  out += !named.plans.empty() ? "explain " : in_a_line ? "plan " : "sweep ";
  if (in_a_line)
    out += named.models.empty() ? "MODEL" : shell_operand(nth(named.models, n));
  else
    out += shell_operand(nth(named.scenarios, n));
  if (!in_a_line && !named.models.empty() && !named.plans.empty())
    out += " --model " + shell_word(nth(named.models, n));
  if (in_a_line)
    out += " --system " + (named.systems.empty() ? "h200-hgx" : shell_word(nth(named.systems, n)));
  if (in_a_line && named.options.find(" --input") == std::string::npos) out += " --input 32K --output 1K";
  if (!named.engines.empty()) out += " --engine " + shell_word(nth(named.engines, n));
  if (!named.plans.empty()) out += " --plan " + shell_word(nth(named.plans, n));
  return out + named.options;
}

}  // namespace

std::vector<std::string> two_questions(std::span<const std::string> words) {
  const Named named = named_in(words);
  if (named.plans.size() == 2 && named.scenarios.empty() && named.models.empty())
    return {fmt::format("plans are of a question: shardline compare SCENARIO --plan {} --plan {}",
                        shell_word(named.plans[0]), shell_word(named.plans[1]))};
  if (!named.others.empty()) return {};
  const char* two = named.scenarios.size() > 1 ? "scenarios"
                    : named.models.size() > 1  ? "models"
                    : named.systems.size() > 1 ? "systems"
                    : named.engines.size() > 1 ? "engines"
                                               : nullptr;
  if (two == nullptr) return {};
  return {fmt::format("compare is of two plans of one model on one system and engine, whose prices err "
                      "alike, and here are "
                      "two {}; ask both:",
                      two),
          "  " + question_of(named, 0), "  " + question_of(named, 1)};
}

}  // namespace shardline::cli
