// Tables of context parallelism (arXiv 2411.01783) with the simulator's times, their notes and goals, as a
// PaperReport.
#pragma once

#include <string>

#include "calibrate/validate/context_report.hpp"
#include "calibrate/validate/paper_report.hpp"

namespace shardline {

/// The shipped tables, beside the catalogues.
std::filesystem::path shipped_context_truth(const Catalogs& catalogs);

/// The tables of `file` (empty: the shipped ones) with what the shipped ones mark as fitted. Throws
/// UserError.
ContextTruth context_truth_of(const std::string& file, const Catalogs& catalogs);

/// `report` is of `truth`; `file` as in context_truth_of().
PaperReport context_paper(const ContextTruth& truth, const ContextReport& report, const std::string& file);

/// Errors by group with kernels as solved from the paper's rows (`solved`) and as measured on other machines.
PaperSection measured_kernels_section(const ContextReport& solved, const ContextReport& measured);

/// What tells a row of a table apart: "h100-gtt tokens=8192 parallelism=TP8".
std::string row_key(TruthTableId id, const TruthRow& row);

}  // namespace shardline
