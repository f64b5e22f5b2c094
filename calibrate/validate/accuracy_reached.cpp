// Goals of accuracy and what is reached, by operation and framework: the head of reports/accuracy.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/validate/accuracy_parts.hpp"

namespace shardline::cli::accuracy_parts {

namespace {

// Nominal 90 % bands are right where they hold so many of the rows that were left out, in %.
constexpr double kLeastCovered = 85, kMostCovered = 95;

using Fits = std::vector<const KernelFit*>;

// Part of a fit's withheld rows whose error is at most `e`: a Weibull distribution through what is kept of
// them, the median and the 90th percentile, up to the worst. Of errors of fitted rows, all of which are
// known, it gives back the quantiles of 59 variants together (GEMM, attention, experts on GB200 and
// H100): 1.78/7.69 % where 1.79/7.61 % are right; the means by rows are 2.20/8.08 %.
double part_within(const FitError& error, double e) {
  if (e >= error.worst) return 1;
  if (!(error.median > 0) || error.p90 <= error.median) return e < error.median ? 0 : 0.9;
  const double power = std::log(std::log(10.) / std::log(2.)) / std::log(error.p90 / error.median);
  return 1 - std::exp2(-std::pow(e / error.median, power));
}

// Error that `part` of all fits' withheld rows do not exceed.
double pooled_quantile(const Fits& fits, double part) {
  double rows = 0, low = 0, high = 0;
  for (const KernelFit* f : fits) {
    rows += static_cast<double>(reported_error(*f).rows);
    high = std::max(high, reported_error(*f).worst);
  }
  for (int halving = 0; halving < 60; ++halving) {
    const double e = (low + high) / 2;
    double within = 0;
    for (const KernelFit* f : fits) {
      const FitError& error = reported_error(*f);
      within += static_cast<double>(error.rows) * part_within(error, e);
    }
    (within < part * rows ? low : high) = e;
  }
  return high;
}

// "holds", or by how many points of a percent each of the two is above its goal.
std::string reached_text(const FitError& pooled, const AccuracyGoal& goal) {
  if (verdict(pooled, goal) == Verdict::met) return "holds";
  const auto over = [](double error, double most) {
    return error > most ? fmt::format("+{:.1f}", 100 * (error - most)) : std::string("-");
  };
  return fmt::format("misses, {}/{}", over(pooled.median, goal.median), over(pooled.p90, goal.p90));
}

// Behind a number outside of what is right: "!".
std::string covered_text(const PooledBand& band) {
  if (band.covered < 0) return "-";
  const double part = 100 * band.covered;
  const bool right = part >= kLeastCovered - 0.5 && part < kMostCovered + 0.5;
  return fmt::format("{:.0f}{}", part, right ? "" : " !");
}

// What follows the first dot of a system's name; without one: its own kernels, and libraries'.
std::string framework_of(const std::string& system) {
  const std::size_t dot = system.find('.');
  return dot == std::string::npos ? "own" : system.substr(dot + 1);
}

// The fits of one goal and framework, over all systems.
Fits fits_of(std::span<const System> systems, const AccuracyGoal& goal, const std::string& framework) {
  Fits out;
  for (const System& s : systems) {
    if (framework_of(s.name) != framework) continue;
    for (const KernelFit& f : s.calibration.fits) {
      if (&accuracy_goal(f) == &goal) out.push_back(&f);
    }
  }
  return out;
}

// How many meet their goal by themselves.
std::size_t met_by(const Fits& fits, const AccuracyGoal& goal) {
  return static_cast<std::size_t>(std::count_if(fits.begin(), fits.end(), [&](const KernelFit* f) {
    return verdict(reported_error(*f), goal) == Verdict::met;
  }));
}

Row row_of(const AccuracyGoal& goal, const std::string& framework, const Fits& fits) {
  FamilyAccuracy all;
  all.goal = &goal;
  all.fits = fits;
  const FamilyIntervals bands = pooled_intervals(all);
  const FitError pooled = pooled_error(fits);
  return {goal.title,
          framework,
          fmt::format("{}", pooled.rows),
          error_text(pooled),
          goal_text(goal),
          reached_text(pooled, goal),
          fmt::format("{} of {}", met_by(fits, goal), fits.size()),
          covered_text(bands.inside),
          covered_text(bands.family),
          covered_text(bands.beyond)};
}

constexpr const char* kHow = R"(
All systems together. Rows: those that were withheld and predicted, of MoE experts with their whole model.
Error: the median and 90th percentile, in %, over all of these rows, whatever their variant; what each variant
keeps of its rows are their median, 90th percentile and worst error, through which a Weibull distribution is
laid. Reached: by how many points of a percent it is above its goal where it misses. Variants: so many
meet both goals by themselves. Then the part of withheld rows, in %, that nominal 90 % bands of other
withheld rows hold, where shapes, models, or what lies beyond the table are withheld; `!` where it is not 85
to 95. Of fits that another machine borrows, and of one long sequence: "Borrowed" and "Longest caches" below.)";

constexpr const char* kWhy = R"(
Why goals are missed, as far as it is known. GEMM: rows of SGLang on all GPUs, and of FP8 and bf16 on GB200,
scatter by as much as the goal ("Scatter of the tables"); static FP8 there is a difference of two such
rows, as is quantisation by vLLM, of .4 to .7 us. Experts: libraries' tuners choose slow kernels for whole curves
on Hopper ("Slow tactics"), and kernels that were measured on two or three models say little of a fourth ("Seen"
below, beside which most meet the goal). Beyond the longest rows kernels change with
the length, so that steps of one doubling differ in sign, and no band of earlier ones foretells the next.)";

}  // namespace

FitError pooled_error(std::span<const KernelFit* const> fits) {
  FitError out;
  const Fits all(fits.begin(), fits.end());
  for (const KernelFit* f : all) {
    out.rows += reported_error(*f).rows;
    out.worst = std::max(out.worst, reported_error(*f).worst);
  }
  if (out.rows == 0) return out;
  out.median = pooled_quantile(all, 0.5);
  out.p90 = pooled_quantile(all, 0.9);
  return out;
}

std::string reached(std::span<const System> systems) {
  std::vector<Row> table{{"Operation", "Framework", "Rows", "Error", "Goal", "Reached", "Variants", "Shapes",
                          "Models", "Beyond"}};
  std::vector<std::string> frameworks;
  for (const System& s : systems) {
    const std::string f = framework_of(s.name);
    if (std::find(frameworks.begin(), frameworks.end(), f) == frameworks.end()) frameworks.push_back(f);
  }
  std::size_t held = 0, met = 0, variants = 0;
  const auto add = [&](const AccuracyGoal& goal) {
    for (const std::string& framework : frameworks) {
      const Fits fits = fits_of(systems, goal, framework);
      if (fits.empty()) continue;
      table.push_back(row_of(goal, framework, fits));
      held += table.back()[5] == "holds" ? 1 : 0;
      met += met_by(fits, goal);
      variants += fits.size();
    }
  };
  for (const AccuracyGoal& goal : accuracy_goals()) {
    add(goal);
    for (const AccuracyGoal& narrower : narrower_goals()) {
      if (narrower.family == std::string_view(goal.family)) add(narrower);
    }
  }
  if (table.size() == 1) return "";
  return "## Goals and what is reached\n\n" +
         paragraph(fmt::format(
                       "{} of {} goals hold over the rows of all their variants together; of the {} variants "
                       "by themselves {} meet theirs.",
                       held, table.size() - 1, variants, met) +
                   kHow) +
         markdown(table) + paragraph(kWhy);
}

}  // namespace shardline::cli::accuracy_parts
