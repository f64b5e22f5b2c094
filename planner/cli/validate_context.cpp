#include <fmt/format.h>

#include "calibrate/validate/context_paper.hpp"
#include "planner/cli/terminal_parts.hpp"
#include "planner/cli/validate_parts.hpp"
#include "reports/atomic_file.hpp"
#include "reports/json.hpp"
#include "reports/output_folder.hpp"

namespace shardline::cli {

namespace {

std::string csv(const ContextTruth& truth, const ContextReport& report) {
  std::string out =
      csv_line({"table", "row", "quantity", "unit", "published", "ours", "error", "calibration", "standing"});
  for (const ComparedValue& v : report.values) {
    const TruthTable& table = *truth.find(v.table);
    const double unit = unit_seconds(table.unit);
    const TruthRow& row = table.rows[v.row];
    out += csv_line({to_string(v.table), row_key(v.table, row), to_string(v.column), table.unit,
                     fmt::format("{:.12g}", v.published.value / unit), number_text(v.ours.value / unit),
                     v.error() ? number_text(*v.error()) : "",
                     v.standing == Standing::calibration ? "1" : "0", to_string(v.standing)});
  }
  for (const ComparedFigure& f : report.figures)
    out += csv_line({"headline", f.published.id, f.published.id, f.published.unit,
                     number_text(f.published.value), number_text(f.ours),
                     number_text(f.ours / f.published.value - 1), "0", to_string(Standing::derived)});
  return out;
}

}  // namespace

int validate_context(const std::string& truth_file, const std::string& out, const Provenance& made_by) {
  const ContextTruth truth = context_truth_of(truth_file, shipped_catalogs());
  if (!out.empty()) make_output_folder(out);
  const ContextReport report = [&] {
    StepProgress progress("context_parallel", Progress::terminal(), "steps");
    return context_report(truth, simulated_times(shipped_catalogs()), shown_on(progress));
  }();
  const PaperReport paper = context_paper(truth, report, truth_file);
  print_notes("{}", terminal_text(paper));
  set_document({&paper, 1}, made_by);
  if (out.empty()) return 0;
  OutputFolder files(out);
  files.write("context_parallel.csv", csv(truth, report));
  files.draw(scatter_plot(paper, "shardline " + made_by.version + ": " + made_by.command),
             "context_parallel");
  print_notes("{}", files.publish(""));
  return 0;
}

}  // namespace shardline::cli
