// The text of reports/accuracy.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibrate/calibrate.hpp"
#include "calibrate/rows.hpp"
#include "calibrate/validate/accuracy.hpp"
#include "calibrate/validate/accuracy_parts.hpp"

namespace shardline::cli {

using namespace accuracy_parts;

namespace {

std::string worst_text(const FitError& e) { return e.rows == 0 ? "-" : fmt::format("{:.0f}", 100 * e.worst); }
std::string bias_text(const FitError& e) {
  if (e.rows == 0) return "-";
  const double tenths = std::round(1000 * e.bias);
  return tenths == 0 ? "0.0" : fmt::format("{:+.1f}", tenths / 10);
}
std::string verdict_text(Verdict v) {
  return v == Verdict::met ? "met" : v == Verdict::missed ? "MISSED" : "unknown";
}

// Ranges hold six digits of a logarithm: among the integers that this leaves open, the roundest.
double roundest(double v) {
  const double open = 4e-5 * v;
  for (double step = 1 << 20; step >= 1; step /= 2) {
    const double near = step * std::round(v / step);
    if (near > 0 && std::abs(near - v) <= open) return near;
  }
  return v;
}

std::string quantity(double v, bool bytes) {
  v = roundest(v);
  if (bytes) {
    static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    std::size_t unit = 0;
    for (; v >= 1024 && unit + 1 < std::size(kUnits); ++unit) v /= 1024;
    return fmt::format("{:.4g} {}", v, kUnits[unit]);
  }
  if (v >= 1e6) return fmt::format("{:.4g} M", v / 1e6);
  return v == std::round(v) ? fmt::format("{:.0f}", v) : fmt::format("{:.3g}", v);
}

std::string range_text(const KernelFit& f, std::size_t axis) {
  const std::string_view name = f.form->axes[axis].name;
  const bool bytes = name.find("bytes") != std::string_view::npos;
  // Decode without groups lies apart from all others, at a quarter.
  const double least = name == "group" ? 1 : 0;
  const std::string low = quantity(std::max(least, std::exp2(f.range_low[axis])), bytes);
  const std::string high = quantity(std::max(least, std::exp2(f.range_high[axis])), bytes);
  return low == high ? low : low + " to " + high;
}

std::string band_text(const PooledBand& b) {
  if (b.variants == 0) return "-";
  return fmt::format("{:+.0f}/{:+.0f}", 100 * std::expm1(b.band.low), 100 * std::expm1(b.band.high));
}
std::string covered_text(const PooledBand& b) {
  return b.covered < 0 ? "-" : fmt::format("{:.0f}", 100 * b.covered);
}

// Nothing where no calibration kept residuals.
std::string intervals(std::span<const System> systems) {
  std::vector<Row> table{
      {"Operation", "System", "Variants", "Shapes", "Covered", "Models", "Covered", "Beyond", "Covered"}};
  for (const AccuracyGoal& goal : accuracy_goals()) {
    for (const System& s : systems) {
      for (const FamilyAccuracy& a : accuracy_by_family(s.calibration)) {
        if (a.goal != &goal) continue;
        const FamilyIntervals i = pooled_intervals(a);
        if (i.inside.variants == 0) continue;
        table.push_back({goal.title, s.name, fmt::format("{}", i.inside.variants), band_text(i.inside),
                         covered_text(i.inside), band_text(i.family), covered_text(i.family),
                         band_text(i.beyond), covered_text(i.beyond)});
      }
    }
  }
  if (table.size() == 1) return "";
  return "## Intervals\n\n" + paragraph(R"(
Nominal 90 % of measured times lie this far from predictions, in % of them: from the 5 % to the 95 %
quantile of withheld rows, the mean of a family's variants by their rows. Withheld are shapes (the
folds of the errors above); all shapes of a model (its experts, or width and group of its heads) in
turn; the longest caches, from a quarter of their length on, or the largest groups, from half their
size on. Covered: part of these rows, in %, that bands of other withheld rows hold: of the other
folds, the other models; beyond the data, of the longest or largest by the steps before. Beyond is of up to four
steps of one doubling, holds zero, and is 1 + 0.5/steps times as wide.)") +
         markdown(table);
}

// Means of a family's variants by their rows; nothing where none kept such errors.
std::string mean_error(const FamilyAccuracy& a, const FitError FamilyBand::*which) {
  double rows = 0, median = 0, p90 = 0;
  for (const KernelFit* f : a.fits) {
    if (!f->intervals.family) continue;
    const FitError& all = f->intervals.family->error;
    const FitError& e = (*f->intervals.family).*which;
    const FitError& own = e.rows > 0 ? e : all;
    const auto n = static_cast<double>(own.rows);
    rows += n;
    median += n * own.median;
    p90 += n * own.p90;
  }
  return rows > 0 ? fmt::format("{:.1f}/{:.1f}", 100 * median / rows, 100 * p90 / rows) : "-";
}

// Of all operations and systems whose calibrations kept errors of withheld models.
std::string unseen_models(std::span<const System> systems) {
  std::vector<Row> table{{"Operation", "System", "Variants", "Unseen models", "Fast rows of them"}};
  std::string experts;
  for (const AccuracyGoal& goal : accuracy_goals()) {
    for (const System& s : systems) {
      for (const FamilyAccuracy& a : accuracy_by_family(s.calibration)) {
        if (a.goal != &goal) continue;
        const auto kept = std::count_if(a.fits.begin(), a.fits.end(), [](const KernelFit* f) {
          return f->intervals.family && f->intervals.family->error.rows > 0;
        });
        if (kept == 0) continue;
        const std::string error = mean_error(a, &FamilyBand::error);
        table.push_back(
            {goal.title, s.name, fmt::format("{}", kept), error, mean_error(a, &FamilyBand::fast)});
        if (goal.family == std::string_view("moe"))
          experts += fmt::format("{}{} % on {}", experts.empty() ? "" : ", ", error, s.name);
      }
    }
  }
  if (table.size() == 1) return "";
  return "## Unseen models\n\n" + paragraph(R"(
Errors on the shapes of a model, all of which are withheld and predicted from those of all others, in
turn: median/90th percentile in %, the mean of an operation's variants by their rows. The smoothing of
a correction is the one that does best here, so that these errors are somewhat optimistic too. Fast
rows: without the slow tactics of the next section.)") +
         (experts.empty() ? "" : paragraph("MoE on unseen models: " + experts + ".")) + markdown(table);
}

// Curves of kernels that a library's tuner chose badly.
std::string slow_tactics(std::span<const System> systems) {
  std::vector<Row> table{
      {"System", "Variant", "Rows, %", "Curves, %", "Times as long", "90th percentile", "Fast rows"}};
  const auto part = [](std::size_t of, std::size_t all) {
    return fmt::format("{:.1f}", 100 * static_cast<double>(of) / static_cast<double>(all));
  };
  for (const System& s : systems) {
    for (const KernelFit& f : s.calibration.fits) {
      const auto& slow = f.intervals.slow;
      if (!slow) continue;
      table.push_back({s.name, variant_name(f.words), part(slow->rows, slow->of_rows),
                       part(slow->curves, slow->of_curves), fmt::format("{:.1f}", slow->median),
                       fmt::format("{:.1f}", slow->p90),
                       f.intervals.family ? error_text(f.intervals.family->fast) : "-"});
    }
  }
  if (table.size() == 1) return "";
  return "## Slow tactics\n\n" + paragraph(R"(
Whole curves over tokens of some MoE kernels take far longer than a fit to the others says: a library's
tuner chose a slow kernel for them. Which ones is chance (the same shape is slow under one routing or on
one GPU, and fast under another), so that no rule predicts them. The fits are made of the others; prices
are those of the fast kernels. Where more than 5 % of the rows are slow, a price's interval reaches up to
the median of their times. All errors of this report but those of the fast rows count them as errors.)") +
         markdown(table);
}

std::string provenance(std::span<const System> systems, std::span<const BorrowedCalibration> borrowed) {
  std::string out = "## What was measured\n\n";
  std::vector<Row> table{{"System", "GPU", "Variants", "Rows", "Tables", "Fits", "Date", "Version"}};
  std::vector<std::pair<std::string, std::string>> sources;
  for (const System& s : systems) {
    const Calibration& c = s.calibration;
    std::size_t rows = 0;
    for (const KernelFit& f : c.fits) rows += f.corrected.rows;
    table.push_back({s.name, s.device.name, fmt::format("{}", c.fits.size()), fmt::format("{}", rows), c.hash,
                     fits_hash(c), c.date, c.version});
    const auto known =
        std::find_if(sources.begin(), sources.end(), [&](const auto& p) { return p.first == c.source; });
    if (known == sources.end()) {
      sources.emplace_back(c.source, s.name);
    } else {
      known->second += ", " + s.name;
    }
  }
  out += markdown(table);
  out += paragraph(R"(
Tables: hash of the measured tables. Fits: hash of what was fitted to them. Rows: those of the fits;
shapes that a form is not meant for are left out. Version: of shardline, which made the fits.)");
  for (const auto& [source, names] : sources)
    out += paragraph(fmt::format("Source of {}: {}.", names, source));
  for (const BorrowedCalibration& b : borrowed)
    out += paragraph(
        fmt::format("{} borrows the calibration of {}: its own errors are not known.", b.system, b.from));
  return out;
}

std::string method() {
  std::string out = "## How the errors are made\n\n";
  out += paragraph(R"(
By cross-validation over shapes: the shapes of a variant are dealt into folds (four, unless
calibrate was told otherwise) by a hash of their numbers; each fold in turn is withheld, everything
is fitted to the others, and the errors of all withheld rows are taken together.)");
  out += paragraph(R"(
What this tests is interpolation: shapes between those of the table, on the same GPU, library and
version. It does not test shapes beyond the table; the ranges below say where that begins. The errors
are somewhat optimistic: the forms were chosen while they were in view, and they also decide how
smooth a correction is and whether there is one. They are errors of single calls in a loop, not of a
whole model.)");
  out += paragraph(R"(
Columns below: *roofline* is `t0 + max(operations / (e_c peak), bytes / (e_m bandwidth))`, fitted
and withheld in the same way; *form* is the cost form of `hardware/cost/forms`; *corrected* is
the form times a smooth factor, kept only where it helps, and is what predictions use; *models* is its
error on unseen models, where it was kept; *worst* and *bias* (median of the signed error) are of the corrected form. Equations: `calibrate/README.md`.)");
  out += "## Goals\n\n";
  out += paragraph(R"(
What the project set itself after a first look at the same data, for shapes not used in the fit:
about what a formula with a table of its residuals reached there. Both numbers must hold, unrounded.)");
  std::vector<Row> goals{{"Operation", "Median, %", "90th percentile, %"}};
  const auto add = [&](const AccuracyGoal& g) {
    goals.push_back({g.title, fmt::format("{:.3g}", 100 * g.median), fmt::format("{:.0f}", 100 * g.p90)});
  };
  for (const AccuracyGoal& g : accuracy_goals()) {
    add(g);
    for (const AccuracyGoal& n : narrower_goals()) {
      if (n.family == std::string_view(g.family)) add(n);
    }
  }
  add(kBorrowedGoal);
  out += markdown(goals);
  out += "## To reproduce\n\n";
  out +=
      "```\n"
      "shardline calibrate FOLDER/SUBFOLDER --system SYSTEM --part -o hardware/calibrations/SYSTEM.yaml\n"
      "shardline accuracy --measurements FOLDER -o reports/accuracy.md\n"
      "```\n\n";
  out += paragraph(R"(
FOLDER has a subfolder of tables per system (`calibrate/README.md`); `accuracy` recognises each by
the hash above. `--measurements SYSTEM=FOLDER` compares a system with other tables. Without
`--measurements` the last section is left out.)");
  return out;
}

std::string axes(std::span<const System> systems) {
  std::vector<Row> table{{"Operation", "Column", "Counts"}};
  for (const AccuracyGoal& goal : accuracy_goals()) {
    const Form* form = find_form(goal.family);
    const bool used = std::any_of(systems.begin(), systems.end(), [&](const System& s) {
      return std::any_of(s.calibration.fits.begin(), s.calibration.fits.end(),
                         [&](const KernelFit& f) { return f.form == form; });
    });
    for (std::size_t a = 0; used && a < form->axes.size(); ++a)
      table.push_back({goal.title, form->axes[a].name, std::string(axis_meaning(*form, a))});
  }
  return "## Ranges of shapes\n\n" + paragraph(R"(
The last columns of the tables below: the least and the largest that the measured shapes had. Beyond
them a prediction is the form's extrapolation, with the correction of the nearest edge; `evaluate`
marks it so.)") +
         markdown(table);
}

std::string details(const System& s) {
  std::string out = fmt::format("## {}\n\n", s.name);
  for (const FamilyAccuracy& a : accuracy_by_family(s.calibration)) {
    out += fmt::format("### {}: {}, goal {}\n\n", s.name, a.goal->title, family_goals_text(*a.goal));
    Row header{"Variant", "Rows", "Roofline", "Form", "Corrected", "Models", "Worst", "Bias", "Goal"};
    const Form& form = *a.fits.front()->form;
    for (const FormAxis& axis : form.axes) header.emplace_back(axis.name);
    std::vector<Row> table{header};
    for (const KernelFit* f : a.fits) {
      Row row{variant_name(f->words),
              fmt::format("{}", f->corrected.rows),
              error_text(f->roofline),
              error_text(f->alone),
              error_text(f->corrected),
              f->intervals.family ? error_text(f->intervals.family->error) : "-",
              worst_text(f->corrected),
              bias_text(f->corrected),
              verdict_text(verdict(reported_error(*f), accuracy_goal(*f)))};
      for (std::size_t i = 0; i < form.axes.size(); ++i) row.push_back(range_text(*f, i));
      table.push_back(std::move(row));
    }
    out += markdown(table);
  }
  return out;
}

}  // namespace

std::string fits_hash(const Calibration& c) { return hash_of(std::vector<std::string>{calibration_yaml(c)}); }

std::string accuracy_report(std::span<const System> systems, std::span<const BorrowedCalibration> borrowed) {
  std::string out = "# Accuracy of calibrated costs\n\n";
  out += paragraph(R"(
How far predicted times of single kernels and collectives are from measured ones, for every system
of the catalogue that has a calibration of its own. Written by `shardline accuracy`, not edited by
hand; a test compares it with the calibrations.)");
  out += reached(systems) + glance(systems) + unseen_models(systems) + slow_tactics(systems) +
         intervals(systems) + provenance(systems, borrowed) + method() + axes(systems);
  for (const System& s : systems) out += details(s);
  return out;
}

std::string measured_section(std::span<const MeasuredTables> measured) {
  std::string out = fmt::format("{}\n\n", kMeasuredHeading);
  out += paragraph(R"(
Predictions of the calibrations above for every row of the tables given, all variants of a family
together. Tables that a calibration was fitted to are not held out: their errors are below those
above, and are held to no goal. Left out: rows without a fit, or of shapes that the form is not
meant for (`hardware/cost/forms`). Outside: rows beyond the range of shapes that was fitted.)");
  std::vector<Row> tables{{"System", "Tables", "Fits", "Tables are"}};
  std::vector<Row> table{
      {"Operation", "System", "Tables", "Rows", "Left out", "Outside", "Error", "Worst", "Bias", "Goal"}};
  std::vector<Evaluation> evaluations;
  std::vector<std::string> without;
  for (const MeasuredTables& m : measured) {
    tables.push_back({m.system.name, m.hash, fits_hash(m.system.calibration),
                      m.fitted()   ? "those it was fitted to"
                      : m.borrowed ? "new, calibration borrowed from another system"
                                   : "new"});
    evaluations.push_back(evaluate(m.system, m.system.calibration, m.tables));
    for (const MeasurementTable& t : m.tables) {
      if (find_form(t.family->name) == nullptr)
        without.push_back(fmt::format("{}: {}, {} rows", m.system.name, t.family->name, t.size()));
    }
  }
  for (const AccuracyGoal& family_goal : accuracy_goals()) {
    for (std::size_t i = 0; i < measured.size(); ++i) {
      const MeasuredTables& m = measured[i];
      const Form* form = find_form(family_goal.family);
      const AccuracyGoal& goal = m.borrowed ? kBorrowedGoal : family_goal;
      std::vector<double> predicted, times;
      std::size_t outside = 0, all = 0;
      for (const MeasurementTable& t : m.tables) all += find_form(t.family->name) == form ? t.size() : 0;
      for (const PredictedRow& r : evaluations[i].rows) {
        if (m.system.calibration.fits[r.fit].form != form) continue;
        predicted.push_back(r.predicted);
        times.push_back(r.measured);
        outside += r.extrapolated ? 1 : 0;
      }
      if (all == 0) continue;
      const FitError e = summarise(predicted, times);
      table.push_back({family_goal.title, m.system.name, m.fitted() ? "fitted" : "new",
                       fmt::format("{}", e.rows), fmt::format("{}", all - e.rows), fmt::format("{}", outside),
                       error_text(e), worst_text(e), bias_text(e),
                       m.fitted() ? "-" : goal_text(goal) + " " + verdict_text(verdict(e, goal))});
    }
  }
  out += markdown(tables) + markdown(table);
  if (!without.empty()) {
    std::string list;
    for (const std::string& w : without) list += (list.empty() ? "" : "; ") + w;
    out += paragraph("Families without a form, not predicted: " + list + ".");
  }
  return out;
}

}  // namespace shardline::cli
