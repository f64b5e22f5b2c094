// The Helix paper's claims (arXiv 2507.07120v1) evaluated, and its figures and claims as a PaperReport.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/validate/helix.hpp"
#include "calibrate/validate/paper_report.hpp"
#include "calibrate/validate/work_steps.hpp"

namespace shardline {

/// A printed ratio or loss of Helix against the best baseline, and the range of ours that is the goal (high
/// 0: none).
struct HelixClaim {
  const char* name;
  double published;
  double FrontierRatios::*ours;
  bool percent;      // a loss; else a ratio
  double low, high;  // the goal
};
/// By catalogue name of the model; the Llama claims for any but DeepSeek-R1.
std::span<const HelixClaim> helix_claims(const std::string& model);

/// The strategies that the paper compares with for this model.
Study with_published_baseline(Study study);

/// The ratios of one study of `validate_helix`, with its system replaced.
FrontierRatios helix_ratios(Study study, const System& system);

/// Where the costs of a system come from.
struct HelixCosts {
  std::string name;
  System system;
};
/// "assumed parameters", the system without its calibration, then "measured costs", the system as it is; only
/// the first where nothing was calibrated.
std::vector<HelixCosts> helix_costs(const System& system);

struct HelixOptions {
  bool sensitivity = true;  // every setting of sensitivity_settings(); else the default one
  bool both_costs = false;  // also the claims under each of helix_costs()
  int threads = 0;          // 0: all cores
  WorkSteps steps = {};
  const Scenario* silicon = nullptr;  // the setting of TensorRT-LLM's measured runs; null: not compared
};
/// `scenario` holds the studies that are compared. Throws UserError if `steps` do not go on.
PaperReport helix_report(const Scenario& scenario, const HelixOptions& options);

}  // namespace shardline
