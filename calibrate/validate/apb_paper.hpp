// Tables of APB (arXiv 2502.12085) with the simulator's times, as a PaperReport.
#pragma once

#include <functional>

#include "calibrate/validate/apb_truth.hpp"
#include "calibrate/validate/paper_report.hpp"

namespace shardline {

/// Simulates every value of `truth`. Throws UserError with the first impossible plan, or if `go_on` returns
/// false.
PaperReport apb_paper(const ApbTruth& truth, const Catalogs& catalogs,
                      const std::function<bool()>& go_on = {});

}  // namespace shardline
