// Goals of accuracy and what is reached, by operation and framework: a part of reports/accuracy.md.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/validate/accuracy_parts.hpp"

namespace shardline::cli::accuracy_parts {

namespace {

// Nominal 90 % bands are right where they hold so many of the rows that were left out, in %.
constexpr double kLeastCovered = 85, kMostCovered = 95;

// All variants of a family that were fitted to one framework's kernels, over all systems.
struct Reached {
  std::size_t variants = 0, met = 0;
  double rows = 0, median = 0, p90 = 0;
  FamilyIntervals all;  // sums, by rows, until covered()

  void add(const FamilyAccuracy& a) {
    for (const KernelFit* f : a.fits) {
      const FitError& e = reported_error(*f);
      const auto n = static_cast<double>(e.rows);
      ++variants;
      met += verdict(e, accuracy_goal(*f)) == Verdict::met ? 1 : 0;
      rows += n;
      median += n * e.median;
      p90 += n * e.p90;
    }
    const FamilyIntervals own = pooled_intervals(a);
    add(all.inside, own.inside);
    add(all.family, own.family);
    add(all.beyond, own.beyond);
  }

  Row row(const AccuracyGoal& goal, const std::string& framework) const {
    return {goal.title,
            framework,
            fmt::format("{} of {}", met, variants),
            rows > 0 ? fmt::format("{:.1f}/{:.1f}", 100 * median / rows, 100 * p90 / rows) : "-",
            family_goals_text(goal),
            covered(all.inside),
            covered(all.family),
            covered(all.beyond)};
  }

 private:
  static void add(PooledBand& sum, const PooledBand& one) {
    if (one.covered < 0) return;
    sum.covered = std::max(0.0, sum.covered) + static_cast<double>(one.rows) * one.covered;
    sum.rows += one.rows;
  }
  // Behind a number outside of what is right: "!".
  static std::string covered(const PooledBand& sum) {
    if (sum.rows == 0) return "-";
    const double part = 100 * sum.covered / static_cast<double>(sum.rows);
    const bool right = part >= kLeastCovered - 0.5 && part < kMostCovered + 0.5;
    return fmt::format("{:.0f}{}", part, right ? "" : " !");
  }
};

// What follows the first dot of a system's name; without one: its own kernels, and libraries'.
std::string framework_of(const std::string& system) {
  const std::size_t dot = system.find('.');
  return dot == std::string::npos ? "own" : system.substr(dot + 1);
}

}  // namespace

std::string reached(std::span<const System> systems) {
  std::vector<Row> table{
      {"Operation", "Framework", "Goal met", "Mean error", "Goal", "Shapes", "Models", "Beyond"}};
  std::vector<std::string> frameworks;
  for (const System& s : systems) {
    const std::string f = framework_of(s.name);
    if (std::find(frameworks.begin(), frameworks.end(), f) == frameworks.end()) frameworks.push_back(f);
  }
  for (const AccuracyGoal& goal : accuracy_goals()) {
    for (const std::string& framework : frameworks) {
      Reached sum;
      for (const System& s : systems) {
        if (framework_of(s.name) != framework) continue;
        for (const FamilyAccuracy& a : accuracy_by_family(s.calibration)) {
          if (a.goal == &goal) sum.add(a);
        }
      }
      if (sum.variants > 0) table.push_back(sum.row(goal, framework));
    }
  }
  if (table.size() == 1) return "";
  return "## Goals and what is reached\n\n" + paragraph(R"(
All systems together. Goal met: variants whose median and 90th percentile of withheld errors both meet it.
Mean error: median/90th percentile in %, the mean of the variants by their rows. Behind them the part of withheld
rows, in %, that nominal 90 % bands of other withheld rows hold, where shapes, models, or what lies
beyond the table are withheld; `!` where it is not 85 to 95.)") +
         markdown(table) + paragraph(R"(
Why goals are missed, as far as it is known. GEMM: rows of SGLang on all GPUs, and of FP8 and bf16 on GB200,
scatter by as much as the goal ("Scatter of the tables"); static FP8 there is a difference of two such
rows. Experts: libraries' tuners choose slow kernels for whole curves on Hopper ("Slow tactics"), and
kernels that were measured on two or three models say little of a fourth ("Seen" above, beside which
most meet the goal). Sparse attention beyond its longest rows: kernels change with the length, so that
steps of one doubling differ in sign, and no band of earlier ones foretells the next.)");
}

}  // namespace shardline::cli::accuracy_parts
