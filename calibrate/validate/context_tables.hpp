// The tables of a comparison with published times of context parallelism, cell by cell, and their notes.
#pragma once

#include <initializer_list>

#include "calibrate/validate/context_report.hpp"
#include "calibrate/validate/paper_report.hpp"

namespace shardline {

/// GTI over GTT up to which both count as scaling alike.
inline constexpr double kSameScalability = 1.05;

/// "Table 4", "headline"
std::string table_name(TruthTableId id);

/// "7 values, median 1.06 %, largest 4.80 %"
std::string summary_text(const ErrorSummary& summary);
/// Of the values of a table (nothing: of all) with these standings.
ErrorSummary summary_of(const std::vector<ComparedValue>& values, std::optional<TruthTableId> table,
                        std::initializer_list<Standing> standings);

/// One published table beside ours, with errors, winners and notes.
PaperSection context_table(const TruthTable& table, const ContextTruth& truth, const ContextReport& report);
/// Figures that follow from times, and the claim about GTI; as far as the report has them.
std::vector<PaperSection> headline_sections(const ContextReport& report);

}  // namespace shardline
