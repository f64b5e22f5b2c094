// What reports/accuracy.md says of sparse attention behind longer caches than those that were measured.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "calibrate/rows.hpp"
#include "calibrate/scores.hpp"
#include "calibrate/validate/accuracy.hpp"
#include "calibrate/validate/accuracy_parts.hpp"
#include "calibrate/withhold.hpp"
#include "sim/base/parallel.hpp"

namespace shardline::cli {

using namespace accuracy_parts;

namespace {

/// A block's kernel, with its rows by the engine that the calibration names, or by any.
struct SparseKernel {
  std::string system, model, layer;
  const Form* form;
  FormContext context;
  FitRows rows;
  bool prompts() const { return form->family == std::string_view("sparse_prefill"); }
};

void add_kernels(const MeasuredTables& m, const MeasurementTable& table, std::vector<SparseKernel>& out) {
  const Form* form = find_form(table.family->name);
  if (form == nullptr || (form->family != std::string_view("sparse_decode") &&
                          form->family != std::string_view("sparse_prefill")))
    return;
  const std::string& framework = m.system.calibration.framework;
  VariantRows all = rows_of(*form, m.system, table);
  for (const KernelFit& fit : m.system.calibration.fits) {
    const auto variant = all.variants.find(fit.words);
    if (fit.form != form || variant == all.variants.end()) continue;
    SparseKernel k{m.system.name, fit.words[0], fit.words[1], form, {}, {}};
    if (!form->context(fit.words, m.system, k.context)) continue;
    std::vector<std::size_t> own;
    const std::vector<std::string>& engines = all.engines[fit.words];
    for (std::size_t row = 0; row < engines.size(); ++row) {
      if (!of_another_engine(engines[row], framework)) own.push_back(row);
    }
    k.rows = variant->second.only(own);
    out.push_back(std::move(k));
  }
}

/// The errors of the kernels of one model's layer, by requests.
struct LayerErrors {
  std::size_t kernels = 0;
  std::array<std::vector<LongestOut>, kLongestFrom.size()> found;
};

// "-1 [-9, +12] 8": the median of kernels' medians, the lowest and the highest of these.
std::string text_of(std::vector<LongestOut> kernels) {
  if (kernels.empty()) return "-";
  std::sort(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) { return a.bias < b.bias; });
  std::size_t rows = 0;
  for (const LongestOut& l : kernels) rows += l.rows;
  const double median = (kernels[(kernels.size() - 1) / 2].bias + kernels[kernels.size() / 2].bias) / 2;
  return fmt::format("{:+.0f} [{:+.0f}, {:+.0f}] {}", 100 * median, 100 * kernels.front().bias,
                     100 * kernels.back().bias, rows);
}

// "87 % of 1,203 rows within 15 %"; empty without such rows.
std::string within_text(std::span<const SparseKernel> kernels, std::span<const std::vector<LongestOut>> found,
                        bool prompts) {
  double rows = 0, within = 0;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i].prompts() != prompts) continue;
    for (const LongestOut& l : found[i]) {
      rows += static_cast<double>(l.rows);
      within += l.within * static_cast<double>(l.rows);
    }
  }
  if (rows == 0) return "";
  return fmt::format(" {}: {:.0f} % of {:.0f} rows within 15 %.", prompts ? "Prompts" : "Decode",
                     100 * within / rows, rows);
}

}  // namespace

std::string longest_sparse_section(std::span<const MeasuredTables> measured, int threads) {
  constexpr double kQuarter = 2;  // doublings
  std::vector<SparseKernel> kernels;
  for (const MeasuredTables& m : measured) {
    std::vector<std::string> notes;  // calibrate says them
    const ScoredTables tables = with_scores_of_models(m.system, m.tables, notes);
    for (std::size_t i = 0; i < tables.size(); ++i) add_kernels(m, tables[i], kernels);
  }
  std::vector<std::vector<LongestOut>> found(kernels.size());
  parallel_for(0, kernels.size(), thread_count(threads), [&](std::size_t i, std::size_t) {
    const SparseKernel& k = kernels[i];
    found[i] = withhold_longest(*k.form, k.context, k.rows, kQuarter, {std::nullopt, {}, 4});
  });
  std::map<std::tuple<bool, std::string, std::string, std::string>, LayerErrors> layers;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (found[i].empty()) continue;
    const SparseKernel& k = kernels[i];
    LayerErrors& errors = layers[{k.prompts(), k.system, k.model, k.layer}];
    ++errors.kernels;
    for (const LongestOut& l : found[i]) {
      const auto at = std::find(kLongestFrom.begin(), kLongestFrom.end(), l.fewest);
      errors.found.at(static_cast<std::size_t>(at - kLongestFrom.begin())).push_back(l);
    }
  }
  if (layers.empty()) return "";
  std::vector<Row> table{{"Step", "System", "Block", "Kernels", "1", "2 to 4", "5 to 8", "more"}};
  for (const auto& [key, errors] : layers) {
    const auto& [prompts, system, model, layer] = key;
    Row row{prompts ? "prefill" : "decode", system, model + " " + layer, fmt::format("{}", errors.kernels)};
    for (const std::vector<LongestOut>& of : errors.found) row.push_back(text_of(of));
    table.push_back(std::move(row));
  }
  return "## Longest caches of sparse attention\n\n" +
         paragraph(R"(
The same of blocks of sparse attention, fitted to rows of up to a quarter of their length, by requests: the median over
a block's kernels (types of cache and of products) of their medians of predicted over measured less 1, the lowest and
the highest of these, in %, and the number of rows. The fits of prices saw these rows. What is known
of large errors: SGLang's MSA takes .29 ns more for each token up to 65,536 and .09 beyond (H200, one request), its
collector of DSA rebuilds metadata in each call behind more than 65,536 tokens ([H72] of `hardware/cost/forms/README.md`),
which shorter rows do not tell. Of the others nothing is: CSA and HCA by TensorRT-LLM and vLLM, prompts on GB200. What lies beyond all rows is extrapolated, in bands of the steps above ("Intervals", Beyond).)" +
                   within_text(kernels, found, false) + within_text(kernels, found, true)) +
         markdown(table);
}

}  // namespace shardline::cli
