// Why some values of APB's paper lie far off, as tables computed from what is published.
#pragma once

#include "calibrate/validate/apb_model.hpp"
#include "calibrate/validate/paper_report.hpp"

namespace shardline {

/// What MINFERENCE's calls for one head of one layer take, by its authors' own times.
Seconds head_call(const ApbTruth& truth, const Catalogs& catalogs);

/// Those times beside ours, with and without the calls.
void add_head_calls(PaperReport& paper, const ApbTruth& truth, ApbModel& model);

/// What the paper's speeds leave for output tokens beside its own prefill times, and how much of our times
/// the one constant takes that stands for them.
void add_output_times(PaperReport& paper, const ApbTruth& truth, ApbModel& model);

/// "128K".
std::string length_text(long long tokens);

}  // namespace shardline
