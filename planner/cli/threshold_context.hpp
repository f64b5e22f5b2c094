// thresholds --trace: its options, and what is told of rules in context.
#pragma once

#include <optional>
#include <string>

#include "planner/api/thresholds.hpp"
#include "planner/studies/threshold_context.hpp"
#include "reports/cli/command.hpp"

namespace shardline::cli {

struct ContextOptions {
  std::string trace, chunk;
  std::optional<std::string> rate;
  std::optional<double> load;
  std::optional<long long> requests;
};
void add_context(Arguments& a, ContextOptions& o);
/// The question of the library that asks the same. Throws UserError for texts that are no rate or count.
api::ThresholdsQuestion asked_of(const std::string& scenario, const ContextOptions& o);

/// "all 12,031 requests of FILE, prompts of 12,035 tokens in the mean, ...": what rules in context are of.
std::string context_text(const ContextQuestion& question, const ContextStudy& found);
void print_context(const Study& study, const ContextQuestion& question, const ContextStudy& found);

}  // namespace shardline::cli
