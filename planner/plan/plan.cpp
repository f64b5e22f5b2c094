#include "planner/plan/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

constexpr int kMost = 1'000'000;  // of any degree, and of the GPUs of a plan

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
  fail(key, fmt::format("plan \"{}\": unknown key \"{}\"", whole, key), std::move(details));
}

void read_degree(std::string_view whole, std::string_view key, std::string_view value, int& target) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), target);
  if (error != std::errc{} || end != value.data() + value.size() || target < 1 || target > kMost)
    fail(key, fmt::format("plan \"{}\": {}={}", whole, key, value),
         {fmt::format("expected an integer from 1 to {}", kMost)});
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
  if (equals == std::string_view::npos)
    fail("", fmt::format("plan \"{}\": found \"{}\"", whole, item),
         {"expected key=value, for instance kvp=8"});
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

// "tensor:tpa=8,tpf=8" of "TP8" and "tp-8", "pipeline:pp=2,tpa=4,tpf=4" of "tp4pp2"; empty of other names.
std::string in_plan_text(const std::string& name) {
  int tp = 0, pp = 0;
  const char* at = name.data();
  const char* const last = at + name.size();
  while (at != last) {
    const auto small = [&](std::ptrdiff_t i) {
      return last - at > i ? std::tolower(static_cast<unsigned char>(at[i])) : 0;
    };
    int& degree = small(0) == 'p' ? pp : tp;
    if ((small(0) != 't' && small(0) != 'p') || small(1) != 'p' || degree != 0) return "";
    at += 2;
    if (at != last && std::string_view("-_ =").find(*at) != std::string_view::npos) ++at;
    const auto [end, error] = std::from_chars(at, last, degree);
    if (error != std::errc{} || degree < 1 || degree > kMost) return "";
    at = end;
    while (at != last && std::string_view("-_ ,x+").find(*at) != std::string_view::npos) ++at;
  }
  if (tp == 0 && pp == 0) return "";
  const LaunchedAs launched = pp > 1 ? LaunchedAs::pipeline : LaunchedAs::tensor;
  const auto all = strategies();
  const auto row = std::find_if(all.begin(), all.end(),
                                [&](const Strategy* s) { return s->launched_as == launched && s->decodes; });
  if (row == all.end()) return "";
  const std::string shards = fmt::format("tpa={0},tpf={0}", std::max(tp, 1));
  return fmt::format("{}:{}{}", (*row)->name, pp > 1 ? fmt::format("pp={},", pp) : "", shards);
}

// Tables number their rows, but no row is remembered.
std::vector<std::string> with_hint(const std::string& name, std::vector<std::string> details) {
  if (const std::string text = in_plan_text(name); !text.empty())
    return {fmt::format("{} of engines is {} here", name, text)};
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
         name.find('=') == std::string::npos || find_strategy(name.substr(0, name.find('=')))
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
  if (1.0 * plan.pp * plan.dp * plan.kvp * plan.cp * plan.tpa > kMost || 1.0 * plan.ep * plan.tpf > kMost)
    fail("", fmt::format("plan \"{}\" is for more than {} GPUs", whole, kMost));
  return plan;
}

}  // namespace shardline
