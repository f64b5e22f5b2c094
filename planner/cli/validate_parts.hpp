// What `validate` of one paper and of all have in common.
#pragma once

#include <string>

#include "calibrate/validate/papers.hpp"
#include "planner/cli/commands.hpp"
#include "reports/plot.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

/// Steps of papers, until Ctrl-C, on the line of `progress`, which outlives them.
WorkSteps shown_on(StepProgress& progress);

/// Every table and note, for a terminal.
std::string terminal_text(const PaperReport& report);

/// Sets the document that --json asks for, if it does.
void set_document(std::span<const PaperReport> reports, const Provenance& made_by);

/// Every value of the reports, a line each.
std::string values_csv(std::span<const PaperReport> reports);

/// Predicted against published, both in the units of the legend, with the diagonal and +-10 %. Fitted values
/// and those left out have marks of their own; values that follow from others are not shown.
Plot scatter_plot(const PaperReport& report, const std::string& footnote);

/// `truth`: a file of published figures in place of the shipped ones, or empty. With a folder `out`, writes
/// context_parallel.csv and a plot.
int validate_context(const std::string& truth, const std::string& out, const Provenance& made_by);

/// `truth`: a file of measurements in place of the shipped ones, or empty. With a folder `out`, writes
/// kv_runahead.csv and a plot.
int validate_chain(const std::string& truth, const std::string& out, const Provenance& made_by);

/// Writes validation.md, a plot per paper and every value; prints the summary.
int validate_all(PaperOptions options, const std::filesystem::path& folder, const Provenance& made_by);

}  // namespace shardline::cli
