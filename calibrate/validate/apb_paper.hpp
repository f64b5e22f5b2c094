// Tables of APB (arXiv 2502.12085) with the simulator's times, as a PaperReport.
#pragma once

#include "calibrate/validate/apb_truth.hpp"
#include "calibrate/validate/paper_report.hpp"
#include "calibrate/validate/work_steps.hpp"

namespace shardline {

/// Simulates every value of `truth`. Throws UserError with the first impossible plan, or if `steps`
/// do not go on.
PaperReport apb_paper(const ApbTruth& truth, const Catalogs& catalogs, const WorkSteps& steps = {});

}  // namespace shardline
