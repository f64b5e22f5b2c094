#include "calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>

#include "calibrate/derived.hpp"
#include "calibrate/kin.hpp"
#include "calibrate/left_out.hpp"
#include "calibrate/regimes.hpp"
#include "calibrate/rows.hpp"
#include "calibrate/scores.hpp"
#include "calibrate/withhold.hpp"
#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/split_rules.hpp"
#include "hardware/cost/price_interval.hpp"
#include "sim/base/asking.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/parallel.hpp"
#include "sim/base/read_text.hpp"

namespace shardline {

namespace {

constexpr std::size_t kRowsPerParameter = 4;

struct Work {
  const Form* form;
  std::vector<std::string> words;
  FitRows rows;
  std::string engine;                               // of the first row
  std::map<std::vector<double>, std::size_t> from;  // first table of each shape
  std::size_t repeated = 0;                         // rows of shapes that an earlier table has
  std::map<std::string, std::size_t> others;        // rows of other engines
  std::string derived;                              // KernelFit::derived

  // `framework`: whose rows are wanted; empty: those of the first row's engine.
  void add(const FitRows& r, const std::vector<std::string>& engines, std::size_t table,
           const std::string& framework) {
    rows.width = r.width;
    if (rows.seconds.empty()) engine = framework.empty() ? engines.at(0) : framework;
    CancelCheck check;
    for (std::size_t i = 0; i < r.size(); ++i) {
      check();
      const auto x = r.x(i);
      if (engines[i] != engine && (framework.empty() || !engines[i].empty())) {
        ++others[engines[i]];
      } else if (from.try_emplace({x.begin(), x.end()}, table).first->second != table) {
        ++repeated;
      } else {
        rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
        rows.seconds.push_back(r.seconds[i]);
      }
    }
  }
  void add_notes(std::vector<std::string>& notes) const {
    const std::string name = fmt::format("{} {}", form->family, variant_name(words));
    if (repeated > 0)
      notes.push_back(fmt::format("{}: {} rows left out, an earlier table has their shapes", name, repeated));
    const auto called = [](const std::string& e) { return e.empty() ? "an engine without a name" : e; };
    for (const auto& [other, count] : others)
      notes.push_back(fmt::format("{}: {} rows of {} left out, those of {} stand before them", name, count,
                                  called(other), called(engine)));
  }
};

using AllWork = std::map<std::pair<std::string, std::vector<std::string>>, Work>;

// [F8] Beside every FP8 product that finds the scale of its activation, the one to which it is known, unless
// that was measured too.
void add_static_products(const System& system, AllWork& all, std::vector<std::string>& notes) {
  std::vector<Work> added;
  for (const auto& [key, dynamic] : all) {
    if (key.first != kGemmForm.family || dynamic.words[0] != "fp8") continue;
    const std::vector<std::string> words{"fp8_static", dynamic.words[1]};
    const std::string engine(engine_of_gemm(dynamic.engine, dynamic.words[1]));
    const auto search = all.find({kQuantizeForm.family, {engine, "compute_scale", "fp8"}});
    FormContext context;
    if (all.contains({kGemmForm.family, words}) || search == all.end() ||
        !kGemmForm.context(words, system, context))
      continue;
    Work w;
    w.form = dynamic.form;
    w.words = words;
    w.engine = dynamic.engine;
    w.rows = static_products(dynamic.rows, search->second.rows, context);
    w.derived = fmt::format("gemm {} less quantize {}", variant_name(dynamic.words),
                            variant_name(search->second.words));
    notes.push_back(
        fmt::format("gemm {}: {} rows derived from {}", variant_name(words), w.rows.size(), w.derived));
    added.push_back(std::move(w));
  }
  for (Work& w : added) all.emplace(std::pair(kGemmForm.family, w.words), w);
}

double sum(const FitError& e) { return e.median + e.p90; }

// The grid that shapes choose: a dense one only where heads that are withheld whole do not speak against it,
// as it may learn by heart what the heads of a small table take.
CorrectionGrid grid_of_shapes(const Work& w, const FormContext& context, const CrossValidation& v,
                              Refit how) {
  if (!v.grid.dense()) return v.grid;
  const TriedCorrection* coarse = nullptr;
  for (const TriedCorrection& t : v.tried) {
    if (!t.grid.dense() && (coarse == nullptr || sum(t.error) < sum(coarse->error))) coarse = &t;
  }
  if (coarse == nullptr) return v.grid;
  const auto withheld = [&](const CorrectionGrid& grid) {
    how.grid = grid;
    return withhold_families(*w.form, context, w.rows, how);
  };
  const auto dense_band = withheld(v.grid), coarse_band = withheld(coarse->grid);
  const bool against = dense_band && coarse_band && sum(dense_band->error) > sum(coarse_band->error);
  return against ? coarse->grid : v.grid;
}

// No kernel is so far from all that forms say: a file that says so is refused where it is read.
void check_errors(const Work& w, const KernelFit& f) {
  constexpr double kMostError = 1e6;
  const double worst = std::max({f.roofline.worst, f.alone.worst, f.corrected.worst});
  if (!(worst <= kMostError))
    throw UserError(
        fmt::format("{} {}: measured times are up to {:.3g} times off what their shapes can take; "
                    "times are in us, shapes in elements",
                    w.form->family, variant_name(w.words), worst));
}

// Where the rows lie: ranges, and places near some row.
void measured_places(const Work& w, const FormContext& context, KernelFit& f) {
  const std::size_t axes = w.form->axes.size();
  if (const auto far = far_axis(*w.form)) f.far_axis = far->axis;
  f.range_low.assign(axes, HUGE_VAL);
  f.range_high.assign(axes, -HUGE_VAL);
  std::vector<double> coordinates;
  double at[kMostAxes];
  CancelCheck check;
  for (std::size_t i = 0; i < w.rows.size(); ++i) {
    check();
    w.form->coordinates(w.rows.x(i), context, at);
    coordinates.insert(coordinates.end(), at, at + axes);
    for (std::size_t a = 0; a < axes; ++a) {
      f.range_low[a] = std::min(f.range_low[a], at[a]);
      f.range_high[a] = std::max(f.range_high[a], at[a]);
    }
  }
  try {
    f.cells = MeasuredCells::of(axes, coordinates);
  } catch (const UserError& e) {
    throw UserError(
        fmt::format("{} {}: {}", w.form->family, variant_name(w.words), e.diagnostics().front().what));
  }
}

KernelFit fit_one(const System& system, const Work& w, const CalibrateOptions& o) {
  KernelFit f;
  f.form = w.form;
  f.words = w.words;
  f.derived = w.derived;
  FormContext context;
  w.form->context(w.words, system, context);
  // Experts are asked for of models that nobody measured, so that models choose. Heads come in a few widths
  // and groups, most of which tables have: there shapes choose.
  const bool experts = w.form->family == std::string_view("moe");
  const CrossValidation v =
      cross_validate(*w.form, context, w.rows, o.folds, o.fit, experts ? kCoarseGrids : grids_of(*w.form));
  f.roofline = v.roofline;
  f.alone = v.form;
  f.corrected = v.form;
  f.intervals = derived_intervals(0, 0);
  if (v.by_form.size() > 0) f.intervals = {held_out_band(v.by_form), {}, {}, false};
  const Regimes regimes = fit_regimes(*w.form, context, w.rows, o.fit);
  f.parameters = regimes.fit.parameters;
  f.low = regimes.fit.low;
  f.high = regimes.fit.high;
  Refit how{std::nullopt, o.fit, kRowsPerParameter, regimes.slow};
  const std::optional<FamilyChoice> models =
      experts ? choose_by_families(*w.form, context, w.rows, how) : std::nullopt;
  if (models) {
    how.grid = models->grid;
    f.intervals.family = models->band;
  } else if (v.corrected.rows > 0 && v.corrected.median + v.corrected.p90 < v.form.median + v.form.p90) {
    how.grid = grid_of_shapes(w, context, v, how);
  }
  if (how.grid) {
    f.correction =
        fit_correction(*w.form, context, w.rows.only(regimes.fast), f.parameters, *how.grid, o.fit);
    const auto tried = std::find_if(v.tried.begin(), v.tried.end(),
                                    [&](const TriedCorrection& t) { return t.grid == *how.grid; });
    f.corrected = tried->error;
    if (tried->residuals.size() > 0) f.intervals.inside = held_out_band(tried->residuals);
  }
  if (!models) f.intervals.family = withhold_families(*w.form, context, w.rows, how);
  f.intervals.slow = slow_tactics(*w.form, context, w.rows, regimes, f.correction);
  if (f.intervals.family && !f.intervals.slow) f.intervals.family->fast = {};
  check_errors(w, f);
  f.intervals.beyond = withhold_beyond(*w.form, context, w.rows, how);
  measured_places(w, context, f);
  return f;
}

void note_unknown_splits(const Form& form, const std::vector<std::string>& words, const System& system,
                         std::vector<std::string>& notes) {
  const std::string_view family = form.family;
  const bool decode = family == "attention_decode" || family == "mla_decode";
  const char* unknown = nullptr;
  if (decode && !split_rules(family, words, system))
    unknown =
        "how this kernel splits long sequences is not known: beyond its longest rows, one sequence alone may "
        "take far longer than the fit says";
  if (family == "attention_prefill" && !tile_split(words, system))
    unknown = "whether it splits the keys of few new tokens is not known: they may cost far less";
  if (unknown != nullptr) notes.push_back(fmt::format("{} {}: {}", family, variant_name(words), unknown));
}

}  // namespace

Calibrated calibrate(const System& system, std::span<const MeasurementTable> measured,
                     const CalibrateOptions& o) {
  Calibrated out;
  const ScoredTables tables = with_scores_of_models(system, measured, out.notes);
  AllWork work;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const MeasurementTable& table = tables[t];
    const Form* form = find_form(table.family->name);
    if (form == nullptr) {
      out.notes.push_back(fmt::format("{}: no form, {} rows left out", table.family->name, table.size()));
      continue;
    }
    VariantRows rows = rows_of(*form, system, table);
    if (rows.left_out > 0)
      out.notes.push_back(fmt::format("{}: {} rows left out (shapes or types that its form is not for)",
                                      table.family->name, rows.left_out));
    for (auto& [words, r] : rows.variants) {
      Work& w = work[{form->family, words}];
      w.form = form;
      w.words = words;
      w.add(r, rows.engines.at(words), t, o.framework);
    }
  }
  add_static_products(system, work, out.notes);
  add_kin(work, out.notes);
  std::vector<const Work*> list;
  for (const auto& [key, w] : work) {
    w.add_notes(out.notes);
    if (w.rows.size() == 0) continue;  // all of them of other frameworks
    note_unknown_splits(*w.form, w.words, system, out.notes);
    const std::size_t needed = kRowsPerParameter * told_parameters(*w.form, w.words, system, w.rows);
    if (w.rows.size() < needed) {
      out.notes.push_back(fmt::format("{} {}: {} rows are too few for a fit, {} are needed", w.form->family,
                                      variant_name(w.words), w.rows.size(), needed));
      continue;
    }
    list.push_back(&w);
  }
  if (list.empty())
    throw UserError({{{},
                      "no table has rows that a cost form can be fitted to" +
                          (o.framework.empty() ? "" : ": none are of " + o.framework),
                      out.notes}});
  out.calibration.machine = measured_machine(system);
  out.calibration.framework = o.framework;
  out.calibration.version_of_framework = o.version;
  std::vector<KernelFit> fits(list.size());
  parallel_for(0, list.size(), thread_count(o.threads), [&](std::size_t i, std::size_t) {
    if (o.step) o.step(list.size());
    fits[i] = fit_one(system, *list[i], o);
  });
  out.calibration.fits = std::move(fits);
  for (const KernelFit& f : out.calibration.fits)
    if (f.intervals.slow)
      out.notes.push_back(fmt::format("{}: {}", f.name(), slow_tactics_text(*f.intervals.slow)));
  return out;
}

namespace {

FitDistance distance_of_row(const KernelFit& f, MachineKin machine, std::span<const double> x,
                            const FormContext& context, std::span<const double> coordinates) {
  FitDistance d = distance_of(f, machine, f.outside(coordinates), coordinates);
  if (d.asks_fixed()) {
    const auto seconds = [&](const FormContext& c) { return f.form->seconds(x, c, f.parameters); };
    d.fixed = static_cast<float>(of_fixed_times(seconds(context), seconds(faster(context, kFaster))));
  }
  if (const auto& family = f.intervals.family)
    d.other_model = std::find(family->families.begin(), family->families.end(), model_family(*f.form, x)) ==
                    family->families.end();
  return d;
}

}  // namespace

Evaluation evaluate(const System& system, const Calibration& calibration,
                    std::span<const MeasurementTable> measured) {
  Evaluation out;
  const ScoredTables tables = with_scores_of_models(system, measured, out.notes);
  CancelCheck check;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const MeasurementTable& table = tables[t];
    const Form* form = find_form(table.family->name);
    std::map<std::string, std::size_t> without;
    if (form == nullptr) {
      out.notes.push_back(
          fmt::format("{}: no form, {} rows not predicted", table.family->name, table.size()));
      continue;
    }
    std::vector<const std::vector<double>*> numbers;
    std::vector<const std::vector<std::string>*> words;
    for (const char* column : form->numbers) numbers.push_back(&table.number(column));
    for (const char* column : form->words) words.push_back(&table.word(column));
    const MachineKin machine = calibration.kin(system, *form);
    std::vector<double> x(numbers.size());
    std::vector<std::string> variant(words.size());
    for (std::size_t row = 0; row < table.size(); ++row) {
      check();
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = (*numbers[i])[row];
      for (std::size_t i = 0; i < variant.size(); ++i) variant[i] = (*words[i])[row];
      name_hidden_kernel(*form, x, variant);
      const auto found =
          std::find_if(calibration.fits.begin(), calibration.fits.end(),
                       [&](const KernelFit& f) { return f.form == form && f.words == variant; });
      FormContext context;
      if (found == calibration.fits.end() || !form->covers(x) || !form->context(variant, system, context) ||
          of_another_engine(table, row, calibration.framework)) {
        ++without[variant_name(variant)];
        continue;
      }
      double at[kMostAxes];
      form->coordinates(x, context, at);
      const std::span coordinates(at, form->axes.size());
      const FitDistance distance = distance_of_row(*found, machine, x, context, coordinates);
      grow_asking(out.rows, 1);
      out.rows.push_back({t, row, static_cast<std::size_t>(found - calibration.fits.begin()),
                          table.median[row].value,
                          predict(*form, context, found->parameters, found->correction, x, coordinates),
                          !distance.measured(), band_of_price(*found, distance)});
    }
    for (const auto& [name, count] : without)
      out.notes.push_back(
          fmt::format("{} {}: {} rows not predicted: no fit, or shapes that the form is not for",
                      table.family->name, name, count));
  }
  return out;
}

std::vector<VariantErrors> errors_by_variant(const Calibration& calibration, const Evaluation& evaluation) {
  std::vector<VariantErrors> out;
  for (std::size_t i = 0; i < calibration.fits.size(); ++i) {
    check_cancelled();
    std::vector<double> predicted, measured;
    VariantErrors errors;
    errors.fit = i;
    for (const PredictedRow& r : evaluation.rows) {
      if (r.fit != i) continue;
      predicted.push_back(r.predicted);
      measured.push_back(r.measured);
      errors.extrapolated += r.extrapolated ? 1 : 0;
      errors.covered += r.covered() ? 1 : 0;
    }
    if (predicted.empty()) continue;
    errors.error = summarise(predicted, measured);
    out.push_back(errors);
  }
  return out;
}

std::string hash_of(std::span<const std::string> texts) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;  // a millisecond
  std::uint64_t h = 14695981039346656037ull;
  for (const std::string& text : texts) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (i % kPiece == 0) check_cancelled();
      h = (h ^ static_cast<unsigned char>(text[i])) * 1099511628211ull;
    }
    h = (h ^ 0x100) * 1099511628211ull;  // where one ends counts too
  }
  return fmt::format("{:016x}", h);
}

std::string hash_of_files(std::span<const std::filesystem::path> files) {
  std::vector<std::string> texts;
  for (const std::filesystem::path& file : files) texts.push_back(read_text(file, kLargestTable));
  return hash_of(texts);
}

}  // namespace shardline
