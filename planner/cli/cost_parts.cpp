#include "planner/cli/cost_parts.hpp"

#include "reports/json.hpp"

namespace shardline::cli {

const std::vector<std::string>& cost_columns() {
  static const std::vector<std::string> columns{"board_w",
                                                "joules_per_token",
                                                "joules_per_token_low",
                                                "joules_per_token_high",
                                                "cost_per_million_tokens",
                                                "cost_per_million_tokens_low",
                                                "cost_per_million_tokens_high"};
  return columns;
}

std::vector<std::string> cost_cells(const PlanCost& cost) {
  std::vector<std::string> out{cost.watts ? number_text(cost.watts->value) : ""};
  for (const auto& number : {cost.joules, cost.per_million}) {
    for (const int end : {0, -1, 1}) {
      if (!number) {
        out.emplace_back();
        continue;
      }
      const double error = end == 0 ? 0 : end < 0 ? number->error.low : number->error.high;
      out.push_back(number_text(number->value * (1 + error)));
    }
  }
  return out;
}

}  // namespace shardline::cli
