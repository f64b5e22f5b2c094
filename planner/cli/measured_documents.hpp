// Documents of calibrate, evaluate and accuracy: calibrate/ knows no result struct of planner/api.
#pragma once

#include <string>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "calibrate/validate/accuracy.hpp"
#include "calibrate/validate/served_fit.hpp"
#include "planner/api/evaluate.hpp"

namespace shardline::cli {

/// "gemm fp8 cublas", and that its rows were derived.
std::string display(const KernelFit& fit);

std::vector<api::FittedKernel> fitted_kernels(const Calibration& calibration);
api::EngineErrors engine_errors(const ServedBands& bands);
/// `without`: the model that was left out; empty: none.
api::HostTimes host_times(const HostTimes& host, const std::string& without);
/// Kernels and rows of a system's calibration, and where that is from.
api::EvaluateResult evaluate_result(const System& system, const Tables& tables, const Evaluation& found);
/// Systems, engines, what is borrowed and notes.
api::AccuracyResult accuracy_result(const AccuracyStudy& study, const std::filesystem::path& engines);

}  // namespace shardline::cli
