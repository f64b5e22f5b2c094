#include "planner/plan/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

struct Field {
  std::string_view key;
  int Plan::*member;
  int absent;  // value that is not printed
};

constexpr std::array<Field, 19> kFields{{{"pp", &Plan::pp, 1},
                                         {"dp", &Plan::dp, 1},
                                         {"kvp", &Plan::kvp, 1},
                                         {"cp", &Plan::cp, 1},
                                         {"tpa", &Plan::tpa, 1},
                                         {"ep", &Plan::ep, 1},
                                         {"tpf", &Plan::tpf, 1},
                                         {"dense_tp", &Plan::dense_tp, 0},
                                         {"chunks", &Plan::chunks, 1},
                                         {"in_flight", &Plan::in_flight, 1},
                                         {"batch", &Plan::batch, 0},
                                         {"prefill_chunk", &Plan::prefill_chunk, 0},
                                         {"anchor", &Plan::anchor, 0},
                                         {"passing", &Plan::passing, 0},
                                         {"query", &Plan::query, 0},
                                         {"retaining", &Plan::retaining, 0},
                                         {"vertical", &Plan::vertical, 0},
                                         {"slash", &Plan::slash, 0},
                                         {"estimate", &Plan::estimate, 0}}};

constexpr int kMost = 1'000'000;  // of any degree, and of the GPUs of a plan

[[noreturn]] void fail(std::string what, std::vector<std::string> details = {}) {
  throw UserError({Diagnostic{{}, std::move(what), std::move(details)}});
}

constexpr long long kLongestPart = 1'000'000'000;

std::vector<long long> parse_partition(std::string_view plan, std::string_view value) {
  std::vector<long long> parts;
  for (std::string_view rest = value;;) {
    const std::string_view item = rest.substr(0, rest.find('/'));
    long long number = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), number);
    if (error != std::errc{} || end != item.data() + item.size() || number < 1 || number > kLongestPart) {
      fail(
          fmt::format("plan \"{}\": partition={}", plan, value),
          {fmt::format("expected even, or the tokens of each rank, 1 to {}, for instance 3584/2611/2150/1895",
                       kLongestPart)});
    }
    parts.push_back(number);
    if (item.size() == rest.size()) return parts;
    rest.remove_prefix(item.size() + 1);
  }
}

}  // namespace

std::string_view to_string(StrategyId id) { return strategy(id).name; }

namespace {

// One microbatch per stage, or chunks of a single one. What a plan's text leaves out.
int usual_in_flight(const Plan& plan) { return plan.prefill_chunk > 0 ? 1 : plan.pp; }

}  // namespace

std::string to_string(const Plan& plan) {
  std::string text(to_string(plan.strategy));
  char separator = ':';
  for (const Field& f : kFields) {
    const int value = plan.*(f.member);
    const int absent = f.member == &Plan::in_flight ? usual_in_flight(plan) : f.absent;
    if (value == absent) continue;
    text += fmt::format("{}{}={}", separator, f.key, value);
    separator = ',';
  }
  std::size_t o = 0;
  for (const Option& option : strategy(plan.strategy).options) {
    const int value = plan.options[o++];
    if (value == 0) continue;
    text += option.words.size() > 0
                ? fmt::format("{}{}={}", separator, option.key, option.words[static_cast<std::size_t>(value)])
                : fmt::format("{}{}={}", separator, option.key, value);
    separator = ',';
  }
  if (plan.value_up != ValueUp::none) {
    text += plan.value_up == ValueUp::before ? ",value_up=before" : ",value_up=after";
  }
  if (plan.layout == ShardOrder::contiguous) text += ",layout=contiguous";
  if (!plan.partition.empty())
    text += fmt::format("{}partition={}", separator, fmt::join(plan.partition, "/"));
  else if (plan.parts == Parts::even)
    text += fmt::format("{}partition=even", separator);
  return text;
}

namespace {

// Whether the key is an option of the plan's strategy; then it is set.
bool read_option(std::string_view whole, const std::string& key, std::string_view value, Plan& plan) {
  std::size_t o = 0;
  for (const Option& option : strategy(plan.strategy).options) {
    int& target = plan.options[o++];
    if (key != option.key) continue;
    if (option.words.size() > 0) {
      const std::vector<std::string> words(option.words.begin(), option.words.end());
      const auto word = std::find(words.begin(), words.end(), value);
      if (word == words.end())
        fail(fmt::format("plan \"{}\": {}={}", whole, key, value), expected_one_of(value, words));
      target = static_cast<int>(word - words.begin());
      return true;
    }
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), target);
    if (error != std::errc{} || end != value.data() + value.size() || target < option.least ||
        target > option.most)
      fail(fmt::format("plan \"{}\": {}={}", whole, key, value),
           {fmt::format("expected an integer from {} to {}", option.least, option.most)});
    return true;
  }
  return false;
}

}  // namespace

Plan parse_plan(std::string_view text) {
  const std::string_view whole = text;
  const auto colon = text.find(':');
  const std::string name(text.substr(0, colon));
  Plan plan;
  const std::optional<StrategyId> named = find_strategy(name);
  if (!named)
    fail(fmt::format("plan \"{}\": unknown strategy \"{}\"", whole, name),
         expected_one_of(name, strategy_names()));
  plan.strategy = *named;
  text = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  if (colon != std::string_view::npos && text.empty()) {
    fail(fmt::format("plan \"{}\" ends after the colon", whole), {"expected key=value, for instance kvp=8"});
  }
  bool in_flight_given = false;
  std::vector<std::string> seen;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text = item.size() == text.size() ? std::string_view{} : text.substr(item.size() + 1);
    if (text.empty() && whole.back() == ',') fail(fmt::format("plan \"{}\" ends with a comma", whole));
    const auto equals = item.find('=');
    if (equals == std::string_view::npos) {
      fail(fmt::format("plan \"{}\": found \"{}\"", whole, item), {"expected key=value, for instance kvp=8"});
    }
    const std::string key(item.substr(0, equals));
    const std::string_view value = item.substr(equals + 1);
    for (const std::string& other : seen) {
      if (other == key) fail(fmt::format("plan \"{}\": {} is given twice", whole, key));
    }
    seen.push_back(key);
    if (key == "value_up") {
      if (value != "before" && value != "after") {
        fail(fmt::format("plan \"{}\": value_up={}", whole, value), {"expected one of: before, after"});
      }
      plan.value_up = value == "before" ? ValueUp::before : ValueUp::after;
      continue;
    }
    if (key == "layout") {
      if (value != "zigzag" && value != "contiguous") {
        fail(fmt::format("plan \"{}\": layout={}", whole, value), {"expected one of: zigzag, contiguous"});
      }
      plan.layout = value == "zigzag" ? ShardOrder::zigzag : ShardOrder::contiguous;
      continue;
    }
    if (key == "partition") {
      if (value == "even")
        plan.parts = Parts::even;
      else
        plan.partition = parse_partition(whole, value);
      continue;
    }
    if (read_option(whole, key, value, plan)) continue;
    std::size_t f = 0;
    while (f < kFields.size() && kFields[f].key != key) ++f;
    if (f == kFields.size()) {
      std::vector<std::string> names;
      for (const Field& field : kFields) names.emplace_back(field.key);
      names.emplace_back("value_up");
      names.emplace_back("layout");
      names.emplace_back("partition");
      for (const Option& option : strategy(plan.strategy).options) names.emplace_back(option.key);
      fail(fmt::format("plan \"{}\": unknown key \"{}\"", whole, key), expected_one_of(key, names));
    }
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size() || number < 1 || number > kMost) {
      fail(fmt::format("plan \"{}\": {}={}", whole, key, value),
           {fmt::format("expected an integer from 1 to {}", kMost)});
    }
    plan.*(kFields[f].member) = number;
    in_flight_given = in_flight_given || key == "in_flight";
  }
  if (!in_flight_given) plan.in_flight = usual_in_flight(plan);
  if (1.0 * plan.pp * plan.dp * plan.kvp * plan.cp * plan.tpa > kMost || 1.0 * plan.ep * plan.tpf > kMost) {
    fail(fmt::format("plan \"{}\" is for more than {} GPUs", whole, kMost));
  }
  return plan;
}

}  // namespace shardline
