#include "planner/plan/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/plan/engine_words.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

// `key` of the plan's text; empty: the fault is of none.
[[noreturn]] void fail(std::string_view key, std::string what, std::vector<std::string> details = {}) {
  Location where;
  where.key = key;
  throw UserError({Diagnostic{std::move(where), std::move(what), std::move(details)}});
}

}  // namespace

std::string_view to_string(StrategyId id) { return strategy(id).name; }

int absent_value(const Plan& plan, Degree degree) {
  if (degree == Degree::dense_tp) return 0;
  if (degree == Degree::in_flight) return plan[kPrefillChunk] > 0 ? 1 : plan.pp;
  return 1;
}

namespace {

std::string text_of(const Plan& plan, bool with_batch) {
  std::string text(to_string(plan.strategy));
  char separator = ':';
  const auto add = [&](std::string_view key, std::string_view value) {
    text += fmt::format("{}{}={}", separator, key, value);
    separator = ',';
  };
  for (std::size_t d = 0; d < kDegrees.size(); ++d) {
    const int value = plan.*kDegrees[d].member;
    if (value != absent_value(plan, static_cast<Degree>(d))) add(kDegrees[d].key, std::to_string(value));
  }
  if (with_batch) add("batch", std::to_string(plan.batch));
  for (const Option* option : strategy(plan.strategy).options) {
    if (plan.options.of(*option) != option->absent) add(option->key, value_text(*option, plan.options));
  }
  return text;
}

}  // namespace

std::string to_string(const Plan& plan) { return text_of(plan, true); }
std::string sharding_text(const Plan& plan) { return text_of(plan, false); }

namespace {

const Option* option_of(const Strategy& s, std::string_view key) {
  for (const Option* option : s.options) {
    if (key == option->key) return option;
  }
  return nullptr;
}

[[noreturn]] void unknown_key(std::string_view whole, const Strategy& s, const std::string& key) {
  for (const Strategy* other : strategies()) {
    if (const Option* option = option_of(*other, key))
      fail(key, fmt::format("plan \"{}\": {}", whole, not_its_option(s, *option)));
  }
  std::vector<std::string> names;
  for (const DegreeField& field : kDegrees) names.emplace_back(field.key);
  names.emplace_back("batch");
  for (const Option* option : s.options) names.emplace_back(option->key);
  std::vector<std::string> details = expected_one_of(key, names);
  if (key == "tp" || key == "tensor_parallel_size")
    details.emplace_back("tp of engines is tpa=8,tpf=8 here: of attention and of the FFN");
  if (key == "bs" || key == "batch_size" || key == "max_batch_size" || key == "users")
    details.emplace_back("requests of an attention group are batch=16 here");
  fail(key, fmt::format("plan \"{}\": unknown key \"{}\"", whole, key), std::move(details));
}

void read_degree(std::string_view whole, std::string_view key, std::string_view value, int& target) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), target);
  if (error != std::errc{} || end != value.data() + value.size() || target < 1 || target > kMostDegree)
    fail(key, fmt::format("plan \"{}\": {}={}", whole, key, value),
         {fmt::format("expected an integer from 1 to {}", kMostDegree)});
}

void read_option(std::string_view whole, const Option& option, std::string_view value, Plan& plan) {
  if (read_value(option, value, plan.options)) return;
  const std::string what = fmt::format("plan \"{}\": {}={}", whole, option.key, value);
  if (!option.words.empty() && !option.lists)
    fail(option.key, what,
         expected_one_of(value, std::vector<std::string>(option.words.begin(), option.words.end())));
  fail(option.key, what,
       {"expected " + std::string(option.words.empty() ? "an integer from " : "") + values_text(option)});
}

void read_item(std::string_view whole, std::string_view item, Plan& plan, std::vector<std::string>& seen) {
  const auto equals = item.find('=');
  if (equals == std::string_view::npos) {
    const std::string meant = with_separators(fmt::format("{} {}", to_string(plan.strategy), item));
    const std::string engines = meant.empty() ? of_engines_names(item) : "";
    fail("", fmt::format("plan \"{}\": found \"{}\"", whole, item),
         {!meant.empty()     ? fmt::format("did you mean {}?", meant.substr(meant.find(':') + 1))
          : !engines.empty() ? fmt::format("{} of engines is {} here", item, engines)
                             : "expected key=value, for instance kvp=8"});
  }
  const std::string key(item.substr(0, equals));
  const std::string_view value = item.substr(equals + 1);
  if (std::find(seen.begin(), seen.end(), key) != seen.end())
    fail(key, fmt::format("plan \"{}\": {} is given twice", whole, key));
  seen.push_back(key);
  if (key == "batch") return read_degree(whole, key, value, plan.batch);
  for (const DegreeField& field : kDegrees) {
    if (key == field.key) return read_degree(whole, key, value, plan.*field.member);
  }
  const Strategy& s = strategy(plan.strategy);
  const Option* option = option_of(s, key);
  if (option == nullptr) unknown_key(whole, s, key);
  read_option(whole, *option, value, plan);
}

}  // namespace

namespace {

// Tables number their rows, but no row is remembered.
std::vector<std::string> with_hint(const std::string& name, std::vector<std::string> details) {
  if (const std::string text = of_engines_names(name); !text.empty())
    return {fmt::format("{} of engines is {} here", name, text)};
  if (const std::string text = with_separators(name); !text.empty())
    return {fmt::format("did you mean {}?", text)};
  if (!name.empty() && name.find_first_not_of("0123456789") == std::string::npos)
    details.emplace_back("a plan is named by its text, which tables have beside its number");
  return details;
}

}  // namespace

Plan parse_plan(std::string_view text) {
  const std::string_view whole = text;
  const auto colon = text.find(':');
  const std::string name(text.substr(0, colon));
  Plan plan;
  const std::optional<StrategyId> named = find_strategy(name);
  if (!named)
    fail("strategy", fmt::format("plan \"{}\": unknown strategy \"{}\"", whole, name),
         name.find('=') == std::string::npos || find_strategy(name.substr(0, name.find('='))) ||
                 !of_engines_names(name).empty() || !with_separators(name).empty()
             ? with_hint(name, expected_one_of(name, strategy_names()))
             : std::vector<std::string>{
                   fmt::format("a plan begins with its strategy, for instance {}:tpa=8,tpf=8,batch=16",
                               strategy_names().front())});
  plan.strategy = *named;
  text = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  if (colon != std::string_view::npos && text.empty())
    fail("", fmt::format("plan \"{}\" ends after the colon", whole),
         {"expected key=value, for instance kvp=8"});
  std::vector<std::string> seen;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text = item.size() == text.size() ? std::string_view{} : text.substr(item.size() + 1);
    if (text.empty() && whole.back() == ',') fail("", fmt::format("plan \"{}\" ends with a comma", whole));
    read_item(whole, item, plan, seen);
  }
  if (std::find(seen.begin(), seen.end(), "in_flight") == seen.end())
    plan.in_flight = absent_value(plan, Degree::in_flight);
  if (1.0 * plan.pp * plan.dp * plan.kvp * plan.cp * plan.tpa > kMostDegree ||
      1.0 * plan.ep * plan.tpf > kMostDegree)
    fail("", fmt::format("plan \"{}\" is for more than {} GPUs", whole, kMostDegree));
  return plan;
}

}  // namespace shardline
