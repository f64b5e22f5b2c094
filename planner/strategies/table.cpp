#include "planner/strategies/table.hpp"

#include <array>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// In the order of reports; new rows go to the end.
constexpr std::array kStrategies{&kTensor,     &kPipeline,  &kDpEp,       &kKvShard,     &kHelix,
                                 &kRingPassKv, &kRingPassQ, &kRingDecode, &kAllgatherKv, &kUlysses,
                                 &kKvRunahead, &kTsp,       &kApb,        &kStar,        &kSparse,
                                 &kUsp,        &kStriped,   &kDcp};

}  // namespace

std::span<const Strategy* const> strategies() { return kStrategies; }

const Strategy& strategy(StrategyId id) { return *kStrategies[id]; }

std::optional<StrategyId> find_strategy(std::string_view name) {
  for (std::size_t i = 0; i < kStrategies.size(); ++i) {
    if (name == kStrategies[i]->name) return StrategyId(i);
  }
  return std::nullopt;
}

StrategyId id_of(const Strategy& row) {
  const auto at = std::find(kStrategies.begin(), kStrategies.end(), &row);
  SL_CHECK(at != kStrategies.end(), "the strategy stands in the table");
  return StrategyId(static_cast<std::size_t>(at - kStrategies.begin()));
}

StrategyId strategy_id(std::string_view name) {
  const std::optional<StrategyId> id = find_strategy(name);
  SL_CHECK(id.has_value(), "the strategy stands in the table");
  return *id;
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Strategy* s : kStrategies) names.emplace_back(s->name);
  return names;
}

const Strategy& strategy(const std::string& name) {
  if (const auto id = find_strategy(name)) return strategy(*id);
  throw UserError({Diagnostic{{}, "unknown strategy " + name, expected_one_of(name, strategy_names())}});
}

}  // namespace shardline
