// Parts of the text of reports/accuracy.md.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/validate/accuracy.hpp"

namespace shardline::cli::accuracy_parts {

using Row = std::vector<std::string>;

/// A table in Markdown, the first row its header, aligned, so that it reads well as it stands; columns of
/// numbers to the right.
std::string markdown(const std::vector<Row>& rows);
/// A paragraph, broken at spaces.
std::string paragraph(const std::string& text);
/// "3.1/9.8": median and 90th percentile in %.
std::string error_text(const FitError& error);
std::string goal_text(const AccuracyGoal& goal);
/// "3/10, 2.5/8": of a family, and behind it of its types with goals of their own.
std::string family_goals_text(const AccuracyGoal& family);

/// The section with the errors of all systems and frameworks.
std::string glance(std::span<const System> systems);

/// Errors of the withheld rows of several fits together, by what each keeps of its own (reported_error()): a
/// Weibull distribution through their median and 90th percentile, up to the worst. Exact for one fit; signs
/// are not kept, `bias` is 0.
FitError pooled_error(std::span<const KernelFit* const> fits);

/// The section with what is reached of the goals, by operation and framework. Empty without fits.
std::string reached(std::span<const System> systems);

}  // namespace shardline::cli::accuracy_parts
