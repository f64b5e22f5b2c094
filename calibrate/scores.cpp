#include "calibrate/scores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "calibrate/fit.hpp"
#include "calibrate/rows.hpp"
#include "hardware/cost/forms/forms.hpp"
#include "sim/base/asking.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

// Of a row's time at least so much is left: its other kernels. No measured row comes near it.
constexpr double kLeast = 0.2;

bool of_blocks(const MeasurementTable& t) {
  return t.family->name == std::string_view("sparse_decode") ||
         t.family->name == std::string_view("sparse_prefill");
}

// One kernel on one kind of scores: measured rows, and a fit for shapes between them.
struct Selection {
  FormContext context;
  std::map<std::vector<double>, double> measured;
  std::vector<double> parameters;
  Correction correction;

  double seconds(const std::vector<double>& x) const {
    if (const auto found = measured.find(x); found != measured.end()) return found->second;
    return predict(kSparseKernelForm, context, parameters, correction, x);
  }
};

using Selections = std::map<std::pair<std::string, std::string>, Selection>;  // by op and model

Selections selections_of(const System& system, std::span<const MeasurementTable> tables) {
  constexpr CorrectionGrid kGrid{0.3, true};
  Selections out;
  for (const MeasurementTable& t : tables) {
    if (t.family->name != std::string_view(kSparseKernelForm.family)) continue;
    for (const auto& [words, rows] : rows_of(kSparseKernelForm, system, t).variants) {
      if (words[0].find("topk_") == std::string::npos || rows.size() < kSparseKernelForm.parameters.size())
        continue;
      Selection s;
      kSparseKernelForm.context(words, system, s.context);
      s.parameters = fit(kSparseKernelForm, s.context, rows).parameters;
      s.correction = fit_correction(kSparseKernelForm, s.context, rows, s.parameters, kGrid);
      for (std::size_t i = 0; i < rows.size(); ++i)
        s.measured.emplace(std::vector<double>(rows.x(i).begin(), rows.x(i).end()), rows.seconds[i]);
      out.emplace(std::pair(words[0], words[1]), std::move(s));
    }
  }
  return out;
}

struct Kinds {
  const Selection* flat = nullptr;
  const Selection* top = nullptr;
};
// V3.2 and GLM-5 select 2048 rows alike, so that any model's rows say it; DeepSeek-V4's models do not, and
// have one kernel for prompts and one for decode.
Kinds selection_of(const Selections& all, std::string_view model, std::string_view layer, bool decode) {
  const bool v4 = layer == "csa";
  if (!v4 && layer != "indexer") return {};
  const std::string name = v4 ? (decode ? "v4_topk_v2_" : "v4_topk_v1_") : "topk_";
  Kinds out;
  for (const auto& [key, s] : all) {
    if (v4 && key.second != model) continue;
    if (key.first == name + "flat") out.flat = &s;
    if (key.first == name + "top_last") out.top = &s;
  }
  return out;
}

// What the rows of a table of blocks became.
struct Changes {
  std::vector<std::pair<std::size_t, Seconds>> rows;
  std::size_t same_shape = 0;  // of them: both selections were measured in the row's own shape
  std::size_t flat = 0;        // others that score, of which too little was measured
};

Changes changes_of(const MeasurementTable& t, const Selections& all) {
  const bool decode = t.family->name == std::string_view("sparse_decode");
  const auto &models = t.word("model"), &layers = t.word("layer");
  const auto &batch = t.number("batch"), &keys = t.number(decode ? "kv_len" : "kv_cached");
  Changes out;
  CancelCheck check;
  for (std::size_t row = 0; row < t.size(); ++row) {
    check();
    const bool scores = layers[row] == "indexer" || layers[row] == "csa" || layers[row] == "msa";
    const Kinds kinds =
        t.engines[row] == "sglang" ? selection_of(all, models[row], layers[row], decode) : Kinds{};
    if (kinds.flat == nullptr || kinds.top == nullptr) {
      out.flat += scores ? 1 : 0;
      continue;
    }
    const std::vector<double> x = decode ? std::vector{batch[row], 1.0, keys[row]}
                                         : std::vector{batch[row], t.number("seq_q")[row], keys[row]};
    const double more = std::max(0.0, kinds.flat->seconds(x) - kinds.top->seconds(x));
    out.rows.emplace_back(row, Seconds(std::max(kLeast * t.median[row].value, t.median[row].value - more)));
    out.same_shape += kinds.flat->measured.contains(x) && kinds.top->measured.contains(x) ? 1 : 0;
  }
  return out;
}

template <class T>
std::vector<std::vector<T>> copied(const std::vector<std::vector<T>>& columns) {
  std::vector<std::vector<T>> out(columns.size());
  for (std::size_t i = 0; i < columns.size(); ++i) append_asking(out[i], columns[i]);
  return out;
}

// Asks whether to stop between pieces of it.
MeasurementTable copied(const MeasurementTable& t) {
  MeasurementTable out;
  out.family = t.family;
  out.provenance = t.provenance;
  out.notes = t.notes;
  out.numbers = copied(t.numbers);
  out.words = copied(t.words);
  append_asking(out.engines, t.engines);
  append_asking(out.versions, t.versions);
  append_asking(out.median, t.median);
  append_asking(out.low, t.low);
  append_asking(out.high, t.high);
  append_asking(out.samples, t.samples);
  append_asking(out.file_rows, t.file_rows);
  return out;
}

MeasurementTable changed(const MeasurementTable& t, const Changes& changes) {
  MeasurementTable out = copied(t);
  for (const auto& [row, seconds] : changes.rows) out.low[row] = out.high[row] = out.median[row] = seconds;
  return out;
}

}  // namespace

ScoredTables with_scores_of_models(const System& system, std::span<const MeasurementTable> tables,
                                   std::vector<std::string>& notes) {
  std::map<std::size_t, MeasurementTable> out;
  if (std::none_of(tables.begin(), tables.end(), of_blocks)) return {tables, std::move(out)};
  const Selections all = selections_of(system, tables);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const MeasurementTable& t = tables[i];
    if (!of_blocks(t)) continue;
    const Changes changes = changes_of(t, all);
    if (!changes.rows.empty()) {
      out.emplace(i, changed(t, changes));
      notes.push_back(
          fmt::format("{}: {} rows less what selecting takes more on flat scores, {} of them as "
                      "measured in the same shape",
                      t.family->name, changes.rows.size(), changes.same_shape));
    }
    if (changes.flat > 0)
      notes.push_back(
          fmt::format("{}: {} rows that select on flat scores as they are, for what that takes "
                      "more was not measured apart from them",
                      t.family->name, changes.flat));
  }
  return {tables, std::move(out)};
}

}  // namespace shardline
