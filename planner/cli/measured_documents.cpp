#include "planner/cli/measured_documents.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "calibrate/rows.hpp"
#include "planner/engines/profile.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::cli {

namespace {

api::ErrorFigures figures(const FitError& e) { return {e.rows, e.median, e.p90, e.worst, e.bias}; }

// Of ln(measured / predicted), as measured / predicted - 1; of no rows nothing is known.
api::Band band_of(std::size_t rows, const ErrorBand& band, double covered) {
  api::Band out;
  out.rows = rows;
  if (rows == 0) return out;
  out.low = std::expm1(band.low);
  out.high = std::expm1(band.high);
  if (covered >= 0) out.covered = covered;
  return out;
}

api::Band band_of(const ServedBand& b) { return band_of(static_cast<std::size_t>(b.rows), b.band, -1); }

api::FittedKernel fitted_kernel(const KernelFit& f) {
  api::FittedKernel out;
  out.name = display(f);
  out.framework = f.framework;
  out.derived = !f.derived.empty();
  out.roofline = figures(f.roofline);
  out.form = figures(f.alone);
  out.corrected = figures(f.corrected);
  if (f.intervals.family) out.unseen_models = figures(f.intervals.family->error);
  out.knots = f.correction.values.size();
  out.interval = band_of(f.intervals.inside.rows, f.intervals.inside.band, f.intervals.inside.covered);
  for (std::size_t i = 0; i < f.parameters.size(); ++i)
    out.parameters.push_back(
        {f.form->parameters[i].name, f.parameters[i], f.low[i], f.high[i], f.form->parameters[i].unit});
  return out;
}

api::JudgedKernel judged_kernel(const KernelFit& f) {
  constexpr std::array kVerdicts{"met", "missed", "unknown"};
  const FitError& error = reported_error(f);
  const AccuracyGoal& goal = accuracy_goal(f);
  return {display(f),  figures(error), f.intervals.family && &error == &f.intervals.family->error,
          goal.median, goal.p90,       kVerdicts[static_cast<std::size_t>(verdict(error, goal))]};
}

void add_notes(const std::vector<std::string>& notes, std::vector<std::string>& out) {
  out.insert(out.end(), notes.begin(), notes.end());
}

}  // namespace

std::string display(const KernelFit& f) {
  return fmt::format("{} {}{}", f.form->family, variant_name(f.words), f.derived.empty() ? "" : " (derived)");
}

std::vector<api::FittedKernel> fitted_kernels(const Calibration& c) {
  std::vector<api::FittedKernel> out;
  for (const KernelFit& f : c.fits) out.push_back(fitted_kernel(f));
  return out;
}

api::EngineErrors engine_errors(const ServedBands& b) {
  api::EngineErrors out;
  for (const ServedError& e : b.tables) out.errors.push_back({e.of, e.rows, e.median, e.p90, e.bias});
  out.tpot = band_of(static_cast<std::size_t>(b.rows), b.tpot, b.covered);
  out.ttft_drawn = band_of(b.drawn);
  out.ttft_equal = band_of(b.equal);
  return out;
}

api::HostTimes host_times(const HostTimes& h, const std::string& without) {
  return {without, h.step.value, h.request.value, h.prompt_token.value, h.path.value};
}

api::EvaluateResult evaluate_result(const System& system, const Tables& tables, const Evaluation& found) {
  const Calibration& c = system.calibration;
  api::EvaluateResult out;
  out.system = system.name;
  out.source = c.source;
  out.hash = c.hash;
  out.date = c.date;
  for (const auto& [fit, error, outside, covered] : errors_by_variant(c, found))
    out.kernels.push_back({display(c.fits[fit]), figures(error), outside, covered});
  out.rows.reserve(found.rows.size());  // to move hundreds of thousands takes longer than a signal waits for
  CancelCheck check;
  for (const PredictedRow& r : found.rows) {
    check();
    out.rows.push_back(
        {tables.names[r.table],
         tables.tables[r.table].file_row(r.row),
         display(c.fits[r.fit]),
         r.measured,
         {r.predicted, r.predicted * std::exp(r.band.low), r.predicted * std::exp(r.band.high)},
         r.extrapolated});
  }
  add_notes(tables.notes, out.notes);
  for (const MeasurementTable& read : tables.tables) add_notes(read.notes, out.notes);
  add_notes(found.notes, out.notes);
  return out;
}

api::AccuracyResult accuracy_result(const AccuracyStudy& study, const std::filesystem::path& engines) {
  api::AccuracyResult out;
  for (const System& s : study.systems) {
    const Calibration& c = s.calibration;
    api::SystemAccuracy& system =
        out.systems.emplace_back(api::SystemAccuracy{s.name, c.source, c.hash, c.date, {}});
    for (const KernelFit& f : c.fits) system.kernels.push_back(judged_kernel(f));
  }
  for (const BorrowedCalibration& b : study.borrowed) out.borrowed.push_back({b.system, b.from});
  for (const EngineProfile& p : load_engines(engines))
    out.engines.push_back({p.name, p.version, engine_errors(p.error)});
  out.notes = study.notes;
  return out;
}

}  // namespace shardline::cli
