// The part of reports/accuracy.md about engines: how far what they serve is from measurements.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <string_view>

#include "calibrate/validate/accuracy.hpp"
#include "calibrate/validate/served_fit.hpp"
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

// Beside the errors of the form that the source says those of the other one.
std::string form_text(const EngineProfile& p, const ServedDetails& details) {
  std::string out = fmt::format(
      "\nIts host works beside the kernels from version {} on: its source says so.\n", p.overlaps_since);
  for (const ServedError& e : details.other_host)
    out += fmt::format(
        "Had all rows the other kind of host, which their versions do not have: {} {:.1f} / {:.1f} %, bias "
        "{:+.1f} %.\n",
        e.of, 100 * e.median, 100 * e.p90, 100 * e.bias);
  return out;
}

// A bias of all rows that is small because models' cancel says nothing of the next model.
std::string cancelling_text(const std::vector<ServedError>& tables) {
  constexpr double kAimed = 0.03;
  std::string models;
  double low = 0, high = 0, all = 0;
  for (const ServedError& e : tables) {
    if (e.of == "TPOT of all rows") all = e.bias;
    if (e.of.find(" on ") == std::string::npos) continue;
    models += fmt::format("{}{:+.0f}", models.empty() ? "" : " / ", 100 * e.bias);
    low = std::min(low, e.bias);
    high = std::max(high, e.bias);
  }
  if (std::abs(all) > kAimed || !(low < -kAimed && high > kAimed)) return "";
  return fmt::format(
      "\nThe bias of all rows, {:+.1f} %, is small by cancellation: by model it is {} %.\nA model that was "
      "not "
      "measured may be off either way by as much.\n",
      100 * all, models);
}

// "0.12.0 (90 rows), 0.18.0 (44), not recorded (62)".
std::string versions_text(const EngineProfile& p, const ServedDetails& details) {
  if (details.versions.empty()) return "";
  std::string out;
  bool own = false;
  for (const MeasuredVersion& v : details.versions) {
    own = own || v.version == p.version;
    out += fmt::format("{}{} ({} row{})", out.empty() ? "" : ", ",
                       v.version.empty() ? "none recorded" : v.version, v.rows, v.rows == 1 ? "" : "s");
  }
  return fmt::format(
      "\nVersions that the rows name: {}.\n{}", out,
      own ? "" : fmt::format("The profile's rules are of {}, which none of them names.\n", p.version));
}

std::string few_users_text(const ServedBands& error) {
  for (const TtftBand& b : error.ttft_by_users) {
    if (b.lengths != "any") continue;
    if (b.models.size() > 1) return "";
    return fmt::format(
        "\nAll TTFT of at most four users are of {}: with it left out nothing fits `path`, which stays at "
        "the {:.0f} ms\n"
        "that a fit begins with, and the errors above are of that.\n",
        b.models.front(), 1e3 * kAssumedPath);
  }
  return "\nNo TTFT of at most four users was measured: `path` is assumed, and such a TTFT has no interval. "
         "Of "
         "the tables\n"
         "given no other has one of this engine: MLPerf's are TensorRT-LLM's, the traces of requests "
         "vLLM's.\n";
}

// "83 of 18": the part in % and the rows.
std::string covered_cell(const ServedDetails& details, const std::string& of) {
  const auto at = std::find_if(details.tpot_covered.begin(), details.tpot_covered.end(),
                               [&](const ServedCoverage& c) { return c.of == of; });
  return at == details.tpot_covered.end() ? "-" : fmt::format("{:.0f} of {}", 100 * at->covered, at->rows);
}

// TPOT by model and users: an average of all rows hides where bands are too narrow.
std::string tpot_coverage_table(const ServedDetails& details) {
  constexpr std::array kUsers{"at most 4 users", "5 to 16 users", "17 to 64 users", "above 64 users",
                              "any users"};
  if (details.tpot_covered.empty()) return "";
  std::string out =
      "\nHow many TPOT of a model left out lie inside the 90 % interval that the other models make, in % of "
      "so "
      "many rows:\n\n"
      "| Model | at most 4 users | 5 to 16 | 17 to 64 | above 64 | any |\n|---|---|---|---|---|---|\n";
  for (const ServedCoverage& c : details.tpot_covered) {
    const std::size_t begin = std::string_view("TPOT of ").size(), end = c.of.find(", any users");
    if (end == std::string::npos || c.of.find("as shown") != std::string::npos) continue;
    const std::string model = c.of.substr(begin, end - begin);
    out += "| " + model + " |";
    for (const char* users : kUsers)
      out += " " + covered_cell(details, fmt::format("TPOT of {}, {}", model, users)) + " |";
    out += "\n";
  }
  for (const ServedCoverage& c : details.tpot_covered) {
    if (c.of.find("as shown") != std::string::npos)
      out += fmt::format(
          "\nThe intervals that answers show are wider, since errors of kernels' prices are joined to these "
          "bands though rows\nof models left out have them, too: they hold {:.0f} % of the {} rows.\n",
          100 * c.covered, c.rows);
  }
  return out;
}

std::string coverage_table(const ServedDetails& details) {
  if (details.ttft_covered.empty()) return "";
  std::string out =
      "\nHow many TTFT of a model left out lie inside the 90 % interval that the other models make:\n\n"
      "| Rows | Number | Models | Inside, % |\n|---|---|---|---|\n";
  for (const ServedCoverage& c : details.ttft_covered)
    out += fmt::format("| {} | {} | {} | {} |\n", c.of, c.rows, c.models,
                       c.counted == 0       ? fmt::format("no others with {} rows", kFewestOfBand)
                       : c.counted < c.rows ? fmt::format("{:.0f} of the {} whose others have {} rows",
                                                          100 * c.covered, c.counted, kFewestOfBand)
                                            : fmt::format("{:.0f}", 100 * c.covered));
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
  for (const ServedLeftOut& l : details.left_out) {
    if (l.priced.rows > 0)
      out += fmt::format(
          "\nPriced all the same, by numbers that saw none of them, TPOT of these {} rows is {:.1f} / {:.1f} "
          "% "
          "off, bias {:+.1f} %.\n",
          l.priced.rows, 100 * l.priced.median, 100 * l.priced.p90, 100 * l.priced.bias);
  }
  return out;
}

}  // namespace

std::string engines_section(const std::filesystem::path& folder) {
  std::string out =
      "\n## Engines that serve\n\n"
      "TPOT and TTFT of measured closed loops, prompts on the same GPUs, by the fitted numbers of each "
      "profile "
      "in\n"
      "`planner/engines`. Errors are of rows of a model that the numbers were not fitted to: each model is "
      "left out in\n"
      "turn (calibrate/README.md [F10]). Fitted to are TPOT and the TTFT of at most four users. Aimed at: "
      "TPOT "
      "9 / 28 %,\n"
      "bias within 3 %, TTFT of at most four users 20 % in the median, an interval that covers 85 to 95 %.\n"
      "Whether a host works beside kernels or these wait for it is read in the engine's source, for the "
      "version of each\n"
      "row, and chosen by no row. Other choices are not blind to the models left out, since they were made "
      "by looking at\n"
      "such errors: what each version is started with, whether users stay in step or drift apart, which rows "
      "count for\n"
      "TTFT, no time per all-reduce (tried in four places, rejected; planner/README.md [P18]), and that "
      "SGLang's norms\n"
      "were looked up at all.\n"
      "*Memory-capped* rows are those whose users do not all fit into memory with whole answers, under "
      "engines "
      "that admit\n"
      "requests by what they use: these preempt some, which no price has. Their TTFT is in no band, and "
      "answers "
      "say of such\n"
      "plans that it has none.\n";
  for (const EngineProfile& p : load_engines(folder)) {
    out += fmt::format("\n### {} {}\n\nFitted to\n{}.\n", p.title, p.version, p.source);
    if (p.error.rows == 0) continue;
    out += fmt::format(
        "90 % interval of TPOT: {:+.0f} to {:+.0f} % of the prediction; that of the other models covers "
        "{:.1f} %.{}\n",
        100 * std::expm1(p.error.tpot.low), 100 * std::expm1(p.error.tpot.high), 100 * p.error.covered,
        ttft_text(p.error));
    out += error_table(p.error.tables);
    const ServedDetails details = load_served_details(folder / (p.name + ".yaml"));
    out += cancelling_text(p.error.tables) + versions_text(p, details);
    out += form_text(p, details) + few_users_text(p.error);
    out += tpot_coverage_table(details) + coverage_table(details);
    if (!details.layouts.empty())
      out += fmt::format("\nBy how models were laid out; of one model where {} rows or more were measured.\n",
                         kFewestLaidOut) +
             error_table(details.layouts);
    out += left_out_table(details, p.error.rows);
  }
  return out;
}

}  // namespace shardline::cli
