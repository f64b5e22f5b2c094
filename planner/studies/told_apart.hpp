// Which winners of a sweep are ahead by more than prices may be off. planner/README.md [P13].
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/studies/rated_points.hpp"

namespace shardline {

/// What one fit gets wrong in two plans: all the same, which cancels as far as both have the same part of it,
/// or nothing the same, as if it erred differently at every shape. The truth lies between.
enum class FitErrors : std::uint8_t { shared, unrelated };

/// The nominal 90 % band of ln(true ratio / ratio) of two times [H65].
ErrorBand ratio_band(const ErrorTerms& one, const ErrorTerms& other, FitErrors errors);

/// The nominal 90 % band of ln(true ratio / ratio) of what `metric` says of the two, the first over the
/// second; nothing where the metric does not depend on time.
std::optional<ErrorBand> ratio_band(const RatedPoints& rated, Metric metric, const Point& one,
                                    const Point& other, FitErrors errors = FitErrors::shared);

/// Whether errors of prices cannot have put the two in their order. Metrics that do not depend on time are
/// known.
bool told_apart(const RatedPoints& rated, Metric metric, const Point& one, const Point& other,
                FitErrors errors = FitErrors::shared);

/// Other strategies, in the order of the rated points, whose best point by `metric` among those that `counts`
/// may in truth be better than the winner. Exact strategies are compared with exact ones alone.
std::vector<StrategyId> maybe_better(const RatedPoints& rated, Metric metric, const Point& winner,
                                     const std::function<bool(const Point&)>& counts,
                                     FitErrors errors = FitErrors::shared);

}  // namespace shardline
