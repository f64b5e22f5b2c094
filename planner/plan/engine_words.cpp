#include "planner/plan/engine_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "planner/plan/plan.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

// Words and numbers in turn: {"tp", 8}, {"ep", 8} of "TP8-EP8". Nothing where they do not take turns.
std::optional<std::vector<std::pair<std::string, int>>> words_with_numbers(std::string_view text) {
  constexpr std::string_view kBetween = "-_ =:,x+/";
  std::vector<std::pair<std::string, int>> out;
  const char* at = text.data();
  const char* const last = at + text.size();
  const auto skip = [&] {
    while (at != last && kBetween.find(*at) != std::string_view::npos) ++at;
  };
  for (skip(); at != last; skip()) {
    std::string word;
    while (at != last && (std::isalpha(static_cast<unsigned char>(*at)) != 0 || *at == '_'))
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(*at++)));
    while (!word.empty() && word.back() == '_') word.pop_back();
    skip();
    int number = 0;
    const auto [end, error] = std::from_chars(at, last, number);
    if (word.empty() || error != std::errc{} || number < 1 || number > kMostDegree) return std::nullopt;
    at = end;
    out.emplace_back(std::move(word), number);
  }
  return out;
}

const Strategy* run_as(LaunchedAs feature) {
  const auto all = strategies();
  const auto row = std::find_if(all.begin(), all.end(),
                                [&](const Strategy* s) { return s->launched_as == feature && s->decodes; });
  return row == all.end() ? nullptr : *row;
}

// Degrees as engines name them; 0: not named.
struct EngineDegrees {
  int tp = 0, pp = 0, dp = 0, ep = 0;
};

std::optional<EngineDegrees> engine_degrees_in(std::string_view text) {
  const auto words = words_with_numbers(text);
  if (!words || words->empty()) return std::nullopt;
  EngineDegrees n;
  for (const auto& [word, number] : *words) {
    // TensorRT-LLM's TEP and DEP: experts over all ranks of TP, or of attention's DP.
    const std::vector<int*> degrees = word == "tp"    ? std::vector{&n.tp}
                                      : word == "pp"  ? std::vector{&n.pp}
                                      : word == "dp"  ? std::vector{&n.dp}
                                      : word == "ep"  ? std::vector{&n.ep}
                                      : word == "tep" ? std::vector{&n.tp, &n.ep}
                                      : word == "dep" ? std::vector{&n.dp, &n.ep}
                                                      : std::vector<int*>{};
    if (degrees.empty()) return std::nullopt;
    for (int* degree : degrees) {
      if (*degree != 0) return std::nullopt;
      *degree = number;
    }
  }
  return n;
}

// Attention's DP. The TP beside it is of each group in vLLM, and in SGLang of all of them.
std::string data_parallel(const EngineDegrees& n) {
  const int tp = std::max(n.tp, 1);
  const Strategy* row = run_as(LaunchedAs::attention_dp);
  if (row == nullptr || n.pp > 1 || 1.0 * n.dp * tp > kMostDegree) return "";
  int tpa = tp;
  if (n.ep != 0 && n.ep != n.dp * tp) {
    if (n.ep != tp || tp % n.dp != 0) return "";
    tpa = tp / n.dp;
  }
  return fmt::format("{}:dp={}{},ep={}", row->name, n.dp, tpa > 1 ? fmt::format(",tpa={}", tpa) : "",
                     n.dp * tpa);
}

}  // namespace

std::string of_engines_names(std::string_view name) {
  const auto n = engine_degrees_in(name);
  if (!n) return "";
  if (n->dp > 1) return data_parallel(*n);
  const int tp = std::max({n->tp, n->tp == 0 && n->pp == 0 ? n->ep : 1, 1}), ep = std::max(n->ep, 1);
  const Strategy* row = run_as(n->pp > 1 ? LaunchedAs::pipeline : LaunchedAs::tensor);
  if (row == nullptr || tp % ep != 0) return "";
  return fmt::format("{}:{}tpa={}{}{}", row->name, n->pp > 1 ? fmt::format("pp={},", n->pp) : "", tp,
                     ep > 1 ? fmt::format(",ep={}", ep) : "",
                     tp > ep || ep == 1 ? fmt::format(",tpf={}", tp / ep) : "");
}

std::string with_separators(std::string_view text) {
  const Strategy* named = nullptr;
  for (const Strategy* s : strategies()) {
    const std::string_view name = s->name;
    if (text.starts_with(name) && (named == nullptr || name.size() > std::string_view(named->name).size()))
      named = s;
  }
  if (named == nullptr) return "";
  const auto words = words_with_numbers(text.substr(std::string_view(named->name).size()));
  if (!words || words->empty()) return "";
  std::string out(named->name);
  char separator = ':';
  for (const auto& word : *words) {
    const std::string& key = word.first;
    const bool degree = std::any_of(kDegrees.begin(), kDegrees.end(),
                                    [&](const DegreeField& field) { return key == field.key; });
    const bool option = std::any_of(named->options.begin(), named->options.end(),
                                    [&](const Option* o) { return key == o->key && o->words.empty(); });
    if (!degree && !option && key != "batch") return "";
    out += fmt::format("{}{}={}", separator, key, word.second);
    separator = ',';
  }
  return out;
}

}  // namespace shardline
