// The part of reports/accuracy.md about engines: how far what they serve is from measurements.
#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "calibrate/validate/accuracy.hpp"
#include "calibrate/validate/served_tables.hpp"
#include "planner/engines/profile.hpp"

namespace shardline::cli {

namespace {

std::string ttft_text(const ServedBands& error) {
  std::string out;
  for (const bool equal : {false, true}) {
    const ServedBand& b = error.ttft(equal);
    const char* lengths = equal ? "equal" : "drawn";
    out += b.rows == 0
               ? fmt::format("\nNo TTFT was measured with {} lengths.", lengths)
               : fmt::format("\n90 % interval of TTFT with {} lengths: {:+.0f} to {:+.0f} % ({} rows).",
                             lengths, 100 * std::expm1(b.band.low), 100 * std::expm1(b.band.high), b.rows);
  }
  return out;
}

std::string error_table(const std::vector<ServedError>& errors) {
  std::string out =
      "\n| Rows of models left out | Rows | Median, % | 90th percentile, % | Bias, % |\n"
      "|---|---|---|---|---|\n";
  for (const ServedError& e : errors)
    out += fmt::format("| {} | {} | {:.1f} | {:.1f} | {:+.1f} |\n", e.of, e.rows, 100 * e.median, 100 * e.p90,
                       100 * e.bias);
  return out;
}

// Beside the nested errors those whose form all rows chose.
std::string form_text(const ServedDetails& details) {
  std::string out;
  for (const ServedError& e : details.pooled)
    out += fmt::format(
        "\nWith the form chosen on all rows, those left out among them: {} {:.1f} / {:.1f} %, bias {:+.1f} "
        "%.\n",
        e.of, 100 * e.median, 100 * e.p90, 100 * e.bias);
  return out;
}

std::string few_users_text(const ServedBands& error) {
  for (const TtftBand& b : error.ttft_by_users) {
    if (b.lengths == "any") return "";
  }
  return "\nNo TTFT of at most four users was measured: `path` is assumed, and such a TTFT has no interval. "
         "Of "
         "the tables\n"
         "given no other has one of this engine: MLPerf's are TensorRT-LLM's, the traces of requests "
         "vLLM's.\n";
}

std::string coverage_table(const ServedDetails& details) {
  if (details.ttft_covered.empty()) return "";
  std::string out =
      "\nHow many TTFT of a model left out lie inside the 90 % interval that the other models make:\n\n"
      "| Rows | Number | Models | Inside, % |\n|---|---|---|---|\n";
  for (const ServedCoverage& c : details.ttft_covered)
    out += fmt::format("| {} | {} | {} | {} |\n", c.of, c.rows, c.models,
                       c.covered < 0 ? "no other model" : fmt::format("{:.0f}", 100 * c.covered));
  return out;
}

// Nothing that was measured is dropped in silence.
std::string left_out_table(const ServedDetails& details, int used) {
  if (details.measured == 0) return "";
  std::string out = fmt::format(
      "\nOf {} measured rows {} are used, {} of them for TPOT alone.\n", details.measured, used,
      std::accumulate(details.left_out.begin(), details.left_out.end(), 0,
                      [](int n, const ServedLeftOut& l) { return n + (l.ttft_alone ? l.rows : 0); }));
  if (details.left_out.empty()) return out;
  out += "\n| Left out | Rows | Why |\n|---|---|---|\n";
  for (const ServedLeftOut& l : details.left_out)
    out += fmt::format("| {} | {} | {} |\n", l.ttft_alone ? "TTFT" : "the row", l.rows, l.why);
  return out;
}

}  // namespace

std::string engines_section(const std::filesystem::path& folder) {
  std::string out =
      "\n## Engines that serve\n\n"
      "TPOT and TTFT of measured closed loops, prompts on the same GPUs, by the four numbers of each profile "
      "in\n"
      "`planner/engines`. Errors are of rows of a model that the numbers were not fitted to: each model is "
      "left out in\n"
      "turn (calibrate/README.md [F10]). Fitted to are TPOT and the TTFT of at most four users. Aimed at: "
      "TPOT "
      "9 / 28 %,\n"
      "bias within 3 %, TTFT of at most four users 20 % in the median, an interval that covers 85 to 95 %.\n"
      "Errors are nested: whether a prompt's token takes host time is chosen without the model left out, "
      "too.\n"
      "No row was measured on the version that a profile's rules are of: `assumes` says which ones were.\n";
  for (const std::string& name : engine_names(folder)) {
    const EngineProfile p = load_engine(engine_name(name), folder);
    out += fmt::format("\n### {} {}\n\nFitted to\n{}.\n", p.title, p.version, p.source);
    if (p.error.rows == 0) continue;
    out += fmt::format(
        "90 % interval of TPOT: {:+.0f} to {:+.0f} % of the prediction; that of the other models covers "
        "{:.0f} %.{}\n",
        100 * std::expm1(p.error.tpot.low), 100 * std::expm1(p.error.tpot.high), 100 * p.error.covered,
        ttft_text(p.error));
    out += error_table(p.error.tables);
    const ServedDetails details = load_served_details(folder / (p.name + ".yaml"));
    out += form_text(details) + few_users_text(p.error) + coverage_table(details);
    if (!details.layouts.empty())
      out += fmt::format("\nBy how models were laid out; of one model where {} rows or more were measured.\n",
                         kFewestLaidOut) +
             error_table(details.layouts);
    out += left_out_table(details, p.error.rows);
  }
  return out;
}

}  // namespace shardline::cli
