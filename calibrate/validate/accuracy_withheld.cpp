// What reports/accuracy.md says of prices where nothing was measured: on another machine, and of longer
// caches.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "calibrate/calibrate.hpp"
#include "calibrate/rows.hpp"
#include "calibrate/validate/accuracy.hpp"
#include "calibrate/validate/accuracy_parts.hpp"
#include "calibrate/withhold.hpp"
#include "hardware/cost/forms/split_rules.hpp"
#include "sim/base/parallel.hpp"

namespace shardline::cli {

using namespace accuracy_parts;

namespace {

/// What follows the first dot: whose kernels; empty: the system's own calibration.
std::string_view framework_of(const std::string& system) {
  const std::size_t dot = std::min(system.find('.'), system.size());
  return std::string_view(system).substr(dot);
}

// MLA's modules and searches of scales price nothing by themselves.
bool prices(const KernelFit& f) {
  return !f.words[0].starts_with("module") && f.form->family != std::string_view("quantize");
}

struct Priced {
  std::vector<double> predicted, measured;
  std::size_t covered = 0;
  void add(const PredictedRow& r) {
    predicted.push_back(r.predicted);
    measured.push_back(r.measured);
    covered += r.covered() ? 1 : 0;
  }
  Row row(const std::string& operation, const std::string& of, const std::string& by, const char* kin) const {
    const FitError e = summarise(predicted, measured);
    return {operation,
            of,
            by,
            kin,
            fmt::format("{}", e.rows),
            error_text(e),
            fmt::format("{:+.1f}", 100 * e.bias),
            fmt::format("{:.0f}", 100 * static_cast<double>(covered) / static_cast<double>(e.rows))};
  }
};

const char* text_of(MachineKin kin) {
  return kin == MachineKin::processor      ? "the same"
         : kin == MachineKin::architecture ? "another"
                                           : "another architecture";
}

// One processor: by operation. Others: together, for what they say is how wide bands are.
void add_borrowed(const MeasuredTables& rows, const System& lender, std::vector<Row>& table) {
  System s = rows.system;
  s.calibration = lender.calibration;
  s.calibration.like = lender.name;
  const MachineKin kin = s.calibration.kin(s, *s.calibration.fits.front().form);
  std::map<const Form*, Priced> families;
  Priced all;
  for (const PredictedRow& r : evaluate(s, s.calibration, rows.tables).rows) {
    const KernelFit& f = s.calibration.fits[r.fit];
    if (!prices(f)) continue;
    families[f.form].add(r);
    all.add(r);
  }
  if (all.measured.empty()) return;
  for (const AccuracyGoal& goal : accuracy_goals()) {
    const auto at = families.find(find_form(goal.family));
    if (kin == MachineKin::processor && at != families.end())
      table.push_back(at->second.row(goal.title, rows.system.name, lender.name, text_of(kin)));
  }
  table.push_back(all.row("all", rows.system.name, lender.name, text_of(kin)));
}

/// A decode kernel's rows of one table.
struct DecodeKernel {
  std::string system;
  const Form* form;
  std::vector<std::string> words;
  FormContext context;
  FitRows rows;
  SplitRule rule = SplitRule::saturating;  // how it splits sequences; saturating: not known
  bool known() const { return rule != SplitRule::saturating; }
  // Inside vLLM's CUDA graphs, where one sequence has 32 parts at most: F9 counts them apart.
  bool in_graph() const {
    return rule == SplitRule::flash_attention_3_graph || rule == SplitRule::flash_attention_3_latent_graph ||
           rule == SplitRule::flash_attention_4_graph;
  }
};

std::vector<DecodeKernel> decode_kernels(std::span<const MeasuredTables> measured) {
  std::vector<DecodeKernel> out;
  for (const MeasuredTables& m : measured) {
    for (const MeasurementTable& t : m.tables) {
      const Form* form = find_form(t.family->name);
      if (form == nullptr || (form->family != std::string_view("attention_decode") &&
                              form->family != std::string_view("mla_decode")))
        continue;
      for (auto& [words, rows] : rows_of(*form, m.system, t).variants) {
        DecodeKernel k{m.system.name, form, words, {}, std::move(rows)};
        if (words[0].starts_with("module") || !form->context(words, m.system, k.context)) continue;
        k.rule = split_rules(form->family, words, m.system).value_or(SplitRules{}).groups;
        out.push_back(std::move(k));
      }
    }
  }
  return out;
}

// "-1 [-9, +12] 8"
std::string longest_text(const std::vector<LongestOut>& found, double fewest) {
  for (const LongestOut& l : found) {
    if (l.fewest == fewest)
      return fmt::format("{:+.0f} [{:+.0f}, {:+.0f}] {}", 100 * l.bias, 100 * l.low, 100 * l.high, l.rows);
  }
  return "-";
}

// "29 kernels: median bias -1.4 %, 92 % of 156 rows within 15 %"; empty without such kernels.
std::string one_sequence(std::span<const DecodeKernel> kernels,
                         std::span<const std::vector<LongestOut>> found, bool in_graph) {
  std::vector<double> biases;
  double rows = 0, within = 0;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (!kernels[i].known() || kernels[i].in_graph() != in_graph) continue;
    for (const LongestOut& l : found[i]) {
      if (l.fewest != 1) continue;
      biases.push_back(l.bias);
      rows += static_cast<double>(l.rows);
      within += l.within * static_cast<double>(l.rows);
    }
  }
  if (biases.empty()) return "";
  std::sort(biases.begin(), biases.end());
  return fmt::format("{} kernels with a rule{}: median bias {:+.1f} %, {:.0f} % of {:.0f} rows within 15 %",
                     biases.size(), in_graph ? " inside CUDA graphs" : "", 100 * biases[biases.size() / 2],
                     100 * within / rows, rows);
}

std::string one_sequence(std::span<const DecodeKernel> kernels,
                         std::span<const std::vector<LongestOut>> found) {
  std::string out;
  for (const bool in_graph : {false, true}) {
    const std::string text = one_sequence(kernels, found, in_graph);
    if (!text.empty()) out += (out.empty() ? "" : "; ") + text;
  }
  return out.empty() ? "" : paragraph("One sequence, by fits to a quarter of its length. " + out + ".");
}

}  // namespace

std::string borrowed_section(std::span<const MeasuredTables> measured) {
  std::vector<Row> table{
      {"Operation", "Rows of", "By fits of", "Processor", "Rows", "Error", "Bias", "Covered"}};
  for (const MeasuredTables& rows : measured) {
    for (const MeasuredTables& lender : measured) {
      if (rows.system.name == lender.system.name || !lender.fitted() ||
          framework_of(rows.system.name) != framework_of(lender.system.name))
        continue;
      add_borrowed(rows, lender.system, table);
    }
  }
  if (table.size() == 1) return "";
  return "## Borrowed\n\n" + paragraph(R"(
Rows of one machine priced by the fits of another, as a system with `calibration: {like: ...}` is: error, bias and how
many rows in % lie inside the nominal 90 % interval, which is wider for what is borrowed (`hardware/README.md`, [H63]).
By operation where both have the same processor.)") +
         markdown(table) + paragraph(R"(
SGLang's products are the ones that H100 and H200 tell least of each other. 18 % of its bf16 rows of more than 1024
tokens are 12 % or more slower on H200 than H100's fit and its own say, spread over all m, n and k, and the types of one
shape do not go together: no rule of tiles or clocks, but scatter of the table, as cuBLAS's same call in
TensorRT-LLM's and vLLM's tables has no such tail (`calibrate/README.md`, [F11]).)");
}

std::string longest_section(std::span<const MeasuredTables> measured, int threads) {
  constexpr double kQuarter = 2;  // doublings
  const std::vector<DecodeKernel> kernels = decode_kernels(measured);
  std::vector<std::vector<LongestOut>> quarter(kernels.size()), eighth(kernels.size());
  const std::size_t count = thread_count(threads);
  parallel_for(0, 2 * kernels.size(), count, [&](std::size_t i, std::size_t) {
    const DecodeKernel& k = kernels[i / 2];
    const double doublings = i % 2 == 0 ? kQuarter : kQuarter + 1;
    (i % 2 == 0 ? quarter : eighth)[i / 2] =
        withhold_longest(*k.form, k.context, k.rows, doublings, {std::nullopt, {}, 4});
  });
  std::vector<Row> table{
      {"System", "Operation", "Variant", "Rule", "Up to", "1", "2 to 4", "5 to 8", "more"}};
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const DecodeKernel& k = kernels[i];
    for (const auto* found : {&quarter[i], &eighth[i]}) {
      if (found->empty()) continue;
      Row row{k.system, k.form->family, variant_name(k.words),
              !k.known()     ? "no"
              : k.in_graph() ? "in graphs"
                             : "yes",
              found == &quarter[i] ? "1/4" : "1/8"};
      for (const double fewest : kLongestFrom) row.push_back(longest_text(*found, fewest));
      table.push_back(std::move(row));
    }
  }
  if (table.size() == 1) return "";
  return "## Longest caches\n\n" + paragraph(R"(
The longest caches of decode attention, predicted by the form alone, fitted to rows of up to a quarter and an eighth of
their length: median, 5 % and 95 % of predicted over measured less 1, in %, and the number of rows, by thread-block rows
(sequences times KV heads, of MLA times tiles of 64 heads). Rule: how the kernel splits a sequence was read in its
source; one without may take far longer for one long sequence (`calibrate/README.md`, [F9]).)") +
         one_sequence(kernels, quarter) + markdown(table);
}

}  // namespace shardline::cli
